"""Section 1: the names that other libraries import, subclass and call by keyword."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch
from torch.amp import grad_scaler as stock

from ampscaler.conformance.case import Case
from ampscaler.conformance.registry import behaviour

SIGNATURES = {
    "scale": "(outputs)",
    "unscale_": "(optimizer)",
    "step": "(optimizer, *args, **kwargs)",
    "update": "(new_scale=None)",
    "load_state_dict": "(state_dict)",
    "set_growth_factor": "(new_factor)",
    "set_backoff_factor": "(new_factor)",
    "set_growth_interval": "(new_interval)",
    "_unscale_grads_": "(optimizer, inv_scale, found_inf, allow_fp16)",
    "_maybe_opt_step": "(optimizer, optimizer_state, *args, **kwargs)",
    "_check_inf_per_device": "(optimizer)",
    "_found_inf_per_device": "(optimizer)",
    "_lazy_init_scale_growth_tracker": "(dev)",
    "_check_scale_growth_tracker": "(funcname)",
}


@behaviour(
    "S1.1",
    "torch.GradScaler is torch.amp.GradScaler, which any scaler derives from; torch.amp.grad_scaler also holds "
    "OptState, _MultiDeviceReplicator and _refresh_per_optimizer_state",
    private=True,
)
def the_names_are_importable(case: Case) -> None:
    case.same(torch.GradScaler, torch.amp.GradScaler, "torch.GradScaler")
    case.same(stock.GradScaler, torch.amp.GradScaler, "torch.amp.grad_scaler.GradScaler")
    case.equal(stock.__name__, "torch.amp.grad_scaler", "module")
    for name in ("OptState", "_MultiDeviceReplicator", "_refresh_per_optimizer_state"):
        case.true(callable(getattr(stock, name, None)), f"torch.amp.grad_scaler has {name}")
    case.true(
        issubclass(case.scaler_class, torch.amp.GradScaler), "the class is torch.amp.GradScaler or derives from it"
    )
    case.true(isinstance(case.raw(case.new_scaler()), torch.amp.GradScaler), "isinstance(scaler, torch.amp.GradScaler)")


@behaviour(
    "S1.2",
    "OptState is an Enum of READY=0, UNSCALED=1 and STEPPED=2, and the stages are its members",
    private=True,
)
def opt_state_has_three_members(case: Case) -> None:
    members = [(member.name, member.value) for member in stock.OptState]
    case.equal(members, [("READY", 0), ("UNSCALED", 1), ("STEPPED", 2)], "members of OptState")
    scaler, optimizer = case.ready_scaler(4.0), case.sgd([4.0])
    entry = scaler._per_optimizer_states[id(optimizer)]
    case.same(entry["stage"], stock.OptState.READY, "stage at first")
    scaler.unscale_(optimizer)
    case.same(entry["stage"], stock.OptState.UNSCALED, "stage after unscale_")
    scaler.step(optimizer)
    case.same(entry["stage"], stock.OptState.STEPPED, "stage after step")


@behaviour(
    "S1.3",
    "_refresh_per_optimizer_state() makes a new {'stage': OptState.READY, 'found_inf_per_device': {}} at each call",
    private=True,
)
def an_entry_starts_ready_and_empty(case: Case) -> None:
    expected = {"stage": stock.OptState.READY, "found_inf_per_device": {}}
    first, second = stock._refresh_per_optimizer_state(), stock._refresh_per_optimizer_state()
    case.equal(first, expected, "first entry")
    case.equal(second, expected, "second entry")
    case.true(first is not second, "each call makes a dict of its own")
    case.true(first["found_inf_per_device"] is not second["found_inf_per_device"], "each entry has a record of its own")
    case.equal(case.new_scaler()._per_optimizer_states[7], expected, "entry of an unknown key")


@behaviour(
    "S1.4",
    "_MultiDeviceReplicator(master).get(device) returns a copy, also on the master's device, and keeps it in "
    "_per_device_tensors under what it was asked for, a string too",
    private=True,
)
def the_replicator_copies_once_per_key(case: Case) -> None:
    master = case.tensor(4.0)
    replicator = stock._MultiDeviceReplicator(master)
    case.same(replicator.master, master, "master")
    case.equal(replicator._per_device_tensors, {}, "copies before the first get")
    copied = replicator.get(master.device)
    case.equal(copied, case.tensor(4.0), "copy at home")
    case.true(copied is not master and copied.data_ptr() != master.data_ptr(), "the copy at home is a copy")
    case.same(replicator.get(master.device), copied, "second get")
    named: Any = str(master.device)
    by_name = replicator.get(named)
    case.true(by_name is not copied, "a string is a key of its own")
    case.same(replicator.get(named), by_name, "second get by string")
    case.equal(replicator._per_device_tensors, {master.device: copied, named: by_name}, "copies")
    case.same(replicator._per_device_tensors[master.device], copied, "stored copy")
    case.equal(replicator.get(torch.device("meta")).device.type, "meta", "device of a copy elsewhere")


@behaviour(
    "S1.5",
    "torch.cuda.amp.GradScaler and torch.cpu.amp.GradScaler, subclasses without `device`, give a FutureWarning when "
    "they are made; torch.cuda.amp.grad_scaler holds OptState, but not the two private names",
    private=True,
)
def the_old_classes_warn(case: Case) -> None:
    for name in ("cuda", "cpu"):
        old: Any = importlib.import_module(f"torch.{name}.amp").GradScaler
        case.true(issubclass(old, torch.amp.GradScaler) and old is not torch.amp.GradScaler, f"{name}: a subclass")
        parameters = list(inspect.signature(old).parameters)
        expected = ["init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled"]
        case.equal(parameters, expected, f"{name}: parameters")
        text = (
            f"`torch.{name}.amp.GradScaler(args...)` is deprecated. "
            f"Please use `torch.amp.GradScaler('{name}', args...)` instead."
        )
        scaler = case.warns([(FutureWarning, text)], old, enabled=False)
        case.equal(scaler._device, name, f"{name}: _device")
        if name == "cpu":  # one for CUDA might warn once more, of a machine without it
            case.equal(case.warns([(FutureWarning, text)], old, 4.0).is_enabled(), True, "is_enabled()")
    module: Any = importlib.import_module("torch.cuda.amp.grad_scaler")
    case.same(module.OptState, stock.OptState, "torch.cuda.amp.grad_scaler.OptState")
    for private in ("_MultiDeviceReplicator", "_refresh_per_optimizer_state"):
        case.true(not hasattr(module, private), f"torch.cuda.amp.grad_scaler does not have {private}")


@behaviour(
    "S1.6",
    "Arguments may be given by name: outputs, optimizer, new_scale, state_dict, new_factor and new_interval; "
    "private methods keep the names of their parameters, too",
)
def calls_by_keyword_work(case: Case) -> None:
    scaler, optimizer = case.new_scaler(4.0), case.sgd([4.0])
    case.equal(scaler.scale(outputs=case.tensor(1.0)), case.tensor(4.0), "scaled loss")
    scaler.unscale_(optimizer=optimizer)
    case.equal(case.gradients(optimizer), [[1.0]], "gradients")
    scaler.step(optimizer=optimizer)
    case.equal(case.values(optimizer), [[0.0]], "parameters")
    scaler.set_growth_factor(new_factor=3.0)
    scaler.set_backoff_factor(new_factor=0.25)
    scaler.set_growth_interval(new_interval=7)
    scaler.update(new_scale=8.0)
    state = {"scale": 8.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7, "_growth_tracker": 0}
    case.equal(scaler.state_dict(), state, "state")
    scaler.load_state_dict(state_dict={**state, "scale": 16.0})
    case.equal(scaler.get_scale(), 16.0, "scale")
    if case.private:
        found = {name: _bare_signature(getattr(case.raw(scaler), name)) for name in SIGNATURES}
        case.equal(found, SIGNATURES, "signatures")


def _bare_signature(method: Any) -> str:
    """The signature without annotations."""
    signature = inspect.signature(method)
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
