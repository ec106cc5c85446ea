"""Whole trainings with clipped steps: our clip, with fused and with ordinary optimizers, against torch's recipe of
unscale_ and torch.nn.utils.clip_grad_norm_, on the handwritten digits."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import ampscaler

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "python"))
from digits_data import load_digits

STEPS = 150
BATCH_SIZE = 64
MAX_NORM = 0.5


def make_optimizer(params, *, fused):
    return torch.optim.SGD(params, lr=0.05, momentum=0.9, fused=fused)


def train(scaler_class, *, fused, half, clip):
    """Returns weights, scales, the share of steps in which the clip was binding, and the accuracy on the test set."""
    digits = load_digits()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = make_optimizer(model.parameters(), fused=fused)
    scaler = scaler_class("cpu", init_scale=2.0**22, growth_interval=20)
    generator = torch.Generator().manual_seed(0)
    scales, binding = [], 0
    for _ in range(STEPS):
        rows = torch.randint(len(digits.train_labels), (BATCH_SIZE,), generator=generator)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=half):
            loss = nn.functional.cross_entropy(model(digits.train_images[rows]), digits.train_labels[rows])
        scaler.scale(loss).backward()
        binding += bool(clip(scaler, optimizer, list(model.parameters())) > MAX_NORM)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    with torch.no_grad():
        right = model(digits.test_images).argmax(dim=1) == digits.test_labels
    return [p.detach() for p in model.parameters()], scales, binding / STEPS, right.float().mean().item()


def torchs_clip(scaler, optimizer, params):
    scaler.unscale_(optimizer)
    return torch.nn.utils.clip_grad_norm_(params, MAX_NORM)


def our_clip(scaler, optimizer, params):
    return scaler.clip_grad_norm_(optimizer, MAX_NORM, eps=1e-6)


@pytest.mark.parametrize("fused", [False, True])
def test_weights_are_those_of_torchs_recipe(fused):
    weights, scales, binding, _ = train(ampscaler.GradScaler, fused=fused, half=False, clip=our_clip)
    expected, expected_scales, _, _ = train(torch.amp.GradScaler, fused=False, half=False, clip=torchs_clip)
    assert binding >= 0.3
    assert scales == expected_scales
    difference = max((a - b).abs().max().item() for a, b in zip(weights, expected, strict=True))
    assert difference <= 1e-6


@pytest.mark.parametrize("fused", [False, True])
def test_float16_autocast_gives_the_same_scales_and_accuracy(fused):
    _, scales, binding, accuracy = train(ampscaler.GradScaler, fused=fused, half=True, clip=our_clip)
    _, expected_scales, _, expected = train(torch.amp.GradScaler, fused=False, half=True, clip=torchs_clip)
    assert binding >= 0.3
    assert len(set(scales)) > 3, "the scale was to move"
    assert scales == expected_scales
    assert abs(accuracy - expected) <= 0.01
