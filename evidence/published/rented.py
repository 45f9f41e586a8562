"""Rented machines that were preempted: the distribution of their lifetimes, and jobs that continued with the remaining ones.

``python -m evidence.published.rented`` prints the tables, which lie in ``evidence/tables`` as CSV; docs/buy-or-rent.md has the summary.
Sources: cake-lab/CM-DARE@263b7f14, cake-lab/transient-deep-learning@87c6717e, cake-lab/Sync-Switch@09af0864 (Google Cloud, 2018 to 2020).

``rented-jobs.csv``
    Ten of 63 jobs (ResNet-32, asynchronous, one server, 64,000 updates, each worker on a preemptible K80) lost workers for good. Each is
    predicted from the row of one machine without servers. Times were measured between evaluations, a minute apart: 3% of a job of eight
    workers. A worker is taken when its machine ended, less the time by which the master outlived the job.
``rented-foretold.csv``, ``rented-cost.csv``
    The same 63 jobs, predicted without what was taken from them: ``use = "gce-k80-preemptible"``, ``replacement = "24 h"``, 100 runs each.
    Nothing is fitted to them. Half of each size was kept back by a seed, when the losses were known; chance put all five jobs of two
    workers that lost one into the open half. Jobs of eight lost 0.19 workers each, 0.31 as predicted, which hardly matters: their speed is
    8 to 10% too low. The authors' costs are durations times 0.723 dollars an hour (on demand K80), 0.256 (preemptible K80), 0.861
    (preemptible V100) and 0.143 (server); in jobs of two they counted a machine that was taken to the end, which ``cost_usd`` does not.
    Fitted to half of the 64 machines, the Weibull distribution has a log-likelihood of -49.0 on the other half, the exponential -51.5.
``rented-speed.csv``
    Updates a second by number of workers, predicted from the smallest row. With faster devices the server is full, from about 45 updates a
    second of ResNet-32 and 100 of ResNet-15: work on tensors (104, 50; 216 of Shake-Shake) and bytes on four virtual cores, not its link,
    which is assumed to have 10 Gbit/s. A batch of 128 is the software's default. Sync-Switch has no smaller row to predict from.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from calibrate.validation.comparison import Compared
from evidence.published.prediction import left_out, tables_of
from evidence.published.scenarios import cases_of
from evidence.published.tables import Tables, data_file, load_tables
from evidence.rows import rows_in
from simulator import simulate
from simulator.catalogue.loading import scenario_from_table
from simulator.spec.figures import Estimate

SERIES = "transient-k80-resnet-32-on-demand"
"""Whose row of one machine every job is predicted from."""

WATCHED = ("K80, busy", "K80, idle")
"""Machines that were rented to see how long they live."""
_STEPS = 64_000
_NEVER_BACK_S = 1e7
_DAY_S = 86_400.0
_REPLICATIONS = 100
_USD_PER_HOUR = {"machine": 0.2556, "server": 0.14292}
"""Of a preemptible machine with a K80, and of a server: `terms` and `server_price` of models/clusters/gce-k80-1.toml."""
_SEED = 20180521
LAWS = ("Weibull", "exponential", "nothing taken")
"""Distributions for predicting the jobs: the one of the catalogue, and two simple ones."""
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
    """Weibull distribution of a machine's lifetime, as in ``job.faults``: its mean and shape; 1 is the exponential distribution."""

    mean_h: float
    shape: float

    def alive(self, hours: float) -> float:
        """The share of machines that live so long."""
        scale = self.mean_h / math.gamma(1.0 + 1.0 / self.shape)
        return math.exp(-((hours / scale) ** self.shape))


def lifetimes() -> tuple[Machine, ...]:
    """Every machine of ``models/published/machine_lifetimes.csv``."""
    return tuple(
        Machine(row["machines"], row["zone"], float(row["hours"]), row["ended"] == "taken")
        for row in rows_in(data_file("machine_lifetimes.csv"))
    )


def preempted_jobs() -> tuple[Preempted, ...]:
    """Every job of ``models/published/preempted_jobs.csv``."""
    return tuple(
        Preempted(
            int(row["workers"]), row["zone"], int(row["run"]), float(row["seconds"]), float(row["cost_usd"]),
            tuple(zip(map(int, row["taken"].split()), map(float, row["taken_at_s"].split()), strict=True)), row["source"],
        )
        for row in rows_in(data_file("preempted_jobs.csv"))
    )  # fmt: skip


