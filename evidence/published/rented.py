"""Machines that were rented and taken away: which law their lifetimes follow, and jobs that went on with those that were left.

``python -m evidence.published.rented`` prints both tables of docs/rented-machines.md.
"""

from __future__ import annotations

import csv
import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from calibrate.validation.comparison import Compared
from evidence.published.prediction import left_out, tables_of
from evidence.published.scenarios import cases_of
from evidence.published.tables import Tables, data_file, load_tables
from simulator import simulate
from simulator.catalogue.loading import scenario_from_table

__all__ = ["SERIES", "WATCHED", "Law", "Machine", "Preempted", "fitted", "job_rows", "job_table", "lifetimes", "main", "preempted_jobs"]

SERIES = "transient-k80-resnet-32-on-demand"
"""Whose row of one machine every job is predicted from."""

WATCHED = ("K80, busy", "K80, idle")
"""Machines that were rented to see how long they live."""
_STEPS = 64_000
_NEVER_BACK_S = 1e7
_SHORTEST_H = 0.5 / 60
"""Lifetimes are given in minutes at best: one of none lasted some part of one."""
_SHAPES = [number / 100 for number in range(20, 301)]


class Machine(NamedTuple):
    """How long a machine lived, and whether it was then taken away or ended for another reason."""

    kind: str
    zone: str
    hours: float
    taken: bool


class Preempted(NamedTuple):
    """A job on preemptible machines: workers by their numbers that were taken from it for good, and when since its start."""

    workers: int
    zone: str
    run: int
    seconds: float
    cost_usd: float
    taken: tuple[tuple[int, float], ...]
    source: str


class Law(NamedTuple):
    """Weibull law of a machine's lifetime, as ``job.faults`` has it: its mean and shape; 1 is the exponential law."""

    mean_h: float
    shape: float

    def alive(self, hours: float) -> float:
        """The share of machines that live so long."""
        scale = self.mean_h / math.gamma(1.0 + 1.0 / self.shape)
        return math.exp(-((hours / scale) ** self.shape))


def lifetimes() -> tuple[Machine, ...]:
    """Every machine of ``models/published/machine_lifetimes.csv``."""
    return tuple(
        Machine(row["machines"], row["zone"], float(row["hours"]), row["ended"] == "taken") for row in _lines("machine_lifetimes.csv")
    )


def preempted_jobs() -> tuple[Preempted, ...]:
    """Every job of ``models/published/preempted_jobs.csv``."""
    return tuple(
        Preempted(
            int(row["workers"]), row["zone"], int(row["run"]), float(row["seconds"]), float(row["cost_usd"]),
            tuple(zip(map(int, row["taken"].split()), map(float, row["taken_at_s"].split()), strict=True)), row["source"],
        )
        for row in _lines("preempted_jobs.csv")
    )  # fmt: skip


