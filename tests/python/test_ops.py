"""torch.ops.ampscaler.*: opcheck, the Meta kernels, which backend runs, dispatcher errors, version counters."""

import os
import subprocess
import sys

import pytest
import torch

import ampscaler
from stats_cases import OVER_GRADIENTS

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
CUDA = pytest.param("cuda", marks=pytest.mark.cuda)
ops = torch.ops.ampscaler


def scalars(device):
    found_inf = torch.zeros((), device=device)
    return found_inf, torch.full((), 0.25, device=device)


def gradient_lists(dtype, device):
    """The lists of tensors that every operator must take."""
    base = torch.randn(6, 8, device=device).to(dtype)
    return {
        "one": [base.clone()],
        "many": [base.clone(), base[0].clone(), torch.ones(0, dtype=dtype, device=device)],
        "empty": [],
        "zero_dim": [torch.ones((), dtype=dtype, device=device)],
        "transposed": [base.clone().t()],
        "sliced": [base.clone()[:, ::2]],
    }


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("dtype", DTYPES)
def test_unscale_passes_opcheck(dtype, device):
    for grads in gradient_lists(dtype, device).values():
        torch.library.opcheck(ops.unscale_.default, (grads, *scalars(device)))


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_update_scale_passes_opcheck(device):
    scale = torch.full((), 4.0, device=device)
    tracker = torch.zeros((), dtype=torch.int32, device=device)
    found_inf = torch.ones((), device=device)
    arguments = (scale, tracker, found_inf, 2.0, 0.5, 2000)
    torch.library.opcheck(ops.update_scale_.default, arguments)


def test_the_stateless_operators_pass_opcheck():
    grads = [torch.randn(3), torch.randn(2, 2)]
    torch.library.opcheck(ops.unscale_gradients.Scalar, (grads, 2.0))
    torch.library.opcheck(ops.unscale_gradients.Tensor, (grads, torch.full((), 2.0)))
    torch.library.opcheck(ops.global_grad_norm.default, (grads,))


@pytest.mark.parametrize("name", ["unscale_", "update_scale_"])
@pytest.mark.parametrize("key", ["CPU", "Meta"])
def test_kernels_are_registered(name, key):
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"ampscaler::{name}", key)


def loops_in_use(**environment):
    """What another process says, as the choice is made once: (return code, name or the last line of its error)."""
    program = "from ampscaler import _C; print(_C.cpu_kernels())"
    variables = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True)
    return done.returncode, (done.stdout or done.stderr).strip().splitlines()[-1]


def test_the_environment_chooses_the_loops_of_the_cpu():
    assert loops_in_use(AMPSCALER_CPU_ISA="baseline") == (0, "baseline")
    code, error = loops_in_use(AMPSCALER_CPU_ISA="sse9")
    assert code == 1 and error.startswith("ValueError: AMPSCALER_CPU_ISA: expected one of baseline")
    code, widest = loops_in_use(AMPSCALER_CPU_ISA="")
    assert code == 0 and error.endswith(f"{widest} on this machine, got 'sse9'")


def test_a_build_with_cuda_has_kernels_and_says_so_without_a_gpu():
    from ampscaler import _build_info

    with_cuda = bool(_build_info.CUDA_MAJOR)
    assert ampscaler._C.has_unscale_kernel("cuda") == with_cuda
    for name in ["unscale_", "update_scale_", "advance_scale_", *OVER_GRADIENTS]:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"ampscaler::{name}", "CUDA") == with_cuda, name


def test_meta_tensors_compute_nothing():
    grads = [torch.ones(3, device="meta")]
    found_inf, inv_scale = scalars("meta")
    assert ops.unscale_(grads, found_inf, inv_scale) is None
    tracker = torch.zeros((), dtype=torch.int32, device="meta")
    assert ops.update_scale_(found_inf, tracker, inv_scale, 2.0, 0.5, 3) is None


def test_a_meta_argument_turns_the_call_into_nothing_as_in_torch():
    grad = torch.ones(3)
    ops.unscale_([grad], torch.zeros((), device="meta"), torch.full((), 0.5))
    assert torch.equal(grad, torch.ones(3))


def error_of(call):
    with pytest.raises(Exception) as caught:
        call()
    return type(caught.value), str(caught.value).split("\n")[0]


@pytest.mark.parametrize(
    "grads",
    [
        [torch.ones(2, dtype=torch.complex64)],
        [torch.ones(0, dtype=torch.int64)],
        [torch.ones(2).to(torch.float8_e5m2)],
        [torch.ones(1).expand(4)],
        [torch.ones(2), torch.ones(2, dtype=torch.bool)],
    ],
    ids=["complex", "int", "float8", "expanded", "second"],
)
def test_refused_gradients_raise_what_torch_raises(grads):
    found_inf, inv_scale = scalars("cpu")
    aten = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_
    ours = error_of(lambda: ops.unscale_(grads, found_inf, inv_scale))
    assert ours == error_of(lambda: aten(grads, found_inf, inv_scale))


