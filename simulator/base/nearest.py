"""Finds the known names that are nearest to one that does not exist, for the "did you mean" of error messages."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from simulator.base.text import listed

_LEAST = 0.6
"""How alike two words must be, from 0 to 1; what :mod:`difflib` takes by default."""
_SHORT, _LEAST_IF_SHORT = 3, 0.5
"""Of a word of so few letters one may be wrong."""
_AS_NEAR = 0.02
"""Names that are less near than the nearest by no more than this are named as well."""
_BEGINNING = 0.9
"""How alike a word is to one that it is the beginning of."""
_LONGEST = 60
_MOST = 3


def nearest(word: object, known: Iterable[str], *, least: float = _LEAST) -> list[str]:
    """Those of the known names that a word is most like, the nearest first; large and small letters are the same.

    >>> nearest("ethrnet-25g", ["ethernet-1g", "ethernet-25g"]), nearest("resnet", ["resnet-50", "resnet-small"]), nearest("x", ["ring"])
    (['ethernet-25g'], ['resnet-50', 'resnet-small'], [])

    Parameters
    ----------
    word
        As it was given.
    known
        Names that there are.
    least
        How alike they must be, from 0 to 1.
    """
    given = str(word)[:_LONGEST].lower()
    alike = {name: _likeness(given, name.lower()) for name in known}
    best = max(alike.values(), default=0.0)
    near = [name for name, likeness in alike.items() if likeness >= max(least if len(given) > _SHORT else _LEAST_IF_SHORT, best - _AS_NEAR)]
    return sorted(near, key=lambda name: -alike[name])[:_MOST]


def did_you_mean(word: object, known: Iterable[str], otherwise: str = "", *, written: str = "{}") -> str:
    """The nearest names as a question, or where none is near something else.

    >>> did_you_mean("rnig", ["ring", "tree"]), did_you_mean("zzz", ["ring", "tree"], "there are ring and tree")
    ('did you mean ring?', 'there are ring and tree')

    Parameters
    ----------
    word, known
        As for :func:`nearest`.
    otherwise
        What is said if no name is near.
    written
        How a name is written, such as ``"'{}'"`` or ``"--{}"``.
    """
    near = [written.replace("{}", name) for name in nearest(word, known)]
    return f"did you mean {listed(near, 'or')}?" if near else otherwise


def no_such_file(path: str | Path, otherwise: str = "check the path") -> str:
    """That there is no such file, and those of its folder that may have been meant; where there are none, what else to do."""
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder or ".") as found:
            # a common ending makes no two names alike
            beside = sorted(its.name for its in found if its.is_file() and nearest(Path(name).stem, [Path(its.name).stem]))
    except (OSError, ValueError):
        beside = []
    return f"there is no such file; {did_you_mean(name, beside, otherwise, written=os.path.join(folder, '{}'))}"


def _likeness(given: str, name: str) -> float:
    likeness = difflib.SequenceMatcher(None, name, given).ratio()
    return max(_BEGINNING, likeness) if len(given) > 2 and name.startswith(given) else likeness