def _lines(name: str) -> Iterator[dict[str, str]]:
    with open(data_file(name), newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def fitted(machines: Iterable[Machine], shape: float | None = None) -> Law:
    """The law under which these lifetimes are likeliest; machines that ended for another reason lived at least so long.

    Parameters
    ----------
    shape
        That of the law; left out: the likeliest of 0.2 to 3.
    """
    seen = list(machines)
    return max((_of_shape(seen, each) for each in (_SHAPES if shape is None else [shape])), key=lambda found: found[0])[1]


def _of_shape(machines: Sequence[Machine], shape: float) -> tuple[float, Law]:
    """Logarithm of the likelihood, and the law of this shape with the likeliest mean."""
    hours = [max(machine.hours, _SHORTEST_H) for machine in machines]
    taken = [each for each, machine in zip(hours, machines, strict=True) if machine.taken]
    scale = (math.fsum(each**shape for each in hours) / len(taken)) ** (1.0 / shape)
    likelihood = math.fsum(math.log(shape / scale) + (shape - 1.0) * math.log(each / scale) for each in taken) - len(taken)
    return likelihood, Law(scale * math.gamma(1.0 + 1.0 / shape), shape)


def job_table(job: Preempted, scenario: dict[str, Any]) -> dict[str, Any]:
    """The scenario of a job: of so many workers, 64,000 updates, and a trace of what was taken from it."""
    trace = [{"at_s": max(at_s, 0.0), "of": "worker", "number": number} for number, at_s in job.taken]
    faults = {"faults": {"trace": trace, "restart_s": _NEVER_BACK_S}} if trace else {}
    return {**scenario, "job": {"samples": _STEPS * scenario["workload"]["batch_per_replica"], **faults}}


def job_rows(jobs: Iterable[Preempted], tables: Tables | None = None) -> tuple[Compared, ...]:
    """Seconds of jobs beside predictions from the row of one machine, and beside those of a job from which nothing is taken."""
    tables = load_tables() if tables is None else tables
    case, rows = next(each for each in cases_of(tables) if each[0].series.id == SERIES)
    table = case.series.table
    scenarios, _ = tables_of(case, rows, left_out(tables.home).get(table, {}), table)
    by_workers = {row.replicas: scenario for row, scenario in zip(rows, scenarios, strict=True)}
    return tuple(_compared(job, by_workers[job.workers]) for job in jobs)


def _compared(job: Preempted, scenario: dict[str, Any]) -> Compared:
    its, undisturbed = (simulate(scenario_from_table(job_table(each, scenario), SERIES)) for each in (job, job._replace(taken=())))
    assert its.job is not None
    assert undisturbed.job is not None
    return Compared(
        name=f"{job.workers} workers, {job.zone}, run {job.run}",
        group="jobs on preemptible machines",
        unit="s",
        measured=(job.seconds,),
        predicted=its.job.time_s,
        baselines={"nothing taken": undisturbed.job.time_s.mean},
        settings={"workers": job.workers, "taken": len(job.taken), "source": job.source},
    )


def main() -> None:
    """Print lifetimes beside their laws, and jobs beside their predictions."""
    sys.stdout.writelines(f"{line}\n" for line in (*_of_lifetimes(), *_of_jobs()))


def _of_lifetimes() -> Iterator[str]:
    watched = [each for each in lifetimes() if each.kind in WATCHED]
    laws = (fitted(watched, 1.0), fitted(watched))
    yield "; ".join(f"mean {law.mean_h:.0f} h, shape {law.shape:g}" for law in laws)
    for hours in (1, 3, 6, 12, 18, 23, 24):
        seen = sum(machine.hours >= hours for machine in watched) / len(watched)
        yield f"| {hours} h | {seen:.0%} | " + " | ".join(f"{law.alive(hours):.0%}" for law in laws) + " |"
    for kind in ("K80, job of 2", "K80, job of 8"):
        its = [each for each in lifetimes() if each.kind == kind]
        due = " | ".join(f"{math.fsum(1.0 - law.alive(each.hours) for each in its):.1f}" for law in laws)
        yield f"| {kind}: taken of {len(its)} | {sum(each.taken for each in its)} | {due} |"


def _of_jobs() -> Iterator[str]:
    jobs = preempted_jobs()
    for row in job_rows(each for each in jobs if each.taken):
        its, least = row.predicted.mean, row.baselines["nothing taken"]
        yield f"| {row.name} | {row.settings['taken']:.0f} | {row.mean:,.0f} | {its:,.0f} | {row.error:+.1%} | {least:,.0f} |"
    for workers in (2, 8):
        whole = [each for each in jobs if each.workers == workers and not each.taken]
        (row,) = job_rows(whole[:1])
        seconds = statistics.median(each.seconds for each in whole)
        its = row.predicted.mean
        yield f"| {workers} workers, median of {len(whole)} runs | 0 | {seconds:,.0f} | {its:,.0f} | {its / seconds - 1:+.1%} | |"


if __name__ == "__main__":
    main()
