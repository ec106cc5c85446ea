"""Section 14, first part: which error every misuse gives, row by row."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from typing import Any

import torch

from ampscaler.conformance.case import Case, Difference
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, KeywordOptimizer, Steps, machine
from ampscaler.conformance.tools_texts import (
    BACKOFF,
    BAD_NEW_SCALE,
    CLOSURE,
    DISABLING,
    EMPTY_STATE,
    FLOAT16,
    GROWTH,
    NO_ROOM_FOR_ONE,
    NO_TENSORS,
    NOTHING_TO_STEP_BY,
    NOTHING_TO_UPDATE_BY,
    ONE_PLACE,
    PASSING_ITSELF,
    PICKLED_MIDWAY,
    STEPPED_TWICE,
    TRACKER_BEFORE_SCALE,
    UNSCALED_LATE,
    UNSCALED_TWICE,
    never_scaled,
    no_attribute,
    no_kernel,
    no_tensor,
)


@behaviour(
    "S14.1",
    "Every misuse of a scaler or an operator raises an error, or gives a warning, of its own type and text",
    proven_on=("cpu",),
)
def every_misuse_has_its_error(case: Case) -> None:
    _assertion_errors(case)
    _runtime_errors(case)
    _errors_of_operators(case)
    _other_errors(case)
    _warning_of_the_constructor(case)
    if case.private:
        _errors_of_private_methods(case)
    # What a class that pickles, validates or keeps numbers in another way will differ in comes last.
    _odd_interval(case)
    _getters_when_disabled(case)
    _pickle_and_copy_midway(case)
    _warning_of_a_step_that_passes_the_scaler(case)


def _assertion_errors(case: Case) -> None:
    for options, text in (
        ({"growth_factor": 1.0}, GROWTH),
        ({"growth_factor": 0.5, "backoff_factor": 1.0}, GROWTH),
        ({"backoff_factor": 1.0}, BACKOFF),
        ({"backoff_factor": 2.0}, BACKOFF),
    ):
        case.raises(AssertionError, text, case.scaler_class, device=case.device.type, **options)
    scaler = case.new_scaler(4.0)
    optimizer = case.sgd([4.0])
    case.raises(AssertionError, never_scaled("unscale_"), scaler.unscale_, optimizer)
    case.raises(AssertionError, never_scaled("step"), scaler.step, optimizer)
    case.raises(AssertionError, never_scaled("update"), scaler.update)
    scaler.scale(case.tensor(1.0))
    case.raises(AssertionError, NOTHING_TO_UPDATE_BY, scaler.update)
    case.raises(AssertionError, NOTHING_TO_STEP_BY, scaler.step, case.sgd(None))
    for method in (scaler.unscale_, scaler.step):
        odd = case.optimizer(Steps(4.0))
        case.raises(AssertionError, no_tensor("float"), method, odd)
    leaf = case.tensor(1.0).requires_grad_()
    for tensor in (case.tensor([1.0, 2.0]), leaf, torch.ones((), device="meta")):
        case.raises(AssertionError, BAD_NEW_SCALE, scaler.update, tensor)


def _runtime_errors(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd([4.0])
    scaler.unscale_(optimizer)
    case.raises(RuntimeError, UNSCALED_TWICE, scaler.unscale_, optimizer)
    scaler.step(optimizer)
    case.raises(RuntimeError, UNSCALED_LATE, scaler.unscale_, optimizer)
    case.raises(RuntimeError, STEPPED_TWICE, scaler.step, optimizer)
    case.raises(RuntimeError, CLOSURE, scaler.step, case.sgd([4.0]), closure=None)
    case.raises(RuntimeError, EMPTY_STATE, scaler.load_state_dict, {})
    case.raises(RuntimeError, NO_ROOM_FOR_ONE, scaler.update, case.tensor([8.0]))
    expanded = case.sgd(case.tensor(4.0).expand(2))
    case.raises(RuntimeError, ONE_PLACE, scaler.unscale_, expanded)
    case.equal((scaler.get_scale(), case.growth_tracker(scaler)), (4.0, 0), "scale and growth tracker")


def _errors_of_operators(case: Case) -> None:
    unscale, update = case.operators.unscale, case.operators.update
    one, two = case.tensor(0.0), case.tensor([0.0, 0.0])
    flag, tracker = case.tensor(0.0), case.tensor(0, torch.int32)
    gradients = [case.tensor([4.0])]
    case.raises(RuntimeError, "inv_scale must be a 1-element tensor.", unscale, gradients, flag, two)
    case.raises(RuntimeError, "found_inf must be a 1-element tensor.", unscale, gradients, two, one)
    case.raises(RuntimeError, "inv_scale must be a float tensor.", unscale, gradients, flag, one.double())
    case.raises(RuntimeError, "found_inf must be a float tensor.", unscale, gradients, flag.double(), one)
    case.raises(RuntimeError, "growth_tracker must be a 1-element tensor.", update, one, two.int(), flag, 2.0, 0.5, 2)
    case.raises(RuntimeError, "current_scale must be a 1-element tensor.", update, two, tracker, flag, 2.0, 0.5, 2)
    case.raises(RuntimeError, "found_inf must be a 1-element tensor.", update, one, tracker, two, 2.0, 0.5, 2)
    case.raises(RuntimeError, "growth_tracker must be an int tensor.", update, one, flag, flag, 2.0, 0.5, 2)
    case.raises(RuntimeError, "current_scale must be a float tensor.", update, one.double(), tracker, flag, 2.0, 0.5, 2)
    case.raises(RuntimeError, "found_inf must be a float tensor.", update, one, tracker, flag.double(), 2.0, 0.5, 2)
    scaler = case.ready_scaler(4.0)
    complex_gradient = case.sgd(case.tensor([1 + 2j], torch.complex64))
    text = no_kernel(case.device.type, "ComplexFloat")
    dtype_error = case.raises(NotImplementedError, text, scaler.unscale_, complex_gradient)
    sparse = torch.eye(2, device=case.device).to_sparse_csr()
    layout_error = case.raises(NotImplementedError, None, unscale, [sparse], flag, one)
    case.true(
        isinstance(dtype_error, RuntimeError) and isinstance(layout_error, RuntimeError), "both are RuntimeErrors too"
    )


def _other_errors(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    for outputs in (3, None, 1.5):
        case.raises(ValueError, NO_TENSORS, scaler.scale, outputs)
    half = case.sgd(case.tensor([4.0], torch.float16))
    for method in (scaler.unscale_, scaler.step):
        case.raises(ValueError, FLOAT16, method, half)
    case.raises(AttributeError, no_attribute("int", "device"), scaler.update, 8)
    case.raises(AttributeError, re.compile("has no attribute 'param_groups'"), scaler.step, object())
    case.raises(AttributeError, re.compile("has no attribute 'param_groups'"), scaler.unscale_, object())
    case.raises(KeyError, "'growth_factor'", scaler.load_state_dict, {"scale": 4.0})
    case.raises(KeyError, "'scale'", scaler.load_state_dict, {"growth_factor": 2.0})
    for state in (None, 3):
        case.raises(TypeError, None, scaler.load_state_dict, state)


def _warning_of_the_constructor(case: Case) -> None:
    with machine(cuda=False):
        _warns_of(case, [(UserWarning, DISABLING)], case.scaler_class, "cuda")
        _warns_of(case, [], case.scaler_class, "cuda", enabled=False)


def _warns_of(case: Case, expected: list[tuple[type[Warning], str]], function: Any, *args: Any, **kwargs: Any) -> Any:
    """Like Case.warns; a warning of C++ code may go on with where it was raised."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = function(*args, **kwargs)
    got = [(w.category, str(w.message).partition(" (Triggered internally")[0]) for w in caught]
    if got != expected:
        raise Difference("warnings", repr(expected), repr(got))
    return value


