"""Threads in which people asked why their training does not scale, with numbers: what a diagnosis makes of these.

``python -m evidence.published.threads`` prints ``evidence/tables/threads.csv``: what ``paceline why`` says of each thread of
``models/published/threads.toml``, given the options there. Then it prints the diagnosis of the largest run of each series of
``models/published/issue_threads.csv``, whose machines are known better; the smallest row is the run of one device.
"""

from __future__ import annotations

import csv
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

from typer.testing import CliRunner

from evidence.published.prediction import left_out, tables_of
from evidence.published.scenarios import cases_of
from evidence.published.tables import load_tables
from paceline.cli.app import app
from paceline.diagnosing import Diagnosis, Seen, diagnose
from paceline.sweeping import Runner, Simulations
from simulator.base import catalog
from simulator.base.text import format_seconds, format_share
from simulator.catalogue.loading import scenario_from_table

TABLE = "issue_threads"
_FILE = catalog.own_file("discrepancy.toml").parent / "published" / "threads.toml"
_MOST = 3


@dataclass(frozen=True)
class Thread:
    """A thread: its name and address, what is asked, options of ``paceline why``, what it came to, and what it does not tell."""

    name: str
    url: str
    asked: str
    why: str
    said: str
    unknown: str


def threads() -> list[Thread]:
    """All threads."""
    with _FILE.open("rb") as file:
        return [Thread(**table) for table in tomllib.load(file)["thread"]]


def answered(thread: Thread) -> Diagnosis:
    """Answer of ``paceline why`` for one thread."""
    ended = CliRunner().invoke(app, ["why", *shlex.split(thread.why), "--json"], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return Diagnosis.model_validate_json(ended.stdout)


def row_of(thread: Thread, found: Diagnosis) -> tuple[str, str, str]:
    """The thread's row: its name, whether it runs as predicted, and the causes that are named, with the chance and cost of each."""
    causes = [
        f"{its.key} ({'told' if its.known == 'told' else format_share(its.probability)}, {format_seconds(its.cost_s.mean)})"
        for its in found.causes[:_MOST]
    ]
    return thread.name, str(int(found.as_told)), "; ".join(causes)


def explained() -> Iterator[tuple[str, Diagnosis]]:
    """Each thread's series, with the diagnosis of its largest run."""
    tables = load_tables()
    without = left_out(tables.home).get(TABLE, {})
    for case, rows in cases_of(tables):
        if case.series.table != TABLE:
            continue
        scenarios, _ = tables_of(case, rows, without, TABLE)
        told = scenario_from_table(scenarios[-1], case.series.id)
        seen = [
            Seen(workers=row.replicas, servers=row.servers or None, batch=row.batch_per_replica, step_s=row.step_s, source=row.source)
            for row in rows
        ]
        with Runner(jobs=2) as runner:
            yield case.series.id, diagnose(told, seen, Simulations(runner))


def main() -> None:
    """Print every diagnosis."""
    written = csv.writer(sys.stdout, lineterminator="\n")
    written.writerow(("thread", "as_predicted", "causes"))
    written.writerows(row_of(thread, answered(thread)) for thread in threads())
    for name, found in explained():
        print(f"\n{name}", *found.sentences, sep="\n  ")  # noqa: T201
        print(found.to_frame().to_string())  # noqa: T201


if __name__ == "__main__":
    main()
