"""`make gates`: what it reads out of the tools' texts, and that every budget can be broken. The kernels come later."""

import pathlib
import subprocess
import sys
from collections import Counter

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "gates"))

import check_gates
import machine_code
from budgets import broken_rules
from machine_code import Kernel

SYMBOL = "_ZN9ampscaler4cuda12stats_kernelINS0_8ReadOnlyELi512ELi120EEEvNS_4core9UnitTableIXT1_EEENS0_13PassArgumentsE"
RESOURCES = f"""
Fatbin elf code:
================
arch = sm_75
code version = [1,8]

Resource usage:
 Common:
  GLOBAL:0
 Function {SYMBOL}:
  REG:56 STACK:8 SHARED:1132 LOCAL:0 CONSTANT[2]:8 CONSTANT[0]:39448 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin elf code:
================
arch = sm_90
Resource usage:
 Function {SYMBOL}:
  REG:52 STACK:0 SHARED:2156 LOCAL:0 CONSTANT[0]:2296
"""
MACHINE_CODE = f"""
	code for sm_90
		Function : {SYMBOL}
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                /* 0x00000a00ff017b82 */
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;      /* 0x0000000402048981 */
        /*0020*/             @!UPT LDG.E.128.CONSTANT R4, [R2] ;         /* 0x0000000402048981 */
        /*0030*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;         /* 0x0000000000007b1d */
"""
PTX = f"""
.target sm_120
.visible .entry {SYMBOL}(
	.param .align 8 .b8 table[1936]
)
{{
	.local .align 8 .b8 	__local_depot0[16];
	ld.global.v4.u32 	{{%r1, %r2, %r3, %r4}}, [%rd1];
	@%p1 bar.sync 	0;
	membar.gl;
{{ // callseq 0, 0
}}
	atom.global.inc.u32 	%r5, [%rd2], %r6;
}}
.func  (.param .b64 result) pow(
)
{{
	bar.sync 	0;
}}
"""


def test_resources_are_read_by_architecture():
    found = [(k.name, k.arch, k.registers, k.stack, k.shared) for k in machine_code.resources(RESOURCES)]
    name = "stats_kernel<ReadOnly, 512, 120>"
    assert found == [(name, "sm_75", 56, 8, 1132), (name, "sm_90", 52, 0, 1132)]


def test_operations_are_counted():
    (kernel,) = machine_code.machine_code(MACHINE_CODE)
    assert kernel.operations == {"LDC": 1, "LDG.E.128": 1, "LDG.E.128.CONSTANT": 1, "BAR.SYNC.DEFER_BLOCKING": 1}
    (kernel,) = machine_code.ptx(PTX)
    assert kernel.name == "stats_kernel<ReadOnly, 512, 120>"
    assert [kernel.operations[name] for name in (".local", "ld.global.v4.u32", "bar.sync", "atom.global.inc.u32")] == [
        1
    ] * 4


def good_kernel():
    operations = {"LDG.E.128": 22, "BAR.SYNC.DEFER_BLOCKING": 6, "MEMBAR.SC.GPU": 2, "ATOMG.E.INC.STRONG.GPU": 1}
    return Kernel("stats_kernel<ReadOnly, 512, 120>", "sm_90", 64, 0, 0, 2048, Counter(operations))


def test_a_good_kernel_keeps_its_budgets():
    assert broken_rules(good_kernel()) == []


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("registers", 65, "65 registers, at most 64"),
        ("stack", 8, "8 bytes of stack, at most 0"),
        ("local", 1, "1 bytes of local memory, at most 0"),
        ("shared", 2049, "2049 bytes of shared memory, at most 2048"),
        ("name", "new_kernel<512>", "no rules for this kernel in tests/gates/budgets.py"),
        ("operations", Counter(), "no operations were found"),
    ],
)
def test_each_resource_has_a_limit(field, value, text):
    kernel = good_kernel()
    setattr(kernel, field, value)
    assert text in broken_rules(kernel)


@pytest.mark.parametrize(
    ("operation", "number", "text"),
    [
        ("LDG.E.128", 14, "14 16-byte loads, at least 15"),
        ("STG.E.128", 1, "1 16-byte stores, at most 0"),
        ("LDL.64", 1, "1 local memory, at most 0"),
        ("STL", 2, "2 local memory, at most 0"),
        ("BAR.SYNC.DEFER_BLOCKING", 5, "5 barriers, exactly 6"),
        ("MEMBAR.SC.GPU", 1, "1 fences, exactly 2"),
        ("ATOMG.E.INC.STRONG.GPU", 0, "0 block counters, exactly 1"),
    ],
)
def test_each_count_has_a_limit(operation, number, text):
    kernel = good_kernel()
    kernel.operations[operation] = number
    assert broken_rules(kernel) == [text]


def test_tools_that_are_missing_are_named(monkeypatch):
    monkeypatch.setattr(machine_code, "tool_folders", list)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(machine_code.MissingToolError, match="pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"):
        machine_code.tool_environment()


@pytest.mark.parametrize(
    ("code", "said", "complaints"),
    [
        (0, "a.h:1:1: warning: x", []),
        (1, "a.h:1:1: error: x\nmore", ["a.h:1:1: error: x"]),
        (1, "error: no such file", ["clang-tidy ended with exit code 1: error: no such file"]),
        (-11, "", ["clang-tidy ended with exit code -11: "]),
    ],
)
def test_a_linter_that_fails_is_never_silent(code, said, complaints):
    assert check_gates.complaints(subprocess.CompletedProcess([], code, "", said)) == complaints


def test_defects_of_no_such_name_are_an_error(capsys, monkeypatch):
    import check_mutants

    monkeypatch.setattr(sys, "argv", ["check_mutants.py", "--build", "nowhere", "--only", "no such defect"])
    with pytest.raises(SystemExit) as error:
        check_mutants.main()
    assert error.value.code == 2
    assert "no defect has 'no such defect' in its name" in capsys.readouterr().err


def test_every_kernel_is_compiled_for_every_architecture():
    cache = "A:BOOL=1\nCMAKE_CUDA_ARCHITECTURES:STRING=75-real;90-real;120-virtual\nB:PATH=/\n"
    expected = check_gates.architectures(cache)
    assert expected == {"sm_75", "sm_90", "ptx"}
    kernels = [Kernel("a", "sm_75"), Kernel("a", "sm_90"), Kernel("a", "ptx"), Kernel("b", "sm_90")]
    assert check_gates.left_out(kernels[:3], expected) == []
    assert check_gates.left_out(kernels, expected) == ["b: not compiled for ptx", "b: not compiled for sm_75"]
    assert check_gates.left_out(kernels, check_gates.architectures("A:BOOL=1")) == ["the build names no architecture"]


def test_the_size_of_the_library_is_limited(tmp_path):
    (tmp_path / "csrc").mkdir()
    library = tmp_path / "csrc/libampscaler.so"
    library.write_bytes(b"")
    assert check_gates.check_size(tmp_path) == []
    with library.open("r+b") as file:
        file.truncate(20_000_001)
    assert check_gates.check_size(tmp_path) == ["the library has 20000001 bytes"]


def test_a_folder_without_a_build_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["check_gates.py", "--build", str(tmp_path)])
    assert check_gates.main() == 1
    assert "is no finished build" in capsys.readouterr().out
