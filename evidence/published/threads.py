"""Threads in which people asked why their training does not scale, with numbers: what a diagnosis makes of these.

``python -m evidence.published.threads`` prints, for each series of ``models/published/issue_threads.csv``, the diagnosis of its largest
run. What is told is what the thread tells of model, machines and stack; the smallest row is the run of one device.
"""

from __future__ import annotations

from collections.abc import Iterator

from evidence.published.prediction import left_out, tables_of
from evidence.published.scenarios import cases_of
from evidence.published.tables import load_tables
from paceline.diagnosing import Diagnosis, Seen, diagnose
from paceline.sweeping import Runner, Simulations
from simulator.catalogue.loading import scenario_from_table

__all__ = ["TABLE", "explained"]

TABLE = "issue_threads"


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
    for name, found in explained():
        print(f"\n{name}", *found.sentences, sep="\n  ")  # noqa: T201
        print(found.to_frame().to_string())  # noqa: T201


if __name__ == "__main__":
    main()
