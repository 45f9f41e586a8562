"""Causes planted in real TensorFlow clusters, and what a diagnosis makes of them.

``python -m evidence.studies.planted_causes --out FILE.csv`` draws settings by a seed, runs each with its causes, without each of them, and
one worker alone, appends a row for each worker of each run, diagnoses what was seen, and prints which cause is named first, and what its
removal was to gain beside what it gained. Rows that are there are not measured again. The largest of two causes is the one whose removal
gained more.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.measurements import Note, Repeat, Updated, new_file, read_measurements
from calibrate.probing import run_probe
from calibrate.recorded.run import Growing, RecordedRun
from calibrate.testbed.loading import builder_of
from calibrate.testbed.platform import PRIORS, log_width
from calibrate.testbed.scenarios import RealCompute, scenario_of
from calibrate.testbed.setting import TestbedSetting
from evidence.rows import add_rows, begin_rows, rows_in
from paceline.api.diagnosing import watch
from paceline.diagnosing import Diagnosis, Seen, diagnose, seen_in_runs
from paceline.sweeping import Runner, Simulations
from paceline.watching import Watched
from simulator import load_scenario, simulate
from simulator.base.errors import CalibrationError
from simulator.base.files import check_folder
from simulator.base.process import scratch
from simulator.base.validation_errors import validated
from simulator.scenario import Scenario
from simulator.spec.distributions import Constant
from simulator.spec.workload import Affine

SEED = 33
"""First list, with which the diagnosis was corrected; of any list it was fixed before anything of it was measured."""
LATER = 34
"""Of the list of which nothing was looked at before the diagnosis was done."""
COLUMNS = ("case", "variant", "worker", "others_share", "steps_ms", "compute_ms", "waited_ms", "cpu_ms")
"""Of a row: the run, a worker of it, and of each of its steps what it took in ms; then means of what its device computed, of its waiting
for input, and of its processor's time."""
VARIANTS = ("planted", "removed", "other", "alone")
"""With all that is planted; without the first of it; without the second, where there are two; a single worker."""
NAMED: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "slow-worker": ("slow-worker",),
    "network": ("network",),
    "input": ("input",),
    "checkpoint": ("between-steps",),
    "compute": ("compute",),
    "tensors": ("tensors", "host-costs"),
    "servers": ("servers",),
}
"""Causes that a diagnosis may name for each that is planted."""
_MODES = {"ring": "all-reduce", "sync": "synchronous servers", "between-graph": "asynchronous servers"}
_PLANTED: Mapping[str, Callable[[Planting], str]] = {
    "slow-worker": lambda its: "worker {worker} takes {times} times as long".format(**its.plants["slow-worker"]["probe"]),
    "network": lambda its: f"{its.plants['network']['setting']['link']['bandwidth']}, not {its.table['link']['bandwidth']}",
    "input": lambda its: f"a batch of input takes {its.plants['input']['probe']['seconds'] * 1e3:.0f} ms",
    "checkpoint": lambda its: f"{its.plants['checkpoint']['probe']['size_bytes'] >> 20} MiB written every {_EVERY} steps",
    "compute": lambda _: "both workers on one core",
    "tensors": lambda _: "900 variables, not 4",
    "servers": lambda its: f"1 server, not {its.table['servers']}",
}
"""Planted causes of each kind."""
_PROBE = str(Path(__file__).parents[1] / "probes" / "planted.py")
_KINDS = (
    *("none",) * 4,
    *("slow-worker",) * 4,
    *("network",) * 4,
    *("input",) * 4,
    *("checkpoint",) * 3,
    *("compute",) * 3,
    *("tensors",) * 2,
    *("servers",) * 2,
    *("two",) * 4,
)
_PAIRS = (("slow-worker", "network"), ("input", "checkpoint"), ("network", "checkpoint"), ("slow-worker", "checkpoint"))
_COSTS = ("_s", "per_byte")
"""Ends of the names of what the machine takes its time for."""
_DRAWS, _MOST_DEVIATION = 15, 1.0
"""Draws of what is not known of the machine, and the largest deviation of communication that follows from them."""
_EVERY = 10
"""Steps from one checkpoint to the next."""
_STEPS, _STEPS_OF_CHECKPOINTS, _OTHERS, _ATTEMPTS = 40, 60, 0.1, 2


