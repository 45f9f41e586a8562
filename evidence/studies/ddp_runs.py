"""Real steps of PyTorch's DDP over gloo, on hosts with shaped links, compared with predictions from one process and a link measurement.

    python -m evidence.studies.ddp_runs calibrate|links|runs|rows --python PYTHON

``calibrate`` measures each model as ``KERAS_BACKEND=torch paceline calibrate`` does, one thread for each process; ``links`` each link as
``paceline calibrate-link --carrier gloo`` does, between two of the hosts; ``runs`` trains each drawn setting; ``rows`` predicts all of them
and writes ``steps.csv``. Existing measurements are not repeated. PYTHON has PyTorch and Keras; links need root.

Settings are drawn by a seed, before anything was measured. Hosts are network namespaces of this machine, whose two cores they share:
predictions say so (``cluster.shared_cores``, with Linux's slices of 1.5 ms on two cores), so the third process is nothing special.
Latency is not drawn: this kernel has no netem, and what there is of it is the hosts' own.

Median and 90th percentile of the size of errors, 12 settings: Paceline 2.2% and 3.6%, linear scaling 88% and 97%, one process's step plus
2 (n - 1) / n of the gradients' bytes at the link's rate 6.6% and 15.8%; 12 of 12 steps lie inside their 90% intervals. The largest error,
+9.4%, is where a step mostly computes on cores that two processes share. With links measured up to 4 MiB only, predictions were 3 to 4
points lower: gloo's small buffers pass the shaper in a burst.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from calibrate.calibration import calibrate_step
from calibrate.fit.link import fit_link
from calibrate.fit.writing import write_fitted
from calibrate.measurements import Repeat, Updated, Used, new_file, read_measurements
from calibrate.probing import run_probe
from evidence.rows import rows_in, write_rows
from simulator import simulate
from simulator.base import catalog
from simulator.base.process import scratch
from simulator.catalogue.loading import scenario_from_table
from simulator.scenario import Scenario

FOLDER = catalog.own_file("discrepancy.toml").parent / "measured" / "torch-ddp"
RUNS = "runs.csv"
RUN_COLUMNS = (
    "model", "batch", "workers", "mbit_per_s", "bucket_cap_mb", "steps", "mean_s", "median_s", "cpu_s", "others_share",
)  # fmt: skip
"""Of a run: the setting; timed steps; their mean and median; processor seconds of a process in a step; what others took of the cores."""
COLUMNS = (
    *RUN_COLUMNS[:6], "measured_s", "predicted_s", "low_s", "high_s", "alone_s", "error", "error_linear", "error_bytes",
)  # fmt: skip
"""Of a row: the setting; mean step; predicted mean and its 90% interval; the calibrated step of one process; predicted over measured less
one; the same where nothing is sent (linear scaling), and where 2 (n - 1) / n of the bytes follow the step at the link's rate."""
SEED, COUNT = 20261127, 12
MODELS: Mapping[str, tuple[int, ...]] = {
    "cnn.py:build": (8, 16, 32),
    "ladder.py:ladder_4mb_16": (16, 64, 256),
    "bert_tiny.py:build": (2, 4, 8),
}
"""Each with the batches that are calibrated and drawn."""
RATES = (200, 400, 800)
CAPS = (None, 1, 4)
STEPS = 40
_PROBE = str(Path(__file__).parents[1] / "probes" / "ddp.py")
_CORES, _SLICE_S = 2, 1.5e-3
_OTHERS, _ATTEMPTS = 0.05, 3
"""Share of the cores' time that others may take of a run, and how often one is tried for that."""


@dataclass(frozen=True)
class DDPSetting:
    """What is run: a model of ``models/keras``, samples and number of processes, the link's rate, and PyTorch's ``bucket_cap_mb``."""

    model: str
    batch: int
    workers: int
    mbit_per_s: int
    bucket_cap_mb: int | None


