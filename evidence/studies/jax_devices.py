"""Real steps of ``keras.distribution.DataParallel`` on several CPU devices of JAX, compared with predictions from one device.

    python -m evidence.studies.jax_devices calibrate|link|runs|rows --python PYTHON

``calibrate`` measures each model as ``KERAS_BACKEND=jax paceline calibrate`` does; ``link`` times all-reduces between two devices without
a model, which give ``cluster.intra_device``; ``runs`` trains on two and four devices; ``rows`` predicts all and writes ``steps.csv``. The
devices share this machine's processor (``--xla_force_host_platform_device_count``), so that predictions are those of virtual devices.
Batches are drawn by a seed from those that were calibrated, before anything was measured.

Median and 90th percentile of the size of errors, 6 settings each: 19.6% and 64.9% on two devices, 14.6% and 64.0% on four (devices that
take turns: 22.3% and 69.7%, 23.0% and 72.6%); 6 of 12 steps lie inside their 90% intervals. A convolutional network is within 7%. Small
steps are far too fast: a ladder of 4 MB that one device updates in 0.6 ms takes 4.1 ms on two, of which computing and reducing explain
1.4. The overhead of ``DataParallel`` per call is not modelled, so predictions hold only for steps of at least 4 ms of compute.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.calibration import calibrate_step
from calibrate.fit.estimators import MessageCosts, line_of_medians
from calibrate.fit.writing import write_fitted
from calibrate.measurements import Load, StepTime, Transfer, new_file, read_measurements
from calibrate.probing import run_probe
from evidence.rows import rows_in, write_rows
from evidence.studies.ddp_runs import workload_file
from simulator import simulate
from simulator.base import catalog
from simulator.catalogue.loading import scenario_from_table
from simulator.scenario import Scenario

FOLDER = catalog.own_file("discrepancy.toml").parent / "measured" / "jax-devices"
RUNS, LINK = "runs.csv", "intra-device.csv"
RUN_COLUMNS = ("model", "devices", "batch", "steps", "mean_s", "disturbed")
"""Of a run: samples of each device; timed steps, and their mean; share of the rounds that something else disturbed, which do not count."""
LINK_COLUMNS = ("latency_s", "bandwidth_bytes_per_s")
COLUMNS = (
    "model",
    "devices",
    "batch",
    "steps",
    "measured_s",
    "predicted_s",
    "low_s",
    "high_s",
    "alone_s",
    "error",
    "error_linear",
    "error_in_turns",
)
"""Of a row: mean step; predicted mean and its 90% interval; the calibrated step of one device; predicted over measured less one; the same
where devices cost each other nothing (linear scaling), and where they take turns (as many times the step of one)."""
SEED = 20261127
MODELS: Mapping[str, tuple[int, ...]] = {
    "cnn.py:build": (8, 16, 32),
    "mlp.py:build": (64, 256, 1024),
    "ladder.py:ladder_4mb": (16, 64, 256),
}
DEVICES = (2, 4)
_SIZES = (2**12, 2**14, 2**16, 2**18, 2**20, 2**22)
_PROBE = str(Path(__file__).parents[1] / "probes" / "jax_devices.py")


def drawn_settings() -> dict[tuple[str, int], list[int]]:
    """Two batches of each model and number of devices."""
    chance = random.Random(SEED)  # noqa: S311
    return {(model, devices): sorted(chance.sample(MODELS[model], 2)) for model in MODELS for devices in DEVICES}


def scenario_of(model: str, devices: int, batch: int, folder: Path) -> Scenario:
    """The scenario that a user writes who has calibrated the model and the memory that devices share."""
    (link,) = rows_in(folder / LINK)
    table = {
        "workload": {"use": str(folder / workload_file(model)), "batch_per_replica": batch},
        "cluster": {
            "name": "devices of one processor",
            "devices_per_node": 1,
            "replicas_per_device": devices,
            "device_sharing": "concurrent",
            "intra_device": {name: float(value) for name, value in link.items()},
            "inter_node": {"bandwidth": "10 Gbit/s"},  # of one node: not used
        },
        "strategy": {"kind": "keras-data-parallel", "workers": 1},
        "run": {"steps": 20, "seed": 1},
    }
    return scenario_from_table(table, "jax-devices")


def row_of(run: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Measurements compared with predictions, and with two simple rules."""
    devices, batch, mean_s = int(run["devices"]), int(run["batch"]), float(run["mean_s"])
    scenario = scenario_of(run["model"], devices, batch, folder)
    predicted_s = simulate(scenario).mean_step_s
    assert predicted_s is not None
    alone_s = scenario.workload.compute_s(batch) + scenario.workload.apply_s
    return {
        **{name: run[name] for name in RUN_COLUMNS[:4]},
        "measured_s": f"{mean_s:.6g}",
        "predicted_s": f"{predicted_s.mean:.6g}",
        "low_s": f"{predicted_s.low:.6g}",
        "high_s": f"{predicted_s.high:.6g}",
        "alone_s": f"{alone_s:.6g}",
        "error": f"{predicted_s.mean / mean_s - 1:.4f}",
        "error_linear": f"{alone_s / mean_s - 1:.4f}",
        "error_in_turns": f"{devices * alone_s / mean_s - 1:.4f}",
    }


