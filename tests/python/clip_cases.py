"""What the tests of clipping start from: optimizers of every kind, and the exact step to compare with."""

import copy

import torch

import ampscaler

INF, NAN = float("inf"), float("nan")
SCALE = 1024.0

FUSED = {
    "adam": (torch.optim.Adam, {}),
    "adam_amsgrad": (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    "adam_maximize": (torch.optim.Adam, {"maximize": True}),
    "adam_tensor_lr": (torch.optim.Adam, {"lr": torch.tensor(0.01)}),
    "adam_capturable": (torch.optim.Adam, {"capturable": True}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.2}),
    "adamw_amsgrad_maximize": (torch.optim.AdamW, {"amsgrad": True, "maximize": True}),
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "sgd_dampening": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "maximize": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "weight_decay": 0.01, "lr_decay": 0.1}),
}


class PassesItself(torch.optim.SGD):
    """The older protocol: step is handed the scaler and divides by its scale."""

    _step_supports_amp_scaling = True

    def step(self, closure=None, *, grad_scaler=None):
        scale = grad_scaler._get_scale_async()
        if any(not torch.isfinite(p.grad).all() for group in self.param_groups for p in group["params"]):
            return None
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.div_(scale)
        return super().step(closure)


class Delegating:
    """A wrapper that looks like an optimizer and hands step on with its own attributes."""

    _step_supports_amp_scaling = True

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.param_groups = optimizer.param_groups

    def step(self):
        self.optimizer.grad_scale, self.optimizer.found_inf = self.grad_scale, self.found_inf
        value = self.optimizer.step()
        del self.optimizer.grad_scale, self.optimizer.found_inf
        return value


class OwnStep(torch.optim.Adam):
    """A fused subclass that looks at the gradients first."""

    def step(self, closure=None):
        self.seen = [p.grad.clone() for group in self.param_groups for p in group["params"]]
        return super().step(closure)


def parameters(*sizes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(size, generator=generator).to(dtype)) for size in sizes]


def set_gradients(params, scale=SCALE, seed=1):
    """Random scaled gradients; the last parameter of three or more has none."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in params[:2] if len(params) > 2 else params:
        parameter.grad = (torch.randn(parameter.shape, generator=generator) * scale).to(parameter.dtype)


def make_scaler(scale=SCALE, **options):
    scaler = ampscaler.GradScaler("cpu", init_scale=scale, **options)
    scaler.scale(torch.ones(()))
    return scaler


def exact_norm(tensors, divisor=1.0):
    return sum((t.double() / divisor).square().sum() for t in tensors).sqrt()


def gradients_of(params):
    return [p.grad for p in params if p.grad is not None]


def exact_copy(optimizer, params, divisor, coefficient):
    """Copies of parameters and optimizer, with true and clipped gradients formed in float64 and rounded once."""
    twins = copy.deepcopy(params)
    for twin, original in zip(twins, params, strict=True):
        grad = original.grad
        twin.grad = None if grad is None else (grad.double() / divisor * coefficient).to(grad.dtype)
    return twins, rebuild(optimizer, params, twins)


def rebuild(optimizer, params, twins):
    """An optimizer like `optimizer` over the twins, with its state."""
    twin_of = {id(p): t for p, t in zip(params, twins, strict=True)}
    groups = [{**g, "params": [twin_of[id(p)] for p in g["params"]]} for g in optimizer.param_groups]
    result = type(optimizer)(groups)
    for parameter, state in optimizer.state.items():
        result.state[twin_of[id(parameter)]] = copy.deepcopy(state)
    return result


def assert_close(ours, exact, rtol=3e-6, atol=1e-8):
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=rtol, atol=atol)
