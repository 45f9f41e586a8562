"""Asks on the terminal before work that takes long, unless ``--yes`` is given.

What counts as long, and the words of the question, are in :mod:`paceline.lengthy`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from paceline.lengthy import Agree, Lengthy


def asking(where: object, *, yes: bool) -> Agree:
    """What the library calls before lengthy work: asks at the terminal, or with ``yes`` goes on without a question.

    Parameters
    ----------
    where
        What the work is about, such as the scenario's file.
    yes
        Whether ``--yes`` is given.

    Raises
    ------
    InputError
        By the function that is returned: the work takes long, there is nobody to ask, and ``yes`` is not set.
    Exit
        By the function that is returned: the answer was no.
    """

    def agree(work: Lengthy) -> None:
        from paceline.cli.terminal import note
        from simulator.base.errors import InputError
        from simulator.base.text import format_rough_seconds

        if work.limit_s is None:
            note(f"{where}: {work.what}")
        elif yes:
            return
        elif not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InputError(f"{where}: {work.what}; more than {format_rough_seconds(work.limit_s)} needs --yes; or {work.instead}")
        elif not typer.confirm(f"paceline: {where}: {work.what}. Go on?", err=True):
            raise typer.Exit(InputError.exit_code)

    return agree
