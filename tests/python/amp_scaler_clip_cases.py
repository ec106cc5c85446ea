"""Optimizers for the tests of clipping, and the same training in float64 arithmetic."""

import torch

import ampscaler
from ampscaler import AmpScaler

INF = float("inf")

# Options of torch's fused optimizers on the CPU.
FUSED = [
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("Adam", {"maximize": True, "betas": (0.5, 0.9), "eps": 1e-4}),
    ("AdamW", {"weight_decay": 0.2}),
    ("AdamW", {"amsgrad": True, "maximize": True}),
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.5, "dampening": 0.5, "maximize": True}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1}),
    ("Adagrad", {"maximize": True, "initial_accumulator_value": 0.5}),
]
ORDINARY = [
    ("SGD", {"momentum": 0.9, "foreach": False}),
    ("SGD", {"momentum": 0.9, "foreach": True}),
    ("Adam", {"foreach": True, "amsgrad": True}),
    ("AdamW", {}),
    ("Adagrad", {}),
    ("RMSprop", {"centered": True}),
    ("NAdam", {}),
]


def label(case):
    return "-".join([case[0], *case[1]])


class KeywordVariant(torch.optim.SGD):
    """Of the older protocol: it would read the scale from the scaler."""

    _step_supports_amp_scaling = True

    def step(self, closure=None, *, grad_scaler=None):
        assert grad_scaler is None
        return super().step(closure)


class OwnStep(torch.optim.SGD):
    """Reads the attributes, and does nothing that anyone could foresee with them."""

    _step_supports_amp_scaling = True

    def step(self, closure=None):
        if self.found_inf.item() == 0.0:
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        factor = 1.0 if self.grad_scale is None else self.grad_scale
                        parameter.data.sub_(parameter.grad / factor, alpha=group["lr"])


class Delegating:
    """A wrapper that hands the attributes to the optimizer inside."""

    _step_supports_amp_scaling = True

    def __init__(self, parameters, lr):
        self.inner = torch.optim.SGD(parameters, lr=lr, fused=True)

    @property
    def param_groups(self):
        return self.inner.param_groups

    def step(self):
        self.inner.grad_scale, self.inner.found_inf = self.grad_scale, self.found_inf
        try:
            self.inner.step()
        finally:
            del self.inner.grad_scale, self.inner.found_inf


def ready(scale=4.0, **options):
    scaler = AmpScaler("cpu", init_scale=scale, **options)
    scaler.scale(torch.ones(()))
    return scaler


def parameter_with(gradient, dtype=torch.float32):
    gradient = torch.as_tensor(gradient).to(dtype)
    parameter = torch.nn.Parameter(torch.ones_like(gradient))
    parameter.grad = gradient
    return parameter


def six_eight(optimizer=torch.optim.SGD, **options):
    """A scaler at 4 and an optimizer whose true gradient is [6, 8], of norm 10."""
    parameter = parameter_with([24.0, 32.0])
    return ready(), optimizer([parameter], lr=1.0, **options), parameter


def reads():
    return ampscaler._C.host_read_count()


def exact_clip(gradients, max_norm):
    """Norm and clipped gradients in float64."""
    doubles = [gradient.double() for gradient in gradients]
    norm = torch.sqrt(sum((gradient * gradient).sum() for gradient in doubles))
    factor = min(1.0, max_norm / norm.item()) if norm.isfinite() and norm > 0 else 1.0
    return norm.item(), [gradient * factor for gradient in doubles]
