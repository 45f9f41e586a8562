"""docs/development.md: what it follows through the code is called in the order that it shows."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from paceline.cli.app import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "development.md"
_STATION = re.compile(r"`(\w+)` \(\[[^\]]+\]\(([^)]+)\)\)")


def _ways() -> dict[str, tuple[list[str], list[tuple[str, str]]]]:
    """By each example, the words of its command and the stations of its way: file and name."""
    ways = {}
    for line in PAGE.read_text().splitlines():
        if entry := re.fullmatch(r"- ([^`]+): `([^`]+)`<br>(.+→.+)", line):
            name, command, way = entry.groups()
            stations = [(str((PAGE.parent / path).resolve()), called) for called, path in _STATION.findall(way)]
            ways[name] = shlex.split(command), stations
    return ways


WAYS = _ways()


def test_five_things_are_followed_through_at_most_seven_names() -> None:
    assert len(WAYS) == 5
    assert all(3 < len(stations) <= 7 for _, stations in WAYS.values())


@pytest.mark.usefixtures("warm_probes")
@pytest.mark.parametrize("name", WAYS)
def test_what_is_followed_is_called_in_this_order(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, stations = WAYS[name]
    words = [str(ROOT / word) if word.startswith("models/") else word for word in words]
    if words[:2] == ["paceline", "calibrate"]:
        words.append("--accept-disturbed")  # other tests run too
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        name = code.co_qualname.removesuffix(".__init__") if event == "call" else ""
        if (code.co_filename, name) in stations:
            calls.append((code.co_filename, name))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", words)
    sys.setprofile(note)
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.setprofile(None)
    assert not ended.value.code
    rest = iter(calls)
    assert [station for station in stations if station not in rest] == []
