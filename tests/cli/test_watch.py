"""``paceline watch``: what it prints and refuses, and real Keras trainings that are watched, slowed down, killed and gone on with."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.command_line import Answer, refused
from support.needs import needs_tensorflow
from support.signals import hearing
from support.waiting import PATIENCE_S, until
from syrupy.assertion import SnapshotAssertion

from simulator.catalogue.loading import load_scenario

Runner = Callable[..., Answer]

ALONE = """
[workload]
name = "alone"
batch_per_replica = 8
forward = {base = "8 ms", per_sample = "125 us"}
backward = {base = "13 ms", per_sample = "250 us"}
jitter = {kind = "gamma", shape = 100}
run_to_run_cv = 0.05
variables = [{name = "w", size = "20 B", creation_index = 0, ready = 1.0}]

[cluster]
use = "ethernet-25g"

[strategy]
kind = "single"

[run]
steps = 100
replications = 19
"""

TRAINING = """
import os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
from paceline.keras_callback import RecordSteps

path, steps, slower_from = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

class Batches(keras.utils.PyDataset):
    # the step waits for its batch, so that it takes as long on any machine
    def __len__(self):
        return steps
    def __getitem__(self, index):
        time.sleep(0.020 if index < slower_from else 0.060)
        return np.ones((8, 4)), np.ones((8, 1))

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Batches(), epochs=1, shuffle=False, verbose=0, callbacks=[RecordSteps(path, workers=1, batch=8)])
"""


def training(path: Path, steps: int, slower_from: int) -> list[str]:
    script = path.parent / "train.py"
    script.write_text(TRAINING)
    return [sys.executable, str(script), str(path), str(steps), str(slower_from)]


def steps_file(path: Path, times: object) -> Path:
    path.write_text("step_time_s\n" + "".join(f"{float(time_s)!r}\n" for time_s in times))  # type: ignore[attr-defined]
    return path


@pytest.fixture
def scenario(folder: Path) -> Path:
    path = folder / "s.toml"
    path.write_text(ALONE)
    return path


def around(mean_s: float, count: int = 200) -> object:
    return np.random.default_rng(1).gamma(100, mean_s / 100, count)


def test_a_run_as_predicted_ends_well_and_a_slow_one_does_not(scenario: Path, paceline: Runner) -> None:
    steps_file(Path("x.csv"), around(0.024))
    answer = paceline("watch", "s.toml", "x.csv", "--once")
    assert answer.code == 0, answer
    assert "24.2 ms predicted; inside" in answer.stdout.replace("\n", " ")
    steps_file(Path("x.csv"), around(0.050))
    answer = paceline("watch", "s.toml", "x.csv", "--once")
    assert answer.code == 3
    assert "24.2 ms predicted; slower than 99% of correctly predicted runs" in " ".join(answer.stdout.split())
    assert not answer.stderr


def test_what_changes_within_a_run_is_told_in_one_line_for_all_workers(scenario: Path, paceline: Runner) -> None:
    names = [f"w{place}.csv" for place in range(4)]
    for place, name in enumerate(names):
        times = np.random.default_rng(place).gamma(100, 0.024 / 100, 400)
        times[200:] *= 150 / 84
        steps_file(Path(name), times)
    answer = paceline("watch", "s.toml", *names, "--until-steps", "400")
    assert answer.code == 3
    (event,) = answer.stderr.splitlines()
    assert re.match(r"all 4 workers: since step 20[01], (7\d|80)% slower than before: .* per step, .* before, .* predicted", event)
    assert answer.stdout.count("\nLimit ") <= 1
    assert "slower than before" in " ".join(answer.stdout.split())


def test_steps_of_two_kinds_are_named_and_too_few_are_not_judged(scenario: Path, paceline: Runner) -> None:
    mixed = [0.66, 16, 0.66, 0.65, 16, 0.66, 0.66, 0.65, 0.66, 0.65, 16, 0.66]
    steps_file(Path("x.csv"), mixed)
    faster = ("--set", "workload.forward.base='684 ms'")
    answer = paceline("watch", "s.toml", "x.csv", "--once", *faster)
    said = " ".join(answer.stdout.split())
    assert answer.code == 0
    assert "3 steps of 11 (2, 5 and 11) take 15.3 s longer" in said
    assert said.startswith("Not compared: the longest stretch at one level has 8 steps, but 10 are needed.")
    assert "inside" not in said
    times = np.random.default_rng(3).gamma(100, 0.7 / 100, 400)
    times[np.random.default_rng(4).random(400) < 0.2] = 16
    steps_file(Path("x.csv"), times)
    answer = paceline("watch", "s.toml", "x.csv", "--once", *faster)
    assert answer.code == 3
    assert "with the long steps among them, slower than" in " ".join(answer.stdout.split())
    assert answer.stdout.count("\nLimit ") == 1


def test_lines_of_json_for_a_dashboard(scenario: Path, paceline: Runner) -> None:
    steps_file(Path("x.csv"), around(0.050))
    answer = paceline("watch", "s.toml", "x.csv", "--once", "--json")
    assert answer.code == 3
    line, last = map(json.loads, answer.stdout.splitlines())
    assert (line["state"], line["left"], line["final"], last["final"]) == ("slower", True, False, True)
    assert line["measured"]["mean_s"] == pytest.approx(0.05, rel=0.02)
    assert line["measured"]["throughput_samples_per_s"] == pytest.approx(160, rel=0.02)
    assert line["predicted"]["mean_s"] == pytest.approx(0.024, rel=0.02)
    assert line["workers"][0]["outside_since_step"] == 2


def test_the_scenario_is_fitted_to_the_steps(scenario: Path, paceline: Runner) -> None:
    steps_file(Path("x.csv"), around(0.050))
    answer = paceline("watch", "s.toml", "x.csv", "--once", "--out-scenario", "r.toml")
    assert answer.code == 3
    assert "paceline simulate r.toml" in answer.stderr
    assert load_scenario("r.toml").workload.compute_s(8) == pytest.approx(0.050, rel=0.05)
    assert paceline("watch", "r.toml", "x.csv", "--once").code == 0


@pytest.mark.parametrize(
    ("line", "content", "names"),
    [
        ("watch s.toml x.csv --once", "0.1\n0.2\n", ("x.csv:1", "step_time_s")),
        ("watch s.toml x.scv --once", "", ("x.scv", "x.csv")),
        ("watch s.toml x.csv x.csv", "step_time_s\n1\n", ("'x.csv'",)),
        ("watch s.toml x.csv --once --pattern '('", "step_time_s\n1\n", ("--pattern '('",)),
        ("watch s.toml x.csv --once --journal x.csv", "step_time_s\n1\n", ("x.csv",)),
        ("watch s.toml x.csv --once --out-scenario s.toml", "step_time_s\n1\n", ("'s.toml'",)),
        ("watch s.toml x.csv --once --coverage 1", "step_time_s\n1\n", ("--coverage: 1.0", "0.9999")),
        ("watch s.toml x.csv --once --force", "step_time_s\n1\n", ("--force", "--out-scenario")),
        ("watch s.toml x.csv --once --out-scenario r.toml", "step_time_s\n1\n1\n", ("--out-scenario",)),
        ("watch s.toml x.csv --once --out-scenario r.toml", "step_time_s\n" + "24\n" * 50, ()),
    ],
)
def test_bad_input_is_refused_in_one_line(
    scenario: Path, paceline: Runner, snapshot: SnapshotAssertion, line: str, content: str, names: tuple[str, ...]
) -> None:
    Path("x.csv").write_text(content)
    answer = paceline(*shlex.split(line))
    last = answer.stderr.splitlines()[-1]  # it may have looked, and then cannot fit
    refused(Answer(answer.code, "", f"{last}\n"), *names)
    assert answer.stdout == "" or "r.toml" in line
    assert last == snapshot


def trained(path: Path, steps: int, slower_from: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        training(path, steps, slower_from), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=path.parent
    )


def watching(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = hearing("-m", "paceline", "watch", "s.toml", "run.ndjson", *arguments)
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def written(path: Path, text: str, times: int = 1) -> Callable[[], bool]:
    return lambda: path.exists() and path.read_text().count(text) >= times


@pytest.mark.long
@needs_tensorflow
def test_a_real_training_is_predicted_by_one_before_and_a_planted_slow_down_is_found(scenario: Path, paceline: Runner) -> None:
    """The first training gives the scenario its figures, the second goes as predicted, the third becomes slow half-way."""
    path = Path("run.ndjson").resolve()
    for steps, slower_from, name in ((150, 150, "one"), (150, 150, "two"), (300, 150, "three")):
        assert trained(path, steps, slower_from).wait(timeout=PATIENCE_S) == 0
        path.rename(f"{name}.ndjson")
    first = paceline("watch", "s.toml", "one.ndjson", "--once", "--json", "--out-scenario", "fitted.toml")
    assert first.code in (0, 3), first
    second = paceline("watch", "fitted.toml", "two.ndjson", "--once", "--json")
    assert second.code == 0, second.stdout
    assert json.loads(second.stdout.splitlines()[-1])["state"] in ("inside", "beyond")
    third = paceline("watch", "fitted.toml", "three.ndjson", "--once", "--json")
    assert third.code == 3
    (worker,) = json.loads(third.stdout.splitlines()[-1])["workers"]
    assert worker["outside_since_step"] == pytest.approx(151, abs=8)  # batches are prepared ahead
    # a process that waits for its input looks like one that waits for a core, if others begin to use all of them just then
    assert worker["causes"][0]["key"] in ("input", "shared-cores")
    assert worker["causes"][0]["cost_s"] == pytest.approx(0.040, rel=0.2)


@pytest.mark.long
@needs_tensorflow
def test_training_and_watch_are_killed_and_gone_on_with(scenario: Path) -> None:
    """A watch that is killed says nothing twice, and a training that is killed loses at most a step and adds to its file."""
    path, journal = Path("run.ndjson").resolve(), Path("said.ndjson")
    path.write_text("")
    faster = ("--set", "workload.forward.base='1 ms'", "--set", "workload.backward.base='1 ms'")
    options = ("--every", "0.2", "--journal", "said.ndjson", *faster)
    train = trained(path, 100_000, 100_000)
    watch = watching(*options)
    try:
        until(written(journal, '"left"'), lambda: watch.poll() is None)  # since the run is slower than 2 ms
        watch.send_signal(signal.SIGKILL)
        watch.communicate()
        told = [json.loads(line)["text"] for line in journal.read_text().splitlines()[1:]]
        train.send_signal(signal.SIGKILL)
        train.wait()
        before = sum('"step"' in line for line in path.read_text().splitlines() if line.endswith("}"))
        again = watching(*options)
        assert trained(path, 60, 60).wait(timeout=PATIENCE_S) == 0
        _, said = again.communicate(timeout=PATIENCE_S)
        assert again.returncode == 3
        assert not any(text in said for text in told)
        texts = [json.loads(line)["text"] for line in journal.read_text().splitlines()[1:]]
        assert texts[: len(told)] == told
        assert len(set(texts)) == len(texts)
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        assert sum(line["kind"] == "step" for line in lines) == pytest.approx(before + 60, abs=2)
        assert [line["kind"] for line in lines].count("header") == 2
        assert lines[-1]["kind"] == "end"
    finally:
        for process in (train, watch):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_ctrl_c_ends_a_watch_in_order(scenario: Path) -> None:
    steps_file(Path("run.ndjson"), around(0.024))
    watch = watching("--json", "--every", "0.1")
    assert watch.stdout is not None
    assert json.loads(watch.stdout.readline())["state"] == "inside"
    watch.send_signal(signal.SIGINT)
    out, said = watch.communicate(timeout=PATIENCE_S)
    assert (watch.returncode, said) == (0, "")
    assert json.loads(out.splitlines()[-1])["final"] is True
