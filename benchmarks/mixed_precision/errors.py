"""How the experiment ends: its exit codes, and one exception for each way to fail before there is a result.

The message of an exception is one line that the user sees; nothing has been written when one is raised.
"""

ACCEPTED = 0
REJECTED = 1


class ExperimentError(Exception):
    """Ends the program with its message on stderr and its exit code."""

    exit_code: int


class ConfigurationError(ExperimentError):
    """The options make no sense, alone or together; the code that argparse uses too."""

    exit_code = 2


class UnavailableError(ExperimentError):
    """Hardware, a package or the model is not there."""

    exit_code = 3


class LabelExistsError(ExperimentError):
    """There is a record of this label already."""

    exit_code = 4


class BrokenRecordError(ExperimentError):
    """A stored record is missing, is no strict JSON, or does not follow the schema."""

    exit_code = 5
