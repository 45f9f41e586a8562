"""What all attacks have in common: a trial, its own folder with a copy of the corpus, its own random numbers."""

from __future__ import annotations

import random
import shutil
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from torture.corpus import prepare
from torture.endings import Ended, Finding, Running, contents, faults


@dataclass(frozen=True)
class Ground:
    """Where trials take place.

    Attributes
    ----------
    folder
        Of all trials.
    seed
        Of all random numbers.
    """

    folder: Path
    seed: int

    @property
    def corpus(self) -> Path:
        """A folder with one file of each kind."""
        return self.folder / "corpus"

    def prepare(self) -> None:
        """Write the corpus."""
        prepare(self.corpus)


@dataclass
class Trial:
    """One trial of an attack.

    Attributes
    ----------
    name
        Of the attack and the trial, as ``mutants:17``.
    ground
        Where it takes place.
    rng
        Its random numbers.
    sort
        What it attacked, for the table; the attack says it.
    commands
        How many commands it ran.
    """

    name: str
    ground: Ground
    sort: str = ""
    commands: int = 0
    found: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.ground.seed} {self.name}")
        self.folder = self.ground.folder / self.name.replace(":", "-") / "work"

    def lay_out(self) -> Path:
        """Copy the corpus into the trial's own folder."""
        shutil.copytree(self.ground.corpus, self.folder)
        return self.folder

    def find(self, what: str, said: str, words: tuple[str, ...] = ()) -> None:
        """Note something that must not be."""
        self.found.append(Finding(what, f"{self.name}: {self.sort}: {' '.join(words)}", said))

    def run(self, *words: str) -> Ended:
        """Run a command to its end, and note what is always wrong, and what it leaves behind."""
        self.commands += 1
        running = Running(words, self.folder)
        return self.judged(running, running.wait())

    def judged(self, running: Running, ended: Ended, *, codes: tuple[int, ...] = (0, 1, 2, 3)) -> Ended:
        """Note what is wrong with how it ended, and what it left behind."""
        self.found += faults(ended, f"{self.name}: {self.sort}", codes)
        if left := running.left():
            self.find("leftover", ", ".join(left)[:600], ended.words)
        return ended

    def compare(self, before: dict[str, bytes], ended: Ended, *, written: tuple[str, ...] = (), exact: bool = True) -> None:
        """Note files that were changed, lost or left, though they are none of those that the command writes.

        Parameters
        ----------
        before
            What was there.
        ended
            How the command ended; one that refuses writes nothing.
        written
            Beginnings of names that it may write.
        exact
            Whether one that was refused must not have written these either.
        """
        after = contents(self.folder)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) == after.get(name) or (
                (name.startswith(written) if written else False) and not (exact and ended.code == 2)
            ):
                continue
            deed = "lost" if name not in after else "changed" if name in before else "left"
            self.find(
                "leftover" if deed == "left" else "loss", f"{deed} {name}; exit code {ended.code}; {ended.stderr[-300:]}", ended.words
            )


class Attack:
    """Tries something, many times."""

    name: ClassVar[str]
    what: ClassVar[str]
    """What it does, for the table."""
    share: ClassVar[int]
    """How many of a hundred trials are of it."""

    def prepare(self, ground: Ground) -> None:
        """What all trials need, made once."""

    def run(self, trial: Trial) -> None:
        """One trial; it notes what it finds."""
        raise NotImplementedError

    def try_one(self, ground: Ground, number: int, *, keep: bool = False) -> Trial:
        """The trial of a number; what it leaves is removed, unless it is to be kept, or found something."""
        trial = Trial(f"{self.name}:{number}", ground)
        home = trial.folder.parent
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        try:
            self.run(trial)
        except Exception:  # an attack that breaks must not end the hour
            trial.find("broken attack", traceback.format_exc())
        if not (trial.found or keep):
            shutil.rmtree(home, ignore_errors=True)
        return trial

    @classmethod
    def every(cls) -> Iterator[Attack]:
        """One of each, in the order of their definition."""
        for kind in cls.__subclasses__():
            yield kind()