def fitted(machines: Iterable[Machine], shape: float | None = None) -> Law:
    """The maximum-likelihood distribution of these lifetimes; machines that ended for another reason lived at least so long.

    Parameters
    ----------
    shape
        Shape of the distribution; left out: the likeliest of 0.2 to 3.
    """
    seen = list(machines)
    return max((_of_shape(seen, each) for each in (_SHAPES if shape is None else [shape])), key=lambda found: found[0])[1]


def _of_shape(machines: Sequence[Machine], shape: float) -> tuple[float, Law]:
    """Logarithm of the likelihood, and the distribution of this shape with the likeliest mean."""
    hours = [max(machine.hours, _SHORTEST_H) for machine in machines]
    taken = [each for each, machine in zip(hours, machines, strict=True) if machine.taken]
    scale = (math.fsum(each**shape for each in hours) / len(taken)) ** (1.0 / shape)
    law = Law(scale * math.gamma(1.0 + 1.0 / shape), shape)
    return log_likelihood(machines, law), law


def log_likelihood(machines: Iterable[Machine], law: Law) -> float:
    """Logarithm of the likelihood of these lifetimes: the density of the distribution at preempted ones, its survival at the others."""
    scale = law.mean_h / math.gamma(1.0 + 1.0 / law.shape)
    found = []
    for machine in machines:
        since = max(machine.hours, _SHORTEST_H) / scale
        found.append(-(since**law.shape))
        if machine.taken:
            found.append(math.log(law.shape / scale) + (law.shape - 1.0) * math.log(since))
    return math.fsum(found)


def job_table(job: Preempted, scenario: dict[str, Any]) -> dict[str, Any]:
    """The scenario of a job: a number of workers, 64,000 updates, and a trace of its preemptions."""
    trace = [{"at_s": max(at_s, 0.0), "of": "worker", "number": number} for number, at_s in job.taken]
    faults = {"faults": {"trace": trace, "restart_s": _NEVER_BACK_S}} if trace else {}
    return {**scenario, "job": {"samples": _STEPS * scenario["workload"]["batch_per_replica"], **faults}}


def job_rows(jobs: Iterable[Preempted], tables: Tables | None = None) -> tuple[Compared, ...]:
    """Seconds of jobs compared with predictions from the row of one machine, and with a job without preemptions."""
    by_workers = _scenarios_of(load_tables() if tables is None else tables)
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


# -- jobs of which nobody knows beforehand what they will lose ------------------------------------


class Foretold(NamedTuple):
    """Jobs of some workers, by a distribution of machines' lifetimes: seconds, US dollars, and workers that one of them loses."""

    law: str
    workers: int
    seconds: Estimate
    median_s: float
    cost_usd: Estimate
    lost: float


