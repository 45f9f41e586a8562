"""Attacks with signals: kills at any moment of long work, which then goes on to the very bytes; signals in the first second."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paceline.sweeping.results_file import with_place
from torture.attacks import Attack, Ground, Trial
from torture.corpus import PLAN, REPORT
from torture.endings import Ended, Running, command, contents

_ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SWEEP = "sweep scenario.toml --set run.steps=60 --over run.seed=0..7 --over strategy.workers=2,3 --out out.ndjson"
_PLAN = PLAN.replace("100samples", "3000samples").replace("1..4", "1..12") + " --set run.replications=19"


@dataclass(frozen=True)
class _Work:
    """Long work.

    Attributes
    ----------
    sort
        What it is.
    line
        The command.
    longest_s
        No moment later than this is tried.
    check
        Says what is wrong with what is there after a kill; "" where nothing is.
    goes_on
        Whether the same command again gives the bytes that it gives when nobody kills it.
    weight
        How often it is tried.
    """

    sort: str
    line: str
    longest_s: float
    check: Callable[[Path, dict[str, bytes]], str]
    goes_on: bool
    weight: float = 1.0

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command."""
        return tuple(shlex.split(self.line))

    @property
    def alone(self) -> tuple[str, ...]:
        """The command that writes the same in one process: bytes do not depend on how many there are, or where."""
        return (*shlex.split(_SWEEP), "--jobs", "1") if self.words[0] == "sweep" else self.words


def kept_lines(folder: Path, whole: dict[str, bytes]) -> str:
    """Whole lines are those of the end, in any order and with the places that they have until then; one more may be cut off."""
    there = folder / "out.ndjson"
    held = (there.read_bytes() if there.exists() else b"").splitlines(keepends=True)
    last = set(whole["out.ndjson"].splitlines(keepends=True))
    for number, line in enumerate(held, start=1):
        if line not in last and with_place(line, None) not in last and (number < len(held) or line.endswith(b"\n")):
            return f"out.ndjson: line {number} of {len(held)} is none of those at the end"
    return ""


def _whole_or_none(folder: Path, _: dict[str, bytes]) -> str:
    for path in filter(Path.is_file, folder.glob("out.*")):
        content = path.read_bytes()
        if path.suffix == ".html" and not content.rstrip().endswith(b"</html>"):
            return f"{path.name} is cut off"
        if path.suffix == ".json":
            try:
                json.loads(content)
            except ValueError:
                return f"{path.name} is cut off"
    return ""


_WORKS = (
    _Work("sweep, one process", f"{_SWEEP} --jobs 1", 4.0, kept_lines, goes_on=True, weight=3.0),
    _Work("sweep, two processes", f"{_SWEEP} --jobs 2", 6.0, kept_lines, goes_on=True, weight=3.0),
    _Work("sweep, Ray", f"{_SWEEP} --jobs 2 --backend ray", 15.0, kept_lines, goes_on=True, weight=0.3),
    _Work("plan", _PLAN, 4.0, kept_lines, goes_on=True, weight=2.0),
    _Work("report", "report results.ndjson --jobs 1 --out out.html", 4.0, _whole_or_none, goes_on=False),
    _Work("timeline", "simulate ring.toml --set run.steps=40 --trace out.json", 2.5, _whole_or_none, goes_on=False),
    _Work(
        "testbed", "testbed run setting.toml --repeats 1 --measurements out.measured", 15.0, _whole_or_none, goes_on=False, weight=0.2,
    ),
)  # fmt: skip


