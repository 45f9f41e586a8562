"""The strategies that there are: a new one of Paceline's own is listed here, and nowhere else; those of other packages are found by name.

Other modules ask a :class:`~simulator.strategies.strategy.Strategy` and import none of these classes (tests/unit/test_strategies.py).
Kinds and short names are used in users' files and commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
)
from pydantic_core import PydanticKnownError

from simulator.base.errors import InputError
from simulator.base.spec import keys_of
from simulator.base.text import did_you_mean
from simulator.strategies import outside
from simulator.strategies.data_parallel import KerasDataParallel, Mirrored, MultiWorkerMirrored, Single, TorchDDP
from simulator.strategies.gossip import Gossip
from simulator.strategies.hybrid.hybrid import Hybrid
from simulator.strategies.parameter_server import ParameterServer
from simulator.strategies.strategy import Strategy

KINDS: dict[str, type[Strategy]] = {
    kind.name_of_kind(): kind
    for kind in (Single, Mirrored, MultiWorkerMirrored, TorchDDP, KerasDataParallel, ParameterServer, Gossip, Hybrid)
}
"""Every strategy of Paceline's own by its ``kind``."""


def _validated(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    if not isinstance(kind, str) or kind in KINDS:
        return handler(value)
    strategy = outside.strategy_of(kind)
    if strategy is None:
        if not outside.kinds():
            return handler(value)
        names = ", ".join(f"'{name}'" for name in (*KINDS, *outside.kinds()))
        raise PydanticKnownError("union_tag_invalid", {"discriminator": "'kind'", "tag": kind, "expected_tags": names})
    if isinstance(value, Mapping):
        for key in value.keys() - keys_of(strategy).keys():
            hint = did_you_mean(key, keys_of(strategy), "see the documentation of its package")
            raise ValueError(f"{key!r} is not a key of kind = {kind!r}; {hint}")
    return value if isinstance(value, strategy) else strategy.model_validate(value, context=info.context)


def _serialized(value: Any, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
    return handler(value) if value.kind in KINDS else value.model_dump(mode=info.mode, context=info.context)


AnyStrategy = Annotated[
    Single | Mirrored | MultiWorkerMirrored | TorchDDP | KerasDataParallel | ParameterServer | Gossip | Hybrid,
    Field(discriminator="kind"),
    WrapValidator(_validated),
    WrapSerializer(_serialized),
]
"""``[strategy]`` of a scenario: one of :data:`KINDS`, or another package's."""

SHORT_NAMES: dict[str, Mapping[str, Any]] = {name: keys for kind in KINDS.values() for name, keys in kind.short_names.items()}
"""Each name that a plan takes, with what it sets in ``[strategy]``; other keys are the scenario's own, where it has the same kind."""

KEYS_OF_NAMES = frozenset(f"strategy.{key}" for kind in KINDS.values() for key in kind.keys_of_names())
"""Settings that the names and numbers of strategies say already."""

ALONE = Single()
"""The single-replica baseline of the speed-up."""


def kind_of(table: object) -> type[Strategy]:
    """The strategy that a table's ``kind`` names; where there is none, the base of all, and validation says what is wrong."""
    kind = table.get("kind") if isinstance(table, Mapping) else None
    if not isinstance(kind, str):
        return Strategy
    with suppress(ValueError):
        return KINDS.get(kind) or outside.strategy_of(kind) or Strategy
    return Strategy


def strategy_table(name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario's ``[strategy]`` under a short name, or by the kind of a strategy of another package.

    Keys of the scenario's own that make sense with it are kept: the bucket size of an
    all-reduce, the placement of servers, the bound of ssp; of another package's strategy all.

    Raises
    ------
    InputError
        There is no such name, or the other package's strategy cannot be used.
    """
    if (given := SHORT_NAMES.get(name)) is not None:
        return kind_of(given).keys_for(name, own) if own.get("kind") == given["kind"] else dict(given)
    try:
        is_known = outside.strategy_of(name) is not None
    except ValueError as error:
        raise InputError(f"`strategies`: {error}") from None
    if not is_known:
        names = [*SHORT_NAMES, *outside.kinds()]
        hint = did_you_mean(name, names, f"there are {', '.join(names)}")
        raise InputError(f"`strategies` {name[:60]!r}: is not the name of a strategy; {hint}")
    return dict(own) if own.get("kind") == name else {"kind": name}


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"must be one of {', '.join(KINDS)}")
    return kind


Kind = Annotated[str, AfterValidator(_known)]
"""The ``kind`` of a strategy that there is."""
