"""ampscaler.RobustAMPManager gives the bits of the loop that one writes by hand with torch.amp.GradScaler.

Clipping by hand is done with a norm in float64, since that of torch's clip_grad_norm_ is rounded on its way.
"""

import math

import pytest
import torch

import ampscaler
from manager_cases import Product, feed, make, total, weight_of

MICRO_BATCHES = 36
OVERFLOWS = {5: float("inf"), 14: 1e30, 15: float("nan")}  # factors of the inputs: the second is finite in float32
SCALER = {"init_scale": 2.0**12, "growth_factor": 2.0, "backoff_factor": 0.25, "growth_interval": 3}

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused_adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "fused_sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
}


def make_model(device):
    torch.manual_seed(3)
    layers = torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 3)
    return torch.nn.Sequential(*layers).to(device)


def make_batches(device):
    generator = torch.Generator().manual_seed(5)
    for index in range(MICRO_BATCHES):
        inputs = torch.randn(8, 6, generator=generator) * OVERFLOWS.get(index, 1.0)
        labels = torch.randint(3, (8,), generator=generator)
        yield inputs.to(device), labels.to(device)


def clip_by_hand(scaler, optimizer, fused, max_norm):
    """Multiplies gradients by the exact coefficient; hands it to a fused optimizer as its own grad_scale."""
    if not fused:
        scaler.unscale_(optimizer)
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
    norm = math.sqrt(sum(gradient.double().square().sum().item() for gradient in gradients))
    norm /= scaler.get_scale() if fused else 1.0
    if not math.isfinite(norm) or norm <= max_norm:
        return
    if fused:
        optimizer.grad_scale = torch.tensor(norm / max_norm, device=gradients[0].device)
    else:
        for gradient in gradients:
            gradient.mul_(torch.tensor(max_norm / norm, device=gradient.device))


def by_hand(make_optimizer, dtype, max_norm, weights, device):
    """The loop of torch's documentation: losses, scale after each micro-batch, skipped steps, weights."""
    model = make_model(device)
    optimizer = make_optimizer(model.parameters())
    scaler = torch.amp.GradScaler(device, **SCALER)
    losses, scales, skips = [], [], 0
    for index, (inputs, labels) in enumerate(make_batches(device)):
        position = index % len(weights)
        if position == 0:
            optimizer.zero_grad()
        with torch.autocast(device, dtype):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        scaler.scale(loss * weights[position]).backward()
        if position == len(weights) - 1:
            if max_norm is not None:
                clip_by_hand(scaler, optimizer, optimizer.defaults["fused"], max_norm)
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            skips += scaler.get_scale() < before  # no floor and no cap here: a smaller scale is a skipped step
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    return losses, scales, skips, list(model.state_dict().values())


def by_manager(make_optimizer, dtype, max_norm, weights, device):
    model = make_model(device)
    manager = ampscaler.RobustAMPManager(
        model,
        make_optimizer(model.parameters()),
        *SCALER.values(),
        autocast_dtype=dtype,
        max_norm=max_norm,
        accumulation_steps=len(weights),
        accumulation_weights=weights,
    )
    losses, scales = [], []
    for index, (inputs, labels) in enumerate(make_batches(device)):
        losses.append(manager.training_step(inputs, labels, torch.nn.functional.cross_entropy, index))
        scales.append(manager.scaler.get_scale())
    return losses, scales, manager.skip_count, list(model.state_dict().values())


def bits(tensors):
    return [tensor.cpu().numpy().tobytes() for tensor in tensors]


def compare(*arguments):
    theirs, ours = by_hand(*arguments), by_manager(*arguments)
    assert repr(ours[0]) == repr(theirs[0])  # as text: NaN differs from itself
    assert ours[1:3] == theirs[1:3]
    assert ours[2] >= 2  # a step was skipped
    assert len(set(ours[1])) >= 3  # the scale went down and up
    assert bits(ours[3]) == bits(theirs[3])


@pytest.mark.parametrize("weights", [(1.0,), (0.25,) * 4, (0.5, 0.2, 0.3)], ids=["1", "4 equal", "3 unequal"])
@pytest.mark.parametrize("max_norm", [None, 0.05])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_loop_by_hand_gives_the_same_bits(kind, max_norm, weights):
    compare(OPTIMIZERS[kind], torch.float16, max_norm, weights, "cpu")


