"""``paceline simulate`` with --trace, --tensorboard and --audit, alone and together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command_line import Answer

from simulator.checks import invariants
from simulator.observing.tensorboard import EVENT_FILE

Runner = Callable[..., Answer]
INVARIANTS = [law.__name__ for law in invariants.INVARIANTS]
SIMULATE = ("simulate", "s.toml")


def test_all_three_at_once_change_no_result(folder: Path, paceline: Runner) -> None:
    plain = paceline(*SIMULATE, "--json")
    answer = paceline(*SIMULATE, "--json", "--trace", "t.json", "--tensorboard", "new/board", "--audit")
    assert answer.code == 0
    both = json.loads(answer.stdout)
    assert both["audit"] == {"laws": INVARIANTS}
    assert both["result"] == json.loads(plain.stdout)
    lines = answer.stderr.splitlines()
    assert lines[0].startswith("wrote t.json")
    assert lines[1].startswith("Step ")
    assert lines[1].endswith(" bounds it.")
    assert lines[2] == "wrote new/board; open it with: tensorboard --logdir new/board"
    assert json.loads((folder / "t.json").read_text())["otherData"]["critical_path"] == lines[1]
    assert [path.name for path in (folder / "new/board").iterdir()] == [EVENT_FILE]


def test_each_alone_writes_the_same(folder: Path, paceline: Runner) -> None:
    assert paceline(*SIMULATE, "--trace", "t.json", "--tensorboard", "board").code == 0
    assert paceline(*SIMULATE, "--trace", "alone.json").code == 0
    assert paceline(*SIMULATE, "--tensorboard", "alone").code == 0
    assert (folder / "t.json").read_bytes() == (folder / "alone.json").read_bytes()
    assert (folder / "board" / EVENT_FILE).read_bytes() == (folder / "alone" / EVENT_FILE).read_bytes()


def test_the_step_that_is_explained_is_a_measured_one_of_median_length(folder: Path, paceline: Runner) -> None:
    answer = paceline(*SIMULATE, "--set", "run.warmup_steps=3", "--set", "run.steps=6", "--trace", "t.json")
    number = int(answer.stderr.splitlines()[1].split()[1])
    assert number > 2  # two asynchronous workers' first six steps are not measured
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    critical = [event for event in events if event["ph"] == "X" and event["args"].get("critical")]
    assert len(critical) > 3
    assert all(event["cname"] == "terrible" for event in critical)


def test_the_audit_names_each_law(paceline: Runner) -> None:
    answer = paceline(*SIMULATE, "--audit")
    assert (answer.code, answer.stderr) == (0, "")
    assert max(map(len, answer.stdout.splitlines())) <= 80
    for name in INVARIANTS:
        assert f"ok  {name}" in answer.stdout
    assert "90% interval" in answer.stdout


def test_a_terminal_without_unicode_gets_the_same(process: Runner) -> None:
    answer = process(*SIMULATE, "--audit", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert answer.code == 0
    assert f"ok  {INVARIANTS[0]}" in answer.stdout


def test_a_broken_law_is_a_failed_run(folder: Path, paceline: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def gravity(scenario: object, recording: object) -> Iterator[str]:
        yield "an apple that rose"

    monkeypatch.setattr(invariants, "INVARIANTS", (*invariants.INVARIANTS, gravity))
    for more in ([], ["--json"]):
        assert paceline(*SIMULATE, "--audit", *more) == Answer(1, "", "paceline: invariant violated: gravity: an apple that rose\n")
    assert paceline(*SIMULATE).code == 0
    # what was recorded is kept: it is what one wants to look at
    assert paceline(*SIMULATE, "--audit", "--trace", "t.json").code == 1
    assert (folder / "t.json").exists()


@pytest.mark.parametrize(
    ("option", "names"),
    [
        ("--tensorboard s.toml", ("'s.toml'",)),
        ("--tensorboard s.toml/below", ("'s.toml/below'",)),
        ("--tensorboard /proc/none/board", ("'/proc/none/board'",)),
        ("--tensorboard /dev/null", ("'/dev/null'",)),
        ("--tensorboard", ("'--tensorboard'",)),
        ("--audit=yes", ("--audit",)),
    ],
)
def test_what_cannot_be_written_is_one_line_before_the_run(refusal: Callable[..., None], option: str, names: tuple[str, ...]) -> None:
    refusal((*SIMULATE, *option.split(" ")), *names)


def test_a_run_that_fails_writes_nothing(folder: Path, paceline: Runner) -> None:
    nearly_nothing = 'workload.jitter={kind="gamma", shape=1e-4}'
    answer = paceline(*SIMULATE, "--set", nearly_nothing, "--trace", "t.json", "--tensorboard", "board")
    assert answer.code == 1
    assert not (folder / "t.json").exists()
    assert not (folder / "board").exists()


def test_tensorboard_needs_no_tensorflow(folder: Path) -> None:
    program = (
        "import sys\n"
        "from paceline.cli.app import main\n"
        "sys.argv = ['paceline', 'simulate', 's.toml', '--tensorboard', 'board', '--trace', 't.json', '--audit']\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert ended.code == 0\n"
        "print('\\n'.join({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.splitlines())
    assert "tensorboardX" in loaded
    assert not loaded & {"tensorflow", "keras", "torch", "tensorboard"}
