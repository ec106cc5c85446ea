"""The conformance suite: the behaviour of torch.amp.GradScaler as a contract that any scaler can be held against.

From the command line: python -m ampscaler.conformance --help. In a program: run(all_behaviours(), find_subject(name)).
"""

from ampscaler.conformance.case import Case, Difference, NotApplicable
from ampscaler.conformance.registry import SECTIONS, Behaviour, all_behaviours, behaviour
from ampscaler.conformance.runner import Result, run
from ampscaler.conformance.subject import OperatorPair, Subject, UnknownSubject, find_operators, find_subject

__all__ = [
    "SECTIONS",
    "Behaviour",
    "Case",
    "Difference",
    "NotApplicable",
    "OperatorPair",
    "Result",
    "Subject",
    "UnknownSubject",
    "all_behaviours",
    "behaviour",
    "find_operators",
    "find_subject",
    "run",
]
