"""Section 5: gradients that are no plain tensors see torch's own operator: subclasses, wrappers, DTensors."""

from __future__ import annotations

import re
from typing import Any, ClassVar
from unittest import mock

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map_only

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, home, process_group


class Watched(torch.Tensor):
    """Notes the functions that __torch_function__ sees."""

    seen: ClassVar[list[Any]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


class Wrapped(torch.Tensor):
    """Holds another tensor, and notes the operators that __torch_dispatch__ sees."""

    seen: ClassVar[list[Any]] = []
    held: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        wrapped: Wrapped = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        wrapped.held = inner
        return wrapped

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        cls.seen.append(func)
        plain = tree_map_only(cls, lambda wrapped: wrapped.held, (args, kwargs or {}))
        return func(*plain[0], **plain[1])


def _sgd(*gradients: torch.Tensor) -> torch.optim.SGD:
    """Like Case.sgd, without a note of the gradients, for tensors that cannot be shown."""
    parameters = [torch.nn.Parameter(torch.ones(gradient.shape, device=gradient.device)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return torch.optim.SGD(parameters, lr=1.0)


@behaviour(
    "S5.18",
    "Gradients of a tensor subclass, with __torch_function__ or __torch_dispatch__, FakeTensors and those under "
    "functorch see the call of torch's own unscale operator",
)
def other_classes_see_the_operator(case: Case) -> None:
    operator = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default
    for place in range(2):
        inner, plain = case.tensor([8.0, INF]), case.tensor([16.0])
        gradients: list[torch.Tensor] = [plain, plain]
        gradients[place] = Wrapped(inner)
        gradients[1 - place] = plain
        scaler = case.ready_scaler(4.0)
        optimizer = _sgd(*gradients)
        Wrapped.seen.clear()
        case.raw(scaler).unscale_(optimizer)
        case.equal(
            [func for func in Wrapped.seen if func.namespace != "prim"], [operator], "operators that the wrapper sees"
        )
        case.equal(inner, case.tensor([2.0, INF]), "what the wrapper holds")
        case.equal(plain, case.tensor([4.0]), "plain gradient beside a wrapper")
        if case.private:
            record = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
            case.equal(record, {home(case): case.tensor(1.0)}, "record")
    _functorch_wrappers(case)
    _fake_tensors(case)
    for place in range(2):
        gradients = [case.tensor([8.0]), case.tensor([8.0])]
        gradients[place] = gradients[place].as_subclass(Watched)
        optimizer = _sgd(*gradients)
        Watched.seen.clear()
        case.raw(case.ready_scaler(4.0)).unscale_(optimizer)
        values = [gradient.as_subclass(torch.Tensor) for gradient in gradients]
        case.equal(values, [case.tensor([2.0]), case.tensor([2.0])], "gradients")
        count = Watched.seen.count(torch._amp_foreach_non_finite_check_and_unscale_)
        case.equal(count, 1, "calls that __torch_function__ sees")


def _functorch_wrappers(case: Case) -> None:
    def unscale_in_a_transform(values: torch.Tensor) -> torch.Tensor:
        optimizer = _sgd(values * 1.0)
        case.raw(scaler).unscale_(optimizer)
        gradient: torch.Tensor = optimizer.param_groups[0]["params"][0].grad
        return (gradient * gradient).sum()

    scaler = case.ready_scaler(4.0)
    values = case.tensor([8.0, 16.0])
    functional: Any = torch.func.functionalize(unscale_in_a_transform)
    case.equal(functional(values), case.tensor(20.0), "square sum of gradients unscaled under functionalize")
    scaler = case.ready_scaler(4.0)
    case.equal(torch.func.grad_and_value(unscale_in_a_transform)(values)[1], case.tensor(20.0), "the same under grad")
    scaler = case.ready_scaler(4.0)
    text = re.compile("^Batching rule not implemented for aten::_amp_foreach_non_finite_check_and_unscale_")
    case.raises(RuntimeError, text, torch.func.vmap(unscale_in_a_transform), case.tensor([[8.0], [16.0]]))


def _fake_tensors(case: Case) -> None:
    scaler = case.raw(case.new_scaler(4.0))
    with FakeTensorMode():
        scaler.scale(case.tensor(1.0))
        optimizer = _sgd(case.tensor([8.0, 8.0]), case.tensor([8.0]))
        case.equal(scaler.unscale_(optimizer), None, "value of unscale_ of fake tensors")
        gradient = optimizer.param_groups[0]["params"][0].grad
        case.true(isinstance(gradient, FakeTensor), "a fake gradient stays fake")


@behaviour(
    "S5.19",
    "For DTensors the operator runs on the local shards and the flag, a plain tensor under a plain device, is the "
    "maximum over the mesh of the first gradient; DTensors mixed with tensors raise RuntimeError",
)
def dtensors_share_a_flag(case: Case) -> None:
    with process_group():
        _flags_are_reduced(case)
        _mixed_lists_are_refused(case)


def _dtensors(case: Case, *kinds: tuple[Any, tuple[Any, ...], list[float]]) -> torch.optim.SGD:
    from torch.distributed.tensor import DTensor

    parameters = []
    for mesh, placements, data in kinds:
        local = torch.ones(len(data), device=case.device)
        parameter = torch.nn.Parameter(DTensor.from_local(local, mesh, placements))
        parameter.grad = DTensor.from_local(case.tensor(data), mesh, placements)
        parameters.append(parameter)
    return torch.optim.SGD(parameters, lr=1.0)


def _flags_are_reduced(case: Case) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    world = dist.get_world_size()
    line = (init_device_mesh(case.device.type, (world,)), (Shard(0),))
    grid = (init_device_mesh(case.device.type, (world, 1)), (Replicate(), Shard(0)))
    reduced = {0: (Partial("max"),), 1: (Replicate(), Partial("max"))}
    full_tensor = DTensor.full_tensor
    seen: list[Any] = []

    def spy(self: Any, **options: Any) -> Any:
        seen.append((self.device_mesh, tuple(self.placements), tuple(self.shape)))
        return full_tensor(self, **options)

    for first in range(2):
        for data in ([8.0, 16.0], [8.0, INF]):
            meshes = [line, grid] if first == 0 else [grid, line]
            optimizer = _dtensors(case, (*meshes[0], [8.0]), (*meshes[1], data))
            parameters = optimizer.param_groups[0]["params"]
            scaler = case.ready_scaler(4.0)
            seen.clear()
            with mock.patch.object(DTensor, "full_tensor", spy):
                case.raw(scaler).unscale_(optimizer)
            case.equal(len(seen), 1, "reductions of the flag")
            case.true(
                seen[0] == (meshes[0][0], reduced[first], ()), "the flag is a maximum over the first gradient's mesh"
            )
            locals_ = [parameter.grad.to_local() for parameter in parameters]
            case.equal(locals_, [case.tensor([2.0]), case.tensor(data) * 0.25], "local shards of the gradients")
            if case.private:
                record = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
                case.equal(record, {home(case): case.tensor(float(INF in data))}, "record")
                case.equal([type(flag) for flag in record.values()], [torch.Tensor], "type of the flags")
            case.raw(scaler).step(optimizer)
            stepped = [1.0] if INF in data else [-1.0]
            case.equal(parameters[0].to_local().detach(), case.tensor(stepped), "local shard of the first parameter")
            scaler.update()
            case.equal(scaler.get_scale(), 2.0 if INF in data else 4.0, "scale after update()")


def _mixed_lists_are_refused(case: Case) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard

    mesh = init_device_mesh(case.device.type, (dist.get_world_size(),))
    for place in range(2):
        optimizer = _dtensors(case, (mesh, (Shard(0),), [8.0]))
        parameters = optimizer.param_groups[0]["params"]
        parameters.insert(
            place, case.parameter([8.0, 8.0])
        )  # a plain tensor with one element would count as replicated
        text = re.compile("got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor")
        case.raises(RuntimeError, text, case.raw(case.ready_scaler(4.0)).unscale_, optimizer)
        case.equal(parameters[place].grad, case.tensor([8.0, 8.0]), "plain gradient after the error")
