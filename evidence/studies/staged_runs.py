"""Real steps of a model that is on two devices, measured: what model parallelism and pipelines are checked against.

``python -m evidence.studies.staged_runs SETTINGS.toml --out FILE.csv`` runs each setting
of a file (``models/measured/model-parallel.toml``) and appends a row for each repeat of it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from calibrate.measurements import Count, LinkCheck, Note, OfRepeat, Repeat, Updated, new_file, read_measurements
from calibrate.probing import Progress, run_probe
from calibrate.profiling import check_target
from calibrate.testbed.platform import PRIORS
from calibrate.testbed.setting import ShapedLink
from evidence.rows import add_rows, begin_rows, rows_in
from simulator import scenario_from_table, simulate
from simulator.base.errors import CalibrationError, InputError
from simulator.base.files import check_folder, read_toml
from simulator.base.process import scratch
from simulator.base.spec import Spec
from simulator.base.text import format_change
from simulator.base.validation_errors import validated
from simulator.scenario import Scenario

COLUMNS = (
    "name", "model", "batch", "micro_batches", "schedule", "stages", "processes", "link_bytes_per_s",
    "link_measured_bytes_per_s", "handed_bytes", "steps", "step_s", "step_sd_s",
    "stage_1_compute_s", "stage_2_compute_s", "others_share", "device", "measured",
)  # fmt: skip
"""Of a file of rows, one for each repeat."""
_PROBE = str(Path(__file__).parents[1] / "probes" / "staged.py")
_OTHERS = 0.05
"""Share of the cores' time that others may take of a repeat that counts."""
_ATTEMPTS = 4
_BY_ADDRESS = 1e15
"""Bytes per second of a link on which tensors are handed over by address."""


class StagePass(OfRepeat, kind="pass"):
    """One pass of one stage of a model that is on several devices; times are seconds since the common start."""

    step: Count
    stage: Count
    phase: Literal["forward", "backward", "apply"]
    micro_batch: Count
    begun_s: float
    ended_s: float


class StagedSetting(Spec):
    """What is run: a Keras model whose layers are on two devices."""

    model: str = Field(description="FILE.py:FUNCTION, as paceline calibrate takes it")
    batch: int = Field(ge=1, description="samples of a step, of all micro-batches together")
    stages: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        min_length=2, description="layers of each stage, counted as paceline calibrate --layers does"
    )
    micro_batches: int = Field(default=1, ge=1, description="equal parts of the batch, one after the other")
    schedule: Literal["gpipe", "1f1b"] = "gpipe"
    one_process: bool = Field(
        default=False, description="logical devices of one process; else a process a stage, each on a core of its own, over gRPC"
    )
    link: ShapedLink | None = Field(default=None, description="between the processes; left out: loopback")
    steps: int = Field(default=30, ge=2)
    warm_up: int = Field(default=5, ge=1, description="steps that are not measured")
    threads: int = Field(default=1, ge=1, description="TensorFlow's intra-op threads in each process")

    @model_validator(mode="after")
    def _consistent(self) -> StagedSetting:
        if self.batch % self.micro_batches:
            raise ValueError(f"batch ({self.batch}) must be a multiple of micro_batches ({self.micro_batches})")
        if self.one_process and self.link is not None:
            raise ValueError("logical devices of one process have no link between them; leave link out")
        return self

    @property
    def ends(self) -> list[int]:
        """One past the last layer of each stage."""
        return [int(one) for one in np.cumsum(self.stages)]

    @property
    def name(self) -> str:
        """In words: model, batch, micro-batches, stages, where they are."""
        micro = f" in {self.micro_batches} ({self.schedule})" if self.micro_batches > 1 else ""
        link = "loopback" if self.link is None else f"{self.link.bandwidth_bytes_per_s * 8e-6:g} Mbit/s"
        where = "one process" if self.one_process else link
        stages = " + ".join(str(one) for one in self.stages)
        return f"{Path(self.model.rpartition(':')[0]).stem}, batch {self.batch}{micro}, layers {stages}, {where}"

    def for_probe(self, repeats: int, timeout_s: float) -> dict[str, Any]:
        """Input of the probe."""
        link = None if self.link is None else self.link.for_probe()
        plain = self.model_dump(mode="json", exclude={"link", "stages"})
        more = {"mode": "staged", "workers": len(self.stages), "servers": 0, "compute": {"kind": "real"}, "builder": self.model}
        return {**plain, **more, "ends": self.ends, "link": link, "repeats": repeats, "seed": 0, "timeout_s": timeout_s}


