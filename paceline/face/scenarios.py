"""load: a scenario from a file, a name, tables or another scenario; and what the other functions need of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from paceline.face.arguments import checked
from simulator.catalog import scenario_file
from simulator.cluster import Price
from simulator.errors import InputError
from simulator.files import check_writable
from simulator.loading import apply_settings, read_toml, scenario_from_table
from simulator.prices import ALL, Prices, parse_prices
from simulator.scenario import Scenario
from simulator.spec import Spec
from simulator.validation_errors import quoted

__all__ = ["GivenPrices", "Settings", "Source", "axes_of", "load", "out_of", "pairs_of", "plain", "prices_of", "table_of"]

Settings: TypeAlias = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Values by dotted key, such as ``{"strategy.workers": 8, "cluster.inter_node.bandwidth": "10 Gbit/s"}``."""
Source: TypeAlias = str | Path | Mapping[str, Any] | Scenario
"""A scenario: a file, the name of one that comes along, nested tables as a file has them, or one that is loaded already."""
GivenPrices: TypeAlias = str | float | Mapping[str, str | float | Price] | None
"""Of a node for an hour, by the name of its cluster, such as ``{"ethernet-1g": "0.40/h"}``; alone, or under ``"*"``, of all without one."""


@checked
def load(scenario: Source, settings: Settings = (), *, prices: GivenPrices = None) -> Scenario:
    """Load a scenario, set keys of it, validate it.

    Parameters
    ----------
    scenario
        A path; the name of a scenario that comes along (``"ring"``, ``"async-ps"``, ...);
        nested tables as a file has them; or a scenario, to change it.
    settings
        Values by dotted key, quantities as text with a unit. ``workload``, ``cluster`` or
        ``strategy`` as a whole may be set to a loaded or calibrated one.
    prices
        As for :func:`plan`.

    Raises
    ------
    ScenarioError
        One line for each rule broken, with file and dotted key.
    InputError
        A price cannot be read, or is for a cluster of another name.

    Examples
    --------
    >>> scenario = load("ring", {"strategy.workers": 16, "cluster.inter_node.bandwidth": "10 Gbit/s"})
    >>> scenario.replicas, scenario.cluster.inter_node.bandwidth_bytes_per_s
    (16, 1250000000.0)
    >>> load(scenario, {"strategy.workers": 2}).replicas
    2
    """
    table, source, beside = table_of(scenario, settings)
    given = prices_of(prices)
    loaded = scenario_from_table(table, source, beside, given)
    given.check()
    return loaded


def prices_of(prices: GivenPrices) -> Prices:
    """Prices that a caller gave, perhaps none.

    Raises
    ------
    InputError
        One cannot be read.
    """
    if prices is None:
        return Prices(option="prices")
    return parse_prices(prices if isinstance(prices, Mapping) else {ALL: prices}, "prices")


def table_of(scenario: Source, settings: Settings = (), over: Iterable[str] = ()) -> tuple[Mapping[str, Any], str, Path | None]:
    """A scenario as nested tables with settings applied, what messages call it, and the folder that its paths start from."""
    source, beside = "scenario", None
    if isinstance(scenario, Scenario):
        table: Mapping[str, Any] = plain(scenario)
    elif isinstance(scenario, Mapping):
        table = {section: plain(value) for section, value in scenario.items()}
    else:
        file = scenario_file(scenario)
        table, source, beside = read_toml(file), str(file), file.parent
    pairs = pairs_of(settings)
    # a section as a whole takes the place of the old one, and keeps the draws of its own uncertainty
    whole = {key: plain(value) for key, value in pairs if isinstance(value, Spec)}
    for section, kept in _KEPT.items():
        if isinstance(scenario, Scenario) and f"{section}.use" in [*(key for key, _ in pairs), *over]:
            # what was loaded came from another file; the one that is named now gives all but these
            whole[section] = {key: value for key, value in table[section].items() if key in kept}
    rest = [(key, value) for key, value in pairs if not isinstance(value, Spec)]
    return apply_settings({**table, **whole}, rest, f"{source}: "), source, beside


_KEPT = {"workload": ("batch_per_replica", "global_batch"), "cluster": ("nodes",)}
"""What a scenario says of a section beside the file that the section is taken from."""


def pairs_of(settings: Settings) -> list[tuple[str, Any]]:
    """Settings as keys with their values.

    Raises
    ------
    InputError
        They are no such pairs.
    """
    pairs = list(settings.items()) if isinstance(settings, Mapping) else list(settings)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InputError(f"settings: {quoted(pair)} must be a key with its value, as in {{'strategy.workers': 8}}")
    return [(key, value) for key, value in pairs]


def out_of(out: str | Path | None, scenario: Source) -> Path | None:
    """The results file to write, if there is to be one; its folder is made.

    Raises
    ------
    InputError
        It cannot be written, or is the file of the scenario.
    """
    reads = None if isinstance(scenario, (Scenario, Mapping)) else scenario_file(scenario)
    return None if out is None else check_writable(Path(out), "out", reads=reads)


def plain(value: Any) -> Any:
    """A specification as nested tables, what is not set left out; anything else as it is."""
    return value.model_dump(mode="json", exclude_none=True) if isinstance(value, Spec) else value


def axes_of(over: Mapping[str, Iterable[Any]]) -> list[tuple[str, list[Any]]]:
    """Keys with their values; specifications among these as nested tables."""
    wrong = next((key for key, values in over.items() if isinstance(values, str)), None)
    if wrong is not None:
        raise InputError(f"over: {wrong}: must be a list of values, such as [1, 2, 4], not {str(over[wrong])[:60]!r}")
    axes = [(key, [plain(value) for value in values]) for key, values in over.items()]
    if empty := next((key for key, values in axes if not values), None):
        raise InputError(f"over: {empty}: must be a list of one value or more, such as [1, 2, 4]")
    return axes
