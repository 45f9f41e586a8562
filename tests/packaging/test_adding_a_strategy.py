"""What pages show of the code stands there, word for word; and strategies of other packages are found by their kind."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.scenarios import scenario_table

import paceline
from simulator import scenario_from_table, simulate
from simulator.base.errors import InputError, ScenarioError
from simulator.resolve.resolve import resolve
from simulator.results.results import Result
from simulator.strategies import outside

ROOT = Path(__file__).parents[2]
OUTSIDE = Path(__file__).parent / "outside"
FILES = {
    "extend.md": ("simulator/strategies/gossip.py", "tests/packaging/outside/growing.py"),
    "development.md": ("simulator/engine/textbook/*.py",),
}


@pytest.mark.parametrize("page", FILES)
def test_every_excerpt_stands_in_a_file(page: str) -> None:
    blocks = re.findall(r"^ *```python\n(.*?)^ *```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    excerpts = [block for block in blocks if not block.startswith("import paceline")]
    assert len(excerpts) >= 4
    texts = [path.read_text() for pattern in FILES[page] for path in ROOT.glob(pattern)]
    for excerpt in excerpts:
        assert any(excerpt in text for text in texts), f"docs/{page} shows what {FILES[page]} do not have:\n{excerpt}"


def _install(folder: Path, kinds: dict[str, str]) -> None:
    """Put a package beside Paceline that names strategies."""
    about = folder / "growing-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: growing\nVersion: 1\n")
    (about / "entry_points.txt").write_text("\n".join(["[paceline.strategies]", *(f"{kind} = {at}" for kind, at in kinds.items())]))


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages, whose strategies are found."""
    for folder in (tmp_path, OUTSIDE):
        monkeypatch.syspath_prepend(str(folder))
    _forget()
    yield tmp_path
    sys.modules.pop("wrong", None)
    _forget()


def _forget() -> None:
    for cached in (outside.strategy_of, outside.kinds):
        cached.cache_clear()


def test_a_strategy_of_another_package_is_as_any_other(beside: Path) -> None:
    _install(beside, {"growing": "growing:Growing"})
    strategy = {"kind": "growing", "workers": 4, "slowest": 16}
    every = {}
    for progress in (0.0, 0.5):
        scenario = scenario_from_table(scenario_table(strategy={**strategy, "progress": progress}, run={"steps": 40}), "test")
        every[progress] = resolve(scenario).strategy.pace.every
        result = simulate(scenario)
        assert Result.model_validate_json(result.to_json()) == result
        assert result.scenario.strategy.progress == progress
    assert every == {0.0: 1, 0.5: 4}
    assert resolve(scenario).strategy.in_words == scenario.strategy.in_words == "local SGD, now every 4 steps"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"slowest": 900}, r"strategy.kind 'growing', as simulated: strategy.sync_every \(900\) must be at most"),
        ({"bucket_size": "5MB"}, "strategy.sync_every averages whole variables after a step, so bucket_size"),
    ],
)
def test_what_is_filled_in_is_checked_too(beside: Path, keys: dict[str, object], words: str) -> None:
    _install(beside, {"growing": "growing:Growing"})
    table = scenario_table(strategy={"kind": "growing", "workers": 4, "progress": 1, **keys}, run={"steps": 40})
    with pytest.raises(ScenarioError, match=words):
        simulate(scenario_from_table(table, "test"))


def test_a_plan_and_an_advice_take_another_package_s_strategy_where_it_is_named(beside: Path) -> None:
    _install(beside, {"growing": "growing:Growing", "missing": "nowhere:Nothing"})
    table = scenario_table(strategy={"kind": "growing", "workers": 2, "progress": 0.5}, run={"steps": 20, "replications": 3})
    asked: dict[str, Any] = {"target_throughput": 1.0, "confidence": 0.5, "workers": [1, 2], "jobs": 1}
    plan = paceline.plan(table, strategies=["ring", "growing"], **asked)
    assert [answer.strategy for answer in plan.strategies if answer.best is not None] == ["ring", "growing"]
    assert {each.result.scenario.strategy.progress for each in plan.candidates if each.what.startswith("local SGD")} == {0.5}
    advice = paceline.advise(table, machines=[2], jobs=1)
    assert "growing" in {row.strategy for row in advice.rows}
    with pytest.raises(InputError, match=r"`strategies`: 'missing' of nowhere:Nothing cannot be loaded: .*ModuleNotFoundError"):
        paceline.plan(table, strategies=["missing"], **asked)
    with pytest.raises(InputError, match=r"`strategies` 'growin': is not the name of a strategy; did you mean growing"):
        paceline.advise(table, strategies=["growin"])