# -- measuring ------------------------------------------------------------------------------------


def _models_folder() -> Path:
    return FOLDER.parents[1] / "keras"


def link_measured(python: str, measurements: Path) -> None:
    """All-reduces of two devices: each byte of a buffer crosses their memory twice, in two turns."""
    out = new_file(measurements, "all-reduce", "links")
    sizes = ",".join(map(str, _SIZES))
    run_probe(_PROBE, ["--devices", "2", "--sizes", sizes, "--rounds", "10"], out, python, 200.0)
    records = read_measurements(out).of(Transfer)
    costs = MessageCosts.of_chains((record.size_bytes, record.hops, record.round, record.seconds) for record in records)
    line = line_of_medians(*costs.points(), tolerance=0.05)
    found = {"latency_s": f"{max(line.base, 0.0) / 2:.6g}", "bandwidth_bytes_per_s": f"{2 / line.slope:.6g}"}
    write_rows(FOLDER / LINK, LINK_COLUMNS, [found])


def trained(model: str, devices: int, python: str, measurements: Path) -> list[dict[str, Any]]:
    """Mean steps of the batches of a model on a number of devices, without disturbed rounds."""
    batches = drawn_settings()[model, devices]
    out = new_file(measurements, f"jax-{devices}", "step")
    given = ["--devices", str(devices), "--model", str(_models_folder() / model), "--batches", ",".join(map(str, batches))]
    run_probe(_PROBE, [*given, "--steps", "40", "--rounds", "10"], out, python, 400.0)
    measured = read_measurements(out)
    rounds = [one for one in measured.of(Load) if one.stage == "round"]
    disturbed = {one.round for one in rounds if one.why}
    found: list[dict[str, Any]] = []
    if 2 * len(disturbed) > len(rounds):
        return found  # measured again by the next call
    for batch in batches:
        times = [one.seconds for one in measured.of(StepTime) if one.batch == batch and one.round not in disturbed]
        found.append(
            {"model": model, "devices": devices, "batch": batch, "steps": len(times), "mean_s": f"{statistics.fmean(times):.6g}",
             "disturbed": f"{len(disturbed) / len(rounds):.2f}"}
        )  # fmt: skip
    return found


def read_runs(folder: Path = FOLDER) -> list[dict[str, str]]:
    """What was measured."""
    path = folder / RUNS
    return rows_in(path) if path.exists() else []


def main() -> None:
    """Measure what is missing, or predict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("calibrate", "link", "runs", "rows"))
    parser.add_argument("--python")
    parser.add_argument("--measurements", type=Path, default=Path("measurements"))
    arguments = parser.parse_args()
    for folder in (FOLDER, arguments.measurements):
        folder.mkdir(parents=True, exist_ok=True)
    python, measurements = arguments.python, arguments.measurements
    if arguments.what == "calibrate":
        for model in [one for one in MODELS if not (FOLDER / workload_file(one)).exists()]:
            name = f"{Path(workload_file(model)).stem}-jax"
            workload = calibrate_step(
                str(_models_folder() / model), name, keras_backend="jax", batches=MODELS[model], python=python, folder=measurements,
                timeout_s=400.0,
            )  # fmt: skip
            write_fitted(workload, FOLDER / workload_file(model))
    elif arguments.what == "link":
        link_measured(python, measurements)
    elif arguments.what == "runs":
        there = {(run["model"], int(run["devices"])) for run in read_runs()}
        for model, devices in drawn_settings():
            if (model, devices) not in there:
                write_rows(FOLDER / RUNS, RUN_COLUMNS, [*read_runs(), *trained(model, devices, python, measurements)])
    else:
        rows = [row_of(run, FOLDER) for run in read_runs()]
        write_rows(FOLDER / "steps.csv", COLUMNS, rows)
        errors = sorted(abs(float(row["error"])) for row in rows)
        print("median", f"{statistics.median(errors):.1%}", "90th", f"{errors[math.ceil(0.9 * len(errors)) - 1]:.1%}")  # noqa: T201
        for row in rows:
            print(*row.values())  # noqa: T201


if __name__ == "__main__":
    main()
