"""Failure: autograd functions of one's own know nothing of autocast.

Prints what goes wrong with two of them, and the gradients with torch.amp.custom_fwd and custom_bwd against float32.
"""

import torch
from torch import nn

import ampscaler

INPUTS = (300.0, 1.0, -2.0, 0.0)


class LogSquare(torch.autograd.Function):
    """log(1 + x^2) as it is written without a thought of fp16: x^2 overflows beyond |x| = 255."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return torch.log(1 + x * x)

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return gradient * (2 * x / (1 + x * x))


class SafeLogSquare(torch.autograd.Function):
    """The same in float32: the inputs are cast, and autocast is off in both passes."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(context, x):
        return LogSquare.forward(context, x)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(context, gradient):
        return LogSquare.backward(context, gradient)


class MatMul(torch.autograd.Function):
    """A matrix product whose forward autocast runs in fp16; the backward runs outside autocast, on mixed dtypes."""

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(context, gradient):
        x, weight = context.saved_tensors
        return gradient @ weight.t(), x.t() @ gradient


class SafeMatMul(torch.autograd.Function):
    """The same without cast_inputs: the backward runs under the autocast of the forward."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(context, x, weight):
        return MatMul.forward(context, x, weight)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(context, gradient):
        return MatMul.backward(context, gradient)


def reference() -> torch.Tensor:
    """The gradients of log(1 + x^2) in float32, by torch's own autograd."""
    x = torch.tensor(INPUTS, requires_grad=True)
    torch.log1p(x * x).sum().backward()
    return x.grad


def log_square_in_training(function: type[torch.autograd.Function]) -> tuple[float, torch.Tensor]:
    """Loss and unscaled gradients of `function` on fp16 activations, under autocast and with a scaler."""
    parameter = nn.Parameter(torch.tensor(INPUTS))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = ampscaler.AmpScaler("cpu", init_scale=2.0**10)
    with torch.autocast("cpu", torch.float16):
        loss = function.apply(parameter.half()).float().sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    return loss.item(), parameter.grad


def matmul_in_training(function: type[torch.autograd.Function]) -> torch.Tensor | str:
    """The unscaled gradient of a float32 weight through `function`, or torch's error message."""
    x, weight = torch.tensor([[0.5, 2.0], [1.0, -1.0]]), nn.Parameter(torch.eye(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = ampscaler.AmpScaler("cpu", init_scale=2.0**10)
    with torch.autocast("cpu", torch.float16):
        loss = function.apply(x, weight).float().sum()
    try:
        scaler.scale(loss).backward()
    except RuntimeError as error:
        return str(error)
    scaler.unscale_(optimizer)
    return weight.grad


def main() -> None:
    """Prints losses and gradients of each function."""
    torch.set_num_threads(1)
    print(f"log(1 + x^2) at x = {list(INPUTS)}")
    print(f"  float32 reference        gradients {[round(value, 6) for value in reference().tolist()]}")
    for function in (LogSquare, SafeLogSquare):
        loss, gradient = log_square_in_training(function)
        values = [round(value, 6) for value in gradient.tolist()]
        print(f"  {function.__name__:<24} gradients {values}, loss {loss:g}")
    for function in (MatMul, SafeMatMul):
        gradient = matmul_in_training(function)
        text = gradient if isinstance(gradient, str) else f"weight gradient {gradient.tolist()}"
        print(f"{function.__name__}: {text}")


if __name__ == "__main__":
    main()