@dataclass(frozen=True)
class StagedRun:
    """One repeat.

    Attributes
    ----------
    steps_s
        Seconds of each step, from its call until its last gradient is applied and its loss has come back.
    compute_s
        Seconds that each stage computes, shape (steps, stages).
    passes
        Every pass of every step.
    handed_bytes
        What each stage but the last hands on for a micro-batch.
    link_bytes_per_s
        What plain sockets moved; none without a link.
    others_share
        Share of the cores' time that went to other processes, the kernel or the hypervisor; none if not known.
    """

    steps_s: NDArray[np.float64]
    compute_s: NDArray[np.float64]
    passes: tuple[StagePass, ...]
    handed_bytes: tuple[int, ...]
    link_bytes_per_s: float | None
    others_share: float | None


def measure_staged(
    setting: StagedSetting,
    folder: Path,
    *,
    repeats: int = 3,
    timeout_s: float = 120.0,
    python: str | None = None,
    progress: Progress | None = None,
) -> list[StagedRun]:
    """Train a model on two devices really, and measure it.

    Parameters
    ----------
    setting
        What is run.
    folder
        Where raw measurements go; each call adds a file.
    repeats
        How often; each repeat starts new processes.
    timeout_s
        Seconds after which one repeat is given up.
    python
        The user's Python; this one, if None.
    progress
        Called while it runs.

    Raises
    ------
    InputError
        There is no such Python, or no such file or function; or the model cannot be cut.
    CalibrationError
        A process died, or hung, or the machine does not reach the rate.
    """
    check_target(setting.model, "`model`")
    check_folder(folder).mkdir(parents=True, exist_ok=True)
    path = new_file(folder, f"staged-{setting.batch}b{setting.micro_batches}m", "testbed")
    with scratch() as own:
        spec = own / "setting.json"
        spec.write_text(json.dumps(setting.for_probe(repeats, timeout_s)), encoding="utf-8")
        arguments = ["--setting", str(spec), "--parent", str(os.getpid())]
        run_probe(_PROBE, arguments, path, python, timeout_s * repeats + 60.0, progress)
    return read_staged(path)


def read_staged(path: Path) -> list[StagedRun]:
    """The whole repeats that a file of measurements holds.

    Raises
    ------
    CalibrationError
        The file is damaged, or holds no whole repeat.
    """
    measured = read_measurements(path)
    found = []
    for whole in measured.of(Repeat):
        passes = tuple(one for one in measured.of(StagePass) if one.repeat == whole.repeat)
        steps = [one.applied_s - one.start_s for one in measured.of(Updated) if one.repeat == whole.repeat]
        compute = np.zeros((len(steps), 1 + max((one.stage for one in passes), default=0)))
        for one in passes:
            compute[one.step, one.stage] += one.ended_s - one.begun_s
        notes = [one.model_extra or {} for one in measured.of(Note)]
        handed = next((tuple(one["handed_bytes"]) for one in notes if one.get("repeat") == whole.repeat and "handed_bytes" in one), ())
        rate = next((one.bytes_per_s for one in measured.of(LinkCheck) if one.repeat == whole.repeat), None)
        found.append(StagedRun(np.array(steps), compute, passes, handed, rate, whole.others_share))
    if not found or not all(one.passes for one in found):
        raise CalibrationError(f"{path}: holds no whole repeat of a model on several devices; measure again")
    return found


