"""How a command ends: run in a process forked from this one, with all that it leaves behind; and what is wrong with that."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

LIMIT_S = 120.0
"""Nothing here is asked to do more than some seconds of work, or it is told that it would take long."""
_MOST_BYTES = 12 * 2**30
_LONGEST_LINE = 700
_MOST_LINES = 12
_NUMBERS = itertools.count()
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SHARED_MEMORY = Path("/dev/shm")
_OF_A_PROCESS = re.compile(r"^(?:joblib_memmapping_folder|loky|sem\.loky|pym)-?_?(\d+)")


@dataclass(frozen=True)
class Finding:
    """Something that must not be.

    Attributes
    ----------
    what
        Of which sort it is: ``traceback``, ``crash``, ``hang``, ``unsaid``, ``unclear``, ``escape``, ``leftover``, ``loss`` or
        ``misreading``.
    where
        The trial, and what was run in it.
    said
        What there was to see.
    """

    what: str
    where: str
    said: str


@dataclass(frozen=True)
class Ended:
    """How a command has ended.

    Attributes
    ----------
    words
        Its arguments.
    code
        Its exit code; a signal that it died of is negative, and None stands for one that had to be ended.
    stdout, stderr
        What it said.
    took_s
        Its duration.
    """

    words: tuple[str, ...]
    code: int | None
    stdout: str
    stderr: str
    took_s: float


class Running:
    """A command that runs in a session of its own, forked from this process, which has imported all that it needs.

    Parameters
    ----------
    words
        Arguments of ``paceline``.
    folder
        Its working folder; its temporary folder, its user's data and what it says lie beside it.
    prepare
        Called in the new process before anything else, as to set a limit.
    fresh
        Whether it is a Python of its own, as a user starts it, and not a fork.
    """

    def __init__(self, words: Sequence[str], folder: Path, prepare: Callable[[], None] | None = None, *, fresh: bool = False) -> None:
        self.words, self.folder = tuple(words), folder
        number = next(_NUMBERS)
        self.scratch = folder.parent / f"t{number}"  # short: the path of a socket within must be
        self._said = [folder.parent / f"{name}{number}" for name in ("stdout", "stderr")]
        self.scratch.mkdir(exist_ok=True)
        self._begun_s = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(prepare, fresh=fresh)

    def _run(self, prepare: Callable[[], None] | None, *, fresh: bool) -> NoReturn:
        code = 1
        try:
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            os.chdir(self.folder)
            home = self.folder.parent / f"{self.folder.name}.home"
            os.environ |= {"TMPDIR": str(self.scratch), "XDG_DATA_HOME": str(home), "COLUMNS": "120", "TERM": "dumb"}
            tempfile.tempdir = None
            for number, path in zip((1, 2), self._said, strict=True):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            if prepare is not None:
                prepare()
            if fresh:
                os.execv(sys.executable, [sys.executable, "-m", "paceline", *self.words])
            resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
            sys.stdin, sys.stdout, sys.stderr = (
                open(number, mode, encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115 - as long as the process lives
                for number, mode in enumerate("rww")
            )
            code = _answer(self.words)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send it a signal, or to all that it has started too."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.pid, number)

    def is_ours(self) -> bool:
        """Whether our code has begun to answer signals; before and behind that, they meet Python alone."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
        return False

    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self, limit_s: float = LIMIT_S) -> Ended:
        """Wait until it has ended, or end it."""
        code: int | None = None
        while time.monotonic() - self._begun_s < limit_s:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.002)
        took_s = time.monotonic() - self._begun_s
        if code is None:
            self.signal(signal.SIGKILL, group=True)
            os.waitpid(self.pid, 0)
        stdout, stderr = (path.read_text(encoding="utf-8", errors="backslashreplace") if path.exists() else "" for path in self._said)
        return Ended(self.words, code, stdout, stderr, took_s)

    def left(self, within_s: float = 5.0) -> list[str]:
        """What it has left in the temporary folder, and which of its processes live on after some seconds."""
        until_s = time.monotonic() + within_s
        while (there := self._processes()) and time.monotonic() < until_s:
            time.sleep(0.05)
        for process, _ in there:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return [f"process {name}" for _, name in there] + sorted(str(path.relative_to(self.scratch)) for path in self.scratch.rglob("*"))

    def _processes(self) -> list[tuple[int, str]]:
        """Processes that were given its temporary folder, whatever session they have made for themselves."""
        found, mark = [], f"TMPDIR={self.scratch}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                of_session = int(session) == self.pid or mark in (entry / "environ").read_bytes().split(b"\0")
                if of_session and state != "Z":
                    name = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append((int(entry.name), name[:120]))
        return found


def _answer(words: Sequence[str]) -> int:
    from paceline.cli.app import main

    sys.argv = ["paceline", *words]
    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return 1
        return ended.code or 0
    return 0


def command(words: Sequence[str], folder: Path, limit_s: float = LIMIT_S) -> tuple[Ended, list[str]]:
    """Run a command to its end; gives with it what it has left behind."""
    running = Running(words, folder)
    return running.wait(limit_s), running.left()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file in a folder, by its name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def left_in_shared_memory(but: Collection[str] = (), within_s: float = 30.0) -> set[str]:
    """What processes that have ended still leave, after some seconds, in the memory that processes share, but for these names."""
    until_s = time.monotonic() + within_s
    while True:
        left = {
            path.name
            for path in (_SHARED_MEMORY.iterdir() if _SHARED_MEMORY.is_dir() else ())
            if (owner := _OF_A_PROCESS.match(path.name)) and not Path("/proc", owner[1]).exists()
        }.difference(but)
        if not left or time.monotonic() > until_s:
            return left
        time.sleep(0.05)  # what removes them runs on for a moment after their process


def faults(ended: Ended, where: str, codes: Collection[int] = (0, 1, 2, 3)) -> list[Finding]:
    """What is wrong with an ending, whatever was asked.

    A command ends with one of its exit codes and without a traceback. One that refuses says why, in lines that
    a terminal can show. Nothing but Paceline speaks.
    """
    shown = f"{where}: paceline {' '.join(ended.words)}"
    both = ended.stderr + ended.stdout
    found: list[tuple[str, str]] = []
    if ended.code is None:
        found.append(("hang", f"did not end within {ended.took_s:.0f} s; said {ended.stderr[-300:]!r}"))
    elif "Traceback (most recent call last)" in both:
        found.append(("traceback", ended.stderr[-1500:]))
    elif ended.code not in codes:
        found.append(("crash", f"exit code {ended.code}; said {ended.stderr[-300:]!r}"))
    elif ended.code and not ended.stderr.strip():
        found.append(("unsaid", f"exit code {ended.code} without a word"))
    elif ended.code == 2:
        lines = ended.stderr.rstrip("\n").split("\n")
        if not lines[-1].startswith("paceline: ") or len(lines) > _MOST_LINES or max(map(len, lines)) > _LONGEST_LINE:
            found.append(("unclear", ended.stderr[:1500]))
    if re.search(r"^\S*:\d+: \w*Warning: ", ended.stderr, re.MULTILINE):
        found.append(("unclear", f"a warning for developers: {ended.stderr[-500:]}"))
    if (raw := _CONTROL.search(both)) is not None:
        found.append(("escape", f"raw {raw[0]!r} in {both[max(raw.start() - 60, 0) : raw.end() + 60]!r}"))
    return [Finding(what, shown, said) for what, said in found]
