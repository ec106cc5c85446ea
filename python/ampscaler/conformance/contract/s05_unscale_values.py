"""Section 5: every gradient is unscaled once, to the bit, and every inf and NaN is seen, wherever it lies in memory."""

from __future__ import annotations

from typing import Any

import torch

from ampscaler.conformance.case import Case
from ampscaler.conformance.contract.s13_tools import product
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, NAN, inverse, scaler_dtypes, sparse

SCALE = 3000.0  # no power of two: a division, or a second rounding, would be seen
SIZES = (1, 2, 3, 7, 8, 9, 31, 33, 65, 257, 4097)
LARGE = 100001
MANY = 131  # a prime, so that whoever takes so many gradients at a time has some left at the end


def random(case: Case, size: int, dtype: torch.dtype) -> torch.Tensor:
    """Values of all magnitudes between 1e-3 and 1e3."""
    exponents = torch.rand(size, dtype=torch.float64) * 6 - 3
    signs = torch.randint(0, 2, (size,)) * 2 - 1
    return (signs * 10**exponents).to(dtype).to(case.device)


def unscaled(gradient: torch.Tensor) -> torch.Tensor:
    """What unscaling at SCALE should give."""
    return product(gradient, inverse(SCALE))


@behaviour(
    "S5.15",
    "unscale_() unscales every gradient once, also beside an inf or NaN, which stay; views are written through, and "
    "the gaps between their elements neither changed nor looked at",
)
def every_element_is_unscaled(case: Case) -> None:
    for dtype in scaler_dtypes(case):
        gradients = [random(case, size, dtype) for size in (*SIZES, LARGE, 5)]
        expected = [unscaled(gradient) for gradient in gradients]
        scaler, optimizer = case.ready_scaler(SCALE), case.sgd(*gradients[:4])
        optimizer.add_param_group({"params": [case.parameter(gradient) for gradient in gradients[4:]]})
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        for gradient, right, parameter in zip(gradients, expected, case.parameters(optimizer), strict=True):
            case.same(parameter.grad, gradient, "gradient")
            _equal_values(case, gradient, right, f"{gradient.numel()} values of {dtype} unscaled at {SCALE}")
            case.true(torch.equal(parameter, 1 - right), "the step applies the gradients, unscaled no second time")
    for dtype in scaler_dtypes(case):
        for size in SIZES:
            _one_bad_element(case, dtype, size)
    for bad in (0, LARGE // 2, LARGE - 1):
        gradient = torch.ones(LARGE, device=case.device)
        gradient[bad] = NAN
        _is_skipped(case, case.sgd([1.0], gradient, [1.0]), f"NaN at {bad} of {LARGE}")
    for bad in range(3):
        groups = [{"params": [case.parameter([8.0, INF if place == bad else 8.0])]} for place in range(3)]
        optimizer = case.optimizer(torch.optim.SGD(groups, lr=1.0))
        _is_skipped(case, optimizer, f"inf in group {bad}")
        case.equal(case.gradients(optimizer), [[2.0, INF if place == bad else 2.0] for place in range(3)], "gradients")
    _views_are_written_through(case)
    _many_gradients(case, torch.float32, None)
    for dtype in scaler_dtypes(case):
        _many_gradients(case, dtype, MANY - 1)


def _equal_values(case: Case, got: torch.Tensor, right: torch.Tensor, what: str) -> None:
    if not torch.allclose(got, right, rtol=0, atol=0, equal_nan=True):  # quick, where there are many values
        case.equal(got, right, what)


def _one_bad_element(case: Case, dtype: torch.dtype, size: int) -> None:
    for position, value in ((0, INF), (size // 2, -INF), (size - 1, NAN)):
        gradients = [torch.full((each,), 8.0, dtype=dtype, device=case.device) for each in (3, size, 2)]
        gradients[1][position] = value
        expected = [gradient * 0.25 for gradient in gradients]
        _is_skipped(case, case.sgd(*gradients), f"{value} at {position} of {size} values of {dtype}")
        for gradient, right in zip(gradients, expected, strict=True):
            _equal_values(case, gradient, right, f"gradients beside {value}, of size {gradient.numel()}")


def _is_skipped(case: Case, optimizer: Any, what: str) -> None:
    scaler = case.ready_scaler(4.0)
    scaler.step(optimizer)
    for parameter in case.parameters(optimizer):
        case.true(bool((parameter == 1).all()), f"{what}: the step is skipped")
    scaler.update()
    case.equal(scaler.get_scale(), 2.0, f"{what}: scale")


def _many_gradients(case: Case, dtype: torch.dtype, bad: int | None) -> None:
    scaled = [INF if place == bad else 4.0 * place for place in range(MANY)]
    scaler, optimizer = case.ready_scaler(4.0), case.sgd(*(case.tensor([value], dtype) for value in scaled))
    scaler.step(optimizer)
    what = f"of {MANY} in {dtype}, {'the last inf' if bad else 'all finite'}"
    case.equal(case.gradients(optimizer), [[value / 4.0] for value in scaled], f"gradients {what}")
    stepped = [[1.0 if bad else 1.0 - place] for place in range(MANY)]
    case.equal(case.values(optimizer), stepped, f"parameters {what}")
    scaler.update()
    case.equal(scaler.get_scale(), 2.0 if bad else 4.0, f"scale {what}")


def _views_are_written_through(case: Case) -> None:
    spaced = case.tensor([8.0, INF] * 40)
    wide, bucket = case.tensor([[8.0, NAN, 16.0]] * 5), case.tensor([8.0] * 7 + [NAN] + [16.0] * 9 + [INF])
    channels = torch.full((2, 3, 4, 5), 8.0, device=case.device).to(memory_format=torch.channels_last)
    transposed = case.tensor([[8.0, 16.0, 24.0], [32.0, 40.0, 48.0]]).t()
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd(spaced[::2], wide[:, ::2], bucket[:7], bucket[8:17], channels, transposed)
    scaler.step(optimizer)
    case.equal(spaced, case.tensor([2.0, INF] * 40), "every second element")
    case.equal(wide, case.tensor([[2.0, NAN, 4.0]] * 5), "every second column")
    case.equal(bucket, case.tensor([2.0] * 7 + [NAN] + [4.0] * 9 + [INF]), "slices of a bucket")
    case.equal(channels, torch.full((2, 3, 4, 5), 2.0, device=case.device), "channels last")
    case.equal(transposed, case.tensor([[2.0, 8.0], [4.0, 10.0], [6.0, 12.0]]), "transposed")
    case.equal(case.values(optimizer)[0], [-1.0] * 40, "parameters: what lies in the gaps does not count")
    for bad in (0, 4, 8):
        spaced = case.tensor([8.0] * 18)
        spaced[2 * bad] = INF
        _is_skipped(case, case.sgd(spaced[::2], [8.0]), f"inf at {bad} of a spaced view")


@behaviour(
    "S5.16",
    "unscale_() does not bump the version counters of gradients and flags, so that a gradient with a graph is "
    "edited silently and stays usable in a second backward",
)
def versions_are_not_bumped(case: Case) -> None:
    bucket = case.tensor([8.0, 8.0, INF])
    gradients = [
        case.tensor([8.0]),
        bucket[:2],
        sparse(case, [1, 1], [8.0, 4.0]),
        case.tensor([8.0], torch.float64),
        bucket[2:],
    ]
    gradients[0].add_(0.0)
    versions = [gradient._version for gradient in gradients]
    scaler, optimizer = case.ready_scaler(4.0), case.sgd(*gradients)
    scaler.unscale_(optimizer)
    case.equal([gradient._version for gradient in gradients], versions, "version counters of the gradients")
    case.equal(versions[0], 1, "version counter of a gradient that was edited before")
    case.equal(gradients[0], case.tensor([2.0]), "gradient")
    if case.private:
        record = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        case.equal([(flag.item(), flag._version) for flag in record.values()], [(1.0, 0)], "flag and its version")
    weight = torch.nn.Parameter(case.tensor([3.0]))
    (gradient,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)  # 27 = 3 weight**2
    penalty = (gradient * gradient).sum()  # its backward reads the gradient once more
    weight.grad = gradient
    case.ready_scaler(4.0).unscale_(case.optimizer(torch.optim.SGD([weight], lr=1.0)))
    case.equal(gradient.detach(), case.tensor([6.75]), "gradient with a graph")
    case.true(gradient.grad_fn is not None, "the gradient keeps its graph")
    (second,) = torch.autograd.grad(penalty, weight)
    case.equal(second, case.tensor([243.0]), "second backward: 2 * 6.75 * 6 * 3")


@behaviour(
    "S5.17",
    "A gradient that is mentioned twice, by two optimizers, in two groups or by two parameters, is unscaled twice",
)
def shared_gradients_are_unscaled_per_mention(case: Case) -> None:
    scaler, shared = case.ready_scaler(SCALE), random(case, 300, torch.float32)
    once = unscaled(shared)
    twice = unscaled(once)
    first, second = case.sgd(shared), case.sgd(shared)
    scaler.unscale_(first)
    case.equal(shared, once, "gradient of two optimizers after the first")
    scaler.unscale_(second)
    case.equal(shared, twice, "gradient of two optimizers after the second")
    shared = case.tensor([16.0])
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd(shared)
    optimizer.add_param_group({"params": [case.parameter(shared), case.parameter([16.0])]})
    scaler.unscale_(optimizer)
    case.equal(case.gradients(optimizer), [[1.0], [1.0], [4.0]], "gradients of two groups")
    optimizer = case.sgd([16.0], shared, shared)
    scaler.unscale_(optimizer)
    case.equal(case.gradients(optimizer), [[4.0], [0.0625], [0.0625]], "gradients of two parameters")
    same = case.parameter([16.0])
    scaler.unscale_(case.optimizer(torch.optim.SGD([same, same], lr=1.0)))
    case.equal(same.grad, case.tensor([1.0]), "gradient of a parameter that is listed twice")