def _errors_of_private_methods(case: Case) -> None:
    scaler = case.new_scaler(4.0)
    optimizer = case.sgd([4.0])
    case.raises(AssertionError, never_scaled("_check_inf_per_device"), scaler._check_inf_per_device, optimizer)
    scaler.scale(case.tensor(1.0))
    case.raises(AssertionError, TRACKER_BEFORE_SCALE, scaler._lazy_init_scale_growth_tracker, case.device)
    scaler._scale = None
    case.raises(AssertionError, TRACKER_BEFORE_SCALE, scaler.scale, case.tensor(1.0))
    odd, inv_scale, found_inf = Steps("text"), case.tensor(0.25), case.tensor(0.0)
    case.raises(AssertionError, no_tensor("str"), scaler._unscale_grads_, odd, inv_scale, found_inf, False)
    half = case.sgd(case.tensor([4.0], torch.float16))
    case.raises(ValueError, FLOAT16, scaler._unscale_grads_, half, inv_scale, found_inf, False)
    disabled = case.new_scaler(enabled=False)
    for method, arguments, attribute in (
        (disabled._get_scale_async, [], "_scale"),
        (disabled._lazy_init_scale_growth_tracker, [case.device], "_growth_tracker"),
        (disabled._check_inf_per_device, [optimizer], "_scale"),
        (disabled._found_inf_per_device, [optimizer], "_per_optimizer_states"),
    ):
        text = no_attribute(case.scaler_class.__name__, attribute)
        case.raises(AttributeError, text, method, *arguments)


def _odd_interval(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    scaler.step(case.sgd([4.0]))
    scaler.set_growth_interval(2.5)
    case.raises(TypeError, None, scaler.update)


def _getters_when_disabled(case: Case) -> None:
    disabled = case.new_scaler(enabled=False)
    for getter in (disabled.get_growth_factor, disabled.get_backoff_factor, disabled.get_growth_interval):
        case.raises(AttributeError, None, getter)


def _pickle_and_copy_midway(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = case.sgd([INF])
    scaler.unscale_(optimizer)
    for stage in ("unscaled", "stepped"):
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            case.raises(AssertionError, PICKLED_MIDWAY, attempt, case.raw(scaler))
        if stage == "unscaled":
            scaler.step(optimizer)
    scaler.update()
    case.equal(
        pickle.loads(pickle.dumps(case.raw(scaler))).get_scale(), 2.0, "scale of the unpickled scaler after update()"
    )


def _warning_of_a_step_that_passes_the_scaler(case: Case) -> None:
    scaler = case.ready_scaler(4.0)
    optimizer = case.optimizer(KeywordOptimizer(case.parameter([4.0])))
    _warns_of(case, [(FutureWarning, PASSING_ITSELF)], scaler.step, optimizer)
    case.equal(len(optimizer.handed), 1, "steps of the optimizer")
    case.same(optimizer.handed[0].kwargs["grad_scaler"], scaler, "grad_scaler")