def drawn_settings() -> list[DDPSetting]:
    """The settings, as the seed draws them: as many of two processes as of three."""
    chance = random.Random(SEED)  # noqa: S311
    found: list[DDPSetting] = []
    while len(found) < COUNT:
        model = chance.choice(list(MODELS))
        one = DDPSetting(model, chance.choice(MODELS[model]), 2 + len(found) % 2, chance.choice(RATES), chance.choice(CAPS))
        if one not in found:
            found.append(one)
    return found


def workload_file(model: str) -> str:
    """Name of the file of a calibrated model."""
    return f"{model.partition(':')[0].removesuffix('.py')}.toml"


def scenario_of(setting: DDPSetting, folder: Path) -> Scenario:
    """The scenario that a user writes who has calibrated the model and the link."""
    strategy: dict[str, Any] = {"kind": "torch-ddp", "workers": setting.workers, "gradient_as_bucket_view": True}
    if setting.bucket_cap_mb is not None:
        strategy["bucket_size_bytes"] = setting.bucket_cap_mb * 2.0**20
    table = {
        "workload": {"use": str(folder / workload_file(setting.model)), "batch_per_replica": setting.batch},
        "cluster": {
            "use": str(folder / f"link-{setting.mbit_per_s}.toml"),
            "shared_cores": _CORES,
            "time_slice_s": _SLICE_S,
            "device_is_host": True,
        },
        "strategy": strategy,
        "run": {"steps": STEPS, "seed": 1},
    }
    return scenario_from_table(table, "torch-ddp")


