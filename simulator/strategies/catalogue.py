"""The strategies that there are: a new one is listed here, and nowhere else."""

from __future__ import annotations

import difflib
from typing import Annotated

from pydantic import AfterValidator, Field

from simulator.errors import InputError
from simulator.strategies.mirrored import Mirrored
from simulator.strategies.multi_worker_mirrored import MultiWorkerMirrored
from simulator.strategies.servers import ParameterServer
from simulator.strategies.single import Single
from simulator.strategies.strategy import Strategy

__all__ = ["ALONE", "KINDS", "SHORT_NAMES", "AnyStrategy", "Kind", "kind_named"]

AnyStrategy = Annotated[Single | Mirrored | MultiWorkerMirrored | ParameterServer, Field(discriminator="kind")]
"""``[strategy]`` of a scenario."""

KINDS: dict[str, type[Strategy]] = {its.name_of_kind(): its for its in (Single, Mirrored, MultiWorkerMirrored, ParameterServer)}
"""Every strategy by its ``kind``."""

SHORT_NAMES: dict[str, type[Strategy]] = {name: its for its in KINDS.values() for name in its.short_names}
"""The strategy behind each name that a plan takes."""

ALONE = Single()
"""One replica by itself, which speed-up is counted against."""


def kind_named(kind: object) -> type[Strategy]:
    """The strategy of a ``kind``.

    Raises
    ------
    InputError
        There is none.
    """
    found = KINDS.get(str(kind))
    if found is None:
        near = difflib.get_close_matches(str(kind)[:60], KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(KINDS)}"
        raise InputError(f"strategy.kind: {str(kind)[:60]!r} is no strategy; {hint}")
    return found


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"must be one of {', '.join(KINDS)}")
    return kind


Kind = Annotated[str, AfterValidator(_known)]
"""The ``kind`` of a strategy that there is."""
