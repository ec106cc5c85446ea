"""Section 11: what torch's own fused optimizers do with the scale and the flag that the scaler hands them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ampscaler.conformance.case import Case, NotApplicable
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, fused_names, inverse
from ampscaler.conformance.tools_texts import NO_ROOM_FOR_ONE

ON_CPU = ("cpu",)
COUNTING = ("Adam", "AdamW", "Adagrad")  # those that count their steps


def _stock(case: Case, name: str, *gradients: Any, **options: Any) -> Any:
    parameters = [case.parameter(gradient) for gradient in gradients]
    return case.optimizer(getattr(torch.optim, name)(parameters, **{"lr": 0.125, "fused": True, **options}))


def _stepped_directly(case: Case, name: str, gradient: list[float]) -> list[Any]:
    """The parameters after one step of the same optimizer, without any scaler, on the unscaled gradient."""
    optimizer = _stock(case, name, gradient)
    optimizer.step()
    return case.values(optimizer)


def _steps_taken(optimizer: Any) -> list[Any]:
    return [state["step"] for state in optimizer.state.values()]


def _divides_and_skips(case: Case, names: list[str]) -> None:
    for name in names:
        scaler = case.ready_scaler(4.0)
        optimizer = _stock(case, name, [8.0, -2.0])
        scaler.step(optimizer)
        scaler.update()
        case.equal(case.gradients(optimizer), [[2.0, -0.5]], f"gradients that {name} leaves")
        case.equal(case.values(optimizer), _stepped_directly(case, name, [2.0, -0.5]), f"parameters after {name}")
        optimizer = _stock(case, name, [INF, 8.0], [8.0])
        scaler.step(optimizer)
        scaler.update()
        case.equal(case.values(optimizer), [[1.0, 1.0], [1.0]], f"parameters after a skipped step of {name}")
        case.equal(scaler.get_scale(), 2.0, "scale after the skipped step")
        scaler = case.ready_scaler(4.0)
        optimizer = _stock(case, name, [8.0, -2.0])
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        case.equal(case.gradients(optimizer), [[2.0, -0.5]], f"gradients that {name} leaves after unscale_")
        case.equal(
            case.values(optimizer), _stepped_directly(case, name, [2.0, -0.5]), f"parameters after unscale_, {name}"
        )


@behaviour(
    "S11.9",
    "torch's fused optimizers divide the gradients by grad_scale themselves and skip the step where found_inf is 1, "
    "as it is also with infs in gradients of two dtypes",
    proven_on=ON_CPU,
)
def fused_optimizers_divide_and_skip(case: Case) -> None:
    _divides_and_skips(case, fused_names(case))
    for name in fused_names(case):
        optimizer = _stock(case, name, [INF], case.tensor([INF], torch.float64))
        case.ready_scaler(4.0).step(optimizer)
        case.equal(case.values(optimizer), [[1.0], [1.0]], f"parameters after {name} with infs in two dtypes")


def _with_flag(case: Case, name: str, flag: torch.Tensor) -> Any:
    """A fused optimizer on scaled gradients that finds this flag instead of the scaler's."""
    optimizer = _stock(case, name, [8.0])
    optimizer.register_step_pre_hook(lambda o, *_: setattr(o, "found_inf", flag))
    return optimizer


def _skips_on_exactly_one(case: Case, names: list[str]) -> None:
    for name in names:
        moved = _stepped_directly(case, name, [2.0])
        for flag, expected in ((0.0, moved), (1.0, [[1.0]]), (0.5, moved), (2.0, moved)):
            optimizer = _with_flag(case, name, case.tensor(flag))
            case.ready_scaler(4.0).step(optimizer)
            case.equal(case.values(optimizer), expected, f"parameters after {name} with found_inf {flag}")


@behaviour(
    "S11.10",
    "torch's fused optimizers skip only if found_inf is exactly 1: 0.5 and 2 step, a float64 one raises "
    "RuntimeError, and one of shape (1,) makes Adam raise after it has changed the parameters",
    proven_on=ON_CPU,
)
def only_exactly_one_skips(case: Case) -> None:
    _skips_on_exactly_one(case, fused_names(case))
    for name in fused_names(case):
        optimizer = _with_flag(case, name, case.tensor(0.0, torch.float64))
        text = "expected scalar type Float but found Double"
        case.raises(RuntimeError, text, case.ready_scaler(4.0).step, optimizer)
        case.equal(case.values(optimizer), [[1.0]], f"parameters after {name} with a float64 found_inf")
    optimizer = _with_flag(case, "Adam", case.tensor([0.0]))
    case.raises(RuntimeError, NO_ROOM_FOR_ONE, case.ready_scaler(4.0).step, optimizer)
    case.equal(
        case.values(optimizer),
        _stepped_directly(case, "Adam", [2.0]),
        "parameters after Adam with a found_inf of shape (1,)",
    )


