"""``paceline simulate``: one scenario in, one result out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["simulate"]


def simulate(
    scenario: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO.toml", help="What to simulate; `paceline schema scenario` lists the keys of the file.", show_default=False
        ),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Set a key, such as strategy.workers=64 or cluster.inter_node.bandwidth='10 Gbit/s'. Repeatable.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write a Chrome trace of the first replication; open it in Perfetto or chrome://tracing.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Simulate one scenario.

    Prints throughput with its 90% prediction interval, efficiency, staleness, where a
    step's time goes and what limits it.

    Example: [bold]paceline simulate models/scenarios/async-ps.toml --set strategy.workers=64[/bold]
    """
    from paceline.cli.showing import note, progress_bar, show_result
    from simulator import load_scenario
    from simulator import simulate as run
    from simulator.files import check_writable, write_whole
    from simulator.loading import parse_setting
    from simulator.observers import ChromeTrace

    loaded = load_scenario(scenario, [parse_setting(text) for text in set_ or []])
    observer = None
    if trace is not None:
        check_writable(trace, "--trace", reads=scenario)
        observer = ChromeTrace()
    with progress_bar("replications") as advance:
        result = run(loaded, observer=observer, progress=advance)
    if observer is not None and trace is not None:
        write_whole(trace, observer.to_json(), "--trace")
        note(f"wrote {trace} ({len(observer)} events); open it at ui.perfetto.dev or chrome://tracing")
    if json:
        typer.echo(result.to_json())
    else:
        show_result(result)
