"""The strategy for whole programs: the set-up, then iterations of training with oddities between them."""

from __future__ import annotations

import re

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ampscaler.conformance.random.oddities import draw_odd
from ampscaler.conformance.random.training import (
    Statement,
    create_parameter,
    draw_optimizer,
    draw_parameters,
    draw_scaler,
    iteration,
    set_gradients,
)
from ampscaler.conformance.random.vocabulary import Parameter, Setting, options, sometimes

Program = list[Statement]

#: Iterations in a program, and odd statements before and in each of them.
ITERATIONS = 4
ODDITIES = 3
#: Percentage of iterations with oddities.
ODD_ITERATIONS = 60


@st.composite
def programs(draw: DrawFn, device: str, private: bool) -> Program:
    """A program for tensors on that device. `private`: for scalers with torch's private names."""
    parameters = draw_parameters(draw, private)
    scaler = draw_scaler(draw, device, private)
    optimizers = tuple((f"o{i}", _members(draw, parameters)) for i in range(draw(st.sampled_from((1, 1, 1, 2, 2, 3)))))
    created = [draw_optimizer(draw, name, members, private) for name, members in optimizers]
    fused = any("fused=True" in statement.text for statement in created)
    setting = Setting(device, private, fused, parameters, optimizers)
    program = [*scaler, *(create_parameter(parameter, device) for parameter in parameters), *created]
    if private and sometimes(draw, 15):
        program.append(Statement("second_scaler", f'other = Scaler("{device}", init_scale=8.0)'))
    program += set_gradients(draw, setting)
    if sometimes(draw, 90):
        program.append(Statement("scale", f"scaler.scale(torch.ones((){options(device)}))"))
    for statements in draw(st.lists(_section(setting), min_size=1, max_size=ITERATIONS)):
        program += statements
    return _defined(program)


def _members(draw: DrawFn, parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """The parameters of one optimizer: all of them, or some; optimizers may share them."""
    left_out = draw(st.integers(0, 15)) if sometimes(draw, 50) else 0
    chosen = tuple(parameter for i, parameter in enumerate(parameters) if not left_out >> i & 1)
    return chosen or parameters[:1]


@st.composite
def _section(draw: DrawFn, setting: Setting) -> Program:
    statements = draw(iteration(setting))
    if sometimes(draw, ODD_ITERATIONS):
        for _ in range(draw(st.integers(1, ODDITIES))):
            place = draw(st.integers(0, len(statements)))
            statements.insert(place, Statement(*draw_odd(draw, setting)))
    return statements


def _defined(program: Program) -> Program:
    """The program without statements that use a name before it is there: they would be NameErrors only."""
    known: set[str] = set()
    kept: Program = []
    for statement in program:
        known |= set(re.findall(r"^(other|loss) = ", statement.text))
        if not ({"other", "loss"} & set(re.findall(r"\b(?:other|loss)\b", statement.text)) - known):
            kept.append(statement)
    return kept
