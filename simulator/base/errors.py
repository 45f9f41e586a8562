"""The one hierarchy of errors that a user can meet; each knows its exit code. Also warnings that a user should see.

The command line (``paceline.cli.app``) prints each problem on one line and exits with ``error.exit_code``; a traceback is shown only
for errors outside this hierarchy, which are bugs of ours. The README documents the exit codes.
"""

from __future__ import annotations

from typing import ClassVar


class PacelineError(Exception):
    """Base of every error that is the input's or the run's fault, not a bug.

    Attributes
    ----------
    copyable
        What to type next, shown on a line of its own.
    """

    exit_code: ClassVar[int] = 1
    copyable: str = ""

    def __str__(self) -> str:
        return "\n".join(filter(None, (super().__str__(), self.copyable)))


class InputError(PacelineError):
    """The user gave something that cannot be used: exit code 2.

    Parameters
    ----------
    problem
        What was given, and the rule that it breaks.
    hint
        What to give in its place, as part of the sentence, where that can be said; kept for those who say the problem their own way.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, problem: str = "", hint: str = "") -> None:
        super().__init__(f"{problem}; {hint}" if hint else problem)
        self.hint = hint


_EXTRAS = {
    "numba": "fast",
    "pandas": "frames",
    "scipy": "calibrate",
    "distributed": "dask",
    "ray": "ray",
    **dict.fromkeys(("h11", "starlette", "uvicorn"), "serve"),
}
"""Extra that installs a package."""


def what_to_install(error: ModuleNotFoundError) -> InputError | ModuleNotFoundError:
    """Return which extra has the package that was not found, or the error itself if none has it."""
    package = (error.name or "").partition(".")[0]
    return InputError(f"this needs {package}: pip install 'paceline[{_EXTRAS[package]}]'") if package in _EXTRAS else error


class UnitError(InputError, ValueError):
    """A quantity could not be read, or has the wrong dimension."""


class ScenarioError(InputError):
    """A scenario, workload or cluster breaks a rule of its format.

    Parameters
    ----------
    reasons
        One sentence per problem, each with dotted path, value and rule.
    source
        The file, or what else is faulty, which begins each problem where it is given.

    Attributes
    ----------
    reasons
        The reasons as given, for callers that name the source separately.
    problems
        The same behind their source.
    """

    def __init__(self, *reasons: str, source: str = "") -> None:
        self.reasons = reasons
        self.problems = tuple(f"{source}: {reason}" if source else reason for reason in reasons)
        super().__init__("\n".join(self.problems))


class ResultsError(InputError):
    """A results file cannot be read."""


class SimulationError(PacelineError):
    """The simulation itself could not be carried out."""


class DeadlockError(SimulationError):
    """Everything waits and nothing is scheduled any more."""


class InvariantError(SimulationError):
    """A run violated an invariant; the message names the invariant and the event."""


class CalibrationError(PacelineError):
    """A measurement or a fit failed; whatever was measured is kept."""


class PacelineWarning(UserWarning):
    """Base of what a user should know though it can be gone on with; the command line prints it on one line."""


class PriceWarning(PacelineWarning):
    """A given price replaces another, is computed, or applies only to some clusters."""


class ReadingWarning(PacelineWarning):
    """A number is read in one of the two ways in which it may be meant, or is far from all that there is."""


class SettingWarning(PacelineWarning):
    """A setting leaves no room for a key of the file, which is left out."""


class CalibrationWarning(PacelineWarning):
    """A measurement is unreliable, or was not made on the apparent device; the command line shows it prominently."""


class EngineWarning(PacelineWarning):
    """There is no machine code of the engine here: the result is the same, and takes longer."""


# what both engines say


def dead_lock(now_s: float) -> DeadlockError:
    """Return the error that nothing is left that could happen at an instant, though the run has not ended."""
    return DeadlockError(f"deadlock at {now_s:.9g} s: every process waits for an event that never happens, and the run has not ended")


def no_delay(delay_s: float, now_s: float) -> SimulationError:
    """Return the error that a delay is no time."""
    return SimulationError(f"a delay of {delay_s!r} s was requested at {now_s:.9g} s; delays must be finite and not negative")
