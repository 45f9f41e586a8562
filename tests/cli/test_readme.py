"""Every command that README.md shows is run once, with a small model and few steps."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Answer
from support.needs import needs_tensorflow

from paceline import api
from simulator.catalogue.loading import load_workload

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUN = re.compile(r"(?:^\$ |`)paceline ((?:advise|calibrate|models|plan|report|simulate|sweep) [^\n`]+)", re.MULTILINE)
COMMANDS = [shlex.split(line) for line in RUN.findall(README)]
FEW = ("--set", "run.steps=10", "--set", "run.replications=3", "--jobs", "1")
SMALL = {
    "calibrate": ("--batch", "4,8", "--steps", "5", "--runs", "1", "--device", "CPU", "--accept-disturbed"),
    "simulate": FEW[:-2],
    "sweep": FEW,
    "report": ("--no-simulate",),
    "plan": ("--workers", "4,16", "--set", "run.steps=10", "--jobs", "1"),
    "advise": ("--machines", "1,2", *FEW),
}
MODEL = """
import keras

def build():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
"""


def test_what_needs_no_tensorflow(folder: Path, paceline: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))
    mine = re.search(r"```toml\n(.*?)```", README, re.DOTALL)
    assert mine is not None
    (folder / "mine.toml").write_text(mine[1])
    for command, *words in COMMANDS:
        if command != "calibrate":
            answer = paceline(command, *words, *SMALL.get(command, ()))
            assert answer.code == 0, (command, answer)
    assert opened == [(folder / "ring.html").resolve().as_uri()]


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_a_model_is_measured(folder: Path, paceline: Callable[..., Answer]) -> None:
    (folder / "my_model.py").write_text(MODEL)
    (words,) = (words for words in COMMANDS if words[0] == "calibrate")
    answer = paceline(*words, *SMALL["calibrate"])
    assert answer.code == 0, answer
    measured = load_workload(folder / "models" / "workloads" / "my-model.toml")
    assert sorted(variable.size_bytes for variable in measured.variables) == [4, 4 * 4]


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_the_quickstart(folder: Path, paceline: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    calibrate = api.calibrate
    few = {"batches": (4, 8), "steps": 5, "runs": 1}
    monkeypatch.setattr("paceline.api.calibrate", lambda model, **options: calibrate(model, **{**options, **few}))
    monkeypatch.setattr("paceline.cli.commands.reporting._WORKERS", [1, 2])
    command = re.search(r"^quickstart:.*\n\t\$\(BIN\)/paceline (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert command is not None
    answer = paceline(*command[1].split(), "--jobs", "1", "--json")
    assert answer.code == 0, answer
    results = [json.loads(line)["scenario"]["strategy"] for line in answer.stdout.splitlines()]
    assert [strategy["workers"] for strategy in results] == [1, 2] * 3
    assert [line[:4] for line in answer.stderr.splitlines() if line[:3] in ("1/3", "2/3", "3/3")] == ["1/3 ", "2/3 ", "3/3 "]
    assert {path.name for path in (folder / "reports").iterdir()} == {"quickstart.html", "quickstart.ndjson", "quickstart.workload.toml"}