def test_results_without_the_package_say_what_is_missing(beside: Path, tmp_path: Path) -> None:
    _install(beside, {"growing": "growing:Growing"})
    result = simulate(scenario_from_table(scenario_table(strategy={"kind": "growing", "workers": 2}, run={"steps": 20}), "test"))
    results = tmp_path / "results.ndjson"
    results.write_text(result.to_json() + "\n")
    shutil.rmtree(beside / "growing-1.dist-info")
    _forget()
    with pytest.raises(InputError, match=r"scenario.strategy.kind: 'growing' is unknown; install the package"):
        paceline.read_results(results)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"kind": "growing", "progress": 2}, "strategy.progress: 2 must be at most 1"),
        ({"kind": "growing", "progres": 0.5}, "'progres' is not a key of kind = 'growing'; did you mean progress"),
        ({"kind": "growing", "workers": 4, "sync_every": 3}, r"strategy.sync_every \(3\) follows from progress and slowest"),
        ({"kind": "missing"}, "'missing' of nowhere:Nothing cannot be loaded: fails: ModuleNotFoundError"),
        ({"kind": "none"}, "'none' of growing:Setup must be a subclass"),
        ({"kind": "other"}, "'other' of growing:Growing must have the key kind"),
        ({"kind": "growin"}, "must be one of 'single'.*'growing'.*; did you mean 'growing'"),
    ],
)
def test_what_is_wrong_with_a_table_is_one_line(beside: Path, table: dict[str, object], words: str) -> None:
    _install(beside, {"growing": "growing:Growing", "missing": "nowhere:Nothing", "none": "growing:Setup", "other": "growing:Growing"})
    with pytest.raises(ScenarioError, match=words) as refused:
        scenario_from_table(scenario_table(strategy=table), "test")
    assert len(str(refused.value).splitlines()) == 1


