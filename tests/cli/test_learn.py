"""``paceline learn`` and ``paceline plan --target`` on the command line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import refused
from support.needs import needs_tensorflow

PROBLEMS = Path(__file__).parents[1] / "calibrate" / "problems"
QUICK = ("--problem", f"{PROBLEMS / 'models.py'}:momentum", "--batch", "8", "--epochs", "8", "--seeds", "2", "--jobs", "1",
         "--set", "run.replications=3", "--set", "run.steps=10")  # fmt: skip


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--target", "good"), ("--target 'good'", "0.95")),
        (("--problem", "digit-mlp"), ("--problem 'digit-mlp'",)),
        (("--problem", "nothing.py:build"), ("--problem", "nothing.py")),
        (("--strategies", "rnig"), ("--strategies 'rnig'",)),
        (("--strategies", "sync-ps/async-ps"), ("sync-ps/async-ps@0.25",)),
        (("--rate", "1,fast"), ("--rate '1,fast'",)),
        (("--rate", "0"), ("--rate",)),
        (("--epochs", "0"), ("--epochs",)),
        (("--timeout", "-1"), ("--timeout: -1.0",)),
        (("--problem", "mine.py:"), ("--problem 'mine.py:'", "FILE.py")),
        (("--target", "accuracy=95"), ("--target 'accuracy=95'", "0.95")),
        (("--out", "."), ("--out",)),
        (("--out", "x", "--curves", "x"), ("--out", "--curves", "'x'")),
    ],
)
def test_bad_input_is_refused_in_one_line(refusal, folder, options, names):
    refusal(("learn", "async-ps", *options), *names)
    assert not (folder / "measurements").exists()


def test_options_of_a_target_need_one(paceline):
    refused(paceline("plan", "ring", "--problem", "digits-mlp", "--samples", "1e6", "--deadline", "1h"), "--problem", "--target")
    refused(paceline("plan", "ring", "--target", "accuracy=0.9", "--samples", "1e6"), "--samples", "has no effect with --target")


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_it_says_who_is_first_and_goes_on_where_it_was(paceline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ask = "learn", "async-ps", "--strategies", "ring,async-ps", "--set", "strategy.workers=2", *QUICK
    answer = paceline(*ask, "--target", "loss=0.65", "--curves", "c.csv", "--tensorboard", "runs", "--out", "learned.json")
    assert answer.code == 0, answer.stderr
    assert "0.65" in answer.stdout
    assert (tmp_path / "c.csv").read_text(encoding="utf-8").startswith("way,rate,seed,time_s,")
    assert len(list((tmp_path / "runs").glob("*/seed-*/events*"))) == 4
    kept = sorted(Path("measurements").iterdir())
    again = paceline(*ask, "--target", "accuracy=0.6", "--json")
    assert sorted(Path("measurements").iterdir()) == kept  # another target needs no new replay
    data = json.loads(again.stdout)
    assert [way["name"] for way in data["ways"]] == ["ring all-reduce", "async PS, 2 servers"]
    assert all(len(way["runs"]) == 2 for way in data["ways"])
    assert {"loss", "accuracy", "recall", "average_precision"} <= data["ways"][0]["runs"][0]["points"][0]["metrics"].keys()
    assert json.loads((tmp_path / "learned.json").read_text(encoding="utf-8"))["ways"][0]["runs"] [0]["points"] == (
        data["ways"][0]["runs"][0]["points"]
    )  # fmt: skip


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_a_problem_that_fails_is_one_line(paceline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    broken = paceline("learn", "ring", *QUICK, "--problem", f"{PROBLEMS / 'models.py'}:raising")
    assert broken.code == 1
    assert "this layer does not train" in broken.stderr
    assert "Traceback" not in broken.stderr
    unknown = paceline("learn", "ring", *QUICK, "--target", "f1=0.5")
    assert unknown.code == 2
    assert re.search("'f1'.* loss, accuracy", unknown.stderr.splitlines()[-1])
    diverged = paceline(
        "learn", "ring", *QUICK, "--problem", f"{PROBLEMS / 'models.py'}:diverging", "--set", "strategy.workers=2", "--details"
    )
    assert diverged.code == 3
    assert "2 diverged" in " ".join(diverged.stdout.split())


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_data_that_cannot_be_learned_are_refused_before_anything_is_replayed(paceline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def refusal(*options):
        answer = paceline("learn", "ring", *QUICK, *options)
        last = answer.stderr.splitlines()[-1]  # after its progress
        refused(replace(answer, stderr=f"{last}\n"))
        return last

    problems = f"{PROBLEMS / 'models.py'}:"
    assert "NaN or infinite" in refusal("--problem", problems + "with_nan")
    assert "validate" in refusal("--problem", problems + "of_lists")
    assert "expected axis -1 of input shape to have value" in refusal("--problem", problems + "too_narrow")
    assert "samples" in refusal("--problem", problems + "momentum", "--batch", "100000")
    assert "batch of 8" in refusal("--problem", problems + "momentum", "--epochs", "1e-6")
    assert {path.stat().st_size < 4096 for path in Path("measurements").iterdir()} == {True}


@pytest.mark.long
@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_a_plan_to_a_target(paceline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ask = (
        "plan", "ring", "--target", "accuracy=0.7", "--problem", f"{PROBLEMS / 'models.py'}:momentum", "--strategies", "ring,async-ps",
        "--workers", "1,2", "--batch", "8,16", "--price", "0.40/h", "--epochs", "12", "--seeds", "2", "--rate", "1", "--jobs", "1",
        "--set", "run.steps=10", "--set", "run.replications=3", "--yes",
    )  # fmt: skip
    answer = paceline(*ask, "--out", "plan.ndjson", "--json", "--report", "plan.html")
    assert answer.code == 0, answer.stderr
    data = json.loads(answer.stdout)
    assert len(data["considered"]) == 8
    replayed = [way for way in data["considered"] if way["learned"] is not None]
    assert 2 <= len(replayed) <= 8
    assert data["considered"][0]["learned"] is not None
    assert data["noise_scale"]["source"] == "measured"
    assert "What is learned" in (tmp_path / "plan.html").read_text(encoding="utf-8")
    told = paceline(*ask, "--deadline", "1us")
    assert told.code == 3
    assert told.stdout.startswith("No replayed configuration ")
    beyond = paceline(*ask, "--target", "accuracy=0.999")
    assert beyond.code == 2
    assert re.search(r"0\.999 in 0 of 2 runs", beyond.stderr.splitlines()[-1])
