"""Everything that can be seen of a world, as values that compare with ==.

Tensors count by bits, dtype, shape, strides, device and version.
"""

import re

import torch


def of_tensor(tensor):
    if tensor.device.type == "meta":
        return ("meta", tuple(tensor.shape), str(tensor.dtype))
    head = (str(tensor.dtype), tuple(tensor.shape), str(tensor.device), tensor.requires_grad)
    if tensor.is_sparse:
        parts = (tensor._indices().tolist(), of_tensor(tensor._values()), tensor.is_coalesced())
        return (*head, "sparse", *parts)
    values = tensor.detach()
    # A NaN's payload is not compared: torch's own vector and scalar loops differ in it.
    canonical = torch.where(values.isnan(), torch.nan, values) if values.is_floating_point() else values
    values = canonical.contiguous().flatten()
    return (*head, tensor.stride(), tensor._version, bytes(values.view(torch.uint8).tolist()))


def of_value(value, names=None):
    """`names` maps ids of optimizers to their numbers."""
    if isinstance(value, torch.Tensor):
        return of_tensor(value)
    if isinstance(value, dict):
        keys = ((names or {}).get(key, str(key)) for key in value)
        return {key: of_value(item, names) for key, item in zip(keys, value.values(), strict=True)}
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [of_value(item, names) for item in value])
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, map):
        return ("map", [of_value(item, names) for item in value])
    return value if isinstance(value, (int, str, bool, type(None))) else repr_without_ids(value)


def repr_without_ids(value):
    return re.sub(r"0x[0-9a-f]+", "0x", str(value))


def of_optimizer(optimizer, parameters):
    attributes = {
        name: of_value(getattr(optimizer, name)) for name in ("grad_scale", "found_inf") if hasattr(optimizer, name)
    }
    state = getattr(optimizer, "state", {})
    return {
        "attributes": attributes,
        "state": [of_value(state[parameter]) for parameter in parameters if parameter in state],
        "parameters": [of_tensor(parameter) for parameter in parameters],
        "gradients": [of_value(parameter.grad) for parameter in parameters],
    }


def of_world(world):
    names = {id(optimizer): f"optimizer {i}" for i, optimizer in enumerate(world.optimizers)}
    scaler = world.scaler.__dict__ if world.scaler is not None else {}
    return {
        "scaler": {key: of_value(value, names) for key, value in scaler.items() if not callable(value)},
        "optimizers": [
            of_optimizer(optimizer, parameters)
            for optimizer, parameters in zip(world.optimizers, world.parameters, strict=True)
        ],
    }
