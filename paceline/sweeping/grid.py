"""Grids: every combination of some values, as scenarios that are built on request.

Nothing is simulated here. The configurations of a plan are made in :mod:`paceline.planning.space`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from paceline.ranges import numbers_in, range_of
from simulator.base.errors import InputError, ScenarioError
from simulator.base.validation_errors import quoted
from simulator.catalogue.loading import Source, apply_settings, plain, prices_for_several, scenario_from_table, table_of, with_measured
from simulator.scenario import HOW_SIMULATED, Scenario
from simulator.spec.prices import Prices

_MOST_SCENARIOS = 1_000_000
_SHARED = "workload", "cluster"
"""Sections that combinations share as one object if they do not change them; at most this many are kept:"""
_KEPT_SECTIONS = 256
_MOST_TRIED = 10_000
"""Most scenarios of a grid in which valid values are searched after an error."""

Axis = tuple[str, list[Any]]
"""A dotted key and the values that it takes."""
Choice = tuple[int, ...]
"""Number of the value of each axis."""


class Grid(Sequence[Scenario]):
    """Every combination of the axes' values; the last axis changes fastest.

    A scenario is built and validated on request, so that ten thousand take no memory. Combinations that do not change the workload, or the
    cluster, share one object.

    Parameters
    ----------
    table
        A scenario as nested tables, settings already applied.
    axes
        Dotted keys and their values.
    source
        File name for messages.
    beside
        Folder that relative ``use`` paths are also looked up in.
    prices
        Prices by cluster, which override those of files.

    Raises
    ------
    ScenarioError
        A key is given twice, or does not change scenarios, or there are too many combinations.
    """

    def __init__(
        self,
        table: Mapping[str, Any],
        axes: Sequence[Axis],
        *,
        source: str = "scenario",
        beside: Path | None = None,
        prices: Prices | None = None,
    ) -> None:
        size = math.prod(len(values) for _, values in axes)
        if size > _MOST_SCENARIOS:
            raise ScenarioError(f"{source}: the grid has {size:,} scenarios, more than the limit of {_MOST_SCENARIOS:,}")
        keys = [key for key, _ in axes]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise ScenarioError(f"`over` {twice[:80]}: is given twice; write all its values into one `over`, separated by commas")
        self.axes: tuple[Axis, ...] = tuple((key, list(values)) for key, values in axes)
        self._table, self._source, self._beside, self._size = dict(table), source, beside, size
        self.prices = prices
        for key in keys:
            if (name := key.removeprefix("run.")) in HOW_SIMULATED:
                raise ScenarioError(
                    f"`over` {key}: says how a scenario is simulated, not what, so its values would be one and the same scenario; "
                    f"sweep once for each, with `settings` run.{name}=VALUE and an `out` of its own"
                )
        self._changing = {head: [axis for axis, key in enumerate(keys) if key.partition(".")[0] == head] for head in _SHARED}
        self._sections: dict[tuple[str, Choice], Any] = {}

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Scenario: ...
    @overload
    def __getitem__(self, index: slice) -> list[Scenario]: ...
    def __getitem__(self, index: int | slice) -> Scenario | list[Scenario]:
        """Build a scenario, or several.

        Raises
        ------
        ScenarioError
            The combination breaks a rule; the message says which combination.
        """
        places = range(self._size)[index]
        return self._built(places) if isinstance(places, int) else [self._built(place) for place in places]

    def combination(self, index: int) -> dict[str, Any]:
        """Return the keys and values that scenario ``index`` sets, in the order of the axes."""
        return {key: values[at] for (key, values), at in zip(self.axes, self._choice(index), strict=True)}

    def check(self) -> None:
        """Validate every combination.

        Raises
        ------
        ScenarioError
            A combination breaks a rule; the message ends with valid values.
        """
        for index in range(self._size):
            try:
                self._built(index)
            except ScenarioError as error:
                *problems, last = error.problems
                raise ScenarioError(*problems, f"{last}{self._without(index)}") from None

    def _without(self, first: int) -> str:
        """Return the values of one axis with which no rule is broken; empty if the error does not depend on one axis.

        Parameters
        ----------
        first
            The first combination that breaks one.
        """
        if self._size > _MOST_TRIED:
            return ""
        broken = [first]
        for index in range(first + 1, self._size):
            try:
                self._built(index)
            except InputError:
                broken.append(index)
        choices = [self._choice(index) for index in broken]
        left: list[tuple[float, str, list[int]]] = []
        for axis, (key, values) in enumerate(self.axes):
            bad = {choice[axis] for choice in choices}
            good = [value for place, value in enumerate(values) if place not in bad]
            if good and all(type(value) is int for value in good):
                left.append((len(good) / len(values), key, good))
        if not left:
            return ""
        _, key, good = max(left, key=lambda most: most[0])
        return f"; with `over` {key}={range_of(good)} all can be simulated"

    def _choice(self, index: int) -> Choice:
        """Return the number of each axis's value in combination ``index``."""
        return tuple(map(int, np.unravel_index(index, [len(values) for _, values in self.axes])))

    def _built(self, index: int) -> Scenario:
        choice = self._choice(index)
        chosen = list(self.combination(index).items())
        sections = {head: (head, tuple(choice[axis] for axis in axes)) for head, axes in self._changing.items()}
        shared = {head: self._sections[section] for head, section in sections.items() if section in self._sections}
        settings = [(key, value) for key, value in chosen if key.partition(".")[0] not in shared]
        where = self._source + "".join(f" `over` {key}={value}" for key, value in chosen)
        table = apply_settings({**self._table, **shared}, settings, f"{self._source}: ", say=True)
        scenario = scenario_from_table(table, where, self._beside, self.prices)
        if len(self._sections) > _KEPT_SECTIONS:
            self._sections.clear()
        self._sections |= {section: getattr(scenario, head) for head, section in sections.items()}
        return scenario


