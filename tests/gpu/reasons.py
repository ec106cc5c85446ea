"""Of what a step has printed, the lines that tell why it failed."""

import re
from collections.abc import Sequence

# -Werror is in every compiler's command line.
REASON = re.compile(r"(?<!-W)error\b|not found|cannot find|no such file|^WRONG:", re.IGNORECASE)
KEPT_REASONS = 20
KEPT_LAST = 20


def reasons(lines: Sequence[str]) -> list[str]:
    """Lines about errors, each with the next one where it ends in a colon, as CMake's do."""
    found = []
    is_next = False
    for line in lines:
        if not line.strip() or line.startswith("+ "):  # a command
            continue
        if is_next or REASON.search(line):
            found.append(line)
        is_next = REASON.search(line) is not None and line.rstrip().endswith(":")
    return found


def worth_keeping(lines: Sequence[str]) -> list[str]:
    """The first lines about errors, unless they are among the last ones, which follow."""
    earlier = reasons(lines[:-KEPT_LAST])[:KEPT_REASONS]
    return earlier + list(lines[-KEPT_LAST:])


def most_telling(lines: Sequence[str], count: int = 5) -> list[str]:
    """So many at most: those about errors first, then the last ones."""
    first = reasons(lines)[:count]
    others = [line for line in lines if line not in first]
    rest = count - len(first)
    return first + (others[-rest:] if rest > 0 else [])
