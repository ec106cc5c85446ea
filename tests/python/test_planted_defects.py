"""The defects of `make mutants` and `make gates` can still be planted: each line they replace is there, exactly once.

`make mutants` finds that out too, but after minutes; who changes a kernel learns it here.
"""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "simt"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "gates"))

import check_mutants
import planted
from mutations import MUTATIONS, Mutation

WITH_A_LINE = [mutation for mutation in MUTATIONS if mutation.file] + [planted.SPILLS, planted.NARROW]


@pytest.mark.parametrize("mutation", WITH_A_LINE, ids=lambda mutation: mutation.name)
def test_the_line_occurs_once(mutation: Mutation) -> None:
    hits = check_mutants.lines_to_replace(mutation)
    assert len(hits) == 1, (
        f"{mutation.file} has {len(hits)} lines {mutation.line!r}: to be put right where it is planted"
    )


def test_a_line_that_is_gone_is_told() -> None:
    gone = Mutation("gone", "grad_stats_kernel_test", (), "csrc/core/unit_table.h", "int no_such_line;", "")
    assert check_mutants.lines_to_replace(gone) == []


@pytest.mark.parametrize(
    ("file", "text"), [(None, "is no finished build"), ("compile_commands.json", "makes store_kernels_test")]
)
def test_an_unfinished_build_is_refused_before_anything_is_planted(tmp_path, monkeypatch, capsys, file, text):
    if file:
        command = "g++ -o tests/CMakeFiles/simt_mutant_test.dir/a.o -c a.cpp"
        (tmp_path / file).write_text(json.dumps([{"command": command, "file": "a.cpp"}]))
    monkeypatch.setattr(sys, "argv", ["check_mutants.py", "--build", str(tmp_path), "--only", "sums of products"])
    with pytest.raises(SystemExit) as stopped:
        check_mutants.main()
    assert stopped.value.code == 2 and text in capsys.readouterr().err


def test_names_are_unique() -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names)