_LAYOUT = "def layout(self, cluster): return filled(cluster, self.workers)\n"
_PROGRAM = "def program(self, setup, streams): return replace(super().program(setup, streams), {})\n"
_ROUTINE = _PROGRAM.format("routines=(Routine({}),)")
_TURN, _COMPUTE = 'Operation(kind="gate", name="turn")', 'Operation(kind="compute", name="c", after=(1,), forward=1, backward=1, apply=1)'
_INPUT = 'Operation(kind="gate", name="input", after=(0,))'
_SEND, _SERVE = (f'Operation(kind="{kind}", name="x", after=(1,), {key})' for kind, key in (("send", "slot=9"), ("serve", "server=0")))
_WRONG = [
    ("raise SystemExit(3)\n", "Gossip", "", "cannot be loaded: fails: SystemExit: 3"),
    ("1 / 0\n", "Gossip", "", r"cannot be loaded: fails: ZeroDivisionError: division by zero"),
    ("", "Strategy", "", "is incomplete: it lacks layout and program"),
    ("", "Strategy", f"{_LAYOUT}\n    def program(self, setup, streams): ...", "must have a key 'workers'"),
    ("", "Gossip", "def program(self, setup): ...", r"must define program\(self, setup: Setup, streams: Streams\) -> Program"),
    ("", "Gossip", "def title(self): return ''", "must define title"),
    ("", "Gossip", "def pace(self): return Pace()", "must define pace as a property"),
    ("", "Gossip", "def with_count(self, count): ...", "must not define with_count, which follows from its other methods"),
    ("", "Gossip", "def layout(self, cluster): return 3", "layout of Wrong fails: Input should be .* Layout, not int 3"),
    ("", "Gossip", "def layout(self, cluster): return Layout(2.5, 1, 1)", "fails: replicas: Input should be a valid integer"),
    ("", "Gossip", "def layout(self, cluster): return cluster.racks", r"fails \(.*wrong.py, line \d+\): AttributeError"),
    ("", "Gossip", "def check(self, setup): raise ValueError('not so')", "not so"),
    ("", "Gossip", "def check(self, setup): return setup.nowhere", "check of Wrong fails .*AttributeError"),
    ("", "Gossip", "@property\n    def pace(self): return Pace(every='4')", "pace of Wrong fails: every: Input should be a valid integer"),
    ("", "Gossip", "def lone_step_s(self, setup): return float('nan')", "lone_step_s of Wrong fails: Input should be a finite number"),
    ("", "Gossip", "def held(self, setup): return 3", "held of Wrong fails: Input should be a valid tuple"),
    ("", "Gossip", "@property\n    def in_words(self): return None", "in_words of Wrong fails: Input should be a valid string"),
    ("", "Gossip", "def left_open(self, setup): yield 'it'", "left_open of Wrong fails: 0: Input should be"),
    ("", "Gossip", "def filled_in(self, setup): return None", "filled_in of Wrong fails: Input should be"),
    ("", "Gossip", "def filled_in(self, setup): return self.changed(workers=-1)", r"fails \(.*line \d+\): workers: Input should be"),
    ("", "Gossip", "def program(self, setup, streams): return []", "program of Wrong fails: Input should be an instance of Program"),
    ("", "Gossip", _PROGRAM.format("routines=()"), "routines of ranks are numbered 0 to 0, but there are 0"),
    ("", "Gossip", _ROUTINE.format("()"), "routine 0 does not begin with the gate"),
    ("", "Gossip", _ROUTINE.format(f"({_TURN}, {_COMPUTE})"), "has the gates turn, not input and turn"),
    ("", "Gossip", _ROUTINE.format(f"({_TURN}, {_COMPUTE}, {_INPUT})"), "comes after 1, but can only wait for earlier operations"),
    ("", "Gossip", _ROUTINE.format(f"({_TURN}, {_INPUT}, {_COMPUTE}, {_COMPUTE})"), "shares of forward that add up to 2, not 1"),
    ("", "Gossip", _ROUTINE.format(f"({_TURN}, {_INPUT}, {_COMPUTE}, {_SEND})"), "sent by slot 9"),
    ("", "Gossip", _ROUTINE.format(f"({_TURN}, {_INPUT}, {_COMPUTE}, {_SERVE})"), "on server 0"),
    ("", "Gossip", "def program(self, setup, streams): p = super().program(setup, streams); p.ranks.path[:] = 999; return p",
     "paths of ranks are numbered 999 to 999, but there are"),
]  # fmt: skip


def _ask(table: dict[str, Any]) -> object:
    scenario = scenario_from_table(table, "test")
    simulate(scenario)
    return scenario.strategy.in_words, scenario.strategy.held(scenario)


@pytest.mark.parametrize(("before", "base", "body", "words"), _WRONG, ids=range(len(_WRONG)))
def test_what_is_wrong_with_a_class_is_one_line(beside: Path, before: str, base: str, body: str, words: str) -> None:
    """Each of these would else end in a traceback, read what is not there, or give numbers that mean nothing."""
    _install(beside, {"wrong": "wrong:Wrong"})
    (beside / "wrong.py").write_text(
        f"{before}from dataclasses import replace\nfrom typing import Literal\n"
        "from simulator.program.program import *\nfrom simulator.strategies.gossip import *\n"
        f'class Wrong({base}):\n    short_names = {{}}\n    kind: Literal["wrong"] = "wrong"\n    {body}\n'
    )
    workers = {"workers": 4} if base == "Gossip" else {}
    with pytest.raises(InputError, match=words) as refused:
        _ask(scenario_table(strategy={"kind": "wrong", **workers}, run={"steps": 20}))
    assert len(str(refused.value).splitlines()) == 1
