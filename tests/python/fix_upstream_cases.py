"""What the tests of fix_upstream start from: both scalers, ready to unscale, and parameters with scaled gradients."""

import pickle

import torch

import ampscaler
from ampscaler import ScalePolicy

INF = float("inf")
FIX = ScalePolicy(fix_upstream=True)


def theirs(scale=4.0):
    return ready(torch.amp.GradScaler("cpu", init_scale=scale))


def ours(scale=4.0, cls=ampscaler.GradScaler, **options):
    return ready(cls("cpu", init_scale=scale, policy=FIX, **options))


def ready(scaler):
    scaler.scale(torch.ones(()))
    return scaler


def parameter(gradient, dtype=torch.float32):
    """[1, 1] with that scaled gradient: a number for both elements, or a tensor."""
    result = torch.nn.Parameter(torch.ones(2, dtype=dtype))
    result.grad = gradient if isinstance(gradient, torch.Tensor) else torch.full((2,), gradient, dtype=dtype)
    return result


def sgd(*parameters, **options):
    return torch.optim.SGD(list(parameters), lr=1.0, **options)


def is_picklable(scaler):
    try:
        pickle.dumps(scaler)
    except AssertionError:
        return False
    return True


def shared(value=16.0):
    """Two parameters with one gradient."""
    first = parameter(value)
    return first, parameter(first.grad)
