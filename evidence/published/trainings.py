"""Whole published trainings of TensorFlow's parameter servers: how long, for how much, and how accurate in the end.

ResNet-32 on CIFAR-10, 64,000 gradients of 128 images, asynchronous with one to eight workers (Li et al., "Speeding up deep learning with
transient servers", ICAC 2019: ``models/published/trainings.csv``; CM-DARE, ICDCS 2020: ``cmdare.csv``), and with eight that train
synchronously, asynchronously, or first one and then the other (Li et al., "Sync-Switch", ICDCS 2021: ``switched_trainings.csv``).
Durations are predicted from a device's run of one worker, by the scenarios by which its throughput is. Jobs that lost machines are
in :mod:`evidence.published.rented`. Accuracies are in :mod:`evidence.published.accuracies`. ``python -m evidence trainings`` runs both.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from calibrate.validation.comparison import Compared
from evidence.published.prediction import compute_that_gives, discrepancy_without, left_out, solved, tables_of
from evidence.published.scenarios import PublishedCase, cases_of, table_of
from evidence.published.tables import Row, Tables, data_file, load_tables
from evidence.rows import rows_in
from simulator import simulate
from simulator.catalogue.loading import scenario_from_table
from simulator.results.inadequacy import regime_of
from simulator.results.results import Result
from simulator.spec.constants import Known
from simulator.spec.figures import Estimate

GRADIENTS, BATCH = 64_000, 128
SEED, KEPT = 20_261_126, 6
"""Which experiments are kept back, and how many: drawn before a duration of any was predicted."""
OPEN, KEPT_BACK = "open", "kept back"
SWITCHED = ("from one worker", "from the asynchronous runs")
"""What the compute of the runs with eight workers that switch is taken from."""

_SERIES = {
    ("K80", 1): "transient-k80-resnet-32-on-demand",
    ("K80", 2): "transient-k80-resnet-32-2-servers",
    ("P100", 1): "cmdare-p100-resnet-32-1-server",
    ("V100", 1): "transient-v100-resnet-32-1-server",
}
"""By device and number of servers."""
_ONE_WORKER = {("K80", 2): ("K80", 1)}
"""Whose run of one worker is taken where there is none with as many servers."""
_PREEMPTIBLE = {("K80", 2): 0.2556, ("V100", 1): 0.861}
"""US dollars an hour for a preemptible machine, by which the authors paid: 0.000071 a second with a K80 (``data_processor.py``, see
``models/clusters/gce-k80-1.toml``); with a V100 cost over duration of the smallest experiment, less the server's 0.143."""
_BANDWIDTHS = (1.0e9, 1.25e9, 1.5e9, 2.0e9)
"""Bytes a second between machines, which nobody stated: 8 to 16 Gbit/s (Google Cloud, 2017: 2 Gbit/s a core, at most 16)."""
_INTERRUPTED = ("bsp_1",)
"""Begun again from a checkpoint (``reminder.txt`` beside it), and twice as long as the others."""
_INPUT_BYTES = 32 * 32 * 3 * 4.0
"""Of an image of CIFAR-10 in float32."""


class Published(NamedTuple):
    """One training as it was published."""

    workers: int
    seconds: float
    accuracy: float | None
    cost_usd: float | None
    source: str


class Experiment(NamedTuple):
    """Trainings that differ in nothing but luck, zone and day."""

    device: str
    servers: int
    workers: int
    runs: tuple[Published, ...]
    kept_back: bool

    @property
    def name(self) -> str:
        """Its name."""
        return f"{self.workers} x {self.device}, {self.servers} server{'s' if self.servers > 1 else ''}"