def _counts_its_steps(case: Case, names: list[str]) -> None:
    for name in names:
        for flag, steps in ((0.0, 1.0), (1.0, 0.0), (0.5, 0.5), (2.0, -1.0)):
            optimizer = _with_flag(case, name, case.tensor(flag))
            case.ready_scaler(4.0).step(optimizer)
            case.equal(_steps_taken(optimizer), [case.tensor(steps)], f"step of {name} with found_inf {flag}")


@behaviour(
    "S11.11",
    "Fused Adam, AdamW and Adagrad add 1 to their step, run, and subtract found_inf from it",
    proven_on=ON_CPU,
)
def found_inf_is_taken_off_the_step(case: Case) -> None:
    names = [name for name in fused_names(case) if name in COUNTING]
    _counts_its_steps(case, names)  # that they run in between, with the step at 1, is seen in the parameters of S11.10
    for name in names:
        scaler = case.ready_scaler(4.0)
        optimizer = _stock(case, name, [INF])
        taken = []
        for gradient in (INF, 8.0, INF, 8.0):
            case.parameters(optimizer)[0].grad = case.tensor([gradient])
            scaler.step(optimizer)
            scaler.update()
            taken.append(_steps_taken(optimizer)[0].item())
        case.equal(
            taken, [0.0, 1.0, 1.0, 2.0], f"step of {name} after each of four updates, the first and the third skipped"
        )


def _spread(case: Case, dtype: torch.dtype) -> torch.Tensor:
    """Many gradients whose last bits show how they were unscaled."""
    return (1000.0 * torch.randn(4096)).to(case.device, dtype)


def _divided(gradient: torch.Tensor, scale: float) -> torch.Tensor:
    """The quotients by Python's own division in double, which for narrower types is as good as exact, rounded once."""
    quotients = [value / scale for value in gradient.tolist()]
    return torch.tensor(quotients, dtype=gradient.dtype, device=gradient.device)


def _multiplied(gradient: torch.Tensor, scale: float) -> torch.Tensor:
    """The products with the reciprocal rounded to float32, each by Python's double product, rounded once."""
    products = [value * inverse(scale) for value in gradient.tolist()]
    return torch.tensor(products, dtype=gradient.dtype, device=gradient.device)


def _after_a_step(case: Case, make: Callable[[Any], Any], gradient: torch.Tensor, scale: float) -> tuple[Any, Any]:
    """The gradient and the parameter, which starts at 0, after one step with an optimizer made from the parameter."""
    parameter = torch.nn.Parameter(torch.zeros_like(gradient))
    parameter.grad = gradient.clone()
    optimizer = case.optimizer(make([parameter]))
    case.ready_scaler(scale).step(optimizer)
    return parameter.grad, parameter.detach()


def _divides(case: Case, names: list[str], dtypes: tuple[torch.dtype, ...]) -> None:
    # A division in double leaves the same bits: for types up to float32 the second rounding changes nothing.
    for dtype in dtypes:
        scale = 3001.0 if dtype.itemsize == 2 else 3000.0  # float16 and bfloat16 do not hold 3001: no division in these
        gradient = _spread(case, dtype)
        expected = _divided(gradient, scale)
        for name in names:
            for options in ({}, {"maximize": True, "weight_decay": 0.5}):
                make = _maker(name, fused=True, **options)
                got, _ = _after_a_step(case, make, gradient, scale)
                case.equal(got, expected, f"gradients that {name} leaves, {dtype}, {options}")


def _maker(name: str, **options: Any) -> Callable[[Any], Any]:
    return lambda parameters: getattr(torch.optim, name)(parameters, **{"lr": 1.0, **options})


