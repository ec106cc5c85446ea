"""What the tests of ampscaler.RobustAMPManager start from: a model whose gradients are its inputs."""

import torch

import ampscaler

INF = float("inf")
LARGE = 1e38  # finite in float32; four times it is not


class Product(torch.nn.Module):
    """Multiplies its input by a weight of ones. With the criterion `total` the weight's gradient is the input."""

    def __init__(self, size=1):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, inputs):
        return inputs * self.weight


def total(outputs, labels):
    """The sum of the outputs; there are no labels."""
    return outputs.sum()


def make(model=None, optimizer=torch.optim.SGD, fused=None, **options):
    """A manager in float32 with scale 4 and learning rate 1."""
    model = Product() if model is None else model
    options = {"init_scale": 4.0, "autocast_dtype": torch.float32} | options
    return ampscaler.RobustAMPManager(model, optimizer(model.parameters(), lr=1.0, fused=fused), **options)


def feed(manager, *values, step=0):
    """Trains on one micro-batch for each value, numbered from `step`; the losses."""
    return [
        manager.training_step(torch.tensor([value]), None, total, index) for index, value in enumerate(values, step)
    ]


def weight_of(manager):
    """The weight of a Product, as a list."""
    return manager.model.weight.tolist()