@dataclass(frozen=True)
class Planting:
    """One setting, with what is planted in it.

    Attributes
    ----------
    number
        Which one.
    kinds
        What is planted.
    table
        The testbed's setting without planted causes, as given to the diagnosis.
    plants
        By kind: arguments of the probe, or keys of the setting that differ from the given ones.
    """

    number: int
    kinds: tuple[str, ...]
    table: Mapping[str, Any]
    plants: Mapping[str, Mapping[str, Any]]

    def table_with(self, kinds: Sequence[str], *, alone: bool = False) -> dict[str, Any]:
        """The testbed's setting with some kinds planted."""
        table = dict(self.table)
        for kind in kinds:
            table |= self.plants[kind].get("setting", {})
        if alone:
            table |= {"mode": "mirrored", "workers": 1, "servers": 0, "link": None} if table["mode"] == "ring" else {"workers": 1}
        return table

    def setting(self, kinds: Sequence[str], *, alone: bool = False) -> TestbedSetting:
        """The same, checked."""
        return validated(TestbedSetting, self.table_with(kinds, alone=alone), f"case {self.number}")

    @property
    def variants(self) -> tuple[str, ...]:
        """Which runs there are of it."""
        least = 2 if len(self.kinds) > 1 else len(self.kinds)
        return ("planted", *("removed", "other")[:least], "alone")

    @property
    def known(self) -> tuple[str, ...]:
        """Kinds that whoever asks knows of: those that are part of the scenario."""
        return tuple(kind for kind in self.kinds if kind in ("tensors", "servers"))


def drawn(seed: int = SEED) -> list[Planting]:
    """All settings, by a seed."""
    rng = np.random.default_rng(seed)
    found, pairs = [], 0
    for number, kind in enumerate(_KINDS):
        kinds: tuple[str, ...] = () if kind == "none" else (kind,)
        if kind == "two":
            kinds, pairs = _PAIRS[pairs % len(_PAIRS)], pairs + 1
        found.append(_drawn(number, kinds, rng))
    return found


def _drawn(number: int, kinds: tuple[str, ...], rng: np.random.Generator) -> Planting:
    real = "compute" in kinds
    with_servers = bool({"tensors", "servers"} & set(kinds)) or (not real and rng.random() < 0.5)
    mode = ("between-graph" if rng.random() < 0.6 else "sync") if with_servers else "ring"
    if "slow-worker" in kinds and mode == "between-graph":
        mode = "sync"  # where nobody waits, one slow worker is seen by itself
    mean_s = round(float(rng.uniform(0.06, 0.12)), 3)
    workers = 2 if real else int(rng.integers(2, 5))
    told_mbit = int(rng.choice([800, 1000]))
    table: dict[str, Any] = {
        "mode": mode,
        "workers": workers,
        "servers": 2 if with_servers else 0,
        "model": "ladder-4mb" if real else "ladder-1mb",
        "link": {"bandwidth": f"{told_mbit} Mbit/s"},
        "batch": 4096 if real else 32,
        "compute": {"kind": "real"} if real else {"kind": "emulated", "mean": f"{mean_s} s", "law": {"kind": "lognormal", "sigma": 0.05}},
        "steps": _STEPS,
    }
    if "checkpoint" in kinds:
        table["steps"] = _STEPS_OF_CHECKPOINTS
    plants: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        if kind == "slow-worker":
            plants[kind] = {"probe": {"worker": int(rng.integers(workers)), "times": round(float(rng.uniform(1.5, 2.5)), 2)}}
        elif kind == "network":
            slower = told_mbit / float(rng.uniform(8, 14))
            plants[kind] = {"setting": {"link": {"bandwidth": f"{slower:.0f} Mbit/s"}}}
        elif kind == "input":
            plants[kind] = {"probe": {"seconds": round(mean_s * float(rng.uniform(2.0, 3.5)), 3)}}
        elif kind == "checkpoint":
            plants[kind] = {"probe": {"every": _EVERY, "size_bytes": int(rng.integers(400, 800)) << 20}}
        elif kind == "compute":
            plants[kind] = {"probe": {"core": 0}}
        elif kind == "tensors":
            plants[kind] = {"setting": {"model": "ladder-1mb/900"}}
        elif kind == "servers":
            table |= {"workers": 8, "link": {"bandwidth": "300 Mbit/s"}}
            plants[kind] = {"setting": {"servers": 1}}
    return Planting(number, kinds, table, plants)