class Switched(NamedTuple):
    """A training with eight workers that is synchronous, asynchronous, or first the one and then the other."""

    setup: str
    run: str
    way: str
    end_step: int
    seconds: float | None
    accuracy: float
    source: str

    @property
    def synchronous_share(self) -> float:
        """Of all gradients, those of synchronous steps: eight make one step there, each its own when asynchronous."""
        return max(round((GRADIENTS - self.end_step) / (GRADIENTS - GRADIENTS // 8), 2), 0.0)


class Switching(NamedTuple):
    """Seconds of 64,000 gradients of eight workers, synchronous and asynchronous, as predicted."""

    base: str
    synchronous: Result
    in_graph: Result
    asynchronous: Result

    def estimate(self, share: float, *, in_graph: bool = False) -> Estimate:
        """Of a training that is synchronous for a share of its gradients, and asynchronous then; ends of intervals come together."""
        first, then = _time_of(self.in_graph if in_graph else self.synchronous), _time_of(self.asynchronous)
        mean, low, high = (share * one + (1.0 - share) * other for one, other in zip(_ends(first), _ends(then), strict=True))
        return Estimate(mean=mean, low=low, high=high)

    @property
    def ratio(self) -> float:
        """How many times as long synchronous training takes."""
        return _time_of(self.synchronous).mean / _time_of(self.asynchronous).mean


def _ends(its: Estimate) -> tuple[float, float, float]:
    return its.mean, its.low, its.high


def published() -> Mapping[tuple[str, int], tuple[Published, ...]]:
    """Every training of ``models/published/trainings.csv`` by its device and number of servers; 0: one machine without."""
    found: dict[tuple[str, int], list[Published]] = {}
    for row in rows_in(data_file("trainings.csv")):
        key = row["device"], int(row["servers"] or 0)
        one = Published(int(row["workers"]), float(row["seconds"]), float(row["accuracy"]), float(row["cost_usd"]), row["source"])
        found.setdefault(key, []).append(one)
    return {key: tuple(its) for key, its in found.items()}


def switched() -> tuple[Switched, ...]:
    """Every training of ``models/published/switched_trainings.csv``."""
    return tuple(
        Switched(
            row["setup"], row["run"], row["way"], int(row["end_step"]), float(row["seconds"]) if row["seconds"] else None,
            float(row["accuracy"]), row["source"],
        )
        for row in rows_in(data_file("switched_trainings.csv"))
    )  # fmt: skip


def experiments(tables: Tables | None = None) -> tuple[Experiment, ...]:
    """Every experiment of several workers from which no machine was taken, but for the smallest of a device that has no run of one."""
    tables = load_tables() if tables is None else tables
    runs = published()
    found = []
    for (device, servers), series in _SERIES.items():
        _, rows = _case(tables, series)
        for row in rows[0 if (device, servers) in _ONE_WORKER else 1 :]:
            its = tuple(one for one in runs.get((device, servers), ()) if one.workers == row.replicas)
            found.append((device, servers, row.replicas, its or (_by_rate(row),)))
    kept = set(random.Random(SEED).sample(range(len(found)), KEPT))  # noqa: S311, since nothing is kept secret
    return tuple(Experiment(*one, kept_back=number in kept) for number, one in enumerate(found))


def _by_rate(row: Row) -> Published:
    """A training of which only the rate was published, as long as 64,000 gradients take at it."""
    return Published(row.replicas, GRADIENTS * BATCH / row.mean, None, None, row.source)


def _case(tables: Tables, series: str) -> tuple[PublishedCase, list[Row]]:
    return next((case, rows) for case, rows in cases_of(tables) if case.series.id == series)


def trainings_of(device: str, servers: int, tables: Tables | None = None) -> dict[int, dict[str, Any]]:
    """Scenarios of whole trainings by their number of workers, as nested tables; the workload is that of the smallest one's run.

    Parameters
    ----------
    device
        K80, P100 or V100.
    servers
        How many servers.
    """
    tables = load_tables() if tables is None else tables
    case, rows = _case(tables, _SERIES[device, servers])
    if (device, servers) in _ONE_WORKER:
        rows = [_case(tables, _SERIES[_ONE_WORKER[device, servers]])[1][0], *rows]
    source = case.series.table
    found, _ = tables_of(case, rows, left_out(tables.home).get(source, {}), source)
    return {row.replicas: job_of(its, _PREEMPTIBLE.get((device, servers))) for row, its in zip(rows, found, strict=True)}


def job_of(table: Mapping[str, Any], usd_per_hour: float | None = None) -> dict[str, Any]:
    """A scenario with a job of 64,000 gradients, the network between its machines as little known as it is, and perhaps another price."""
    cluster = {
        **table["cluster"],
        "uncertainty": {"parameters": ["inter_node.bandwidth_bytes_per_s"], "draws": [[rate] for rate in _BANDWIDTHS]},
    }
    if usd_per_hour is not None:
        cluster["price"] = {"usd_per_node_hour": usd_per_hour, "terms": "preemptible", "source": "cost over duration of published runs"}
    return {**table, "cluster": cluster, "job": {"samples": GRADIENTS * BATCH}}


def trainings(
    chosen: Sequence[Experiment] | None = None, tables: Tables | None = None, replications: int | None = None
) -> tuple[Compared, ...]:
    """Durations and costs of experiments compared with predictions, and with linear scaling of the smallest run.

    Parameters
    ----------
    chosen
        Some experiments; left out: all.
    replications
        Of each simulation; left out: as many as a user gets.

    Returns
    -------
    tuple
        Unit ``s`` or ``USD``; an error above 0 is too long, or too dear. The group says whether it was kept back.
    """
    tables = load_tables() if tables is None else tables
    chosen = experiments(tables) if chosen is None else chosen
    found: list[Compared] = []
    for device, servers in dict.fromkeys((its.device, its.servers) for its in chosen):
        scenarios = trainings_of(device, servers, tables)
        smallest = min(scenarios)
        base_s = _base_s(device, servers, tables)
        for experiment in chosen:
            if (experiment.device, experiment.servers) == (device, servers):
                table = scenarios[experiment.workers]
                run = table["run"] | ({} if replications is None else {"replications": replications})
                result = simulate(scenario_from_table({**table, "run": run}, experiment.name))
                found += _compared(experiment, result, base_s * smallest / experiment.workers, smallest)
    return tuple(found)


def _base_s(device: str, servers: int, tables: Tables) -> float:
    """Seconds of 64,000 gradients by the run that the workload is taken from."""
    key = _ONE_WORKER.get((device, servers), (device, servers))
    _, rows = _case(tables, _SERIES[key])
    return GRADIENTS * BATCH / rows[0].mean


def _compared(experiment: Experiment, result: Result, linear_s: float, smallest: int) -> Iterator[Compared]:
    assert result.job is not None
    settings: dict[str, float | str] = {
        "device": experiment.device, "workers": experiment.workers, "servers": experiment.servers, "from": smallest,
        "source": experiment.runs[0].source,
    }  # fmt: skip
    its = {
        "name": experiment.name,
        "group": KEPT_BACK if experiment.kept_back else OPEN,
        "settings": settings,
        "note": "no run of one worker: from that of two" if smallest > 1 else "",
    }
    yield Compared(
        **its, unit="s", measured=tuple(one.seconds for one in experiment.runs),
        predicted=result.job.time_s, baselines={"linear": linear_s},
    )  # fmt: skip
    paid = tuple(one.cost_usd for one in experiment.runs if one.cost_usd is not None)
    if paid and result.job.cost_usd is not None:
        linear = result.job.cost_usd.mean / result.job.time_s.mean * linear_s
        yield Compared(**its, unit="USD", measured=paid, predicted=result.job.cost_usd, baselines={"linear": linear})


# -- first synchronous, then asynchronous -------------------------------------------------------------------------------------------


def switching(base: str, tables: Tables | None = None, replications: int | None = None) -> Switching:
    """Eight workers with a K80 and a server on each node, synchronous and asynchronous, as Sync-Switch's authors trained.

    Synchronous steps are predicted twice: as workers that read their own input and wait for each other, which is what the paper says of
    them, and as one client that feeds all devices (``in-graph``), which is what the authors' ``bsp.sh`` starts (``t2t-trainer --sync``).

    Parameters
    ----------
    base
        One of :data:`SWITCHED`.
    """
    tables = load_tables() if tables is None else tables
    case, rows, practice = _of_switched(tables)

    def run(way: str, compute_s: float, count: int | None = replications, *, in_graph: bool = False) -> Result:
        table = _eight(case, rows[-1], way, compute_s, practice, in_graph=in_graph)
        if count is not None:
            table["run"]["replications"] = count
        return simulate(scenario_from_table(job_of(table), way))

    if base == SWITCHED[0]:
        compute_s = solved(case, rows[0], practice).compute_s
    else:
        seconds = statistics.median(seconds_of("asynchronous", 0.0))
        eight = rows[-1].model_copy(update={"throughput": (GRADIENTS * BATCH / seconds,)})
        compute_s = compute_that_gives(eight, lambda its_s: run("async", its_s, 2).throughput_samples_per_s.mean).compute_s
    return Switching(base, run("sync", compute_s), run("sync", compute_s, in_graph=True), run("async", compute_s))


def _of_switched(tables: Tables) -> tuple[PublishedCase, list[Row], Mapping[str, Known]]:
    case, rows = _case(tables, _SERIES["K80", 1])
    return case, rows, left_out(tables.home).get(case.series.table, {})


def _eight(
    case: PublishedCase, row: Row, mode: str, compute_s: float, practice: Mapping[str, Known], *, in_graph: bool = False
) -> dict[str, Any]:
    kind = "asynchronous" if mode == "async" else "parameter-server"
    its = case.model_copy(update={"stack": case.stack.model_copy(update={"placement": "colocated", "kind": kind})})
    table = table_of(its, row.model_copy(update={"replicas": 8, "nodes": 8, "servers": 8}), compute_s, practice)
    regime = regime_of(scenario_from_table(table, mode))
    if regime is not None:
        table["discrepancy"] = discrepancy_without(case.series.table, regime).model_dump(exclude_none=True)
    if in_graph:
        table["strategy"]["replication"] = "in-graph"
        table["workload"]["input_bytes_per_sample"] = _INPUT_BYTES
    return table


def seconds_of(way: str, share: float) -> list[float]:
    """Of the published runs with eight workers that went through in one go and were slowed down by nobody."""
    return [
        one.seconds
        for one in switched()
        if one.seconds is not None and one.way == way and one.synchronous_share == share and one.setup != "straggler"
        and one.run not in _INTERRUPTED
    ]  # fmt: skip


def switched_rows(tables: Tables | None = None, replications: int | None = None) -> tuple[Compared, ...]:
    """Durations of eight workers and their predictions, from one worker's run and from the asynchronous ones; medians of the published."""
    tables = load_tables() if tables is None else tables
    ways = {"asynchronous": 0.0, "synchronous": 1.0, "switched": 0.1}
    measured = {way: seconds_of(way, share) for way, share in ways.items()}
    median = {way: statistics.median(its) for way, its in measured.items()}
    linear_s = _base_s("K80", 1, tables) / 8
    found = []
    for base in SWITCHED:
        its = switching(base, tables, replications)
        for way, share in ways.items():
            for in_graph in (False, True) if way == "synchronous" else (False,):
                mixed_s = share * median["synchronous"] + (1.0 - share) * median["asynchronous"]
                found.append(
                    Compared(
                        name=f"{way}{' (in-graph)' if in_graph else ''}",
                        group=base,
                        fitted=base == SWITCHED[1] and not share,
                        unit="s",
                        measured=(median[way],),
                        predicted=its.estimate(share, in_graph=in_graph),
                        baselines={"linear": linear_s, "mixed": mixed_s},
                        settings={"workers": 8, "servers": 8, "synchronous share": share, "runs": len(measured[way])},
                        note=f"median of {len(measured[way])} runs, {min(measured[way]):,.0f} to {max(measured[way]):,.0f} s",
                    )
                )
    return tuple(found)


def _time_of(result: Result) -> Estimate:
    assert result.job is not None
    return result.job.time_s
