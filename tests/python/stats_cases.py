"""Calls of the one-pass operators that several test files make: lists of gradients and argument sets by name."""

import torch

ops = torch.ops.ampscaler
IN_PLACE = ["unscale_with_stats_", "unscale_clamp_", "scale_grads_"]
OVER_GRADIENTS = ["grad_stats", *IN_PLACE, "find_nonfinite", "grad_norms"]


def uncoalesced():
    """A sparse gradient of shape [4, 2] whose row 1 is given twice."""
    return torch.sparse_coo_tensor([[1, 3, 1]], [[1.0, 2.0], [3.0, -4.0], [5.0, 6.0]], (4, 2), is_coalesced=False)


def gradient_lists():
    base = torch.arange(-24.0, 24.0).reshape(6, 8)
    return {
        "empty": [],
        "no_elements": [torch.ones(0), torch.ones(2, 0, dtype=torch.float16)],
        "zero_dim": [torch.ones(())],
        "mixed": [base.half(), base.bfloat16(), base.clone(), base.double(), torch.ones(0)],
        "complex": [torch.complex(base, base.flip(0)), base.to(torch.complex128), base.clone()],
        "strided": [base.clone().t(), base.clone()[:, ::2], base.clone()[1:5, 2:6]],
        "channels_last": [torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)],
        "slices_of_one": list(base.clone().split(3, dim=1)),
    }


def sparse_list():
    return [uncoalesced(), torch.eye(3).to_sparse(), torch.full((5,), 2.0)]


def scaling(accumulate=False):
    """All options that relate stored to true gradients, and a limit."""
    options = {
        "divisor": torch.full((), 3, dtype=torch.int64),
        "user_scale": torch.full((1,), 0.5),
        "max_norm": 1.0,
        "max_norm_tensor": torch.full((), 0.25, dtype=torch.float64),
        "eps": 1e-6,
    }
    if accumulate:
        options["accumulate"] = torch.zeros(141, dtype=torch.int64)
    return options


def arguments(name, grads, options=False):
    """Positional and keyword arguments of a valid call; `options`: with everything that is optional."""
    scale = torch.full((), 64.0)
    if name in ("grad_stats", "unscale_with_stats_"):
        return (grads, scale), scaling(accumulate=True) if options else {}
    if name == "unscale_clamp_":
        given = {key: value for key, value in scaling().items() if key in ("divisor", "user_scale")}
        return (grads, scale, 0.5), given if options else {}
    if name == "scale_grads_":
        return (grads, torch.full((), 0.5), torch.zeros(1)), {}
    if name == "grad_norms":
        return (grads, scale, float("inf")) if options else (grads, scale), {}
    return (grads,), {}


def call(name, grads, options=False):
    positional, keywords = arguments(name, grads, options)
    return getattr(ops, name)(*positional, **keywords)


def tensors_in(value):
    """All tensors in nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for part in value for tensor in tensors_in(part)] if isinstance(value, (list, tuple)) else []


def dense(tensor):
    return tensor.to_dense() if tensor.layout != torch.strided else tensor
