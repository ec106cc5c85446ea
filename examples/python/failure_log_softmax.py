"""Failure: log_softmax overflows in fp16, every gradient is NaN, and the loss shows nothing.

Prints loss and gradients of two losses, each in fp16, with its remedy, and in bfloat16. On a CUDA device autocast runs
log_softmax in float32; on a CPU it casts cross_entropy but not log_softmax. In a model that was converted with .half()
nothing is cast.
"""

import dataclasses

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass
class Result:
    """A loss, and how many gradient elements are not finite."""

    loss: float
    nonfinite_gradients: int
    lowest_log_probability: float


def count_nonfinite(gradient: torch.Tensor) -> int:
    """How many elements are inf or NaN."""
    return int((~gradient.isfinite()).sum())


def autocast_dtype_of_log_softmax(device: str) -> torch.dtype:
    """What log_softmax of fp16 logits gives under autocast."""
    with torch.autocast(device, torch.float16):
        return functional.log_softmax(torch.zeros(1, 2, dtype=torch.float16, device=device), dim=-1).dtype


def entropy_bonus(dtype: torch.dtype, logits_dtype: torch.dtype = torch.float16) -> Result:
    """A loss with an entropy of fp16 logits, with 0 * log 0 masked out, as policy-gradient programs have it.

    The logits are finite, but their range is 120000: the log-probability of the second class is -120000, which is -inf
    in fp16. The mask keeps it out of the loss. It does not keep it out of the gradient, where 0 * -inf is NaN, and the
    sum over classes in the backward of log_softmax spreads it to all of them.
    """
    logits = torch.tensor([[60000.0, -60000.0, 0.0]], dtype=logits_dtype, requires_grad=True)
    log_p = functional.log_softmax(logits, dim=-1, dtype=dtype)
    p = log_p.exp()
    entropy = -torch.where(p > 0, p * log_p, torch.zeros_like(p)).sum()
    loss = 1.0 - entropy
    loss.backward()
    return Result(loss.item(), count_nonfinite(logits.grad), log_p.min().item())


def ignored_row(
    last_layer_in_float32: bool, log_softmax_in_float32: bool, dtype: torch.dtype = torch.float16
) -> Result:
    """Cross entropy of two rows, the second one padding that the loss ignores.

    The padding's logits are +-80000, beyond fp16: inf. A log_softmax of inf is NaN in any dtype, and the zero gradient
    of an ignored row times NaN is NaN. So float32 must begin before the overflow, in the last layer.
    """
    layer = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[400.0], [-400.0]]))
    rows, targets = torch.tensor([[1.0], [200.0]]), torch.tensor([0, -100])
    with torch.autocast("cpu", dtype, enabled=not last_layer_in_float32):
        logits = layer(rows)
        if log_softmax_in_float32:
            logits = logits.float()
        log_p = functional.log_softmax(logits, dim=-1)
        loss = functional.nll_loss(log_p, targets, ignore_index=-100)
    loss.backward()
    return Result(loss.item(), count_nonfinite(layer.weight.grad), log_p[0].min().item())


def main() -> None:
    """Prints both losses without and with the remedy."""
    torch.set_num_threads(1)
    print(f"log_softmax under fp16 autocast on the CPU gives {autocast_dtype_of_log_softmax('cpu')}")
    results = {
        "entropy, log_softmax in fp16": entropy_bonus(torch.float16),
        "entropy, log_softmax in float32": entropy_bonus(torch.float32),
        "entropy, all in bfloat16": entropy_bonus(torch.bfloat16, torch.bfloat16),
        "ignored row, all in fp16": ignored_row(False, False),
        "ignored row, log_softmax in float32": ignored_row(False, True),
        "ignored row, last layer in float32": ignored_row(True, True),
        "ignored row, all in bfloat16": ignored_row(False, False, torch.bfloat16),
    }
    print(f"{'':<38}{'loss':>8}{'non-finite gradients':>24}")
    for name, result in results.items():
        print(f"{name:<38}{result.loss:>8g}{result.nonfinite_gradients:>24}")


if __name__ == "__main__":
    main()
