"""The answer of a report as one picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest
from support.results import HOSTILE, STRATEGIES, hostile_sweep, sweep

import paceline
from paceline.reporting.content import content_of
from paceline.reporting.render import CARD, render_card
from simulator.base.errors import InputError

RING = STRATEGIES[0]
_SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: str) -> ET.Element:
    return ET.fromstring(picture)  # noqa: S314  what was just written


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in parsed(picture).iter(f"{_SVG}text")]


def test_it_says_the_headline_figures_and_labelled_lines() -> None:
    results = sweep((RING,), (1, 4, 16, 64))
    said = texts(render_card(content_of(results)))
    answer = content_of(results).decision
    assert " ".join(said).count(answer.headline) == 1
    assert answer.figures[0].mean in " ".join(said)
    for label, _ in answer.lines:
        assert said.count(label) == 1


def test_its_curve_is_that_of_the_answer() -> None:
    """A point for each number of replicas, evenly apart where these are, and higher where it is faster."""
    picture = parsed(render_card(content_of(sweep((RING,), (1, 4, 16, 64)))))
    (line,) = picture.iter(f"{_SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert len(points) == 4
    steps = [after[0] - before[0] for before, after in pairwise(points)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    (ring,) = picture.iter(f"{_SVG}circle")
    assert (float(ring.attrib["cx"]), float(ring.attrib["cy"])) == pytest.approx(points[-1], abs=0.1)
    assert not list(parsed(render_card(content_of(sweep((RING,), (4,))))).iter(f"{_SVG}polyline"))


@pytest.mark.slow
def test_hostile_text_stays_text() -> None:
    for title in HOSTILE:
        picture = parsed(render_card(content_of(hostile_sweep(), title=title)))
        assert {element.tag.removeprefix(_SVG) for element in picture.iter()} <= {
            "svg", "desc", "style", "rect", "text", "path", "polygon", "polyline", "circle",
        }  # fmt: skip


def test_it_is_written_beside_the_page_and_replaces_only_its_own_kind(tmp_path: Path) -> None:
    (result,) = sweep((RING,), (4,))
    page, card = tmp_path / "r.html", tmp_path / "card.svg"
    for _ in range(2):
        assert paceline.report(result, page, card=card, what_ifs=False).card == card
    assert CARD.holds(card)
    card.write_text("mine")
    with pytest.raises(InputError, match="is not a card"):
        paceline.report(result, page, card=card, what_ifs=False)
    with pytest.raises(InputError, match="are both"):
        paceline.report(result, page, card=page, what_ifs=False)
