"""Peak memory of real training steps on the CPU over batch sizes, each in a process of its own.

``python -m evidence.studies.peak_memory models/keras/cnn.py:build --batches 64,256,128 --out FILE.csv`` appends a row for each
batch size. Memory that is freed goes back to the system at once (glibc's ``MALLOC_MMAP_THRESHOLD_`` is fixed), so that the
most that is resident is what tensors take, not what an allocator has kept. With ``TF_ENABLE_ONEDNN_OPTS=0`` in the
environment it is measured without oneDNN, whose convolutions take work space that depends on the batch in steps.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from calibrate.probing import command_of, probing
from evidence.rows import begin_rows, rows_in

_PROBE = str(Path(__file__).parents[1] / "probes" / "peak_memory.py")
_THRESHOLD_BYTES = 128 * 1024


class Peak(NamedTuple):
    """Memory of one process for steps of one batch size; fields as the probe has them."""

    model: str
    batch: int
    jit: bool
    onednn: bool
    optimizer: str
    before_bytes: float
    peak_bytes: float
    variables_bytes: float
    outputs_bytes_per_sample: float
    xla_temporary_bytes: float | None


def measure(target: str, batch: int, *, jit: bool = False, python: str = sys.executable) -> Peak:
    """Steps of one batch size in a fresh process.

    Raises
    ------
    subprocess.CalledProcessError
        The process failed; its words are in ``stderr``.
    """
    command = command_of(_PROBE, ["--model", target, "--batch", str(batch), *(["--jit"] if jit else [])], python)
    with probing() as (_, own):
        environment = {**own, "MALLOC_MMAP_THRESHOLD_": str(_THRESHOLD_BYTES)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603 - the user's own Python
    return Peak(model=Path(target.rpartition(":")[0]).stem, **json.loads(done.stdout.splitlines()[-1]))


def read_peaks(path: Path) -> list[Peak]:
    """Rows as :func:`main` writes them."""
    return [_peak(row) for row in rows_in(path)]


def _peak(row: dict[str, str]) -> Peak:
    numbers = {name: float(row[name]) for name in ("before_bytes", "peak_bytes", "variables_bytes", "outputs_bytes_per_sample")}
    temporary = float(row["xla_temporary_bytes"]) if row["xla_temporary_bytes"] else None
    return Peak(
        model=row["model"], batch=int(row["batch"]), jit=row["jit"] == "True", onednn=row["onednn"] == "True", optimizer=row["optimizer"],
        xla_temporary_bytes=temporary, **numbers,
    )  # fmt: skip


def main() -> None:
    """Measure and append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", metavar="FILE.py:FUNCTION")
    parser.add_argument("--batches", required=True, type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--jit", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    begin_rows(arguments.out, Peak._fields)
    for batch in arguments.batches:
        found = measure(arguments.target, batch, jit=arguments.jit)
        with arguments.out.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(found)


if __name__ == "__main__":
    main()