@pytest.mark.parametrize(
    "grads",
    [
        [torch.ones(2).to_sparse()],
        [torch.ones(2, 2).to_sparse_csr()],
        [torch._neg_view(torch.ones(2))],
    ],
    ids=["coo", "csr", "negated"],
)
def test_the_dispatcher_refuses_what_it_refuses_for_torch(grads):
    found_inf, inv_scale = scalars("cpu")
    aten = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_
    ours = error_of(lambda: ops.unscale_(grads, found_inf, inv_scale))
    theirs = error_of(lambda: aten(grads, found_inf, inv_scale))
    rename = ("aten::_amp_foreach_non_finite_check_and_unscale_", "ampscaler::unscale_")
    assert ours[0] is theirs[0]
    assert ours[1][:60] == theirs[1].replace(*rename)[:60]


def test_version_counters_are_those_of_torch():
    grad, scale = torch.ones(2), torch.full((), 4.0)
    tracker = torch.zeros((), dtype=torch.int32)
    found_inf, inv_scale = scalars("cpu")
    before = [tensor._version for tensor in (grad, found_inf, scale, tracker)]
    ops.unscale_([grad], found_inf, inv_scale)
    ops.update_scale_(scale, tracker, found_inf, 2.0, 0.5, 2000)
    after = [tensor._version for tensor in (grad, found_inf, scale, tracker)]
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 0, 1, 0]


def test_a_late_backward_after_an_update_fails():
    loss, scale = torch.ones((), requires_grad=True), torch.full((), 4.0)
    scaled = loss * scale
    tracker = torch.zeros((), dtype=torch.int32)
    ops.update_scale_(scale, tracker, torch.zeros(()), 2.0, 0.5, 2000)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        scaled.backward()


def test_a_growth_interval_must_be_an_int():
    scale, tracker = torch.ones(()), torch.zeros((), dtype=torch.int32)
    with pytest.raises(RuntimeError, match="growth_interval"):
        ops.update_scale_(scale, tracker, torch.zeros(()), 2.0, 0.5, 3.0)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("inv_scale", [1.0, 0.5, 1 / 3000, 4.0, 0.0, float("inf"), float("nan")])
def test_cuda_matches_aten_to_the_bit(dtype, inv_scale):
    values = torch.randn(100_001, device="cuda").mul_(1000).to(dtype)
    for planted in (None, float("inf"), float("-inf"), float("nan")):
        lists = []
        for _ in range(2):
            grads = [values[:size].clone() for size in (0, 1, 7, 4096, 4097, 100_001)]
            if planted is not None:
                grads[-1][-1] = planted
            lists.append(grads)
        flags = [torch.zeros((), device="cuda") for _ in range(2)]
        inverse = torch.full((), inv_scale, device="cuda")
        ops.unscale_(lists[0], flags[0], inverse)
        torch._amp_foreach_non_finite_check_and_unscale_(lists[1], flags[1], inverse)
        assert flags[0].item() == flags[1].item() == float(planted is not None)
        for ours, theirs in zip(*lists, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.cuda
def test_cuda_takes_bfloat16_strided_and_mixed_lists():
    base = torch.full((64, 64), 8.0, device="cuda")
    grads = [
        base.to(torch.bfloat16),
        base.clone()[:, ::2],
        base.double(),
        base.half(),
        base.clone().t(),
    ]
    versions = [grad._version for grad in grads]
    found_inf, inv_scale = scalars("cuda")
    ops.unscale_(grads, found_inf, inv_scale)
    assert all(bool((grad == 2.0).all()) for grad in grads)
    assert [grad._version for grad in grads] == versions
    assert found_inf.item() == 0.0


@pytest.mark.cuda
def test_cuda_update_scale_matches_aten():
    for found in (0.0, 1.0, float("nan")):
        for tracker_value in (0, 1, 2, 5, 2**31 - 1):
            results = []
            for update in (ops.update_scale_, torch._amp_update_scale_):
                scale = torch.full((), 3e38, device="cuda")
                tracker = torch.full((), tracker_value, dtype=torch.int32, device="cuda")
                update(scale, tracker, torch.full((), found, device="cuda"), 1.1, 0.3, 3)
                results.append((scale.item(), tracker.item()))
            assert results[0] == results[1]


@pytest.mark.cuda
def test_cuda_scalars_elsewhere_are_refused_by_name():
    grad = torch.ones(2, device="cuda")
    with pytest.raises(RuntimeError, match="unscale_: found_inf: expected a tensor on cuda:0"):
        ops.unscale_([grad], torch.zeros(()), torch.ones((), device="cuda"))
    assert torch.equal(grad, torch.ones(2, device="cuda"))
