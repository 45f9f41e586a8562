"""``paceline advise``: ways of training on 1 to N machines, and whether more than one is worth it.

It calls ``paceline.api.advise`` and prints by :mod:`paceline.cli.showing_plan`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import Given, Yes, calling

PANEL, ORDER = Panel.PREDICT, 35


@calling("advise")
def advise(
    given: Given, *, yes: Yes = False, json: Annotated[bool, typer.Option("--json", help="Print the advice as JSON.")] = False
) -> None:
    """Compare ways of training on 1 to N machines, without a goal.

    One table has the throughput of each, with the size of buckets that is best for it. The advice
    is the fastest of what beats one machine for certain, and one machine where nothing does.

    Example: [bold]paceline advise ring --machines 1..8[/bold]

    With a deadline, a budget or a throughput to reach, ask plan.
    """
    from paceline import api
    from paceline.cli.asking import asking
    from paceline.cli.ending import Counted, keeping
    from paceline.cli.showing_plan import show_advice
    from paceline.cli.terminal import note, progress_bar

    out = given.get("out")
    with progress_bar("scenarios") as advance, keeping((count := Counted(advance, out)).kept):
        found = api.advise(**given, progress=count, agree=None if yes else asking(given["scenario"], yes=yes))
    if json:
        typer.echo(found.to_json())
    else:
        show_advice(found)
    if out is not None:
        note(f"wrote {out}; draw it with: paceline report {out}")