class Kills(Attack):
    """Kills long work at some moment, up to three times, and lets it go on."""

    name, what, share = "kills", "long work is ended at any moment by SIGKILL, SIGTERM, Ctrl-C or SIGHUP, up to three times, and goes on", 5

    def prepare(self, ground: Ground) -> None:
        """Do once what is killed later."""
        for work in _WORKS:
            if work.goes_on and not self._whole(ground, work).exists():
                folder = self._whole(ground, work)
                shutil.copytree(ground.corpus, folder)
                ended, _ = command(work.alone, folder)
                assert ended.code == 0, ended

    @staticmethod
    def _whole(ground: Ground, work: _Work) -> Path:
        return ground.folder / f"whole {work.words[0]}"

    def run(self, trial: Trial) -> None:
        """Start, kill, look, go on."""
        rng = trial.rng
        [work] = rng.choices(_WORKS, [one.weight for one in _WORKS])
        trial.sort = work.sort
        folder = trial.lay_out()
        whole = (
            {name: text for name, text in contents(self._whole(trial.ground, work)).items() if name.startswith("out.")}
            if work.goes_on
            else {}
        )
        before, spaces = contents(folder), _namespaces()
        ended: Ended | None = None
        for _ in range(rng.choice((1, 1, 2, 3))):
            number = rng.choice((signal.SIGKILL, signal.SIGKILL, *_ASKED))
            ended = _killed(trial, work, number, rng.uniform(0.0, work.longest_s), group=rng.random() < 0.3)
            if said := work.check(folder, whole):
                trial.find("loss", said, work.words)
            trial.compare(before, ended, written=("out.", ".out."), exact=False)
        if work.goes_on:
            last = trial.run(*work.words)
            after = {name: text for name, text in contents(folder).items() if name.startswith(("out.", ".out."))}
            if last.code != 0:
                trial.find("loss", f"does not go on: {last.stderr[-400:]}", last.words)
            for name in sorted(after.keys() | whole.keys()):
                if "times" not in name and after.get(name) != whole.get(name):
                    trial.find("loss" if name in whole else "leftover", f"{name} is another file after it has gone on", last.words)
        if left := _namespaces() - spaces:
            trial.find("leftover", f"network namespaces {', '.join(sorted(left))}", work.words)


def _killed(trial: Trial, work: _Work, number: signal.Signals, after_s: float, *, group: bool) -> Ended:
    trial.commands += 1
    running = Running(work.words, trial.folder, fresh=True)
    until_s = time.monotonic() + after_s
    while time.monotonic() < until_s and running.is_running():
        time.sleep(0.005)
    ours = running.is_ours()
    running.signal(number, group=group)
    ended = running.wait()
    if number == signal.SIGKILL:
        if left := running.left():
            trial.find("leftover", ", ".join(left)[:600], work.words)
        return ended
    _judge(trial, running, ended, number, ours=ours)
    return ended


def _judge(trial: Trial, running: Running, ended: Ended, number: signal.Signals, *, ours: bool) -> None:
    """Note what is wrong with an end that was asked for by a signal, which our code could answer or not."""
    if not ours and ended.code in (1, -number):
        if left := running.left():
            trial.find("leftover", ", ".join(left)[:600], ended.words)
        return  # Python itself was still starting, or had ended all but its own end: nobody can say anything there
    trial.judged(running, ended, codes=(0, 128 + number))
    if ended.code == 128 + number:
        said = [line for line in ended.stderr.splitlines() if line.startswith("paceline: ")]
        if not said or not ("interrupted" in said[-1] or "ended by" in said[-1]):
            trial.find("unsaid", f"{number.name}: {ended.stderr[-300:]!r}", ended.words)


def _namespaces() -> set[str]:
    """Network namespaces that are there, where any can be."""
    try:
        done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False, timeout=10)
    except OSError:
        return set()
    return {line.split()[0] for line in done.stdout.splitlines() if line.strip()}


class FirstSecond(Attack):
    """Signals while Python imports, before any work has begun."""

    name, what, share = "first-second", "a command gets a signal in its first second", 8

    _COMMANDS = ("simulate scenario.toml", "--help", "models list", f"{REPORT} --out out.html", PLAN)

    def run(self, trial: Trial) -> None:
        """Start, signal, look."""
        number = trial.rng.choice(_ASKED)
        trial.sort = number.name
        folder = trial.lay_out()
        before = contents(folder)
        trial.commands += 1
        running = Running(shlex.split(trial.rng.choice(self._COMMANDS)), folder, fresh=True)
        time.sleep(trial.rng.uniform(0.0, 1.0))
        ours = running.is_ours()
        running.signal(number)
        ended = running.wait()
        _judge(trial, running, ended, number, ours=ours)
        if len(ended.stderr.splitlines()) > 1 and ended.code == 128 + number:
            trial.find("unclear", f"{len(ended.stderr.splitlines())} lines: {ended.stderr[-300:]!r}", ended.words)
        trial.compare(before, ended, written=("out.",))
