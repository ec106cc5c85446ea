"""Section 15: what differs between versions of torch. It is found out by trying, never by the number of the version."""

from __future__ import annotations

import functools
import inspect
import re
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.amp import grad_scaler as stock

from ampscaler.conformance.case import Case, NotApplicable
from ampscaler.conformance.registry import behaviour
from ampscaler.conformance.tools import INF, NAN, KeywordOptimizer, has_kernel, machine
from ampscaler.conformance.tools_dash_o import RAISED, raised_by_subject, raised_by_torch
from ampscaler.conformance.tools_texts import BACKOFF, BAD_NEW_SCALE, GROWTH, no_kernel, no_tensor


def _outcome(function: Callable[[], Any]) -> str:
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


@behaviour(
    "S15.1",
    "A NaN growth_factor or backoff_factor is accepted where torch's own class accepts it; with the first the scale "
    "never grows, with the second it is NaN after the first overflow",
)
def nan_factors_are_taken_as_torch_takes_them(case: Case) -> None:
    texts = {"growth_factor": GROWTH, "backoff_factor": BACKOFF}
    for name, text in texts.items():
        options: dict[str, Any] = {name: NAN}
        expected = _outcome(functools.partial(torch.amp.GradScaler, "cpu", **options))
        case.true(expected in ("accepted", f"AssertionError: {text}"), f"torch takes {name}=nan or says why not")
        case.equal(_outcome(functools.partial(case.new_scaler, **options)), expected, f"{name}=nan")
        if expected != "accepted":
            return
    scaler = case.ready_scaler(4.0, growth_factor=NAN, backoff_factor=NAN, growth_interval=1)
    scaler.step(case.sgd([4.0]))
    scaler.update()
    case.equal([scaler.get_scale(), case.growth_tracker(scaler)], [4.0, 0], "scale and tracker after growth by NaN")
    scaler.step(case.sgd([INF]))
    scaler.update()
    case.equal(scaler.get_scale(), NAN, "scale after backoff by NaN")


@behaviour(
    "S15.2",
    "The checks are no assert statements: python -O keeps them, where it keeps those of torch's own class",
)
def checks_survive_optimized_python(case: Case) -> None:
    asserted = [error for error in RAISED if error[1] == "AssertionError"]
    if asserted[0] not in raised_by_torch(case):
        raise NotApplicable("python -O takes away the checks of torch's own class")
    for error in asserted:
        case.true(error in raised_by_torch(case), f"torch's own class raises the error of: {error[0]}")
        case.true(error in raised_by_subject(case), f"the class raises the error of: {error[0]}")


@behaviour(
    "S15.3",
    "The text of update() about a new scale that it refuses has one blank, or in some versions several, between its "
    "words",
)
def blanks_in_the_text_may_vary(case: Case) -> None:
    pattern = re.compile("^" + r"\s+".join(re.escape(word) for word in BAD_NEW_SCALE.split()) + "$")
    scaler = case.ready_scaler(4.0)
    case.raises(AssertionError, pattern, scaler.update, case.tensor([1.0, 2.0]))
    case.raises(AssertionError, pattern, scaler.update, case.tensor(1.0).requires_grad_())
    case.raises(AssertionError, pattern, scaler.update, torch.ones((), device="meta"))
    case.equal(scaler.get_scale(), 4.0, "scale")


@behaviour(
    "S15.4",
    "unscale_() and step() raise AssertionError for a parameter that is no tensor; the text names the type, or in "
    "some versions is empty",
)
def a_parameter_must_be_a_tensor(case: Case) -> None:
    pattern = re.compile(f"^({re.escape(no_tensor('str'))})?$")
    stand_in = types.SimpleNamespace(param_groups=[{"params": ["x"]}], step=lambda: None)
    scaler, optimizer = case.ready_scaler(4.0), case.optimizer(stand_in)
    case.raises(AssertionError, pattern, scaler.unscale_, optimizer)
    case.raises(AssertionError, pattern, scaler.step, optimizer)
    if case.private:
        arguments = (optimizer, case.tensor(0.25), case.tensor(0.0), False)
        case.raises(AssertionError, pattern, scaler._unscale_grads_, *arguments)


