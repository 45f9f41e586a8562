"""``paceline simulate --program``: what would be simulated, and nothing simulated; ``run.engine`` from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command_line import SCENARIO, Answer, refused
from syrupy.assertion import SnapshotAssertion

from simulator.engine import choosing

Runner = Callable[..., Answer]


@pytest.fixture
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any simulation fails."""

    def fail(*_: object) -> None:
        raise AssertionError("it was simulated")

    monkeypatch.setattr("simulator.run.replicate", fail)


@pytest.mark.usefixtures("no_run")
def test_it_shows_what_an_expert_checks(paceline: Runner, snapshot: SnapshotAssertion) -> None:
    answer = paceline("simulate", "s.toml", "--program", "--set", "strategy.workers=3")
    assert (answer.code, answer.stderr) == (0, "")
    assert answer.stdout == snapshot


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("simulate s.toml --program", (r"pla\x1b[31min on la\x9bb",)),
        ("simulate s.toml", ()),
        ("simulate s.toml --assumptions --details", (r"la\x9bb",)),
        ("memory s.toml", ()),
        ("advise s.toml --machines 2 --strategies ring --set run.steps=4 --yes", (r"la\x9bb",)),
        ("plan s.toml --target-throughput 1samples/s --workers 1 --details --yes --set run.replications=19", (r"la\x9bb",)),
        ("sweep s.toml --over strategy.workers=1,2 --yes", ()),
    ],
)
def test_what_a_name_would_have_a_terminal_do_is_shown_instead(
    folder: Path, paceline: Runner, command: str, shown: tuple[str, ...]
) -> None:
    text = SCENARIO.replace('"plain"', r'"pla\u001b[31min"').replace('"kernel"', r'"ker\u001b[2Jnel"')
    text = text.replace('name = "lab"', 'name = "la\\u009bb"\nnode_classes = [{name = "old\\u001b[31m\\u202e", nodes = 1, speed = 20}]')
    (folder / "s.toml").write_text(text)
    answer = paceline(*command.split())
    assert answer.code == 0
    printed = answer.stdout + answer.stderr
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", printed)
    for name in shown:
        assert name in " ".join(printed.split())


@pytest.mark.usefixtures("no_run")
def test_as_data_it_is_the_same_tables(paceline: Runner) -> None:
    answer = paceline("simulate", "s.toml", "--program", "--json")
    assert (answer.code, answer.stderr) == (0, "")
    printed = json.loads(answer.stdout)
    (ranks,) = (table for table in printed["tables"] if table["title"].startswith("Ranks"))
    assert [row[:2] for row in ranks["rows"]] == [["2", "0 to 1"]]
    assert printed["rules"][0].startswith("An operation begins when")
    assert paceline("simulate", "s.toml", "--program", "--json").stdout == answer.stdout


@pytest.mark.usefixtures("no_run")
def test_a_training_of_years_is_shown_at_once(paceline: Runner) -> None:
    answer = paceline("simulate", "s.toml", "--program", "--set", "run.steps=10000000", "--set", "strategy.workers=1000")
    assert answer.code == 0


@pytest.mark.usefixtures("no_run")
@pytest.mark.parametrize("option", [("--trace", "t.json"), ("--tensorboard", "logs"), ("--audit",)])
def test_what_looks_at_a_run_is_refused_beside_it(paceline: Runner, option: tuple[str, ...]) -> None:
    refused(paceline("simulate", "s.toml", "--program", *option), option[0], "--program")


def test_an_unknown_engine_is_refused(paceline: Runner) -> None:
    refused(paceline("simulate", "s.toml", "--set", "run.engine=fortran"), "run.engine", "fortran", "simpy", "compiled")


@pytest.fixture
def no_compiled_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def unavailable() -> str:
        return "its cache folder /nowhere cannot be written"

    unavailable.cache_info = choosing.unavailable.cache_info  # type: ignore[attr-defined]
    monkeypatch.setattr(choosing, "unavailable", unavailable)
    tried = choosing._not_made, choosing._not_loaded
    for kept in tried:
        kept.cache_clear()
    yield
    for kept in tried:
        kept.cache_clear()


@pytest.mark.usefixtures("no_compiled_engine", "no_run")
def test_an_engine_that_cannot_run_is_refused(paceline: Runner) -> None:
    refused(paceline("simulate", "s.toml", "--set", "run.engine=compiled"), 'run.engine: "compiled"', "/nowhere")


@pytest.mark.usefixtures("no_compiled_engine", "no_run")
def test_a_sweep_by_an_engine_that_cannot_run_is_refused_at_once(paceline: Runner) -> None:
    answer = paceline(
        "sweep", "s.toml", "--over", "strategy.workers=1,2", "--out", "r.ndjson", "--set", "run.engine=compiled", "--jobs", "1"
    )
    refused(answer, 'run.engine: "compiled"', "/nowhere")