# -- real runs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSeen:
    """What the workers of one run recorded: of each worker the steps' times, and means of their parts, in seconds."""

    steps_s: tuple[tuple[float, ...], ...]
    compute_s: tuple[float, ...]
    waited_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    others_share: float


def measure(case: Planting, kinds: Sequence[str], folder: Path, seed: int, *, alone: bool = False) -> RunSeen:
    """Train really, with some kinds planted.

    Raises
    ------
    CalibrationError
        A task died, or hung.
    """
    setting = case.setting(kinds, alone=alone)
    planted = [] if alone else [{"kind": kind, **case.plants[kind]["probe"]} for kind in kinds if "probe" in case.plants[kind]]
    check_folder(folder).mkdir(parents=True, exist_ok=True)
    path = new_file(folder, f"planted-{case.number}", "testbed")
    with scratch() as own:
        spec = own / "setting.json"
        wanted = {**setting.for_probe(1, seed, 240.0), "planted": planted, "pinned": setting.compute.kind == "real"}
        if setting.compute.kind == "real":
            wanted["builder"] = builder_of(setting.model)
        spec.write_text(json.dumps(wanted), encoding="utf-8")
        run_probe(_PROBE, ["--setting", str(spec), "--parent", str(os.getpid())], path, None, 300.0)
    return _read(path)


def _read(path: Path) -> RunSeen:
    measured = read_measurements(path)
    (whole,) = measured.of(Repeat)
    notes = sorted((its.model_extra or {} for its in measured.of(Note)), key=lambda its: its.get("worker", -1))
    own = [its for its in notes if "began_s" in its]
    if not own:
        raise CalibrationError(f"{path}: holds no steps; measure again")
    computed: dict[int, list[float]] = {}
    for its in measured.of(Updated):
        computed.setdefault(its.worker, []).append(its.computed_s - its.pulled_s)
    return RunSeen(
        steps_s=tuple(tuple(np.diff(its["began_s"]).tolist()) for its in own),
        compute_s=tuple(statistics.fmean(computed[its["worker"]]) for its in own),
        waited_s=tuple(statistics.fmean(its["waited_s"][1:]) for its in own),
        cpu_s=tuple((its["used_s"][-1] - its["used_s"][0]) / (len(its["used_s"]) - 1) for its in own),
        others_share=whole.others_share or 0.0,
    )


def _undisturbed(case: Planting, kinds: Sequence[str], folder: Path, *, alone: bool) -> RunSeen:
    """A run with little other load on the machine; the least disturbed of some, where it is never so."""
    runs: list[RunSeen] = []
    while len(runs) < _ATTEMPTS and not any(run.others_share <= _OTHERS for run in runs):
        runs.append(measure(case, kinds, folder, SEED + case.number, alone=alone))
    return min(runs, key=lambda run: run.others_share)