def read_settings(path: Path) -> list[StagedSetting]:
    """The settings of a file: tables ``[[setting]]``; a key with a list in ``[[setting]].each`` gives all combinations.

    Raises
    ------
    ScenarioError
        The file cannot be read, or a setting breaks a rule.
    """
    found = []
    for number, table in enumerate(read_toml(path).get("setting", []), start=1):
        each = table.pop("each", {})
        for values in product(*each.values()):
            given = {**table, **dict(zip(each, values, strict=True))}
            found.append(validated(StagedSetting, given, f"{path}: setting {number}"))
    return found


def scenario_of(setting: StagedSetting, workload: Mapping[str, Any], *, replications: int = 9, seed: int = 0) -> Scenario:
    """The scenario that predicts a setting, made without having seen a run of it.

    Parameters
    ----------
    setting
        What is run.
    workload
        The model's workload with layers, measured on one core, as its file has it.
    replications, seed
        Of the simulation.

    Notes
    -----
    What TensorFlow's transport adds to a byte and to a tensor is that of
    :data:`calibrate.testbed.platform.PRIORS`, orders of magnitude that no run of a model on
    two devices took part in. Logical devices of one process hand tensors over by address.
    """
    link = setting.link
    if link is None and not setting.one_process:
        raise InputError(f"{setting.name}: over loopback the cores move every byte themselves, which is not predicted; give it a link")
    known = {name: PRIORS[name][0] for name in ("wire_bytes_per_byte", "tensor_s", "tensor_per_byte_s")}
    transport = {
        "wire_bytes_per_byte": known["wire_bytes_per_byte"],
        "cpu_per_message_s": known["tensor_s"],
        "copy_per_byte_s": known["tensor_per_byte_s"],
    }
    table: dict[str, Any] = {
        "workload": {**workload, "batch_per_replica": setting.batch},
        "cluster": {
            "name": "two hosts" if link is not None else "two logical devices",
            "basis": "measured",
            "nodes": len(setting.stages),
            "inter_node": {"bandwidth_bytes_per_s": link.bandwidth_bytes_per_s if link is not None else _BY_ADDRESS, "latency_s": 0.0},
            **({"transport": transport} if link is not None else {}),
        },
        "strategy": {
            "kind": "hybrid",
            "workers": len(setting.stages),
            "pipeline": len(setting.stages),
            "schedule": setting.schedule,
            "stages": setting.ends[:-1],
        },
        "training": {"micro_batches": setting.micro_batches},
        "run": {"steps": setting.steps, "replications": replications, "seed": seed},
    }
    return scenario_from_table(table, "model-parallel")


def _rows(setting: StagedSetting, runs: Sequence[StagedRun], device: str, measured: str) -> list[dict[str, Any]]:
    rows = []
    for run in runs:
        values = {
            "name": setting.name,
            "model": setting.model,
            "batch": setting.batch,
            "micro_batches": setting.micro_batches,
            "schedule": setting.schedule,
            "stages": "+".join(str(one) for one in setting.stages),
            "processes": 1 if setting.one_process else len(setting.stages),
            "link_bytes_per_s": setting.link.bandwidth_bytes_per_s if setting.link is not None else None,
            "link_measured_bytes_per_s": run.link_bytes_per_s,
            "handed_bytes": run.handed_bytes[0],
            "steps": len(run.steps_s),
            "step_s": run.steps_s.mean(),
            "step_sd_s": run.steps_s.std(ddof=1),
            "stage_1_compute_s": run.compute_s[:, 0].mean(),
            "stage_2_compute_s": run.compute_s[:, 1].mean(),
            "others_share": run.others_share,
            "device": device,
            "measured": measured,
        }
        rows.append({key: "" if value is None else f"{value:.6g}" if isinstance(value, float) else value for key, value in values.items()})
    return rows


