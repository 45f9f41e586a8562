"""Figures as image files: real images of the page's figures, with heading and legend, whatever the names."""

from __future__ import annotations

import json
import os
import re
import struct
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from support.once import once
from support.pages import write_report
from support.results import sweep

from paceline.comparing import Change
from paceline.reporting.exporting import check_images, export_figures
from paceline.reporting.render import figure_names
from paceline.reporting.timeline import Bar, Timeline
from simulator.base.errors import InputError, PacelineError

pytestmark = pytest.mark.skipif(os.environ.get("PACELINE_NO_BROWSER") == "1", reason="PACELINE_NO_BROWSER=1")

SVG = "{http://www.w3.org/2000/svg}"
TIMELINE = Timeline(
    name="a ring",
    lanes=("critical path of step 1", "replica 0"),
    bars=(
        Bar("critical path of step 1", 0.0, 1e-3, "compute", True, "forward, replica 0"),
        Bar("replica 0", 0.0, 1e-3, "compute", True, "replica 0: forward"),
    ),
    sentence="Step 1 of replica 0 took 1 ms: 100% compute on replica 0; compute on replica 0 bounds it.",
    note="Drawn is step 1.",
)
CHANGES = (
    Change("2x device", "devices compute twice as fast", 1.0, 0.9, 1.1, "network", "device"),
    Change("half device", "devices compute half as fast", -0.5, -0.6, -0.4, "compute", "device"),
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page, its figures, and the names of both in the order of the page."""

    def make(folder: Path) -> None:
        page = write_report(sweep(workers=(1, 4, 16)), folder / "page.html", timeline=TIMELINE, sensitivity=CHANGES)
        told: list[tuple[int, int]] = []
        files = export_figures(page, folder / "figures", progress=lambda done, total: told.append((done, total)))
        assert told[-1] == (len(files),) * 2
        (folder / "names.json").write_text(json.dumps([file.name for file in files]))

    return once(tmp_path_factory, "exported", make) / "page.html"


@pytest.fixture(scope="module")
def images(page: Path) -> dict[str, Path]:
    return {name: page.parent / "figures" / name for name in json.loads((page.parent / "names.json").read_text())}


def png_size(file: Path) -> tuple[int, int]:
    """Width and height as the header of a PNG file says (PNG specification, section 11.2.2)."""
    content = file.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert content[12:16] == b"IHDR"
    assert content[-8:-4] == b"IEND"
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def svg_of(file: Path) -> ET.Element:
    root = ET.fromstring(file.read_text(encoding="utf-8"))  # noqa: S314
    assert root.tag == f"{SVG}svg"
    return root


def words(root: ET.Element) -> str:
    return " ".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))


def test_every_figure_of_the_page_becomes_two_images(page: Path, images: dict[str, Path]) -> None:
    shown = [name.removesuffix(".png") for name in images if name.endswith(".png")]
    assert sorted(shown) == sorted(set(re.findall(r'id="figure-([^"]+)"', page.read_text(encoding="utf-8"))))
    assert {"throughput", "efficiency", "timeline", "sensitivity"} <= set(shown)
    assert {name.rstrip("0123456789") for name in shown} <= set(figure_names())
    assert list(images) == [f"{name}.{kind}" for name in shown for kind in ("png", "svg")]
    assert sorted(file.name for file in (page.parent / "figures").iterdir()) == sorted(images)


def test_images_are_of_the_size_of_the_figure_twice_that_for_pixels(images: dict[str, Path]) -> None:
    for name, file in images.items():
        if file.suffix == ".svg":
            root = svg_of(file)
            width, height = float(root.attrib["width"]), float(root.attrib["height"])
            assert width > 300
            assert height > 100
            assert png_size(images[name.replace(".svg", ".png")]) == (int(2 * width), int(2 * height))


def test_an_image_says_where_the_sliders_stood_if_it_follows_them(images: dict[str, Path]) -> None:
    assert "16 workers" in words(svg_of(images["throughput.svg"]))
    for name in ("sensitivity", "timeline"):
        assert "workers" not in words(svg_of(images[f"{name}.svg"]))


def test_heading_axis_and_legend_are_in_the_image(images: dict[str, Path]) -> None:
    text = words(svg_of(images["throughput.svg"]))
    assert "Samples per second" in text
    assert "Workers" in text
    assert "Async PS, 4 servers" in text
    assert "ideal" in text
    timeline = words(svg_of(images["timeline.svg"]))
    assert "critical path of step 1" in timeline
    assert "Compute" in timeline
    changes = words(svg_of(images["sensitivity.svg"]))
    assert "2x device" in changes
    assert "+100%" in changes


def test_curves_are_drawn_in_the_light_colours(images: dict[str, Path]) -> None:
    drawn = images["throughput.svg"].read_text(encoding="utf-8")
    assert "var(--" not in drawn
    assert "fill: rgb(255, 255, 255)" in drawn
    lines = [path for path in svg_of(images["throughput.svg"]).iter(f"{SVG}path") if "js-line" in path.attrib.get("class", "")]
    assert len(lines) >= 3


def test_images_of_others_are_refused_and_those_of_reports_replaced(page: Path, images: dict[str, Path], tmp_path: Path) -> None:
    check_images(page.parent / "figures")
    (tmp_path / "steps.svg").write_text("<svg>mine</svg>")
    (tmp_path / "calibration-0.png").write_bytes(images["throughput.png"].read_bytes())
    (tmp_path / "holidays.png").write_text("mine")
    says = r"^`figures`: '.*steps.svg': .*`force=True`"
    with pytest.raises(InputError, match=says):
        check_images(tmp_path)
    check_images(tmp_path, ["png"])
    with pytest.raises(InputError, match=says):
        export_figures(page, tmp_path, ["svg"])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["calibration-0.png", "holidays.png", "steps.svg"]
    check_images(tmp_path, force=True)


def test_hostile_names_are_harmless_in_images_of_one_format(hostile: Path, tmp_path: Path) -> None:
    files = export_figures(hostile, tmp_path, ["svg"])
    assert sorted(files) == sorted(tmp_path.iterdir())
    for file in files:
        tags = {element.tag for element in svg_of(file).iter()}
        assert not tags & {f"{SVG}script", f"{SVG}foreignObject", "script", "img"}
        assert all(not key.lower().startswith("on") for element in svg_of(file).iter() for key in element.attrib)


def test_a_page_that_is_none_of_ours_is_an_error_in_one_line(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>mine</p>")
    with pytest.raises(PacelineError, match=r"the browser .* failed: ") as refused:
        export_figures(page, tmp_path / "figures")
    assert "\n" not in str(refused.value)
