"""Strategies by short names, as a person says them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from simulator.errors import InputError
from simulator.strategies.catalogue import SHORT_NAMES, kind_of

__all__ = ["strategy_table"]


def strategy_table(name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario's ``[strategy]`` under a short name.

    Keys of the scenario's own that make sense with it are kept: the bucket size of an
    all-reduce, the placement of servers, the bound of ssp.

    Raises
    ------
    InputError
        There is no such name.
    """
    if name not in SHORT_NAMES:
        near = difflib.get_close_matches(name[:60], SHORT_NAMES, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(SHORT_NAMES)}"
        raise InputError(f"--strategies {name[:60]!r}: is no strategy that a plan knows by name; {hint}")
    given = SHORT_NAMES[name]
    return kind_of(given).keys_for(name, own) if own.get("kind") == given["kind"] else dict(given)