def row_of(run: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Measurements of a setting compared with predictions, and with two simple rules."""
    setting = setting_of(run)
    scenario = scenario_of(setting, folder)
    predicted_s = simulate(scenario).mean_step_s
    assert predicted_s is not None
    load, mean_s = scenario.workload, float(run["mean_s"])
    alone_s = load.compute_s(setting.batch) + load.apply_s
    sent_s = 2 * (setting.workers - 1) / setting.workers * load.parameter_bytes / (setting.mbit_per_s * 1e6 / 8)
    return {
        **{name: run[name] for name in RUN_COLUMNS[:6]},
        "measured_s": f"{mean_s:.6g}",
        "predicted_s": f"{predicted_s.mean:.6g}",
        "low_s": f"{predicted_s.low:.6g}",
        "high_s": f"{predicted_s.high:.6g}",
        "alone_s": f"{alone_s:.6g}",
        "error": f"{predicted_s.mean / mean_s - 1:.4f}",
        "error_linear": f"{alone_s / mean_s - 1:.4f}",
        "error_bytes": f"{(alone_s + sent_s) / mean_s - 1:.4f}",
    }


def setting_of(run: Mapping[str, str]) -> DDPSetting:
    """The setting of a row."""
    cap = run["bucket_cap_mb"]
    return DDPSetting(run["model"], int(run["batch"]), int(run["workers"]), int(run["mbit_per_s"]), int(cap) if cap else None)


# -- measuring ------------------------------------------------------------------------------------


def _models_folder() -> Path:
    return FOLDER.parents[1] / "keras"


def _probed(setting: Mapping[str, Any], out: Path, python: str) -> None:
    with scratch() as own:
        spec = own / "setting.json"
        spec.write_text(json.dumps(setting), encoding="utf-8")
        run_probe(_PROBE, ["--setting", str(spec), "--parent", str(os.getpid())], out, python, 400.0)


def _common(mbit_per_s: int, workers: int, torch: str) -> dict[str, Any]:
    link = {"bits_per_s": mbit_per_s * 1e6, "sharing": "fair", "buffer_ms": 20.0, "congestion": "cubic"}
    more = {"mode": "ring", "servers": 0, "repeats": 1, "seed": SEED, "timeout_s": 300.0, "torch": torch}
    return {"link": link, "workers": workers, **more}


def calibrated(model: str, python: str, measurements: Path) -> None:
    """Calibrate a model, as a user does: three processes one after the other, then two at once."""
    workload = calibrate_step(
        str(_models_folder() / model), f"{Path(workload_file(model)).stem}-torch", keras_backend="torch", batches=MODELS[model], steps=30,
        runs=3, at_once=_CORES, launches=3, python=python, folder=measurements, timeout_s=400.0, accept_disturbed=False,
    )  # fmt: skip
    write_fitted(workload, FOLDER / workload_file(model))


def link_measured(mbit_per_s: int, python: str, measurements: Path) -> None:
    """Measure a link, as a user does."""
    out = new_file(measurements, f"link-{mbit_per_s}", "links")
    setting = {
        "task": "link",
        "sizes": [2**power for power in range(10, 27, 2)],  # 1 KiB to 64 MiB, as of paceline calibrate-link
        "rounds": 7,
        "link_out": str(out.absolute()),
        **_common(mbit_per_s, 2, "see its own file"),
    }
    _probed(setting, out.with_name(f"{out.stem}-hosts{out.suffix}"), python)
    write_fitted(fit_link(out, f"gloo-{mbit_per_s}"), FOLDER / f"link-{mbit_per_s}.toml")


def trained(setting: DDPSetting, python: str, measurements: Path, torch: str) -> dict[str, Any] | None:
    """The attempt with the least other load on the machine; none where it was never so."""
    for _ in range(_ATTEMPTS):
        out = new_file(measurements, f"ddp-{setting.workers}", "testbed")
        own = {**asdict(setting), "model": str(_models_folder() / setting.model), "task": "train", "steps": STEPS, "threads": 1}
        _probed({**_common(setting.mbit_per_s, setting.workers, torch), **own}, out, python)
        measured = read_measurements(out)
        times = [one.applied_s - one.start_s for one in measured.of(Updated)]
        cpu_s = statistics.fmean(one.user_s + one.system_s for one in measured.of(Used)) / STEPS
        others_share = measured.of(Repeat)[0].others_share or 0.0
        if others_share <= _OTHERS:
            figures = {
                "mean_s": statistics.fmean(times),
                "median_s": statistics.median(times),
                "cpu_s": cpu_s,
                "others_share": others_share,
            }
            return {**asdict(setting), "steps": STEPS, **{name: f"{value:.6g}" for name, value in figures.items()}}
    return None


def read_runs(folder: Path = FOLDER) -> list[dict[str, str]]:
    """What was measured."""
    path = folder / RUNS
    return rows_in(path) if path.exists() else []


def _missing() -> Iterator[DDPSetting]:
    there = {setting_of(run) for run in read_runs()}
    yield from (one for one in drawn_settings() if one not in there)


def main() -> None:
    """Measure what is missing, or predict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("calibrate", "links", "runs", "rows"))
    parser.add_argument("--python")
    parser.add_argument("--torch", default="2.14.1", help="version, for the records")
    parser.add_argument("--measurements", type=Path, default=Path("measurements"))
    parser.add_argument("--most", type=int, default=100, help="how many to measure now")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    arguments.measurements.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"  # as torchrun sets it
    python, measurements = arguments.python, arguments.measurements
    if arguments.what == "calibrate":
        for model in [one for one in MODELS if not (FOLDER / workload_file(one)).exists()][: arguments.most]:
            calibrated(model, python, measurements)
    elif arguments.what == "links":
        for rate in [one for one in RATES if not (FOLDER / f"link-{one}.toml").exists()][: arguments.most]:
            link_measured(rate, python, measurements)
    elif arguments.what == "runs":
        for setting in list(_missing())[: arguments.most]:
            found = trained(setting, python, measurements, arguments.torch)
            print(setting, found or "was disturbed: measured again by the next call", flush=True)  # noqa: T201
            if found is not None:
                write_rows(FOLDER / RUNS, RUN_COLUMNS, [*read_runs(), found])
    else:
        rows = [row_of(run, FOLDER) for run in read_runs()]
        write_rows(FOLDER / "steps.csv", COLUMNS, rows)
        for workers in (2, 3):
            errors = sorted(abs(float(row["error"])) for row in rows if int(row["workers"]) == workers)
            p90 = errors[math.ceil(0.9 * len(errors)) - 1]
            print(workers, "processes: median", f"{statistics.median(errors):.1%}", "90th", f"{p90:.1%}")  # noqa: T201
        for row in rows:
            print(*row.values())  # noqa: T201


if __name__ == "__main__":
    main()
