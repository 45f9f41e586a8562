"""``paceline simulate``: one scenario in, one result out."""

from __future__ import annotations

import shlex
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import PRICE_HELP, YES_HELP, prices_of, settings_of

__all__ = ["simulate"]

PANEL, ORDER = Panel.PREDICT, 20


def simulate(
    scenario: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO.toml",
            help="What to simulate, or the name of one in models/scenarios; `paceline schema scenario` lists the keys of the file.",
            show_default=False,
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Set a key, such as strategy.workers=64 or cluster.inter_node.bandwidth='10 Gbit/s'. Repeatable.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    prices: Annotated[list[str] | None, typer.Option("--price", help=PRICE_HELP, metavar="[NAME=]PRICE", show_default=False)] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Write a Chrome trace of the first replication, with the messages' arrows and the critical path of a step; "
            "open it at ui.perfetto.dev or chrome://tracing.",
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the first replication's scalars and histograms, step by step; open them with `tensorboard --logdir DIR`.",
        ),
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Check every law of a sound simulation on the first replication; exit 1 where one is broken.")
    ] = False,
    program: Annotated[
        bool,
        typer.Option(
            "--program",
            help="Simulate nothing: print what would be simulated, its links, ranks, the operations of a step and the rules; with --json "
            "all of it, a row a line.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help=YES_HELP)] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Simulate one scenario.

    Prints throughput with its 90% prediction interval, efficiency, staleness, where a
    step's time goes and what limits it.

    Example: [bold]paceline simulate models/scenarios/async-ps.toml --set strategy.workers=64[/bold]
    """
    from contextlib import ExitStack

    if program:
        _simulates_nothing({"--trace": trace is not None, "--tensorboard": tensorboard is not None, "--audit": audit})
    from paceline.cli.asking import agree_to_one
    from paceline.cli.showing import note, progress_bar, show_result
    from simulator import load_scenario
    from simulator import simulate as run
    from simulator.catalog import scenario_file
    from simulator.files import check_writable
    from simulator.observing.recording import FanOut, Recording
    from simulator.prices import parse_prices
    from simulator.records import Observer

    scenario = scenario_file(scenario)
    given = parse_prices(prices_of(prices))
    loaded = load_scenario(scenario, settings_of(settings), given)
    if program:
        from paceline.cli.showing_program import print_program

        print_program(loaded, json=json)
        return
    agree_to_one(loaded, str(scenario), yes=yes)
    observers: list[Observer] = []
    recording = Recording()
    if trace is not None:
        check_writable(trace, reads=scenario)
    if trace is not None or audit:
        observers.append(recording)
    with ExitStack() as open_files:
        if tensorboard is not None:
            from simulator.observing.tensorboard import TensorBoard

            observers.append(open_files.enter_context(TensorBoard(tensorboard, loaded)))
        with progress_bar("replications") as advance:
            result = run(loaded, observer=FanOut(observers) if observers else None, progress=advance)
    if trace is not None:
        from paceline.cli.tracing import write_trace

        write_trace(trace, loaded, recording)
    if tensorboard is not None:
        note(f"wrote {tensorboard}; open it with: tensorboard --logdir {shlex.quote(str(tensorboard))}")
    laws: dict[str, str] = {}
    if audit:
        from paceline.cli.auditing import show_laws
        from simulator.invariants import check_laws

        laws = check_laws(loaded, recording)
    if json:
        # the result's own format stays as it is, whatever is told beside it
        told = result.to_json()
        typer.echo(f'{{"result":{told},"audit":{{"laws":{dumps(list(laws))}}}}}' if audit else told)
        return
    show_result(result)
    if audit:
        show_laws(laws, recording)


def _simulates_nothing(given: dict[str, bool]) -> None:
    """Refuse options that look at a run, where none is made."""
    from simulator.errors import InputError

    for option in (name for name, is_given in given.items() if is_given):
        raise InputError(f"--program and {option}: --program simulates nothing that {option} could look at; leave one of them out")