def test_the_same_in_bfloat16():
    compare(OPTIMIZERS["sgd"], torch.bfloat16, 0.05, (0.5, 0.5), "cpu")


@pytest.mark.cuda
@pytest.mark.parametrize("max_norm", [None, 0.05])
@pytest.mark.parametrize("kind", ["sgd", "fused_adamw"])
def test_the_same_on_cuda(kind, max_norm):
    compare(OPTIMIZERS[kind], torch.float16, max_norm, (0.25,) * 4, "cuda")


def test_equal_weights_are_the_default():
    manager = make(accumulation_steps=3)
    assert manager.accumulation_weights == (1 / 3, 1 / 3, 1 / 3)


def test_micro_batches_are_weighted_by_hand():
    manager = make(accumulation_steps=2, accumulation_weights=[0.25, 0.75], growth_interval=1)
    assert feed(manager, 2.0) == [2.0]
    assert (weight_of(manager), manager.scaler.get_scale()) == ([1.0], 4.0)
    assert feed(manager, 4.0, step=1) == [4.0]
    assert weight_of(manager) == [-2.5]  # 1 - (0.25 * 2 + 0.75 * 4)
    assert manager.scale_history == [{"step": 1, "pre_scale": 4.0, "post_scale": 8.0, "loss": 3.5}]
    feed(manager, 1.0, 1.0, step=2)
    assert weight_of(manager) == [-3.5]
    assert manager.scale_history[1] == {"step": 3, "pre_scale": 8.0, "post_scale": 16.0, "loss": -2.5}


def test_an_overflow_anywhere_in_a_window_skips_all_of_it():
    manager = make(accumulation_steps=4, growth_interval=1)
    feed(manager, 1.0, float("inf"), 1.0)
    assert (manager.skip_count, manager.scaler.get_scale()) == (0, 4.0)  # nothing is decided before the last
    feed(manager, 1.0, step=3)
    assert (weight_of(manager), manager.skip_count, manager.scaler.get_scale()) == ([1.0], 1, 2.0)
    assert list(manager.nonfinite_losses) == [{"step": 1, "loss": float("inf")}]
    assert manager.scale_history == [{"step": 3, "pre_scale": 4.0, "post_scale": 2.0, "loss": float("inf")}]
    feed(manager, *[4.0] * 4)
    assert (weight_of(manager), manager.skip_count, manager.scaler.get_scale()) == ([-3.0], 1, 4.0)


@pytest.mark.parametrize("sizes", [(2, 2, 2, 2), (1, 4, 3)])
def test_a_window_gives_the_gradient_of_the_whole_batch(sizes):
    """With weights in proportion to the sizes; float32 sums in another order, so equal to rounding."""
    inputs, targets = torch.randn(8, 6), torch.randn(8, 3)
    weights = []
    for split in ((8,), sizes):
        torch.manual_seed(3)
        options = {"accumulation_steps": len(split), "accumulation_weights": [size / 8 for size in split]}
        manager = make(torch.nn.Linear(6, 3), **options)
        for batch, labels in zip(inputs.split(split), targets.split(split), strict=True):
            manager.training_step(batch, labels, torch.nn.functional.mse_loss, 0)
        assert manager.last_step.applied()
        weights.append(manager.model.weight.detach())
    torch.testing.assert_close(weights[0], weights[1])


def test_a_scale_in_a_window_is_one_scale():
    """The gradients that add up in a window are scaled alike, also when the window before changed the scale."""
    manager = make(accumulation_steps=2, growth_interval=1)
    stored = []
    manager.model.weight.register_post_accumulate_grad_hook(lambda weight: stored.append(weight.grad.item()))
    for index in range(6):
        manager.training_step(torch.tensor([2.0]), None, total, index)
    assert stored == [4.0, 8.0, 8.0, 16.0, 16.0, 32.0]  # scale * (weight 0.5 * gradient 2), once and twice


def test_an_unfinished_window_waits_for_its_rest():
    manager = make(Product(), accumulation_steps=3)
    feed(manager, 3.0, 3.0)
    assert manager.last_step is None
    feed(manager, 3.0)
    torch.testing.assert_close(manager.model.weight.detach(), torch.tensor([-2.0]))
