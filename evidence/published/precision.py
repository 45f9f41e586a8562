"""Published trainings in mixed precision on several devices, predicted from one device in float32 and what other models gained."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from calibrate.validation.comparison import Compared
from evidence.published.prediction import base_of, left_out, solved
from evidence.published.scenarios import PublishedCase, cases_of, table_of
from evidence.published.tables import Row, Tables, load_tables
from simulator import simulate
from simulator.catalogue.loading import scenario_from_table
from simulator.resolve.device_transfer import precision_gain
from simulator.resolve.published_throughputs import PublishedThroughputs, load_published_throughputs, plain
from simulator.spec.accelerator import accelerator_named
from simulator.spec.constants import Known

_DEVICE = "Tesla V100-SXM2"
_FAMILY = {
    "bert-base": "bert",
    "bert-large": "bert",
    "mask-rcnn-r50": "rcnn",
    "resnet-50": "resnet",
    "resnext-101": "resnext",
    "se-resnext-101": "resnext",
    "transformer-big": "transformer",
    "unet": "unet",
}
"""What the names of a network's relatives have in common, whose published gains are left out with its own."""
_PARTED = re.compile(r"-(fp32|mixed)-|-b(\d+)")
_ACCUMULATES = "a step is "


def precision_rows(tables: Tables | None = None, speeds: PublishedThroughputs | None = None) -> tuple[Compared, ...]:
    """Every row of NVIDIA's examples in mixed precision on several V100 whose model was also published in float32 on one.

    The compute of the float32 row of one device is solved for, as always; the scenario of the
    row in mixed precision has it for its own batch, in float32, and
    ``training.precision = "mixed_float16"`` with the range that published gains of other
    families of models give. Nothing of any row in mixed precision of the model, or of its
    relatives, is used. Constants of links are those fitted without this table.

    Returns
    -------
    tuple
        With baselines: as many times the one device's throughput, times 1, times the middle
        of the range, and times the ratio of the device's peaks.
    """
    tables = load_tables() if tables is None else tables
    speeds = load_published_throughputs() if speeds is None else speeds
    practice = left_out(tables.home).get("nvidia_dle_head", {})
    cases = [its for its in cases_of(tables) if its[0].series.table == "nvidia_dle_head" and not _accumulates(its[0])]
    found: list[Compared] = []
    for case, rows in cases:
        plain_one = min(
            (its for its in cases if not its[0].series.mixed and _setting(its[0]) == _setting(case) and its[1][0].replicas == 1),
            key=lambda its: abs(math.log(its[1][0].batch_per_replica / rows[0].batch_per_replica)),
            default=None,
        )
        if case.series.mixed and plain_one is not None:
            found += _predicted(case, rows, plain_one, practice, speeds)
    return tuple(found)


def _accumulates(case: PublishedCase) -> bool:
    """Whether a step is several micro-batches, of which rows in the two precisions have different numbers."""
    return case.series.note.startswith(_ACCUMULATES)


def _setting(case: PublishedCase) -> tuple[str, str]:
    """Model, software, memory and machine of a series, without its precision and batch."""
    parts = _PARTED.split(case.series.id)
    return parts[0], parts[3]


def _predicted(
    case: PublishedCase,
    rows: list[Row],
    plain_one: tuple[PublishedCase, list[Row]],
    practice: dict[str, Known],
    speeds: PublishedThroughputs,
) -> Iterator[Compared]:
    stem = _FAMILY.get(case.series.network, plain(case.series.network))
    others = PublishedThroughputs((row for row in speeds.rows if stem not in plain(row.model)), speeds.models)
    gain = precision_gain(_DEVICE, None, others)
    device = accelerator_named(_DEVICE)
    assert gain is not None, "this device has pairs of many models"
    assert device is not None, "this device is in the catalogue"
    peaks = device.peak("mixed_float16"), device.peak("float32")
    assert peaks[0] is not None, "its datasheet has both"
    assert peaks[1] is not None, "its datasheet has both"
    low, middle, high, _ = gain
    base = base_of(plain_one[1])
    compute = solved(*plain_one[:1], base, practice)
    for row in rows:
        if row.replicas == 1:
            continue
        table: dict[str, Any] = table_of(case, row, compute.compute_s * row.batch_per_replica / base.batch_per_replica, practice)
        table["workload"]["precision"] = "float32"
        factor = {"precision_factor": [1 / high, 1 / middle, 1 / low], "precision_source": "published gains of other models"}
        table["training"] = {"precision": "mixed_float16", "skipped_share": 0.0, **factor}  # published rates count every step
        linear = base.mean / base.replicas * row.replicas
        yield Compared(
            name=f"{case.series.id}: {row.replicas} on {row.nodes}",
            group="mixed precision, from float32 on one device",
            unit=row.unit,
            measured=row.throughput,
            predicted=simulate(scenario_from_table(table, case.series.id)).throughput_samples_per_s,
            baselines={"factor 1": linear, "other models' gain": linear * middle, "ratio of peaks": linear * peaks[0] / peaks[1]},
            settings={"series": case.series.id, "network": case.series.network, "workers": row.replicas, "batch": row.batch_per_replica},
            note=case.series.note,
        )
