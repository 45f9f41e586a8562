"""What pages show of the code stands there, word for word; and strategies of other packages are found by their kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.scenarios import scenario_table

from simulator import scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.resolve.resolve import resolve
from simulator.results.results import Result
from simulator.strategies import catalogue

ROOT = Path(__file__).parents[2]
OUTSIDE = Path(__file__).parent / "outside"
FILES = {
    "adding-a-strategy.md": ("simulator/strategies/gossip.py", "tests/packaging/outside/growing.py"),
    "textbook.md": ("simulator/engine/textbook/*.py",),
}


@pytest.mark.parametrize("page", FILES)
def test_every_excerpt_stands_in_a_file(page: str) -> None:
    excerpts = re.findall(r"^ *```python\n(.*?)^ *```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    assert len(excerpts) >= 4
    texts = [path.read_text() for pattern in FILES[page] for path in ROOT.glob(pattern)]
    for excerpt in excerpts:
        assert any(excerpt in text for text in texts), f"docs/{page} shows what {FILES[page]} do not have:\n{excerpt}"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with strategies, as the page says how to make one; some of them are none."""
    about = tmp_path / "growing-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: growing\nVersion: 1\n")
    named = {"growing": "growing:Growing", "missing": "nowhere:Nothing", "none": "growing:Setup", "other": "growing:Growing"}
    named["unfinished"] = "unfinished:Unfinished"
    (about / "entry_points.txt").write_text("\n".join(["[paceline.strategies]", *(f"{kind} = {at}" for kind, at in named.items())]))
    (tmp_path / "unfinished.py").write_text(
        "from typing import Literal\nfrom simulator.strategies.strategy import Strategy\n"
        'class Unfinished(Strategy):\n    """None yet."""\n    kind: Literal["unfinished"] = "unfinished"\n'
    )
    for folder in (tmp_path, OUTSIDE):
        monkeypatch.syspath_prepend(str(folder))
    catalogue._from_outside.cache_clear()
    yield
    catalogue._from_outside.cache_clear()


@pytest.mark.usefixtures("installed")
def test_a_strategy_of_another_package_is_as_any_other() -> None:
    strategy = {"kind": "growing", "workers": 4, "slowest": 16}
    every = {}
    for progress in (0.0, 0.5):
        scenario = scenario_from_table(scenario_table(strategy={**strategy, "progress": progress}, run={"steps": 40}), "test")
        every[progress] = resolve(scenario).strategy.pace.every
        result = simulate(scenario)
        assert Result.model_validate_json(result.to_json()) == result
        assert result.scenario.strategy.progress == progress
    assert every == {0.0: 1, 0.5: 4}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"kind": "growing", "progress": 2}, "strategy.progress: 2 must be at most 1"),
        ({"kind": "growing", "paws": 4}, "strategy.paws: is no key"),
        ({"kind": "missing"}, "'missing' of nowhere:Nothing cannot be loaded: ModuleNotFoundError"),
        ({"kind": "none"}, "'none' of growing:Setup must be a subclass"),
        ({"kind": "other"}, "'other' of growing:Growing must be a subclass of .*, with this kind"),
        ({"kind": "unfinished"}, "'unfinished' of unfinished:Unfinished is not finished: it lacks layout and program"),
        ({"kind": "nowhere-at-all"}, "must be one of 'single'"),
    ],
)
def test_what_another_package_has_wrong_is_one_line(table: dict[str, object], words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as refused:
        scenario_from_table(scenario_table(strategy=table), "test")
    assert len(str(refused.value).splitlines()) == 1