def rows_of(case: Planting, variant: str, run: RunSeen) -> Iterator[dict[str, object]]:
    """A row for each worker."""
    for worker, steps_s in enumerate(run.steps_s):
        yield {
            "case": case.number,
            "variant": variant,
            "worker": worker,
            "others_share": f"{run.others_share:.3f}",
            "steps_ms": " ".join(f"{value * 1e3:.1f}" for value in steps_s),
            "compute_ms": f"{run.compute_s[worker] * 1e3:.2f}",
            "waited_ms": f"{run.waited_s[worker] * 1e3:.2f}",
            "cpu_ms": f"{run.cpu_s[worker] * 1e3:.2f}",
        }


def read_rows(path: Path) -> dict[tuple[int, str], RunSeen]:
    """Runs that a file has, by case and variant."""
    found: dict[tuple[int, str], list[dict[str, str]]] = {}
    for row in rows_in(path):
        found.setdefault((int(row["case"]), row["variant"]), []).append(row)

    def means_s(rows: Sequence[Mapping[str, str]], name: str) -> tuple[float, ...]:
        return tuple(float(row[name]) / 1e3 for row in rows)

    return {
        key: RunSeen(
            steps_s=tuple(tuple(float(value) / 1e3 for value in row["steps_ms"].split()) for row in rows),
            compute_s=means_s(rows, "compute_ms"),
            waited_s=means_s(rows, "waited_ms"),
            cpu_s=means_s(rows, "cpu_ms"),
            others_share=float(rows[0]["others_share"]),
        )
        for key, rows in found.items()
    }


# -- what is told, and what a diagnosis makes of it ----------------------------------------------


def told(case: Planting, alone: RunSeen) -> Scenario:
    """The scenario as somebody would write it who knows of nothing that was planted besides what is part of the model and the cluster.

    The machine's parameters are the testbed's priors, which no run took part in, and how little these are known is what communication
    may be off by; what a real model computes is that of the run alone.
    """
    setting = case.setting(case.known)
    compute = RealCompute(mean_s=statistics.fmean(alone.compute_s), law=Constant()) if setting.compute.kind == "real" else None

    def of(values: dict[str, float], replications: int) -> Scenario:
        found = scenario_of(setting, values, cores=float(os.cpu_count() or 1), compute=compute, replications=replications)
        if compute is not None or not setting.servers or setting.link is None:
            return found
        # what TensorFlow needs of the cores nobody writes down
        return found.replaced({"workload.input": Affine(base_s=0.0, per_sample_s=0.0), "cluster.shared_cores": None})

    middles = {name: middle for name, (middle, _, _) in PRIORS.items()}
    rng = np.random.default_rng(SEED)
    steps_s = []
    for _ in range(_DRAWS):
        values = {
            name: middle * math.exp(rng.standard_normal() * log_width(name)) for name, middle in middles.items() if name.endswith(_COSTS)
        }
        steps_s.append(simulate(of({**middles, **values}, 2)).mean_step_s.mean)
    middle = simulate(of(middles, 2))
    sent_s = middle.mean_step_s.mean - middle.breakdown_s.compute
    deviation = min(math.sqrt(math.log1p((statistics.stdev(steps_s) / sent_s) ** 2)), _MOST_DEVIATION)
    return load_scenario(of(middles, 19), [("discrepancy", {"communication": {"at": deviation}})])


def seen_of(case: Planting, run: RunSeen, *, alone: bool, only_steps: bool = False) -> Seen:
    """Observations of a run for the diagnosis; ``only_steps``: nothing but the mean of all steps."""
    setting = case.setting(case.known, alone=alone)
    servers = setting.servers or None
    if only_steps:
        mean_s = statistics.fmean(value for steps_s in run.steps_s for value in steps_s[1:])
        return Seen(workers=setting.workers, servers=servers, step_s=mean_s, is_average=True)
    counted = f"{setting.workers} workers"
    (recorded,), _ = seen_in_runs([(counted, own) for own in _recorded(run)], told(case, run))
    return recorded.model_copy(update={"servers": servers})


