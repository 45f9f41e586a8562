"""Real trainings from the start of their process through their first epochs, measured.

``python -m evidence.studies.timed_epochs SETTINGS.toml --out FILE.csv`` runs each setting of
a file (``models/measured/first-epochs.toml``) and appends a row for each epoch of each repeat.
:mod:`evidence.studies.first_epochs` holds predictions against them.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from calibrate.measurements import Count, Load, Measurements, MeasurementsError, NotNegative, Record, new_file, read_measurements
from calibrate.probing import run_probe
from calibrate.profiling import check_target
from evidence.rows import add_rows, begin_rows, rows_in
from simulator.base.errors import InputError
from simulator.base.files import check_folder, read_toml
from simulator.base.spec import Spec
from simulator.base.text import digits
from simulator.base.validation_errors import validated


class Span(Record, kind="span"):
    """A part of a whole training; times are seconds since the start of its process, epochs count from 0 on."""

    what: Literal["step", "evaluation step", "evaluation", "checkpoint", "epoch", "job"]
    epoch: Count
    began_s: NotNegative
    ended_s: NotNegative


class JobSetting(Spec):
    """What is run: a Keras model that ``fit`` trains for a few epochs, in a process of its own."""

    model: str = Field(description="FILE.py:FUNCTION, as paceline calibrate takes it")
    workload: str = Field(description="file of the workload that predicts it, seen from the settings' own folder")
    batch: int = Field(ge=1, description="samples that each replica takes a step")
    steps: int = Field(ge=2, description="of an epoch")
    evaluation_steps: int = Field(default=0, ge=0, description="after each epoch; 0: no evaluation")
    epochs: int = Field(default=3, ge=1)
    replicas: int = Field(default=1, ge=1, le=64, description="above 1: MirroredStrategy, on logical devices where real ones are too few")
    checkpoint: bool = Field(default=True, description="whether one is written after each epoch, until the disk has it")

    @property
    def name(self) -> str:
        """In words: ``cnn, batch 32, 2 replicas``."""
        replicas = f"{self.replicas} replica{'s' if self.replicas > 1 else ''}"
        return f"{Path(self.model.rpartition(':')[0]).stem}, batch {self.batch}, {replicas}"

    @property
    def dataset_size(self) -> int:
        """Samples of an epoch."""
        return self.steps * self.batch * self.replicas

    @property
    def evaluation_samples(self) -> int:
        """Samples of an evaluation."""
        return self.evaluation_steps * self.batch * self.replicas


@dataclass(frozen=True)
class EpochTimes:
    """One epoch of a real training, in seconds; first step, later steps, evaluation and checkpoint make up the whole.

    Attributes
    ----------
    first_step_s
        From the end of the epoch before (of the first: from the beginning of the first step) to the end of its first step.
    steps_s, step_s
        Of all later steps, and their mean, with what Keras does between them.
    evaluation_s
        From the end of the last step to the checkpoint.
    """

    number: int
    first_step_s: float
    steps_s: float
    step_s: float
    evaluation_s: float
    checkpoint_s: float

    @property
    def time_s(self) -> float:
        """Of the whole epoch."""
        return self.first_step_s + self.steps_s + self.evaluation_s + self.checkpoint_s


@dataclass(frozen=True)
class JobTimes:
    """A real training: until its first step began, and each epoch, in seconds since the start of the process.

    ``others_share`` is what other processes took of the cores' time meanwhile; none where that is not known.
    """

    startup_s: float
    epochs: tuple[EpochTimes, ...]
    others_share: float | None = None

    @property
    def time_s(self) -> float:
        """Until the end of the last epoch."""
        return self.startup_s + math.fsum(epoch.time_s for epoch in self.epochs)


COLUMNS = (
    "name", "repeat", "startup_s", "epoch", "first_step_s", "steps_s", "step_s", "evaluation_s", "checkpoint_s",
    "others_share", "device", "cores", "tensorflow", "keras", "measured",
)  # fmt: skip
"""Of a file of rows, one for each epoch of each repeat."""
_OTHERS = 0.05
"""Share of the cores' time that others may take of a run that counts."""
_ATTEMPTS = 4


def read_job_settings(path: Path) -> list[JobSetting]:
    """The settings of a file, each a table ``[[setting]]``.

    Raises
    ------
    InputError
        The file cannot be read, or a setting breaks a rule.
    """
    tables = read_toml(path).get("setting")
    if not isinstance(tables, list) or not tables:
        raise InputError(f"{path}: has no [[setting]]; give at least one")
    return [validated(JobSetting, table, f"{path}: setting {number}") for number, table in enumerate(tables, start=1)]