@behaviour(
    "S11.12",
    "Fused optimizers divide by the scale, in the computation type, and write the quotient back before maximize and "
    "weight_decay; others get the product with the rounded reciprocal, so that last bits differ",
    proven_on=ON_CPU,
)
def fused_optimizers_divide_ordinary_ones_multiply(case: Case) -> None:
    names = fused_names(case)
    _divides(case, names, (torch.float32, torch.float64, torch.float16, torch.bfloat16))
    gradient = _spread(case, torch.float32)
    divided, multiplied = _divided(gradient, 3000.0), _multiplied(gradient, 3000.0)
    for name in names:
        ordinary, _ = _after_a_step(case, _maker(name), gradient, 3000.0)
        case.equal(ordinary, multiplied, f"gradients that ordinary {name} is given")
        fused, _ = _after_a_step(case, _maker(name, fused=True), gradient, 3000.0)
        share = (fused != ordinary).double().mean().item()
        case.true(
            0.10 < share < 0.16, f"some 13 % of the gradients of {name} differ with fused=True (it is {share:.3f})"
        )
    for fused, expected in ((True, divided), (False, multiplied)):
        _, parameter = _after_a_step(case, _maker("SGD", fused=fused), gradient, 3000.0)
        case.equal(-parameter, expected, f"what SGD with fused={fused} subtracts")
    _power_of_two(case, names)


def _power_of_two(case: Case, names: list[str]) -> None:
    gradient = _spread(case, torch.float32)
    for name in names:
        for fused in (True, False):
            got, _ = _after_a_step(case, _maker(name, fused=fused), gradient, 4096.0)
            case.equal(got, gradient * 2.0**-12, f"gradients that {name} leaves at scale 4096, fused={fused}")


@behaviour(
    "S11.13",
    "On a skipped step of a fused optimizer the gradients stay scaled; after an explicit unscale_() they stay unscaled",
    proven_on=ON_CPU,
)
def a_skip_leaves_the_gradients_scaled(case: Case) -> None:
    for name in fused_names(case):
        for explicit, expected in ((False, [INF, 8.0]), (True, [INF, 2.0])):
            scaler = case.ready_scaler(4.0)
            optimizer = _stock(case, name, [INF, 8.0])
            if explicit:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            case.equal(
                case.gradients(optimizer), [expected], f"gradients after a skipped step of {name}, unscale_: {explicit}"
            )
            case.equal(case.values(optimizer), [[1.0, 1.0]], f"parameters after a skipped step of {name}")


@behaviour(
    "S11.14",
    "Optimizers that are not fused raise AssertionError for a grad_scale or found_inf that was left on them, also "
    "in the scaler's step()",
)
def ordinary_optimizers_refuse_leftovers(case: Case) -> None:
    text = "Expected grad_scale and found_inf to be None"
    for name in ("Adam", "AdamW", "SGD", "Adagrad"):
        for leftover in ("grad_scale", "found_inf"):
            for foreach in (False, True):
                optimizer = _stock(case, name, [8.0], fused=False, foreach=foreach)
                setattr(optimizer, leftover, case.tensor(0.0))
                case.raises(AssertionError, text, optimizer.step)
                scaler = case.ready_scaler(4.0)
                case.raises(AssertionError, text, scaler.step, optimizer)
                case.equal(case.values(optimizer), [[1.0]], f"parameters of {name} with a leftover {leftover}")
                delattr(optimizer, leftover)
                scaler.step(optimizer)
                expected = _stock(case, name, [2.0], fused=False, foreach=foreach)
                expected.step()
                case.equal(
                    case.values(optimizer), case.values(expected), f"parameters of {name} without the {leftover}"
                )


@behaviour(
    "U11.1",
    "On CUDA fused Adam and Adagrad divide, skip on exactly 1 and count steps as on the CPU",
    proven_on=(),
    only_on="cuda",
)
def cuda_kernels_do_as_cpu_ones(case: Case) -> None:
    names = [name for name in fused_names(case) if name in COUNTING]
    _divides_and_skips(case, names)
    _skips_on_exactly_one(case, names)
    _counts_its_steps(case, names)


@behaviour(
    "U11.2",
    "On CUDA fused Adam and AdamW leave gradient / scale, rounded once",
    proven_on=(),
    only_on="cuda",
)
def cuda_adam_divides(case: Case) -> None:
    _divides(case, ["Adam", "AdamW"], (torch.float32, torch.float64, torch.float16))


@behaviour(
    "U11.3",
    "On CUDA fused Adagrad leaves gradient / scale, rounded once",
    proven_on=(),
    only_on="cuda",
)
def cuda_adagrad_divides(case: Case) -> None:
    if "Adagrad" not in fused_names(case):
        raise NotApplicable("fused Adagrad is not handed the scale in this version of torch")
    _divides(case, ["Adagrad"], (torch.float32, torch.float64, torch.float16))
