"""The text that is trained on, and its batches: the same for every run of a seed.

A batch belongs to a step, not to an attempt: an attempt that was skipped is repeated with the same batch.
"""

from typing import Any

import torch

from mixed_precision.options import Options

PROMPTS = (
    "A loss scaler multiplies the loss before the backward pass, so that small gradients stay above the smallest half.",
    "Before the optimizer runs, gradients are divided by the scale, checked for inf and NaN, and clipped to a norm.",
    "When a gradient is not finite the step is skipped, the parameters stay as they are, and the scale is halved.",
    "After many finite steps in a row the scale is doubled; the next overflow, if there is one, halves it again.",
    "FP32 master weights take small updates that would be lost if the weights themselves were kept in half precision.",
)


def make_stream(tokenizer: Any) -> list[int]:
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    stream: list[int] = []
    for prompt in PROMPTS:
        stream += tokenizer.encode(prompt, add_special_tokens=False) + end
    return stream


def make_batches(tokenizer: Any, options: Options) -> torch.Tensor:
    """Token numbers [step, row, position]: rows begin anywhere in the endlessly repeated prompts."""
    stream = torch.tensor(make_stream(tokenizer))
    generator = torch.Generator().manual_seed(options.seed)
    begins = torch.randint(len(stream), (options.successes, options.batch_size, 1), generator=generator)
    return stream[(begins + torch.arange(options.seq_len)) % len(stream)]
