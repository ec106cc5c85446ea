"""The three runs of a scaler: FP32 baseline, low-precision candidate, injected overflow.

Every run starts from the same weights and sees the same batches; only the overflow run depends on another run: it
begins at the scale that the candidate ended with, where a finite attempt can succeed.
"""

import copy
import dataclasses
import math
from typing import Any

import torch

from mixed_precision.clock import make_meter
from mixed_precision.data import make_batches
from mixed_precision.model import LoadedModel
from mixed_precision.options import BACKOFF_FACTOR, GROWTH_INTERVAL, Options
from mixed_precision.steps import Attempt, Trainer, digest

BASELINE, CANDIDATE, OVERFLOW = RUNS = ("baseline", "candidate", "overflow")


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run. `attempts` of an overflow run: the injected one; `recovery`: the finite one after it."""

    label: str
    scaler: str
    dtype: str
    attempts: list[Attempt]
    stable: bool  # every step was applied within the back-off limit
    scaling: bool  # the scaler was enabled
    probe_name: str
    probe_delta: float
    probe_bit_equal: bool
    peak_mb: float
    memory_source: str
    clock: str
    recovery: Attempt | None = None

    @property
    def trajectory(self) -> list[Attempt]:
        return [*self.attempts, *([self.recovery] if self.recovery else [])]

    @property
    def last_scale(self) -> float:
        return self.attempts[-1].scale_after


class Bench:
    """What the runs share: the model to copy, the batches, the device and the options."""

    def __init__(self, model: LoadedModel, device: torch.device, options: Options) -> None:
        self.options = options
        self.device = device
        self.network = model.network
        self.batches = make_batches(model.tokenizer, options).to(device)
        self.meter = make_meter(device)

    def make_trainer(
        self, scaler_class: type[torch.amp.GradScaler], dtype: torch.dtype, initial_scale: float
    ) -> Trainer:
        scaler = scaler_class(
            self.device.type,
            init_scale=initial_scale,
            backoff_factor=BACKOFF_FACTOR,
            growth_interval=GROWTH_INTERVAL,
            enabled=dtype == torch.float16,
        )
        return Trainer(
            copy.deepcopy(self.network).to(self.device),
            scaler,
            self.meter,
            dtype=dtype,
            learning_rate=self.options.learning_rate,
            max_norm=self.options.max_norm,
        )

    def run_repeats(self, label: str, name: str, scaler_class: type[torch.amp.GradScaler], dtype: torch.dtype) -> Run:
        """Trains until all steps are applied, or one more was skipped than the extra attempts allow."""
        self.meter.reset_peak()
        trainer = self.make_trainer(scaler_class, dtype, self.options.initial_scale)
        before = trainer.probe.detach().cpu().clone()
        attempts: list[Attempt] = []
        applied = 0
        while applied < self.options.successes and len(attempts) - applied <= self.options.max_scale_backoff_steps:
            attempts.append(trainer.attempt(self.batches[applied]))
            applied += attempts[-1].applied
        return self._finish(label, name, trainer, before, attempts=attempts, stable=applied == self.options.successes)

    def run_overflow(
        self, name: str, scaler_class: type[torch.amp.GradScaler], dtype: torch.dtype, initial_scale: float
    ) -> Run:
        """One attempt with the loss times inf; then a finite one, after everything about the first is noted."""
        self.meter.reset_peak()
        trainer = self.make_trainer(scaler_class, dtype, initial_scale)
        before = trainer.probe.detach().cpu().clone()
        attempts = [trainer.attempt(self.batches[0], loss_factor=math.inf)]
        run = self._finish(OVERFLOW, name, trainer, before, attempts=attempts, stable=True)
        return dataclasses.replace(run, recovery=trainer.attempt(self.batches[0]))

    def _finish(self, label: str, name: str, trainer: Trainer, before: torch.Tensor, **found: Any) -> Run:
        after = trainer.probe.detach().cpu()
        return Run(
            label=label,
            scaler=name,
            dtype=str(trainer.dtype).removeprefix("torch."),
            scaling=trainer.scaler.is_enabled(),
            probe_name=trainer.probe_name,
            probe_delta=(after - before).abs().max().item(),
            probe_bit_equal=digest(after) == digest(before),
            peak_mb=self.meter.peak_mb(),
            memory_source=self.meter.memory_source,
            clock=self.meter.clock,
            **found,
        )


def run_all(bench: Bench, scalers: dict[str, type[torch.amp.GradScaler]]) -> dict[str, dict[str, Run]]:
    """{scaler: {run: Run}}. The scalers take turns, run by run, so that none has the warmer machine throughout."""
    dtype = getattr(torch, bench.options.candidate_dtype)
    runs: dict[str, dict[str, Run]] = {name: {} for name in scalers}
    for label in RUNS:
        for name, scaler_class in scalers.items():
            if label == OVERFLOW:
                scale = runs[name][CANDIDATE].last_scale if runs[name][CANDIDATE].scaling else 1.0
                runs[name][label] = bench.run_overflow(name, scaler_class, dtype, scale)
            else:
                run_dtype = torch.float32 if label == BASELINE else dtype
                runs[name][label] = bench.run_repeats(label, name, scaler_class, run_dtype)
            print(f"{name}: {label} finished, {len(runs[name][label].trajectory)} attempts", flush=True)
    return runs
