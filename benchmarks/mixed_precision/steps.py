"""One training attempt: forward, backward of the scaled loss, unscale, clip, step or skip, update; and its times.

The scaler's part is everything after the backward pass except the optimizer's own step.
"""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator
from typing import Any

import torch

PROBE_SUFFIX = "self_attn.q_proj.weight"
SMALL = 10_000_000  # parameters


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What one attempt did."""

    loss: float
    grad_norm: float
    applied: bool
    scale_before: float
    scale_after: float
    probe_sha256: str
    step_ms: float
    scaler_ms: float


@contextlib.contextmanager
def reproducible(network: torch.nn.Module) -> Iterator[None]:
    """Equal runs give equal bits inside. An operation without a deterministic version warns, and goes on.

    A small network gets one thread: more would mostly wait for each other.
    """
    small = sum(parameter.numel() for parameter in network.parameters()) < SMALL
    threads = torch.get_num_threads()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only so
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = False  # it would cost time and change no result
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(1 if small else threads)
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = fills
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def find_probe(network: torch.nn.Module) -> tuple[str, torch.nn.Parameter]:
    return next((name, weight) for name, weight in network.named_parameters() if name.endswith(PROBE_SUFFIX))


def digest(tensor: torch.Tensor) -> str:
    values = tensor.detach().cpu().contiguous().view(torch.uint8)
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()


class Trainer:
    """A model, its optimizer and a scaler. Without scaling (scaler disabled) a non-finite norm skips the step."""

    def __init__(
        self,
        network: torch.nn.Module,
        scaler: torch.amp.GradScaler,
        meter: Any,
        *,
        dtype: torch.dtype,
        learning_rate: float,
        max_norm: float,
    ) -> None:
        self.network = network
        self.scaler = scaler
        self.meter = meter
        self.dtype = dtype
        self.max_norm = max_norm
        self.optimizer = torch.optim.SGD(network.parameters(), lr=learning_rate)
        self.probe_name, self.probe = find_probe(network)
        self.device_type = self.probe.device.type
        # Whether a step was applied, and how long the optimizer took, is seen where it happens: in the optimizer.
        self._optimizer_marks: list[Any] = []
        self.optimizer.register_step_pre_hook(lambda *_: self._optimizer_marks.append(meter.mark()))
        self.optimizer.register_step_post_hook(lambda *_: self._optimizer_marks.append(meter.mark()))

    def attempt(self, tokens: torch.Tensor, loss_factor: float | None = None) -> Attempt:
        """Waits for the device at its end, after the last time mark."""
        scale_before = self.scaler.get_scale()
        self._optimizer_marks.clear()
        begin = self.meter.mark()
        loss = self._backward(tokens, loss_factor)
        after_backward = self.meter.mark()
        norm = self._step()
        end = self.meter.mark()
        scaler_ms = self.meter.milliseconds(after_backward, end)
        if self._optimizer_marks:
            scaler_ms -= self.meter.milliseconds(*self._optimizer_marks)
        return Attempt(
            loss=loss.item(),
            grad_norm=norm.item(),
            applied=bool(self._optimizer_marks),
            scale_before=scale_before,
            scale_after=self.scaler.get_scale(),
            probe_sha256=digest(self.probe),
            step_ms=self.meter.milliseconds(begin, end),
            scaler_ms=scaler_ms,
        )

    def _backward(self, tokens: torch.Tensor, loss_factor: float | None) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        half = self.dtype != torch.float32
        with torch.autocast(self.device_type, self.dtype if half else torch.bfloat16, enabled=half):
            loss = self.network(input_ids=tokens, labels=tokens).loss
        if loss_factor is not None:
            loss = loss * loss_factor
        self.scaler.scale(loss).backward()
        return loss.detach()

    def _step(self) -> torch.Tensor:
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.max_norm)
        if self.scaler.is_enabled() or torch.isfinite(norm):
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return norm