def _undisturbed(setting: StagedSetting, folder: Path, repeats: int) -> Iterator[dict[str, Any]]:
    """Rows of repeats in which the machine did little else; what others disturbed is measured again, a few times."""
    wanted = repeats
    for _ in range(_ATTEMPTS):
        before = set(folder.glob("*.ndjson"))
        runs = measure_staged(setting, folder, repeats=wanted)
        (path,) = set(folder.glob("*.ndjson")) - before
        measured = read_measurements(path)
        quiet = [run for run in runs if (run.others_share or 0.0) <= _OTHERS][:wanted]
        yield from _rows(setting, quiet, measured.fingerprint.device_name, measured.header.started)
        wanted -= len(quiet)
        if not wanted:
            return


def compared(settings: Sequence[StagedSetting], rows: Sequence[Mapping[str, str]], workload: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Each setting's measured and predicted step, as cells of a table.

    Cells are the name, the mean step of the repeats with their standard deviation, what the two
    stages computed of it, the predicted step, how far it is from the measured one, and the
    same where all compute takes as much longer as it did in these runs: what is left
    then is the error of the pipeline and of its transfers alone.
    """
    found = []
    for setting in settings:
        own = [row for row in rows if row["name"] == setting.name]
        if not own:
            continue
        steps = np.array([float(row["step_s"]) for row in own])
        computed = np.array([[float(row[f"stage_{stage}_compute_s"]) for stage in (1, 2)] for row in own]).mean(axis=0)
        scenario = scenario_of(setting, workload)
        load, samples = scenario.workload, setting.batch / setting.micro_batches
        slower = computed.sum() / (load.compute_s(samples) * setting.micro_batches + load.apply_s)
        scaled = {**workload, "apply_s": workload["apply_s"] * slower}
        for name in ("forward", "backward"):
            scaled[name] = {key: value * slower for key, value in workload[name].items()}
        scaled.pop("uncertainty", None)
        predicted, again = (_step_s(one) for one in (scenario, scenario_of(setting, scaled)))
        deviation = steps.std(ddof=1) if len(steps) > 1 else float("nan")
        cells = [f"{1000 * steps.mean():.1f} ± {1000 * deviation:.1f}", " + ".join(f"{1000 * one:.1f}" for one in computed)]
        cells += [f"{1000 * predicted:.1f}", format_change(predicted / steps.mean() - 1), format_change(again / steps.mean() - 1)]
        found.append((setting.name, *cells))
    return found


def _step_s(scenario: Scenario) -> float:
    mean = simulate(scenario).mean_step_s
    assert mean is not None
    return mean.mean


def main() -> None:
    """Measure every setting of which there are too few rows yet, and append a row for each repeat; or compare with predictions."""
    parser = argparse.ArgumentParser(description="Measures real steps of a model on two devices.")
    parser.add_argument("settings", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="rows; appended to where it exists, so that what was stopped goes on")
    parser.add_argument("--measurements", type=Path, default=Path("measurements"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="settings whose name has this in it")
    parser.add_argument("--predict", type=Path, metavar="WORKLOAD", help="measure nothing; print the rows with predictions, as Markdown")
    parser.add_argument(
        "--validated", type=Path, metavar="CSV", help="with --predict: write them for the estimate of discrepancies as well"
    )
    arguments = parser.parse_args()
    if arguments.predict is not None:
        rows = rows_in(arguments.out)
        for cells in compared(read_settings(arguments.settings), rows, read_toml(arguments.predict)):
            print("| " + " | ".join(cells) + " |")  # noqa: T201
        return
    begin_rows(arguments.out, COLUMNS)
    there = Counter(row["name"] for row in rows_in(arguments.out))
    for setting in read_settings(arguments.settings):
        missing = arguments.repeats - there[setting.name]
        if arguments.only not in setting.name or missing <= 0:
            continue
        steps = []
        for row in _undisturbed(setting, arguments.measurements, missing):
            add_rows(arguments.out, COLUMNS, [row])
            steps.append(1000 * float(row["step_s"]))
        print(f"{setting.name}: {', '.join(f'{one:.2f}' for one in steps) or 'disturbed all the time'} ms a step", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