def grid(
    scenario: Source,
    axes: Sequence[Axis],
    settings: Iterable[tuple[str, Any]] = (),
    *,
    prices: Prices | None = None,
) -> Grid:
    """Return a grid around a scenario, with every combination validated once.

    >>> swept = grid("ring", [("strategy.workers", [1, 2]), ("run.seed", [1, 2, 3])])
    >>> len(swept), swept[5].replicas, swept.combination(5)
    (6, 2, {'strategy.workers': 2, 'run.seed': 3})

    Parameters
    ----------
    scenario
        Nested tables as a scenario file has them, the path of such a file, the name of one
        that comes along, or a scenario.
    axes
        Dotted keys and their values; the last axis changes fastest.
    settings
        Keys to set in all scenarios.
    prices
        Prices by cluster, which override those of files. Where the axes have several clusters, a
        price among the settings holds for those that have none.

    Raises
    ------
    ScenarioError
        A combination breaks a rule; the message says which combination.
    InputError
        A price is for a cluster that is not among them.
    """
    if several_clusters(axes):
        settings, prices = prices_for_several(list(settings), prices)
    table, source, beside = table_of(scenario, settings, [key for key, _ in axes])
    made = Grid(with_measured(table, source, beside), axes, source=source, beside=beside, prices=prices)
    made.check()
    if prices is not None:
        prices.check()
    return made


def several_clusters(axes: Sequence[Axis]) -> bool:
    """Return whether the axes contain more than one cluster."""
    return any(key in ("cluster", "cluster.use") and len(values) > 1 for key, values in axes)


def axes_of(over: Mapping[str, Iterable[Any]]) -> list[Axis]:
    """Return keys with their values; specifications become nested tables, text such as ``"1..8"`` its numbers.

    Raises
    ------
    InputError
        Values are text that is no list of numbers, one is there twice, or there are none.
    """
    axes: list[Axis] = []
    for key, values in over.items():
        numbers = numbers_in(values, f"`over`: {key}: ") if isinstance(values, str) else None
        if isinstance(values, str) and numbers is None:
            raise InputError(f"`over`: {key}: must be a list of values, such as [1, 2, 4], or a range such as '1..8', not {quoted(values)}")
        axes.append((key, numbers if numbers is not None else [plain(value) for value in values]))
    for key, values in axes:
        if not values:
            raise InputError(f"`over`: {key}: must be a list of one value or more, such as [1, 2, 4]")
        if repeated := [value for place, value in enumerate(values) if value in values[:place]]:
            raise InputError(f"`over`: {key}: has {quoted(repeated[0])} twice, which would be one scenario twice; give it once")
    return axes