def _blamed(function: Callable[[], Any]) -> list[str]:
    """File and line that each warning of the call is blamed on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [f"{warning.filename}:{warning.lineno}" for warning in caught]


def _is_blamed_like_torch(
    case: Case, function: Callable[[Any], Any], stock_subject: Any, subject: Any, what: str
) -> None:
    """Both calls warn once, on the line where `function` is written or, in torch, in its own file."""
    line = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
    expected = _blamed(lambda: function(stock_subject))
    own_file = [name.rpartition(":")[0] == stock.__file__ for name in expected]
    case.true(expected == [line] or own_file == [True], f"torch blames {what} on the caller or on its own file")
    case.equal(_blamed(lambda: function(subject)), expected, f"line of {what}")


@behaviour(
    "S15.5",
    "The warnings of the constructor and of step() are blamed on the line of the caller, where torch's own class "
    "does so",
)
def warnings_are_blamed_on_the_caller(case: Case) -> None:
    classes = (torch.amp.GradScaler, case.scaler_class)
    with machine(cuda=False):
        _is_blamed_like_torch(case, lambda of: of("cuda"), *classes, "the constructor's warning")
    optimizer = KeywordOptimizer(case.parameter([4.0]))
    scaler, expected = (case.raw(case.ready_scaler(4.0, of=of)) for of in reversed(classes))
    _is_blamed_like_torch(case, lambda of: of.step(optimizer), expected, scaler, "the keyword's warning")


def _fused_adagrad(case: Case, gradient: float) -> tuple[Any, list[list[str]]]:
    """A fused Adagrad and the list of what its step finds on it, call by call."""
    optimizer: Any = torch.optim.Adagrad([case.parameter([gradient])], lr=1.0, fused=True)
    calls: list[list[str]] = []
    step = optimizer.step

    def watched() -> Any:
        calls.append([name for name in ("grad_scale", "found_inf") if hasattr(optimizer, name)])
        return step()

    optimizer.step = watched
    return case.optimizer(optimizer), calls


@behaviour(
    "S15.6",
    "Fused Adagrad gets grad_scale and found_inf, and always steps, exactly if its _step_supports_amp_scaling is "
    "true, which differs between versions",
    proven_on=("cpu",),
)
def fused_adagrad_is_asked(case: Case) -> None:
    optimizer, calls = _fused_adagrad(case, 3.0)
    asks = bool(getattr(optimizer, "_step_supports_amp_scaling", False))
    scaler = case.ready_scaler(3000.0)
    scaler.step(optimizer)
    case.equal(calls, [["grad_scale", "found_inf"]] if asks else [[]], "attributes during the step")
    # 3 / 3000 rounded to float32; or 3 times the rounded 1 / 3000, rounded again.
    expected = 0.0010000000474974513 if asks else 0.0009999999310821295
    case.equal(case.gradients(optimizer), [[expected]], "gradient")
    scaler.update()
    optimizer, calls = _fused_adagrad(case, INF)
    scaler.step(optimizer)
    case.equal(calls, [["grad_scale", "found_inf"]] if asks else [], "steps with an inf")
    case.equal(case.values(optimizer), [[1.0]], "parameters after a step with an inf")
    left = [name for name in ("grad_scale", "found_inf") if name in vars(optimizer)]
    case.equal(left, [], "attributes after the step")
    scaler.update()
    case.equal(scaler.get_scale(), 1500.0, "scale")


@behaviour("S15.7", "The default device is the string 'cuda', as that of torch's own class")
def the_default_device_is_that_of_torch(case: Case) -> None:
    default = inspect.signature(torch.amp.GradScaler.__init__).parameters["device"].default
    case.equal(default, "cuda", "default device of torch's class")
    with machine(cuda=False):
        enabled = case.recorded(case.scaler_class()).is_enabled()
        case.equal(
            enabled, case.new_scaler(device=default).is_enabled(), "is_enabled() without a device and with 'cuda'"
        )
    if case.private:
        parameters = inspect.signature(case.scaler_class).parameters
        case.equal(parameters["device"].default, "cuda", "default device")
        with machine(cuda=True):
            scaler = case.recorded(case.scaler_class())
        case.equal([scaler._device, scaler.is_enabled()], ["cuda", True], "device and switch of a machine with CUDA")


@behaviour(
    "S15.8",
    "Both operators have a kernel for meta tensors",
    operators=True,
)
def both_operators_have_meta_kernels(case: Case) -> None:
    for operator, name in zip((case.operators.unscale, case.operators.update), case.operators.names, strict=True):
        case.true(has_kernel(operator, "Meta", composite=True), f"{name} has a Meta kernel")
    scale, tracker, found, inverse, gradient = (torch.ones(shape, device="meta") for shape in ((), (), (), (), (3,)))
    case.operators.unscale([gradient], found, inverse)
    case.operators.update(scale, tracker.int(), found, 2.0, 0.5, 2000)
    case.equal(gradient, torch.ones(3, device="meta"), "gradient")
    case.equal(scale, torch.ones((), device="meta"), "scale")


# Gradient; then what follows from it: scaled 0.3, unscaled gradient, parameter, scale, tracker. Computed by hand: each
# number is one operation in double precision, rounded once to single precision.
ITERATIONS = [
    (3.0, 900.0300903320312, 0.000999966636300087, 0.9990000128746033, 3000.10009765625, 1),
    (700.1, 900.0300903320312, 0.23335887491703033, 0.7656411528587341, 5100.169921875, 0),
    (INF, 1530.051025390625, INF, 0.7656411528587341, 1530.051025390625, 0),
    (41.0, 459.01531982421875, 0.0267964918166399, 0.738844633102417, 1530.051025390625, 1),
    (0.1, 459.01531982421875, 6.5357300627511e-05, 0.7387792468070984, 2601.086669921875, 0),
    (0.001, 780.3260498046875, 3.8445472227977007e-07, 0.7387788891792297, 2601.086669921875, 1),
]
# Gradients times the float32 nearest to 1 / 3000.
UNSCALED: list[tuple[torch.dtype, list[float], list[float]]] = [
    (torch.float64, [3.0, 1e300], [0.0009999999892897904, 3.333333297632635e296]),
    (torch.float32, [3.0, 700.0], [0.0009999999310821295, 0.23333333432674408]),
    (torch.float16, [3.0, 4096.0, 60000.0, 1.0], [0.0010004043579101562, 1.365234375, 20.0, 0.0003333091735839844]),
    (torch.bfloat16, [3.0, 4096.0, 59904.0, 1.0], [0.00099945068359375, 1.3671875, 20.0, 0.0003337860107421875]),
]


@behaviour(
    "S15.9",
    "Scaler and unscale operator give the same numbers in every version: six iterations, and gradients of four "
    "dtypes, are compared with numbers written down",
    proven_on=("cpu",),
)
def these_iterations_give_these_numbers(case: Case) -> None:
    scaler = case.new_scaler(3000.1, growth_factor=1.7, backoff_factor=0.3, growth_interval=2)
    optimizer = case.sgd([0.0])
    parameter = case.parameters(optimizer)[0]
    for number, (gradient, loss, unscaled, value, scale, tracker) in enumerate(ITERATIONS, start=1):
        case.equal(scaler.scale(case.tensor(0.3)), case.tensor(loss), f"iteration {number}: scaled loss")
        parameter.grad = case.tensor([gradient])
        scaler.step(optimizer)
        scaler.update()
        case.equal(parameter.grad, case.tensor([unscaled]), f"iteration {number}: gradient")
        case.equal(parameter.tolist(), [value], f"iteration {number}: parameter")
        case.equal(
            [scaler.get_scale(), case.growth_tracker(scaler)], [scale, tracker], f"iteration {number}: scale, tracker"
        )
    for dtype, given, expected in UNSCALED:
        gradients, found = case.tensor(given, dtype), case.tensor(0.0)
        case.operators.unscale([gradients], found, case.tensor(1 / 3000))
        case.equal(gradients.tolist(), expected, f"unscaled {dtype}")
        case.equal(found, case.tensor(0.0), f"found_inf of {dtype}")


@behaviour(
    "U15.1",
    "The unscale operator of aten has no bfloat16 kernel for CUDA",
    operators=True,
    proven_on=(),
    only_on="cuda",
)
def bfloat16_has_no_kernel_on_cuda(case: Case) -> None:
    if not case.operators.is_aten:
        raise NotApplicable("about torch's own operators")
    arguments = ([case.tensor([1.0], torch.bfloat16)], case.tensor(0.0), case.tensor(0.25))
    case.raises(NotImplementedError, no_kernel("cuda", "BFloat16"), case.operators.unscale, *arguments)
