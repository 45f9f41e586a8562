"""The site of the pages opens offline, has all of them, no dead link, a reference that lacks nothing, and pictures as they are drawn."""

from __future__ import annotations

import importlib.util
import re
import statistics
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import typer
from pydantic import BaseModel
from support.once import once

import paceline
from paceline.cli.app import app
from simulator import simulate
from simulator.base.text import format_share
from simulator.results.rows import COLUMNS
from simulator.spec.figures import WARNINGS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

pytestmark = pytest.mark.slow


class _Page(HTMLParser):
    """What a page loads, where it links to, what can be linked to, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.words: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.text = "".join(self.words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        its = dict(attrs)
        self.ids |= {its[key] for key in ("id", "name") if its.get(key)}
        if tag == "a" and its.get("href"):
            self.links.append(its["href"])
        elif tag in ("script", "img", "iframe", "source", "video", "audio", "object", "embed") or (
            tag == "link" and its.get("rel") not in ("next", "prev", "index", "search", "canonical")
        ):
            self.loaded += [its[key] for key in ("src", "href", "data", "srcset") if its.get(key)]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def _make_site(folder: Path) -> None:
    """As `make docs` does, in an empty folder."""
    words = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-d", str(folder / "cache")]
    done = subprocess.run([*words, "docs", str(folder / "html")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    return once(tmp_path_factory, "site", _make_site) / "html"


@pytest.fixture(scope="module")
def pages(site) -> dict[str, _Page]:
    return {path.relative_to(site).as_posix(): _Page(path) for path in site.rglob("*.html")}


def test_every_page_is_in_it(pages):
    written = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    assert written <= pages.keys()
    index = {target.removesuffix(".html") for target in pages["index.html"].links}
    assert {page.removesuffix(".html") for page in written - {"index.html"}} <= index


def test_nothing_is_loaded_from_a_network(site, pages):
    for name, page in pages.items():
        assert page.loaded
        for target in page.loaded:
            address = urlsplit(target)
            assert not address.netloc, f"{name} loads {target}"
            assert address.scheme in ("", "data"), f"{name} loads {target}"
            assert address.scheme or (site / name).parent.joinpath(unquote(address.path)).exists(), f"{name} loads {target}"
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        assert not re.search(r"@import|url\(\s*['\"]?(?:https?:)?//", path.read_text(encoding="utf-8")), path


def test_links_lead_somewhere(site, pages):
    for name, page in pages.items():
        for target in page.links:
            address = urlsplit(target)
            if address.scheme or address.netloc:
                continue
            path = (site / name).parent.joinpath(unquote(address.path)).resolve() if address.path else site / name
            assert path.exists(), f"{name} links to {target}"
            if address.fragment and path.suffix == ".html":
                assert unquote(address.fragment) in pages[path.relative_to(site.resolve()).as_posix()].ids | {""}, (
                    f"{name} links to {target}"
                )


def _keys(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_keys, schema))
    if not isinstance(schema, dict):
        return set()
    own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return own.union(*map(_keys, schema.values()))


@pytest.fixture(scope="module")
def reference(pages) -> dict[str, str]:
    """The text of each section of the reference, by its heading."""
    headings = re.findall(r"^## (.+)$", (DOCS / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)
    _, *parts = re.split(f"\\n({'|'.join(headings)})¶", pages["reference.html"].text)
    assert parts[::2] == headings
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize(
    ("section", "formats"),
    [
        ("Keys of a scenario", ("scenario", "workload", "cluster", "input")),
        ("Keys of other files", ("device", "testbed-setting")),
        ("Figures of a result", ("result",)),
    ],
)
def test_every_key_is_in_the_reference(reference, section, formats):
    text = reference[section] + (reference["Keys of a scenario"] if formats == ("result",) else "")
    listed = set(re.findall(r"\w+", text))
    for name in formats:
        assert _keys(paceline.schema(name)) <= listed


def test_a_key_is_listed_with_its_type_its_default_and_its_meaning(reference):
    text = " ".join(reference["Keys of a scenario"].split())
    _, _, entry = text.partition("cluster.time_slice¶ ")
    kind, default = entry[:400].split(" Default: ")[:2]
    assert kind.startswith("Type: time such as")
    assert "time_slice_s" in kind
    assert default.startswith("3 ms With shared_cores: ")


def test_every_column_is_in_the_reference(reference):
    text = reference["Columns of a table of results"]
    for name, column in COLUMNS.items():
        assert name in text
        assert column.meaning.strip()


def test_every_warning_is_in_the_reference(reference):
    assert WARNINGS.keys() <= set(reference["Warnings"].split())


def _commands(command: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", {})
    return [(path, command), *(one for name, its in inner.items() if not its.hidden for one in _commands(its, (*path, name)))]


def test_every_command_and_option_is_in_the_reference(reference):
    text = reference["Commands"]
    commands = _commands(typer.main.get_command(app), ("paceline",))
    assert len(commands) > 15
    for path, command in commands:
        assert f"$ {' '.join(path)}" in text
        for parameter in command.params:
            assert parameter.hidden or parameter.help, f"{path} {parameter.name}"
            shown = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.metavar
            assert parameter.hidden or shown in text, f"{path} {shown}"


def test_every_public_name_is_in_the_reference(pages):
    ids = pages["reference.html"].ids
    assert {f"paceline.{name}" for name in paceline.__all__} <= ids
    for its in (getattr(paceline, name) for name in paceline.__all__):
        if isinstance(its, type) and issubclass(its, BaseModel):
            assert all(field.description for field in its.model_fields.values()), its


# -- pictures --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw", DOCS / "timelines" / "draw.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["draw"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "all"])
def test_pictures_are_as_they_are_drawn(drawing, every):
    some = (next(iter(drawing.PICTURES)), drawing.JOB, drawing.FIDELITY)
    for name in drawing.NAMES if every else some:
        written = (DOCS / "timelines" / f"{name}.svg").read_text(encoding="utf-8")
        assert drawing.drawn(name) == written, f"{name}: make timelines"


def test_pictures_are_shown(drawing):
    shown = {name for page in DOCS.rglob("*.md") for name in re.findall(r"\(timelines/([\w-]+)\.svg\)", page.read_text())}
    assert shown == {path.stem for path in (DOCS / "timelines").glob("*.svg")}
    assert shown == set(drawing.NAMES)


def test_the_picture_of_predictions_has_the_rows_and_errors_that_are_told(drawing):
    """As many dots of each kind as README's table has rows, and their median; none outside the picture."""
    table = dict(re.findall(r"^\| (published: [^|]+?) \| (\d+ \| [\d.]+%) \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    kinds = {
        "published, all-reduce": "published: all-reduce",
        "published, synchronous servers": "published: synchronous parameter servers",
        "published, asynchronous servers": "published: asynchronous parameter servers",
        "published, models cut over devices": "published: models cut over up to 3,072 devices",
    }
    picture = drawing.drawn(drawing.FIDELITY)
    for what, told in kinds.items():
        points = drawing.held_out(what)
        rows, median = table[told].split(" | ")
        assert len(points) == int(rows)
        assert format_share(statistics.median(abs(predicted / measured - 1) for measured, predicted in points)) == median
        assert all(1 / 6 < predicted / measured < 6 for measured, predicted in points)
        assert f"{what}: {rows} rows, median error {median}" in picture


def test_pictures_of_reports_are_shown():
    shown = {name for page in DOCS.rglob("*.md") for name in re.findall(r"\(pictures/([\w-]+\.png)\)", page.read_text())}
    assert shown == {path.name for path in (DOCS / "pictures").glob("*.png")}


def test_what_is_said_of_the_pictures_is_so(drawing):
    """The page of steps compares their times; each statement of it by the figures of the results."""
    found = {name: simulate(its.scenario) for name, its in drawing.PICTURES.items() if not its.file}
    step_ms = {name: its.step_time_s.mean * 1e3 for name, its in found.items()}
    exposed_ms = {name: its.breakdown_s.exposed_communication * 1e3 for name, its in found.items()}
    assert exposed_ms["ring"] == pytest.approx(9.6, rel=0.02)
    assert exposed_ms["mirrored"] < 0.2 * exposed_ms["ring"]
    assert exposed_ms["ring-buckets"] < 0.5 * exposed_ms["ring"]
    assert exposed_ms["hierarchical"] < exposed_ms["ring"] < exposed_ms["tree"]
    assert exposed_ms["local"] == pytest.approx(exposed_ms["ring"] / 3, rel=0.02)
    assert exposed_ms["gossip"] < 1
    assert found["slow-worker"].breakdown_s.waiting > 9e-3
    assert found["slow-input"].breakdown_s.input > 5e-3
    assert step_ms["slow-input"] == pytest.approx(30, rel=0.02)
    assert found["sync-servers"].bottleneck.name == "server-network"
    assert found["async-servers"].staleness.mean == pytest.approx(3, abs=0.1)
    assert found["async-servers"].breakdown_s.waiting == 0 < found["ssp"].breakdown_s.waiting
    assert found["backup"].dropped_share > 0
    bubble = {name: max(stage.bubble for stage in its.stages) for name, its in found.items() if its.stages}
    assert bubble["gpipe"] > bubble["1f1b"] > bubble["zero-bubble"] > bubble["never-flushed"]
    assert [stage.staleness for stage in found["never-flushed"].stages] == [3, 2, 1, 0]
    moved = {name: sum(its.size_bytes for its in found[name].exchanges) for name in ("zero-1", "zero-3")}
    assert moved["zero-3"] == 1.5 * moved["zero-1"]
    assert exposed_ms["zero-3"] < 0.5 * exposed_ms["zero-1"]
    assert (round(step_ms["prefetch"]), round(step_ms["input-bound"])) == (15, 28)  # on the page of input
