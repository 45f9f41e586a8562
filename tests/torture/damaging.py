"""Attacks on files that are read: thousands of damaged ones, and single bits flipped in what a checksum covers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from support.damage import damaged, flipped, mutated

from torture.attacks import Attack, Trial
from torture.corpus import FIT, REPORT, REPORT_OF_PLAN, Kind, kinds
from torture.endings import contents

_KINDS = list(kinds())
_OUT = ("out.", ".out.")


class Mutants(Attack):
    """Damages a file, and has it read."""

    name, what, share = "mutants", "a file is damaged, byte by byte or key by key, and read", 78

    def run(self, trial: Trial) -> None:
        """Damage a file of some kind and run a command that reads it."""
        rng = trial.rng
        [kind] = rng.choices(_KINDS, [one.weight for one in _KINDS])
        trial.sort = kind.name
        folder = trial.lay_out()
        file = folder / kind.file
        valid = file.read_bytes()
        file.write_bytes(_damaged(kind, valid, trial))
        words = shlex.split(rng.choice(kind.commands).replace("{}", kind.file))
        before = contents(folder)
        ended = trial.run(*words)
        going_on = words[0] == "sweep" and words[-1].startswith("results")
        trial.compare(before, ended, written=(*_OUT, *(("results.", ".results.") if going_on else ())))
        whole = (trial.ground.corpus / "results.ndjson").read_bytes()
        if going_on and ended.code == 0 and (folder / "results.ndjson").read_bytes() != whole:
            trial.find("loss", f"goes on to other bytes; {ended.stderr[-300:]}", ended.words)


def _damaged(kind: Kind, valid: bytes, trial: Trial) -> bytes:
    if kind.parse is None or kind.render is None or trial.rng.random() < 0.4:
        return damaged(valid, trial.rng.choice)
    return kind.render(mutated(kind.parse(valid.decode()), trial.rng.choice)).encode("utf-8", "surrogatepass")


class Flips(Attack):
    """Flips one bit of a file whose lines carry checksums."""

    name, what, share = (
        "flips",
        "one bit of a file is flipped whose lines carry checksums: it is named and left out, or changes no figure",
        8,
    )

    _KEPT = (
        ("results.ndjson", f"{REPORT} --out out.html --tables out.tables"),
        ("planned.plan.json", REPORT_OF_PLAN),
        ("step.ndjson", FIT),
        ("testbed.ndjson", "testbed fit testbed.ndjson --out out.json"),
    )

    def run(self, trial: Trial) -> None:
        """Flip it, read the file, and compare what comes of it with what came of the whole one."""
        name, words = trial.rng.choice(self._KEPT)
        trial.sort = name
        folder = trial.lay_out()
        trial.run(*shlex.split(words))
        whole = _answers(folder)
        for path in sorted(folder.glob("out.*"), reverse=True):
            _remove(path)
        content, line = flipped((folder / name).read_bytes(), trial.rng.choice)
        (folder / name).write_bytes(content)
        ended = trial.run(*shlex.split(words))
        named = f"{name}:{line}" in ended.stderr + ended.stdout
        if ended.code == 0 and not named and _answers(folder) != whole:
            trial.find("misreading", f"line {line}: another answer without a word; {ended.stderr[-300:]}", ended.words)
        elif ended.code == 2 and not named and name not in ended.stderr:
            trial.find("unclear", f"line {line} is not named: {ended.stderr[-300:]}", ended.words)


_MOMENT = re.compile(rb"[0-9a-f]{16,64}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?\S*")
"""Digests of files and moments, which say of what, and when, an answer was made."""


def _answers(folder: Path) -> dict[str, bytes]:
    """What a command has written, without what differs each time."""
    return {name: _MOMENT.sub(b"", content) for name, content in contents(folder).items() if name.startswith("out.")}


def _remove(path: Path) -> None:
    if path.is_dir():
        for inner in path.iterdir():
            _remove(inner)
        path.rmdir()
    else:
        path.unlink()