def _recorded(run: RunSeen) -> Iterator[RecordedRun]:
    """Each worker's file, as it would be read."""
    for worker, steps_s in enumerate(run.steps_s):
        growing = Growing(f"worker{worker}", "table", str(worker))
        for step, value in enumerate(steps_s, start=1):
            growing.add(
                step, value, compute_s=run.compute_s[worker], input_s=run.waited_s[worker], cpu_s=run.cpu_s[worker]
            )  # fmt: skip
        yield growing.run()


def watched(case: Planting, runs: Mapping[str, RunSeen], variant: str) -> Watched:
    """Answer of a watch of the workers' files for one of the runs."""
    run = runs[variant]
    with scratch() as own:
        files = []
        for worker, steps_s in enumerate(run.steps_s):
            means = f"{run.compute_s[worker]!r},{run.waited_s[worker]!r},{run.cpu_s[worker]!r}"
            files.append(own / f"worker{worker}.csv")
            rows = "".join(f"{step},{value!r},{means}\n" for step, value in enumerate(steps_s, start=1))
            files[-1].write_text(f"step,step_time_s,compute_s,input_s,cpu_s\n{rows}", encoding="utf-8")
        return watch(told(case, runs["alone"]), files, once=True, jobs=2)


def first_reason(found: Watched) -> str:
    """The cause that a watch names first; how the run stands, where it names none."""
    reasons = [its for each in found.reasons.values() for its in each]
    return reasons[0].key if reasons else found.state


def diagnosed(case: Planting, runs: Mapping[str, RunSeen], *, only_steps: bool = False) -> Diagnosis:
    """The diagnosis of a case."""
    scenario = told(case, runs["alone"])
    seen = [
        seen_of(case, runs["alone"], alone=True, only_steps=only_steps),
        seen_of(case, runs["planted"], alone=False, only_steps=only_steps),
    ]
    with Runner(jobs=2) as runner:
        return diagnose(scenario, seen, Simulations(runner))