def kept_back(jobs: Sequence[Preempted]) -> tuple[Preempted, ...]:
    """Half of the jobs of each number of workers, drawn by a fixed seed."""
    draw = random.Random(_SEED)  # noqa: S311 - no secret
    groups = ([job for job in jobs if job.workers == workers] for workers in sorted({job.workers for job in jobs}))
    return tuple(job for group in groups for job in sorted(draw.sample(group, len(group) // 2)))


def spot_table(law: str, scenario: dict[str, Any]) -> dict[str, Any]:
    """The scenario of a job on preemptible machines: as for :func:`job_table`, with a distribution in place of the recorded preemptions.

    A machine that is taken is not replaced that day, as in these jobs; the server is on one that nobody takes.
    """
    taken: dict[str, Any] = {"of": "worker-nodes", "replacement_s": _DAY_S}
    faults: dict[str, Any] = {"use": "gce-k80-preemptible", "preemption": taken}
    if law == "exponential":
        mean_h = fitted((each for each in lifetimes() if each.kind in WATCHED), 1.0).mean_h
        faults = {"preemption": {**taken, "mtbf": f"{mean_h} h", "shape": 1.0, "most": "24 h"}}
    job: dict[str, Any] = {"samples": _STEPS * scenario["workload"]["batch_per_replica"]}
    price = {"usd_per_node_hour": _USD_PER_HOUR["machine"], "source": "as terms of the cluster's price have it"}
    return {
        **scenario,
        "cluster": {**scenario["cluster"], "price": price},
        "run": {**scenario["run"], "replications": _REPLICATIONS},
        "job": job if law == "nothing taken" else {**job, "faults": faults},
    }


def foretold(workers: int, law: str, tables: Tables | None = None) -> Foretold:
    """Jobs of a number of workers, from the on-demand row of one machine and a distribution of lifetimes, without using such jobs."""
    scenario = _scenarios_of(load_tables() if tables is None else tables)[workers]
    job = simulate(scenario_from_table(spot_table(law, scenario), SERIES)).job
    assert job is not None
    assert job.cost_usd is not None
    median_s = job.samples / statistics.median(job.samples_per_s_of_each_replication)
    return Foretold(law, workers, job.time_s, median_s, job.cost_usd, job.faults)


def _scenarios_of(tables: Tables) -> dict[int, dict[str, Any]]:
    """By numbers of workers, from the row of one machine."""
    case, rows = next(each for each in cases_of(tables) if each[0].series.id == SERIES)
    table = case.series.table
    scenarios, _ = tables_of(case, rows, left_out(tables.home).get(table, {}), table)
    return {row.replicas: scenario for row, scenario in zip(rows, scenarios, strict=True)}


def billed_usd(job: Preempted) -> float:
    """All machines until the job ended, those that were taken until then."""
    hours = job.workers * job.seconds - math.fsum(job.seconds - max(at_s, 0.0) for _, at_s in job.taken)
    return (hours * _USD_PER_HOUR["machine"] + job.seconds * _USD_PER_HOUR["server"]) / 3600.0


def main() -> None:
    """Print lifetimes with their distributions, and jobs with their predictions."""
    sys.stdout.writelines(f"{line}\n" for line in (*_of_lifetimes(), *_of_jobs(), *_of_laws()))


def _of_lifetimes() -> Iterator[str]:
    watched = [each for each in lifetimes() if each.kind in WATCHED]
    laws = (fitted(watched, 1.0), fitted(watched))
    yield "; ".join(f"mean {law.mean_h:.0f} h, shape {law.shape:g}" for law in laws)
    for hours in (1, 3, 6, 12, 18, 23, 24):
        seen = sum(machine.hours >= hours for machine in watched) / len(watched)
        yield f"| {hours} h | {seen:.0%} | " + " | ".join(f"{law.alive(hours):.0%}" for law in laws) + " |"
    draw = random.Random(_SEED)  # noqa: S311 - no secret
    kept = set(draw.sample(range(len(watched)), len(watched) // 2))
    known, unseen = ([each for number, each in enumerate(watched) if (number in kept) == back] for back in (False, True))
    for law in (fitted(known, 1.0), fitted(known)):
        expected = math.fsum(1.0 - law.alive(each.hours) for each in unseen)
        yield (
            f"half of them: mean {law.mean_h:.0f} h, shape {law.shape:g}; of the other half {sum(each.taken for each in unseen)} taken, "
            f"{expected:.1f} by the law, logarithm of the likelihood {log_likelihood(unseen, law):.1f}"
        )
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


def _of_laws() -> Iterator[str]:
    jobs = preempted_jobs()
    kept = set(kept_back(jobs))
    on_demand = {row.replicas: row for row in next(each for each in cases_of(load_tables()) if each[0].series.id == SERIES)[1]}
    for workers in (2, 8):
        laws = [foretold(workers, law) for law in LAWS]
        of_updates_s = _STEPS * on_demand[workers].batch_per_replica
        yield f"{workers} workers, on demand: {statistics.fmean(of_updates_s / rate for rate in on_demand[workers].throughput):,.0f} s"
        parts = {"open": [job for job in jobs if job not in kept], "kept back": [job for job in jobs if job in kept], "all": jobs}
        for name, part in parts.items():
            its = [job for job in part if job.workers == workers]
            seconds, usd = [job.seconds for job in its], [billed_usd(job) for job in its]
            yield f"{workers} workers, {name}: {len(its)} jobs, {sum(len(job.taken) for job in its) / len(its):.2f} lost a job"
            for law in laws:
                yield " | ".join((
                    f"| {law.law}", f"{law.lost:.2f}",
                    f"{_beside(law.median_s, statistics.median(seconds))}", f"{_beside(law.seconds.mean, statistics.fmean(seconds))}",
                    _covered(law.seconds, seconds, "{:,.0f} s"), f"{_beside(law.cost_usd.mean, statistics.fmean(usd), '{:.2f}')}",
                    f"{_covered(law.cost_usd, usd, '${:.2f}')} |",
                ))  # fmt: skip


def _beside(predicted: float, measured: float, how: str = "{:,.0f}") -> str:
    return f"{how.format(predicted)} for {how.format(measured)} ({predicted / measured - 1:+.1%})"


def _covered(interval: Estimate, values: Sequence[float], how: str) -> str:
    inside = sum(interval.low <= value <= interval.high for value in values)
    return f"{how.format(interval.low)} to {how.format(interval.high)}, {inside} of {len(values)}"


if __name__ == "__main__":
    main()
