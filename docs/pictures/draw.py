"""Photographs reports for these pages, in a headless Chromium: ``make pictures``.

The reports are those of the commands that the pages show, and the one that ``make quickstart`` wrote.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import paceline
from paceline.reporting.exporting import find_browser

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLE = ROOT / "reports" / "example"


@dataclass(frozen=True)
class Picture:
    """What is seen of a report, from its top.

    Attributes
    ----------
    file
        The picture.
    width_px, height_px
        Of the window.
    scale
        Pixels of the picture for each of the window.
    """

    file: Path
    width_px: int = 1000
    height_px: int = 900
    scale: float = 0.75


PICTURES: Mapping[str, Picture] = {
    "example": Picture(EXAMPLE.with_suffix(".png"), 1280, 1600, 1.0),
    "report": Picture(HERE / "report.png"),
    "plan": Picture(HERE / "plan.png"),
}


def _write(folder: Path) -> dict[str, Path]:
    """The reports, by the names of their pictures."""
    pages = {name: folder / f"{name}.html" for name in PICTURES} | {"example": EXAMPLE.with_suffix(".html")}
    swept = paceline.sweep("ring", {"strategy.workers": [1, 2, 4, 8, 16]}, {"cluster.inter_node.bandwidth": "10 Gbit/s"})
    paceline.report(swept, pages["report"])
    planned = paceline.plan(
        "ring", target_throughput="20000 samples/s", clusters=["ethernet-10g", "ethernet-25g"],
        strategies=["ring", "sync-ps", "async-ps"], workers="1..16", prices="0.40/h", settings={"run.steps": 20},
    )  # fmt: skip
    paceline.report(planned, pages["plan"])
    return pages


def main() -> None:
    """Write all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        for name, page in _write(Path(folder)).items():
            picture = PICTURES[name]
            subprocess.run(  # noqa: S603
                [
                    find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                    f"--window-size={picture.width_px},{picture.height_px}", f"--force-device-scale-factor={picture.scale}",
                    "--virtual-time-budget=60000", f"--screenshot={picture.file}", page.resolve().as_uri(),
                ],
                check=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