def step_s(case: Planting, run: RunSeen) -> float:
    """Time of a step as the throughput tells it, with all that is between steps; of checkpoints, over as many steps as belong to each."""
    counted = slice(1, 1 + _EVERY * ((case.table["steps"] - 1) // _EVERY)) if "checkpoint" in case.kinds else slice(1, None)
    each = [statistics.fmean(steps_s[counted]) for steps_s in run.steps_s]
    return statistics.fmean(each) if case.table["mode"] != "between-graph" else statistics.harmonic_mean(each)


ANSWERED = ("case", "training", "planted", "named_first", "right", "gain", "low", "high", "real", "inside", "plain_rule")


@dataclass(frozen=True)
class Answered:
    """One case: what was planted, what is named first, and the gain of removing the largest cause: as predicted, as it was, and as one
    would say who thinks that nothing else keeps the others from being as fast as one alone."""

    case: Planting
    largest: str
    first: str
    right: bool
    gain: tuple[float, float, float]
    real: float
    plain: float

    @property
    def row(self) -> dict[str, str]:
        """Its row of ``evidence/tables/planted-causes.csv``, without the seed; no gain where nothing is planted."""
        planted = "; ".join(_PLANTED[kind](self.case) for kind in self.case.kinds) or "nothing"
        training = f"{_MODES[self.case.table['mode']]}, {self.case.setting(self.case.known).workers} workers"
        gains = [f"{value:.2f}" for value in (*self.gain, self.real)] + [str(int(self.inside)), f"{self.plain:.2f}"]
        named = (str(self.case.number), training, planted, self.first, str(int(self.right)))
        return dict(zip(ANSWERED, (*named, *(gains if self.case.kinds else [""] * len(gains))), strict=True))

    @property
    def inside(self) -> bool:
        """Whether the real gain lies in the predicted interval."""
        return self.gain[1] <= self.real <= self.gain[2]


def answers(case: Planting, runs: Mapping[str, RunSeen], found: Diagnosis) -> Answered:
    """How a diagnosis did."""
    causes = [its for its in found.causes if its.probability >= 0.5]
    if not case.kinds:
        unplanted = [its for its in causes if its.known != "told"]
        return Answered(case, "none", unplanted[0].key if unplanted else "none", not unplanted and found.as_told, (1.0, 1.0, 1.0), 1.0, 1.0)
    gains = {
        kind: step_s(case, runs["planted"]) / step_s(case, runs[variant])
        for kind, variant in zip(case.kinds, ("removed", "other"), strict=False)
    }
    largest = max(gains, key=lambda kind: gains[kind])
    first = causes[0].key if causes else "none"
    plain = step_s(case, runs["planted"]) / step_s(case, runs["alone"])
    return Answered(case, largest, first, first in NAMED[largest], _gain(largest, found), gains[largest], plain)


def _gain(kind: str, found: Diagnosis) -> tuple[float, float, float]:
    """What removing it is said to gain, with interval; of servers, one more of them, as is run again."""
    if kind == "servers":
        more = next((its for its in found.changes if its.name == "one more PS"), None)
        if more is None or more.gain is None or more.gain_low is None or more.gain_high is None:
            return (math.nan,) * 3
        return 1.0 + more.gain, 1.0 + more.gain_low, 1.0 + more.gain_high
    match = next((its for its in found.causes if its.key in NAMED[kind] and (kind == "tensors" or its.known != "told")), None)
    return (match.gain.mean, match.gain.low, match.gain.high) if match is not None else (math.nan,) * 3


def main() -> None:
    """Measure what is missing, and print the answers."""
    parser = argparse.ArgumentParser(description="Causes planted in real clusters, and their diagnosis.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--measurements", type=Path, default=Path("measurements"))
    parser.add_argument("--diagnose", action="store_true", help="measure nothing")
    parser.add_argument("--measure", action="store_true", help="diagnose nothing")
    parser.add_argument("--only-steps", action="store_true", help="diagnose by mean step times alone")
    parser.add_argument("--watch", action="store_true", help="say what a watch of the same files says")
    parser.add_argument("--seed", type=int, default=SEED, help="of the list of settings")
    parser.add_argument("--only", default="", help="numbers of cases, separated by commas")
    arguments = parser.parse_args()
    begin_rows(arguments.out, COLUMNS)
    cases = [case for case in drawn(arguments.seed) if not arguments.only or str(case.number) in arguments.only.split(",")]
    there = read_rows(arguments.out)
    for case in cases if not arguments.diagnose else []:
        for variant in VARIANTS:
            if (case.number, variant) in there or variant not in case.variants:
                continue
            kinds = {"planted": case.kinds, "removed": case.kinds[1:], "other": case.kinds[:1], "alone": case.known}[variant]
            run = _undisturbed(case, kinds, arguments.measurements, alone=variant == "alone")
            add_rows(arguments.out, COLUMNS, rows_of(case, variant, run))
            took = f"{step_s(case, run) * 1e3:.0f} ms, others {run.others_share:.0%}"
            print(f"{case.number} {case.kinds} {variant}: {took}", flush=True)  # noqa: T201
    there = read_rows(arguments.out)
    found = []
    for case in cases if not arguments.measure else []:
        runs = {variant: there[case.number, variant] for variant in VARIANTS if (case.number, variant) in there}
        if set(runs) != set(case.variants):
            continue
        if arguments.watch:
            told_of = {variant: watched(case, runs, variant) for variant in ("planted", *("removed",) * (len(case.kinds) == 1))}
            said = [f"{variant}: {its.state}, {first_reason(its)}" for variant, its in told_of.items()]
            print(case.number, case.kinds, *said, flush=True)  # noqa: T201
        else:
            found.append(answers(case, runs, diagnosed(case, runs, only_steps=arguments.only_steps)))
            print(*found[-1].row.values(), sep=", ", file=sys.stderr, flush=True)  # noqa: T201
    if found:
        written = csv.DictWriter(sys.stdout, ("seed", *ANSWERED), lineterminator="\n")
        written.writeheader()
        written.writerows({"seed": arguments.seed, **its.row} for its in found)


if __name__ == "__main__":
    main()
