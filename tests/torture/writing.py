"""Attacks on files that are written: a full disk, two writers of one file, files of others in the way."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torture.attacks import Attack, Ground, Trial
from torture.corpus import FIT, FIT_INPUT, FROM_TF_CONFIG, PLAN, REPORT, SWEEP, VALIDATE
from torture.endings import Running, contents

_MORE = SWEEP.replace("0,1,2", "0..9")
_SCENARIO = "--cluster ethernet-25g --batch 32"
_WRITING = (
    _MORE,
    PLAN,
    f"{REPORT} --out out.html --tables out.tables",
    "simulate ring.toml --set run.steps=40 --trace out.json",
    "simulate ring.toml --tensorboard out.board",
    FIT,
    FIT_INPUT,
    FROM_TF_CONFIG,
    "testbed fit testbed.ndjson --out out.json",
    f"init --workload cnn-cpu {_SCENARIO} --strategy ring --workers 4 --out out.toml",
    "validate --matrix random:3 --count 4 --list --out-matrix out.toml",
    f"{VALIDATE} --out out.html --markdown out.md --rows out.csv --tables out.tables",
)
"""Commands that write, each file into the working folder under a name that begins with ``out.``"""


def _in(folder: str, line: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{word}" if word.startswith("out.") else word for word in shlex.split(line))


class FullDisk(Attack):
    """Writes onto a disk that has hardly any room, then onto the same with room enough."""

    name, what, share = "full-disk", "a disk is full when something is written to it; then it has room, and the same command goes on", 2

    def run(self, trial: Trial) -> None:
        """Write, make room, write again."""
        words = _in("disk", trial.rng.choice(_WRITING))
        trial.sort = words[0] if os.geteuid() == 0 else f"{words[0]} (a limit of the size of files)"
        folder = trial.lay_out()
        disk = folder / "disk"
        disk.mkdir()
        size = 4096 * trial.rng.randrange(1, 24)
        with _small(disk, size) as room:
            (disk / "own.txt").write_text("somebody's own")
            trial.commands += 1
            running = Running(words, folder, prepare=None if room else _limited(size))
            ended = trial.judged(running, running.wait())
            if any(path.name.startswith(".paceline-") for path in disk.rglob("*")):
                trial.find("leftover", f"a part of a file: {', '.join(path.name for path in disk.rglob('*'))}", words)
            if ended.code not in (0, 1, 2) or (ended.code and "paceline: " not in ended.stderr):
                trial.find("unsaid", f"exit code {ended.code}: {ended.stderr[-300:]}", words)
            if room:
                room()
            again = trial.run(*words) if ended.code else ended
            if again.code != 0:
                trial.find("loss", f"does not go on when there is room: {again.stderr[-300:]}; before: {ended.stderr[-300:]}", words)
            if (disk / "own.txt").read_text() != "somebody's own":
                trial.find("loss", "own.txt", words)


@contextmanager
def _small(disk: Path, size: int) -> Iterator[Callable[[], object] | None]:
    """A disk of so many bytes; gives what makes room on it, or None where nobody may mount one."""
    made = (
        os.geteuid() == 0 and not subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], check=False).returncode
    )
    if not made:
        yield None
        return
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _limited(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class TwoWriters(Attack):
    """Starts the same sweep two or three times at once."""

    name, what, share = "two-writers", "two or three processes write the same file at once: one does, the others say why not", 2

    def run(self, trial: Trial) -> None:
        """Start them, and look whether one has won, and the file is whole."""
        words = _in(".", _MORE)
        trial.sort = "sweep"
        folder = trial.lay_out()
        trial.run(*words)
        whole = (folder / "out.ndjson").read_bytes()
        for path in folder.glob("*out.*"):
            path.unlink()
        together = []
        for _ in range(trial.rng.choice((2, 3))):
            together.append(Running(words, folder))
            time.sleep(trial.rng.uniform(0.0, 0.3))
        trial.commands += len(together)
        endings = [trial.judged(running, running.wait()) for running in together]
        if not any(ended.code == 0 for ended in endings):
            trial.find("loss", f"none has ended well: {[ended.stderr[-200:] for ended in endings]}", words)
        for ended in endings:
            if ended.code not in (0, 2) or (ended.code == 2 and "another process" not in ended.stderr):
                trial.find("unclear", f"exit code {ended.code}: {ended.stderr[-300:]}", words)
        if (folder / "out.ndjson").read_bytes() != whole:
            trial.find("loss", "out.ndjson is not what one alone writes", words)


_FOREIGN: dict[str, bytes] = {
    "text": b"my notes\n",
    "page": b"<!doctype html><html><body>mine</body></html>\n",
    "JSON": b'{"mine": true}\n',
    "lines of JSON": b'{"mine": 1}\n{"mine": 2}\n',
    "TOML": b'mine = "yes"\n',
    "table": b"mine,yours\n1,2\n",
    "bytes": bytes(range(256)),
}


class Crowded(Attack):
    """Puts somebody's own file where a command writes, or beside it."""

    name, what, share = (
        "crowded",
        "a file of somebody else stands where a command would write, or beside: it stays as it is, and is named",
        6,
    )

    def prepare(self, ground: Ground) -> None:
        """Find out what each command writes."""
        self._written: list[tuple[str, list[str]]] = []
        for number, line in enumerate(_WRITING):
            trial = Trial(f"crowded:writes {number}", ground)
            trial.folder = ground.folder / f"writes {number}" / "work"
            trial.folder.parent.mkdir(exist_ok=True)
            before = contents(trial.lay_out())
            ended = trial.run(*_in(".", line))
            assert ended.code == 0, ended
            written = sorted(contents(trial.folder).keys() - before.keys())
            assert written, line
            self._written.append((line, written))

    def run(self, trial: Trial) -> None:
        """Put it there, write, and look whether it still is what it was."""
        line, written = trial.rng.choice(self._written)
        folder = trial.lay_out()
        name, (sort, content) = trial.rng.choice(written), trial.rng.choice(list(_FOREIGN.items()))
        trial.sort = line.split()[0]
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        before = contents(folder)
        ended = trial.run(*_in(".", line))
        if place.suffix == ".md" and ended.code == 0 and content in place.read_bytes():
            return  # a section is put into a document of the user's
        if not place.exists() or place.read_bytes() != content:
            trial.find("loss", f"{name}, which was {sort}, was replaced; exit code {ended.code}", ended.words)
        elif ended.code == 0:
            trial.find("unsaid", f"{name}, which was {sort}, was left, and nothing written or said", ended.words)
        elif Path(name).parts[0] not in ended.stderr and Path(name).name not in ended.stderr:
            trial.find("unclear", f"{name} is not named: {ended.stderr[-300:]}", ended.words)
        trial.compare(before, ended)
