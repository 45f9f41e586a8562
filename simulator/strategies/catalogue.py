"""The strategies that there are: a new one is listed here, and nowhere else.

Other modules ask a :class:`~simulator.strategies.strategy.Strategy` and import none of these classes (tests/unit/test_strategies.py).
Kinds and short names stand in users' files and commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from simulator.base.errors import InputError
from simulator.base.text import did_you_mean
from simulator.strategies.data_parallel import KerasDataParallel, Mirrored, MultiWorkerMirrored, Single, TorchDDP
from simulator.strategies.gossip import Gossip
from simulator.strategies.hybrid.hybrid import Hybrid
from simulator.strategies.parameter_server import ParameterServer
from simulator.strategies.strategy import Strategy

AnyStrategy = Annotated[
    Single | Mirrored | MultiWorkerMirrored | TorchDDP | KerasDataParallel | ParameterServer | Gossip | Hybrid, Field(discriminator="kind")
]
"""``[strategy]`` of a scenario."""

KINDS: dict[str, type[Strategy]] = {
    its.name_of_kind(): its for its in (Single, Mirrored, MultiWorkerMirrored, TorchDDP, KerasDataParallel, ParameterServer, Gossip, Hybrid)
}
"""Every strategy by its ``kind``."""

SHORT_NAMES: dict[str, Mapping[str, Any]] = {name: keys for its in KINDS.values() for name, keys in its.short_names.items()}
"""Each name that a plan takes, with what it sets in ``[strategy]``; other keys are the scenario's own, where it has the same kind."""

KEYS_OF_NAMES = frozenset(f"strategy.{key}" for its in KINDS.values() for key in its.keys_of_names())
"""Settings that the names and numbers of strategies say already."""

ALONE = Single()
"""One replica by itself, which speed-up is counted against."""


def kind_of(table: object) -> type[Strategy]:
    """The strategy that a table's ``kind`` names; where there is none, the base of all, and validation says what is wrong."""
    kind = KINDS.get(str(table.get("kind"))) if isinstance(table, Mapping) else None
    return Strategy if kind is None else kind


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
        hint = did_you_mean(name, SHORT_NAMES, f"there are {', '.join(SHORT_NAMES)}")
        raise InputError(f"`strategies` {name[:60]!r}: is no strategy that a plan knows by name; {hint}")
    given = SHORT_NAMES[name]
    return kind_of(given).keys_for(name, own) if own.get("kind") == given["kind"] else dict(given)


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"must be one of {', '.join(KINDS)}")
    return kind


Kind = Annotated[str, AfterValidator(_known)]
"""The ``kind`` of a strategy that there is."""
