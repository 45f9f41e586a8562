"""The sub-commands, one file each: adding a file here adds a sub-command.

A file offers a function of its own name (``calibrate_link`` becomes ``calibrate-link``), or a
:class:`typer.Typer` named ``app`` for a command with sub-commands, and tells by ``PANEL`` and
``ORDER`` where ``paceline --help`` lists it. Files are imported for that help: what is heavy is
imported inside their functions. Options that are arguments of the library are described in ``paceline/api``; the
docstring of a command's function is its help.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["MISSED", "Panel"]

MISSED = 3
"""Exit code of a command that did its work, where a goal, a threshold or a limit was missed."""


class Panel(StrEnum):
    """Groups of commands in ``paceline --help``."""

    PREDICT = "Predict"
    MEASURE = "Measure and check"
    LOOK_UP = "Look up"
