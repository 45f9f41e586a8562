"""Real steps of MirroredStrategy on logical devices compared with predictions from one device.

    python -m evidence.studies.virtual_devices measurements/*.ndjson

takes measurement files of steps on one device and of replicas on logical devices
(``evidence/probes/mirrored.py``), of all-reduces between two of these
(:func:`calibrate.profiling.profile_link`, ``logical_devices``), fits workloads and a cluster to what
one device and the all-reduces tell, and writes them and one row for each measured step of
replicas to ``models/measured/virtual-devices``, or to the folder that ``--out`` names.

Mean sizes of errors (MirroredStrategy with SGD, two cores, TensorFlow 2.21; replicas that cost each other nothing, and that take turns,
in brackets): cnn on 2 and 4 logical CPUs 4% (47%, 7%) and 6% (72%, 15%); mlp 19% (53%, 16%) and 18% (66%, 36%); bert_tiny 17% (57%,
14%) and 26% (81%, 25%); all 15% (62%, 19%). Steps of mlp are as much the strategy's own work as the model's. bert_tiny is 7 to 29% too
short: tensors of 60 MB leave the caches, so replicas share the memory's bandwidth, and packing 17 MB of gradients is not in the
exchange. The form of the formula was chosen with these rows in sight, between it and max(1, k u) (17%); none of its figures was fitted
to them.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NamedTuple

from calibrate.fit.link import fit_link
from calibrate.fit.step import fit_workload
from calibrate.fit.writing import write_fitted
from calibrate.measurements import Load, Measurements, StepTime, read_measurements
from evidence.rows import text_of_rows
from simulator import simulate
from simulator.base import catalog
from simulator.base.errors import InputError
from simulator.base.files import Output, csv_kind
from simulator.catalogue.loading import scenario_from_table
from simulator.scenario import Scenario

FOLDER = catalog.own_file("discrepancy.toml").parent / "measured" / "virtual-devices"
COLUMNS = (
    "model", "replicas", "batch", "steps", "measured_s", "predicted_s", "low_s", "high_s", "alone_s", "busy_share", "exchange_s",
    "error", "error_without_cost", "error_in_turns",
)  # fmt: skip
"""Of a row: replicas; samples of each; timed steps; mean step; predicted mean and its 90% interval; mean step of a single replica, as
measured; share of the device that it keeps busy; predicted time of the exchange that compute does not hide; predicted over measured less
one; the same where replicas cost each other nothing (alone_s), and where they take turns (replicas x alone_s)."""


class Steps(NamedTuple):
    """Measurement of one batch on a number of logical devices."""

    model: str
    replicas: int
    batch: int
    steps: int
    mean_s: float


def measured_steps(measured: Measurements) -> list[Steps]:
    """Each batch of a file, without the rounds that something else disturbed."""
    disturbed = {record.round for record in measured.of(Load) if record.stage == "round" and record.why}
    times: dict[int, list[float]] = {}
    for step in measured.of(StepTime):
        if step.round not in disturbed:
            times.setdefault(step.batch, []).append(step.seconds)
    model = Path(str(measured.header.arguments["model"]).rpartition(":")[0]).stem
    replicas = int(measured.header.arguments.get("replicas") or 1)
    return [Steps(model, replicas, batch, len(each), math.fsum(each) / len(each)) for batch, each in sorted(times.items())]


def scenario_of(folder: Path, model: str, replicas: int, batch: int) -> Scenario:
    """The scenario that a user writes who has calibrated the model and the machine."""
    table = {
        "workload": {"use": str(folder / f"{model}.toml"), "batch_per_replica": batch},
        "cluster": {
            "use": str(folder / "machine.toml"),
            "devices_per_node": 1,
            "replicas_per_device": replicas,
            "device_sharing": "concurrent",
        },
        "strategy": {"kind": "mirrored", "replicas": replicas},
        "run": {"steps": 20, "seed": 1},
    }
    return scenario_from_table(table, "virtual-devices")


def row_of(folder: Path, its: Steps, alone_s: float) -> dict[str, Any]:
    """One row: a measurement compared with its prediction, and with both simple rules."""
    scenario = scenario_of(folder, its.model, its.replicas, its.batch)
    result = simulate(scenario)
    predicted_s = result.mean_step_s
    assert predicted_s is not None
    return {
        "model": its.model,
        "replicas": its.replicas,
        "batch": its.batch,
        "steps": its.steps,
        "measured_s": f"{its.mean_s:.6g}",
        "predicted_s": f"{predicted_s.mean:.6g}",
        "low_s": f"{predicted_s.low:.6g}",
        "high_s": f"{predicted_s.high:.6g}",
        "alone_s": f"{alone_s:.6g}",
        "busy_share": f"{scenario.workload.busy_share(its.batch):.4g}",
        "exchange_s": f"{result.breakdown_s.exposed_communication:.4g}",
        "error": f"{predicted_s.mean / its.mean_s - 1:.4f}",
        "error_without_cost": f"{alone_s / its.mean_s - 1:.4f}",
        "error_in_turns": f"{its.replicas * alone_s / its.mean_s - 1:.4f}",
    }


def main() -> None:
    """Fit, predict, and write all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER")
    arguments = parser.parse_args()
    folder: Path = arguments.out
    found = [read_measurements(file) for file in arguments.files]
    links = [one for one in found if one.header.probe == "links"]
    steps = [each for one in found if one.header.probe == "step" for each in measured_steps(one)]
    if len(links) != 1:
        raise InputError(f"{len(links)} of the files are of links; give one, measured with logical devices")
    write_fitted(fit_link(links[0].path, "machine"), folder / "machine.toml")
    alone = {(each.model, each.batch): each.mean_s for each in steps if each.replicas == 1}
    for one in found:
        if one.header.probe == "step" and not (one.header.arguments.get("replicas") or 1) > 1:
            load = fit_workload(one.path, measured_steps(one)[0].model.replace("_", "-"), accept_disturbed=True)
            write_fitted(load.model_copy(update={"jitter_draws": ()}), folder / f"{load.model}.toml")
    shared = sorted(each for each in steps if each.replicas > 1)
    Output(folder / "steps.csv", csv_kind(COLUMNS)).write(
        text_of_rows(COLUMNS, [row_of(folder, each, alone[each.model, each.batch]) for each in shared])
    )


if __name__ == "__main__":
    main()