def measure_job(
    setting: JobSetting, folder: Path, *, device: str | None = None, python: str | None = None, timeout_s: float = 600.0
) -> Path:
    """Run a setting once, in a fresh process, and return its measurement file.

    Raises
    ------
    InputError
        There is no such model or Python.
    CalibrationError
        The process failed or took too long; what was measured is kept.
    """
    check_target(setting.model, "model")
    check_folder(folder)
    path = new_file(folder, Path(setting.model.rpartition(":")[0]).stem, "job")
    path.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["--model", setting.model, "--batch", str(setting.batch), "--steps", str(setting.steps), "--epochs", str(setting.epochs)]
    arguments += ["--evaluation-steps", str(setting.evaluation_steps), "--replicas", str(setting.replicas)]
    arguments += [*(["--checkpoint"] if setting.checkpoint else []), *(["--device", device] if device else [])]
    run_probe(str(Path(__file__).parents[1] / "probes" / "job.py"), arguments, path, python, timeout_s)
    return path


def read_job(measured: Measurements) -> JobTimes:
    """Epochs of a training, from the spans that its process wrote down.

    Raises
    ------
    MeasurementsError
        The file is of something else, or was cut short.
    """
    if measured.header.probe != "job" or not measured.complete:
        raise MeasurementsError(f"{measured.path}: holds no whole training; measure again")
    spans = measured.of(Span)
    numbers = sorted({span.epoch for span in spans if span.what == "epoch"})
    startup_s = min(span.began_s for span in spans if span.what == "step")
    epochs, end_s = [], startup_s
    for number in numbers:
        epoch = _epoch(number, [span for span in spans if span.epoch == number], end_s)
        epochs.append(epoch)
        end_s += epoch.time_s
    load = next((one for one in measured.of(Load) if one.others_s is not None), None)
    others = None if load is None or load.others_s is None else (load.others_s + load.stolen_s) / (load.wall_s * load.cores)
    return JobTimes(startup_s, tuple(epochs), others)


def _epoch(number: int, spans: Sequence[Span], began_s: float) -> EpochTimes:
    of = {what: [span for span in spans if span.what == what] for what in ("step", "checkpoint", "epoch")}
    steps, ended_s = of["step"], of["epoch"][0].ended_s
    first, last = steps[0], steps[-1]
    written_s = of["checkpoint"][0].began_s if of["checkpoint"] else ended_s
    return EpochTimes(
        number=number + 1,
        first_step_s=first.ended_s - began_s,
        steps_s=last.ended_s - first.ended_s,
        step_s=(last.ended_s - first.ended_s) / max(len(steps) - 1, 1),
        evaluation_s=written_s - last.ended_s,
        checkpoint_s=ended_s - written_s,
    )


def _undisturbed(setting: JobSetting, folder: Path) -> Measurements | None:
    """A run in which others took little of the cores' time; none where no attempt was such a one."""
    for _ in range(_ATTEMPTS):
        measured = read_measurements(measure_job(setting, folder))
        others = read_job(measured).others_share
        if others is None or others <= _OTHERS:
            return measured
    return None


def _rows(setting: JobSetting, repeat: int, measured: Measurements) -> Iterator[dict[str, Any]]:
    job, fingerprint = read_job(measured), measured.fingerprint
    extra = fingerprint.model_extra or {}
    about = {
        "name": setting.name,
        "repeat": repeat,
        "startup_s": digits(job.startup_s),
        "others_share": "" if job.others_share is None else digits(job.others_share, 3),
        "device": fingerprint.device_name,
        "cores": fingerprint.cores or "",
        "tensorflow": fingerprint.tensorflow,
        "keras": extra.get("keras", ""),
        "measured": measured.header.started,
    }
    for epoch in job.epochs:
        times = {key: digits(getattr(epoch, key)) for key in COLUMNS if key in EpochTimes.__dataclass_fields__}
        yield about | {"epoch": epoch.number} | times


def main() -> None:
    """Measure every setting of which there are too few repeats yet, and append a row for each epoch."""
    parser = argparse.ArgumentParser(description="Measures the first epochs of real trainings.")
    parser.add_argument("settings", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="rows; appended to where it exists, so that what was stopped goes on")
    parser.add_argument("--measurements", type=Path, default=Path("measurements"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="settings whose name has this in it")
    arguments = parser.parse_args()
    begin_rows(arguments.out, COLUMNS)
    there = Counter(name for name, _ in {(row["name"], row["repeat"]) for row in rows_in(arguments.out)})
    for setting in read_job_settings(arguments.settings):
        if arguments.only not in setting.name:
            continue
        for repeat in range(there[setting.name] + 1, arguments.repeats + 1):
            measured = _undisturbed(setting, arguments.measurements)
            if measured is None:
                print(f"{setting.name}: disturbed all the time", flush=True)  # noqa: T201
                break
            add_rows(arguments.out, COLUMNS, _rows(setting, repeat, measured))
            job = read_job(measured)
            each = ", ".join(f"{epoch.time_s:.2f}" for epoch in job.epochs)
            print(f"{setting.name}: start-up {job.startup_s:.2f} s, epochs {each} s, {job.time_s:.2f} s in all", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
