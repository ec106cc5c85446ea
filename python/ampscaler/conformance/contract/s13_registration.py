"""Section 13: how the two operators are registered: schemas, kernels, variants, and what runs without data."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import has_kernel, schema_of

SCHEMAS = (
    "aten::_amp_foreach_non_finite_check_and_unscale_(Tensor(a!)[] self, Tensor(b!) found_inf, Tensor inv_scale) -> ()",
    "aten::_amp_update_scale_(Tensor(a!) self, Tensor(b!) growth_tracker, Tensor found_inf, "
    "float scale_growth_factor, float scale_backoff_factor, int growth_interval) -> Tensor(a!)",
)


@behaviour(
    "S13.1",
    "Both operators say in their schemas what they write to, and have kernels for the device and for meta tensors; "
    "torch's also have functional and .out variants, no batching rule for vmap, and work under functionalize",
    operators=True,
)
def schemas_and_kernels(case: Case) -> None:
    for operator, types, written in (
        (case.operators.unscale, ["List[Tensor]", "Tensor", "Tensor"], [True, True, False]),
        (case.operators.update, ["Tensor"] * 3 + ["float", "float", "int"], [True, True] + [False] * 4),
    ):
        arguments = schema_of(operator).arguments
        case.equal([str(argument.type) for argument in arguments], types, "types of the arguments")
        marked = [argument.alias_info is not None and argument.alias_info.is_write for argument in arguments]
        case.equal(marked, written, "which arguments are written to")
    keys = [case.device.type.upper(), "Meta"]
    if case.operators.is_aten and torch.version.cuda is not None:
        keys.append("CUDA")
    for operator, name in zip((case.operators.unscale, case.operators.update), case.operators.names, strict=True):
        for key in keys:
            case.true(has_kernel(operator, key, composite=True), f"{name} has a kernel for {key}")
    if case.operators.is_aten:
        case.equal(
            [str(schema_of(o)) for o in (case.operators.unscale, case.operators.update)], list(SCHEMAS), "schemas"
        )
        in_place = [has_kernel(o, "ADInplaceOrView") for o in (case.operators.unscale, case.operators.update)]
        case.equal(in_place, [False, True], "whether there is a kernel for ADInplaceOrView")
        _check_functional_variants(case)
        _check_out_variants(case)
        _check_transforms(case)


def _unscale_arguments(case: Case) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    gradients = [case.tensor([8.0, 4.0]), case.tensor([float("inf")])]
    return gradients, case.tensor(0.0), case.tensor(0.25)


def _update_arguments(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float, float, int]:
    return case.tensor(8.0), case.tensor(2, torch.int32), case.tensor(0.0), 2.0, 0.5, 3


def _check_functional_variants(case: Case) -> None:
    gradients, found_inf, inverse = _unscale_arguments(case)
    result = torch.ops.aten._amp_foreach_non_finite_check_and_unscale(gradients, found_inf, inverse)
    expected = [case.tensor([2.0, 1.0]), case.tensor([float("inf")])], case.tensor(1.0)
    case.equal(result, expected, "what the functional unscale returns")
    case.equal((gradients, found_inf), _unscale_arguments(case)[:2], "its arguments")
    arguments = _update_arguments(case)
    result = torch.ops.aten._amp_update_scale(*arguments)
    case.equal(result, (case.tensor(16.0), case.tensor(0, torch.int32)), "what the functional update returns")
    case.equal(arguments, _update_arguments(case), "its arguments")


def _check_out_variants(case: Case) -> None:
    """They lose the flag and the tracker."""
    gradients, found_inf, inverse = _unscale_arguments(case)
    out = [torch.empty_like(gradient) for gradient in gradients]
    torch.ops.aten._amp_foreach_non_finite_check_and_unscale.out(gradients, found_inf, inverse, out=out)
    case.equal(out, [case.tensor([2.0, 1.0]), case.tensor([float("inf")])], "out of unscale")
    case.equal((gradients, found_inf), _unscale_arguments(case)[:2], "its arguments, with found_inf as it was")
    arguments, new_scale = _update_arguments(case), case.tensor(0.0)
    torch.ops.aten._amp_update_scale.out(*arguments, out=new_scale)
    case.equal(new_scale, case.tensor(16.0), "out of update")
    case.equal(arguments, _update_arguments(case), "its arguments, with the growth tracker as it was")


def _check_transforms(case: Case) -> None:
    """vmap has no rule for the operators; functionalize has."""
    _, found_inf, inverse = _unscale_arguments(case)
    scale, tracker, flag, *numbers = _update_arguments(case)
    no_rule = re.compile("^Batching rule not implemented for aten::_amp_")

    def unscaled(gradient: torch.Tensor, found_inf: torch.Tensor) -> torch.Tensor:
        copy = gradient.clone()
        case.operators.unscale([copy], found_inf, inverse)
        return copy

    def updated(scale: torch.Tensor, tracker: torch.Tensor) -> torch.Tensor:
        copy = scale.clone()
        case.operators.update(copy, tracker, flag, *numbers)
        return copy

    case.raises(RuntimeError, no_rule, torch.vmap(unscaled, in_dims=(0, None)), case.tensor([[8.0], [4.0]]), found_inf)
    case.raises(RuntimeError, no_rule, torch.vmap(updated, in_dims=(0, None)), case.tensor([8.0, 4.0]), tracker)
    result = torch.func.functionalize(unscaled)(case.tensor([8.0, float("inf")]), found_inf)
    case.equal((result, found_inf), (case.tensor([2.0, float("inf")]), case.tensor(1.0)), "functionalized unscale")
    result = torch.func.functionalize(updated)(scale, tracker)
    case.equal((result, tracker), (case.tensor(16.0), case.tensor(0, torch.int32)), "functionalized update")


class _ScaleAware:
    """An optimizer that handles the scale itself, by attributes."""

    _step_supports_amp_scaling = True

    def __init__(self, parameter: torch.nn.Parameter) -> None:
        self.param_groups = [{"params": [parameter]}]

    def step(self) -> str:
        return "stepped"


@behaviour(
    "S13.28",
    "On meta and fake tensors both operators run and compute nothing; under FakeTensorMode unscale_(), update() and "
    "a step that is handed the scale work, an ordinary step(), which reads the flag, raises",
    operators=True,
)
def meta_and_fake_tensors(case: Case) -> None:
    unscale, update = case.operators.unscale, case.operators.update
    scale, tracker, flag = (argument.to("meta") for argument in _update_arguments(case)[:3])
    numbers = _update_arguments(case)[3:]
    before = scale._version
    update(scale, tracker, flag, *numbers)
    case.equal(scale._version, before + 1, "version of a meta scale")
    anything = torch.empty((3,), dtype=torch.int64, device="meta")
    update(anything, anything.bool(), flag, *numbers)
    unscale([anything, torch.empty((2,), device="meta").expand(3, 2)], flag, flag)
    unscale([scale], flag.double(), flag.half())
    with FakeTensorMode():
        unscale([case.tensor([8.0, 4.0])], case.tensor(0.0), case.tensor(0.25))
        update(*_update_arguments(case))
        if case.scaler_class is not None:
            _check_fake_iterations(case)
    _check_meta_scalars(case)
    # The update operator does not silently skip a scale that exists.
    for where in (1, 2):
        arguments: list[Any] = list(_update_arguments(case))
        arguments[where] = arguments[where].to("meta")
        text = "Cannot inplace into non-meta tensor with meta tensor argument"
        case.raises(NotImplementedError, text if case.operators.is_aten else None, update, *arguments)
        case.equal(arguments[0], case.tensor(8.0), "a scale in memory, with another argument on meta")


def _check_meta_scalars(case: Case) -> None:
    """The unscale operator looks at its scalars also on meta, in another order than in memory: found_inf first."""
    three, good = torch.empty(3, device="meta"), torch.empty((), device="meta")
    integer = good.long()
    for found_inf, inverse, text in (
        (three.long(), three, "found_inf must be a 1-element tensor."),
        (integer, three, "inv_scale must be a 1-element tensor."),
        (integer, integer, "found_inf must be a float tensor."),
        (good, integer, "inv_scale must be a float tensor."),
    ):
        case.raises(RuntimeError, text, case.operators.unscale, [good], found_inf, inverse)


def _check_fake_iterations(case: Case) -> None:
    """Unrecorded: a report cannot show values of fake tensors."""
    parameter = torch.nn.Parameter(case.tensor([1.0, 1.0]))
    parameter.grad = case.tensor([4.0, 4.0])
    ordinary, scale_aware = torch.optim.SGD([parameter], lr=1.0), _ScaleAware(parameter)
    scaler = case.raw(case.new_scaler(4.0))
    scaler.scale(case.tensor(1.0))
    text = "aten._local_scalar_dense.default"
    for unscale_first in (True, False):
        if unscale_first:
            scaler.unscale_(ordinary)
        case.raises(DataDependentOutputException, text, scaler.step, ordinary)
        scaler.update()
    for unscale_first in (True, False):
        if unscale_first:
            scaler.unscale_(scale_aware)
        case.equal(case.returned(scaler.step(scale_aware)), "stepped")
        scaler.update()
