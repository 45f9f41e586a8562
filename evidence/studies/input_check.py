"""Real training loops fed by tf.data pipelines, against what Paceline predicts of them from a calibration.

``python -m evidence.studies.input_check calibrate`` fits the pipelines of ``models/pipelines/examples.py`` without prefetch, at
batch sizes that are not those of the loops. ``python -m evidence.studies.input_check measure`` times the loops, whose step sleeps
for a known time, and writes ``models/measured/input-pipelines.csv``. ``python -m evidence.studies.input_check compare`` simulates a
scenario for each of these, as a user writes it, and prints every loop and a summary: nothing is fitted to the loops.

Three pipelines: one computes for about a millisecond per sample, one sleeps as for distant storage, one computes, caches and shuffles 512
samples. Calibrated at 8 and 32 samples per batch, 1 and 2 calls and no prefetch; the loops draw 16 samples with prefetch 0, 1 and 4 (two
cores of an AMD EPYC, TensorFlow 2.21, 2026-11-23). 36 loops: median error 1.6%, at most 10.8%, mean +0.1%; steps that wait for input are
worst (2.7 to 8.1% in the median), steps that wait for compute 0.5 to 1.0%. A loop's first step also traces, which the prediction of a first
batch does not include.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from calibrate.probing import command_of, probing
from evidence.rows import rows_in
from simulator import simulate
from simulator.base.files import Output, csv_kind
from simulator.catalogue.loading import load_scenario
from simulator.job.costs import fill_of, first_epoch

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "models" / "pipelines" / "examples.py"
LOOPS = ROOT / "models" / "measured" / "input-pipelines.csv"
INPUTS = ROOT / "models" / "inputs"
PIPELINES = ("computing", "waiting", "cached")
Regime: TypeAlias = Literal["input-bound", "compute-bound"]
_PROBE = str(Path(__file__).parents[1] / "probes" / "consumer.py")
_BATCH = 16
_CALIBRATED_AT = (8, 32)
_STEADY = 8
"""Steps at both ends of a loop that do not count as steady: more than any prefetch, and at its end what was in a shuffle buffer."""
_REGIMES: dict[Regime, float] = {"input-bound": 0.004, "compute-bound": 0.03}
"""Seconds of a step."""


class Loop(NamedTuple):
    """One epoch of a loop: fields as the CSV has them. ``alone_s`` is the mean step with ready batches."""

    pipeline: str
    regime: Regime
    calls: int
    prefetch: int
    batch: int
    epoch: int
    alone_s: float
    steps: int
    first_s: float
    mean_s: float
    error_s: float
    total_s: float


@dataclass(frozen=True)
class Compared:
    """A loop with its prediction: mean seconds of a steady step, and of the first."""

    loop: Loop
    step_s: float
    first_s: float

    @property
    def error(self) -> float:
        """Of the mean step, relative to what was measured."""
        return self.step_s / self.loop.mean_s - 1.0


def read_loops(path: Path = LOOPS) -> list[Loop]:
    """Loops that were measured."""
    return [_loop(row) for row in rows_in(path)]


def _loop(row: dict[str, str]) -> Loop:
    whole = {name: int(row[name]) for name in ("calls", "prefetch", "batch", "epoch", "steps")}
    seconds = {name: float(row[name]) for name in ("alone_s", "first_s", "mean_s", "error_s", "total_s")}
    regime: Regime = "input-bound" if row["regime"] == "input-bound" else "compute-bound"
    return Loop(pipeline=row["pipeline"], regime=regime, **whole, **seconds)  # type: ignore[arg-type]


def predicted(loop: Loop, file: Path) -> tuple[float, float]:
    """Seconds of a steady and of the first step of a loop, of the scenario that a user writes.

    Parameters
    ----------
    loop
        Loop that gives the setting, and the step with ready batches; not its times.
    file
        The fitted input pipeline.
    """
    compute: dict[str, Any] = {"base_s": loop.alone_s, "per_sample_s": 0.0}
    nothing = {"base_s": 0.0, "per_sample_s": 0.0}
    variable = {"name": "weight", "size_bytes": 4, "creation_index": 0, "ready": 1.0}
    scenario = load_scenario(
        {
            "workload": {
                "name": "sleeping", "batch_per_replica": loop.batch, "forward": compute, "backward": nothing, "apply_s": 0.0,
                "variables": [variable],
            },
            "cluster": {"name": "one host", "inter_node": {"latency_s": 0.0, "bandwidth_bytes_per_s": 1e9}},
            "strategy": {"kind": "multi-worker-mirrored", "workers": 1},
            "run": {"steps": 400, "replications": 4},
            "input": {"use": str(file), "parallel_calls": loop.calls, "prefetch": loop.prefetch},
        }
    )  # fmt: skip
    first = loop.epoch == 0
    steady = (first_epoch(scenario) if first else None) or scenario
    return float(simulate(steady).step_time_s.mean), fill_of(scenario, first).seconds + loop.alone_s


def compare(loops: Sequence[Loop], inputs: Path = INPUTS) -> list[Compared]:
    """Each loop with what is predicted of it from the files of ``inputs``."""
    return [Compared(loop, *predicted(loop, inputs / f"{loop.pipeline}-cpu.toml")) for loop in loops]


def _settings(pipeline: str) -> Iterator[dict[str, Any]]:
    for regime, step_s in _REGIMES.items():
        for calls in (1, 2) if pipeline == "computing" else (2,):
            for prefetch in (0, 1, 4):
                times = {"steps": 1000, "epochs": 3} if pipeline == "cached" else {"steps": 60, "epochs": 1}
                yield {"regime": regime, "calls": calls, "prefetch": prefetch, "batch": _BATCH, "step_s": step_s, **times}


def measure(out: Path, python: str) -> None:
    """Time all loops, and write them."""
    output = Output(out, csv_kind(Loop._fields), argument="loops")
    loops: list[Loop] = []
    for pipeline in PIPELINES:
        asked = ["--input", f"{EXAMPLES}:{pipeline}", "--settings", json.dumps(list(_settings(pipeline)))]
        command = command_of(_PROBE, asked, python)
        with probing() as (_, environment):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603 - the user's own Python
        alone: dict[float, float] = {}
        for row in map(json.loads, done.stdout.splitlines()):
            seconds = np.array(row["seconds"])
            steady = seconds[_STEADY:-_STEADY]
            if "regime" not in row:
                alone[row["step_s"]] = float(np.mean(steady))
                continue
            loops.append(
                Loop(
                    pipeline, row["regime"], row["calls"], row["prefetch"], row["batch"], row["epoch"], alone[row["step_s"]], len(seconds),
                    float(seconds[0]), float(np.mean(steady)), float(np.std(steady, ddof=1) / np.sqrt(len(steady))), float(np.sum(seconds)),
                )
            )  # fmt: skip
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Loop._fields)
    writer.writerows([f"{value:.6g}" if isinstance(value, float) else value for value in loop] for loop in loops)
    output.write(text.getvalue())


def calibrate(measurements: Path, python: str) -> None:
    """Calibrate the pipelines, and write their files."""
    from calibrate.fit.input_pipeline import fit_input
    from calibrate.fit.writing import write_fitted
    from calibrate.profiling import profile_input

    for pipeline in PIPELINES:
        target = f"{EXAMPLES.relative_to(ROOT)}:{pipeline}"
        batches = ",".join(map(str, _CALIBRATED_AT))
        file = profile_input(target, f"{pipeline}-cpu", batches=_CALIBRATED_AT, calls=(1, 2), folder=measurements, python=python)
        command = f"paceline calibrate-input {target} --name {pipeline}-cpu --batch {batches} --calls 1,2"
        fitted = fit_input(file, f"{pipeline}-cpu", command)
        write_fitted(fitted, INPUTS / f"{pipeline}-cpu.toml")


def table(compared: Sequence[Compared]) -> str:
    """Every loop, measured and predicted, as Markdown."""
    rows = [
        "| pipeline | regime | epoch | calls | prefetch | measured step | predicted | error | first step | predicted |",
        "|" + "---|" * 10,
    ]
    for one in compared:
        its = one.loop
        epoch = "each" if its.pipeline != "cached" else "first" if its.epoch == 0 else str(its.epoch + 1)
        measured = f"{1e3 * its.mean_s:.2f} +- {1e3 * its.error_s:.2f} ms | {1e3 * one.step_s:.2f} ms | {one.error:+.1%}"
        begun = f"{1e3 * its.first_s:.0f} ms | {1e3 * one.first_s:.0f} ms"
        rows.append(f"| {its.pipeline} | {its.regime} | {epoch} | {its.calls} | {its.prefetch} | {measured} | {begun} |")
    return "\n".join(rows)


def summary(compared: Sequence[Compared]) -> str:
    """The errors of each pipeline in each regime, and of all loops, as Markdown."""
    rows = ["| pipeline | regime | loops | measured step | median error | worst |", "|" + "---|" * 6]
    for pipeline in PIPELINES:
        for regime in _REGIMES:
            of = [one for one in compared if (one.loop.pipeline, one.loop.regime) == (pipeline, regime)]
            steps = [1e3 * one.loop.mean_s for one in of]
            errors = sorted((one.error for one in of), key=abs)
            rows.append(
                f"| {pipeline} | {regime} | {len(of)} | {min(steps):.1f} to {max(steps):.1f} ms "
                f"| {np.median(np.abs(errors)):.1%} | {errors[-1]:+.1%} |"
            )
    errors = [one.error for one in compared]
    off = np.abs(errors)
    rows.append("")
    rows.append(f"{len(errors)} loops: median {np.median(off):.1%} off, at most {np.max(off):.1%}, mean {np.mean(errors):+.1%}.")
    return "\n".join(rows)


def main() -> None:
    """Calibrate, measure or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("calibrate", "measure", "compare"))
    parser.add_argument("--loops", type=Path, default=LOOPS)
    parser.add_argument("--measurements", type=Path, default=Path("measurements"))
    parser.add_argument("--python", default=sys.executable)
    arguments = parser.parse_args()
    if arguments.what == "calibrate":
        calibrate(arguments.measurements, arguments.python)
    elif arguments.what == "measure":
        measure(arguments.loops, arguments.python)
    else:
        compared = compare(read_loops(arguments.loops))
        sys.stdout.write(f"{table(compared)}\n\n{summary(compared)}\n")


if __name__ == "__main__":
    main()
