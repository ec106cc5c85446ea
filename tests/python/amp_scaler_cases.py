"""What the tests of ampscaler.AmpScaler start from."""

import torch

from ampscaler import AmpScaler

INF = float("inf")


def make(scale=4.0, gradient=8.0, optimizer=torch.optim.SGD, **options):
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), gradient)
    scaler = AmpScaler("cpu", init_scale=scale)
    scaler.scale(torch.ones(()))
    return scaler, optimizer([parameter], lr=1.0, **options), parameter
