"""``paceline serve``: a page in the browser on which a scenario is changed and answers at once."""

from __future__ import annotations

import webbrowser
from contextlib import ExitStack
from typing import Annotated

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import Given, calling

PANEL, ORDER = Panel.PREDICT, 55


@calling("serve")
def serve(
    given: Given,
    *,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
) -> None:
    """Explore live: change a scenario in the browser, and see at once what it does.

    Move sliders, choose strategies and clusters, or edit the scenario in a form or as TOML. Bounds come
    first, then a first look, then the figures and words of the report, better while you look. What you
    find can be saved as a scenario or as a report, planned from, or copied as a link.

    Nobody but this machine reaches the page, and the link opens it once. Ctrl-C ends it.

    Example: [bold]paceline serve ring --open[/bold]

    Example: [bold]paceline serve mine.toml --set strategy.workers=64 --port 8050[/bold]
    """
    from paceline import api
    from paceline.cli.ending import Interrupted, Terminated
    from paceline.cli.terminal import note, stages_bar

    serving = False
    with ExitStack() as shown:
        advance = shown.enter_context(stages_bar())

        def ready(link: str) -> None:
            nonlocal serving
            serving = True
            shown.close()
            typer.echo(link)
            note("Open the link; Ctrl-C ends it." if "host" not in given else "Whoever has the link can use the page; Ctrl-C ends it.")
            if open_ and not webbrowser.open(link):
                note("There is no browser to be found; open the link yourself")

        try:
            api.serve(**given, ready=ready, progress=advance)
        except Interrupted as interrupted:
            if isinstance(interrupted, Terminated) or not serving:
                raise
            interrupted.heed()
            note("stopped serving")
