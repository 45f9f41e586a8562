"""Strategies by short names, as a person says them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from simulator.errors import InputError
from simulator.scenario import Scenario
from simulator.strategies.all_reducing import AllReduceStrategy
from simulator.strategies.servers import ParameterServer
from simulator.strategies.single import Single

__all__ = ["SHORT_NAMES", "in_words", "strategy_table"]

SHORT_NAMES: dict[str, dict[str, Any]] = {
    "single": {"kind": "single"},
    "mirrored": {"kind": "mirrored"},
    "ring": {"kind": "multi-worker-mirrored", "algorithm": "ring"},
    "halving-doubling": {"kind": "multi-worker-mirrored", "algorithm": "halving-doubling"},
    "tree": {"kind": "multi-worker-mirrored", "algorithm": "double-binary-tree"},
    "hierarchical": {"kind": "multi-worker-mirrored", "algorithm": "hierarchical"},
    "auto": {"kind": "multi-worker-mirrored", "algorithm": "auto"},
    "sync-ps": {"kind": "parameter-server", "mode": "sync"},
    "backup": {"kind": "parameter-server", "mode": "sync", "backup_workers": 1},
    "async-ps": {"kind": "parameter-server", "mode": "async"},
    "ssp": {"kind": "parameter-server", "mode": "ssp", "bound": 3},
}
"""Each name with what it sets in ``[strategy]``; other keys are the scenario's own, where it has the same kind, or their defaults."""

_OF_ONE_MODE = {"bound": "ssp", "backup_workers": "sync", "late_workers": "sync", "coordinator": "async"}


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
    if own.get("kind") != given["kind"]:
        return dict(given)
    mode = given.get("mode")
    kept = {key: value for key, value in own.items() if key not in _OF_ONE_MODE or _OF_ONE_MODE[key] == mode}
    if name == "sync-ps":  # without backup workers, which have a name of their own
        kept = {key: value for key, value in kept.items() if key not in ("backup_workers", "late_workers")}
    fixed = {key: value for key, value in given.items() if key not in ("bound", "backup_workers") or key not in kept}
    return {**kept, **fixed}


def in_words(scenario: Scenario) -> str:
    """A scenario's strategy in few words, without its number of workers: ``async PS, 2 servers``."""
    strategy = scenario.strategy
    if isinstance(strategy, ParameterServer):
        bound = "" if strategy.bound is None else f" (bound {strategy.bound})"
        backup = f", {strategy.backup_workers} backup" if strategy.backup_workers else ""
        where = " beside workers" if strategy.server_placement == "colocated" else ""
        return f"{strategy.mode} PS{bound}, {strategy.servers} server{'s' if strategy.servers > 1 else ''}{where}{backup}"
    if not isinstance(strategy, AllReduceStrategy):
        return "single device" if isinstance(strategy, Single) else strategy.kind
    local = f", every {strategy.sync_every} steps" if strategy.sync_every > 1 else ""
    return f"{strategy.algorithm} all-reduce{' in one node' if strategy.kind == 'mirrored' else ''}{local}"
