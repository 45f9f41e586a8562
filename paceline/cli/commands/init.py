"""``paceline init``: a scenario of one's own, from a few questions or options.

It asks for the arguments of ``paceline.api.new_scenario`` and calls that; the file's text is written in :mod:`paceline.scenario_text`.
"""

from __future__ import annotations

import sys
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cli.commands import Panel
from paceline.cli.options import Given, calling
from paceline.cli.questions import COMMON, figures_asked

if TYPE_CHECKING:
    from simulator.scenario import Scenario

PANEL, ORDER = Panel.PREDICT, 15

_MOST_SWEPT = 8


@calling(
    "new_scenario",
    left_out={"out": "scenario.toml"},
    hints={
        "strategy": "; ".join(f"{name} ({words.replace('; ', ', ')})" for name, words in COMMON.items())
        + ". Also halving-doubling, tree, hierarchical or auto (other all-reduces), and backup (sync-ps that does not wait for the "
        "slowest)."
    },
    panels={
        "The model": ("workload", "step_time", "parameters", "batch", "tensors", "measured_with"),
        "The machines": ("cluster", "nodes", "devices", "bandwidth", "latency", "sort", "price"),
        "The training": ("strategy", "workers", "servers", "epochs", "dataset_size"),
    },
)
def init(given: Given) -> None:
    """Write a scenario of your own, with a comment on each key.

    Without options it asks a few questions. With options it asks nothing, and takes for what
    is left out what is usual.

    Example: [bold]paceline init --workload mine --nodes 4 --bandwidth '25 Gbit/s'[/bold]

    Example: [bold]paceline init --step-time '250 ms' --parameters 25.6e6 --batch 64 --nodes 4 --out my.toml[/bold]
    """
    from paceline import api
    from simulator.base.errors import InputError
    from simulator.base.files import EDITED, Output

    out, force = given.get("out") or Path("scenario.toml"), given["force"]
    figures: dict[str, Any] = {name: given.get(name) for name in signature(api.new_scenario).parameters if name not in ("out", "force")}
    if "workload" in given:
        given.useless("--workload", ("step_time", "parameters", "tensors", "measured_with"))
    if "cluster" in given:
        given.useless("--cluster", ("devices", "bandwidth", "latency", "sort"))
    if not any(given.is_typed(name) for name in figures):
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InputError("init: nobody can be asked here; give --workload NAME, or --step-time and --parameters (paceline init --help)")
        Output(out, EDITED, force=force)
        figures = figures_asked(figures)
    _show(api.new_scenario(**figures, out=out, force=force), out)


def _show(scenario: Scenario, path: Path) -> None:
    """What was written, and what to type next."""
    import shlex

    from paceline.cli.terminal import note
    from simulator.base.text import counted

    file = shlex.quote(str(path))
    note(
        f"wrote {path}: {scenario.strategy.in_words}, {counted(scenario.replicas, 'replica')}, "
        f"batch {scenario.batch} each, {scenario.workload.name} on {scenario.cluster.name}"
    )
    counts = _counts(scenario)
    sweep = f"\n  paceline sweep {file} --over strategy.{scenario.strategy.count_key}={','.join(map(str, counts))}" if counts[1:] else ""
    goal = "--samples 1e6 --deadline 12h" if scenario.job is None else "--deadline 12h"
    note(f"Next:\n  paceline simulate {file}{sweep}\n  paceline plan {file} {goal}")


def _counts(scenario: Scenario) -> list[int]:
    """Numbers of workers that are worth a sweep: powers of two, up to what the machines take; none where there is no such number."""
    if not scenario.strategy.count_key:
        return []
    if scenario.layout.one_process:
        most = scenario.replicas  # devices of one machine are no more than it has
    elif scenario.cluster.room is not None:
        most = scenario.workers + scenario.cluster.room - scenario.nodes_needed
    else:
        most = _MOST_SWEPT
    return sorted({*(2**power for power in range(_MOST_SWEPT.bit_length()) if 2**power <= most), min(most, _MOST_SWEPT)})
