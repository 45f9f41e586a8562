"""From a scenario's file, name or table to a validated :class:`Scenario`; every fault named in one line.

Sections get what they ``use``, keys that are set (``--set``), and prices. A file's statements about its measurements are dropped if the
scenario sets another value (``overridden``). For that, keys of workloads, clusters and inputs are listed here as text, such as
``_MEASURED_PARTS``. ``simulator.resolve.resolve`` then fills in what a scenario leaves open.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard, TypeVar

from pydantic import BaseModel

from simulator.base.catalog import Kind, find, scenario_file
from simulator.base.errors import InputError, ScenarioError, SettingWarning
from simulator.base.files import Is, kind_of_table, mistaken_table, read_toml
from simulator.base.spec import Spec, short_name
from simulator.base.validation_errors import is_valid, quoted, validated
from simulator.catalogue.settings import Pairs, Table, at, check_unset, merged, put, set_in, unset, without_displaced
from simulator.catalogue.trace_files import with_traces
from simulator.job.costs import writing_of
from simulator.resolve.resolve import resolve
from simulator.scenario import Scenario
from simulator.spec.cluster import Cluster
from simulator.spec.input_pipeline import InputPipeline
from simulator.spec.job import Faults
from simulator.spec.prices import Prices
from simulator.spec.uncertainty import Uncertainty
from simulator.spec.workload import BY_DIMENSIONS, DISTRIBUTION_PARTS, Workload

SpecT = TypeVar("SpecT", bound=BaseModel)
Source: TypeAlias = str | Path | Mapping[str, Any] | Scenario
"""A scenario: a file, the name of one that comes along, nested tables as a file has them, or one that is loaded already."""
Settings: TypeAlias = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Values by dotted key; None unsets a key; a section as a whole may be set to a specification."""

_FORMATS: dict[Kind, tuple[type[BaseModel], Is]] = {
    "workloads": (Workload, "workload"),
    "clusters": (Cluster, "cluster"),
    "inputs": (InputPipeline, "input"),
    "faults": (Faults, "fault"),
}
"""Content of the files of each kind."""
NAMED: dict[str, Kind] = {"workload": "workloads", "cluster": "clusters", "input": "inputs", "job.faults": "faults"}
"""Tables of a scenario, by their dotted paths, that may ``use`` a file of a kind."""
_NEW_AS_A_WHOLE = {"price": "usd_per_node_hour", "server_price": "usd_per_node_hour", "noise_scale": "samples"}
"""Tables whose other keys belong to one figure: a scenario that sets the figure drops them."""


def apply_settings(table: Mapping[str, Any], settings: Iterable[tuple[str, Any]], where: str = "", *, say: bool = False) -> Table:
    """A copy of a scenario's table with dotted keys set, sub-tables made where they are missing, and keys that are None unset.

    Parameters
    ----------
    table
        The scenario as in its file.
    settings
        Keys with their values.
    where
        Begins messages.
    say
        Warn of keys of the table that a setting leaves no room for (:func:`simulator.catalogue.settings.without_displaced`).

    Raises
    ------
    ScenarioError
        A key leads into a value, or is unset although no scenario has it.

    Warns
    -----
    SettingWarning
        For each such setting, where they are to be said.
    """
    settings = list(settings)
    own = set_in({}, settings, where)
    check_unset(settings, table, where)
    table, notes = without_displaced(table, settings, where)
    if say:
        for note in notes:
            warnings.warn(note, SettingWarning, stacklevel=2)
    result = unset(set_in(table, settings, where))
    for section in ("workload", "cluster"):
        if isinstance(own.get(section), Mapping) and isinstance(result.get(section), Mapping) and "use" not in result[section]:
            parts = ("jitter",) if "fit" in result[section] else ()
            result[section] = _without_draws_of(_with_new_figures(result[section], own[section]), own[section], parts)
            result[section] = _not_filled(result[section], own[section])
    return result


def prices_for_several(settings: Pairs, prices: Prices | None) -> tuple[list[tuple[str, Any]], Prices]:
    """Settings for several clusters without their price, and the prices, of which that is one for every cluster without one.

    Errors as of :meth:`Prices.with_general`.
    """
    own = [
        pair for pair in settings if pair[0].startswith("cluster.price.") or (pair[0] == "cluster.price" and isinstance(pair[1], Mapping))
    ]
    table, prices = at(set_in({}, own), "cluster.price") or {}, prices or Prices()
    if not table.keys() & {"usd_per_node_hour", "owned", "reserved"}:
        return list(settings), prices  # terms or a source of what each cluster has
    return [pair for pair in settings if pair not in own], prices.with_general(table)


def _not_filled(base: Mapping[str, Any], own: Mapping[str, Any]) -> Table:
    """A workload without parts computed from its dimensions, so that they are computed again from the new keys."""
    computed = base.get("computed")
    keys = set(computed.get("keys", ())) if isinstance(computed, Mapping) else set()
    names = {name for key in own for name in (key, *(field for field in keys if short_name(field) == key))}
    if not names & {*keys, *BY_DIMENSIONS, "precision"}:
        return dict(base)
    kept = {key: value for key, value in base.items() if key != "computed" and (key not in keys or key in names)}
    own_parts = {name for name in keys & names if name in _MEASURED_PARTS}
    return {**kept, "overridden": sorted({*base.get("overridden", ()), *own_parts})} if own_parts else kept


def _resolved(kind: Kind, section: Any, where: str, beside: Path | None) -> Any:
    """A section with what it ``use``s filled in below its own keys."""
    if not isinstance(section, Mapping) or "use" not in section:
        return section
    name = section["use"]
    if name is None:
        raise ScenarioError(f"{where}.use: has no default; give a name from `paceline models list {kind}`, or a file")
    if not isinstance(name, str):
        raise ScenarioError(f"{where}.use: {name!r} must be a name or a path in quotes")
    own = {key: value for key, value in section.items() if key != "use"}
    path = find(kind, name, f"{where}.use", beside)
    base = read_toml(path)
    model, wanted = _FORMATS[kind]
    if (actual := kind_of_table(base)) != wanted:
        what = mistaken_table(base, path, wanted) if actual else "is none"
        must = {"input": "an input file", "fault": "a file of faults"}.get(wanted, f"a {wanted} file")
        raise ScenarioError(f"{where}.use: {quoted(name)} must be {must}, but {path} {what}")
    validated(model, base, str(path))  # so that its faults are reported under its own name
    if kind in ("inputs", "faults"):
        base = _not_as_measured(base, own) if kind == "inputs" else _not_as_published(base, own)
        return unset(merged(base, own))
    precision = own.get("precision")
    if precision is not None and precision != base.get("precision", "float32") and not BY_DIMENSIONS.keys() & base.keys():
        raise ScenarioError(f"{where}.precision: {name!r} was not measured in {precision!r}: calibrate it again in that precision")
    # what says no more of a link than its sort replaces no figure
    figures = {key: value for key, value in own.items() if not (isinstance(value, Mapping) and value.keys() == {"sort"})}
    known = _without_draws_of(_with_new_figures(base, own), figures, _MEASURED_PARTS)
    return unset(merged(_with_given_rates(known, own), own))


def _not_as_measured(base: Mapping[str, Any], own: Mapping[str, Any]) -> Table:
    """An input pipeline without what was said of its measurements, where the scenario gives its work."""
    gone = ("calibrated", "fit", "provenance") if own.keys() & {"work", "cached"} else ()
    return {key: value for key, value in base.items() if key not in gone}


def _not_as_published(base: Mapping[str, Any], own: Mapping[str, Any]) -> Table:
    """Faults without the uncertainty of a rate that the scenario sets itself: the uncertainty applies only to published rates."""

    def stated(table: object) -> dict[str, str]:
        return {short_name(key): key for key, value in table.items() if value is not None} if isinstance(table, Mapping) else {}

    kinds = [short.removesuffix("_mtbf") for short in stated(base) if short.endswith("_mtbf")]
    published = [kind for kind in kinds if f"{kind}_mtbf" not in stated(own)]
    life = stated(own.get("preemption")).keys() & {"mtbf", "shape", "available"}
    result, preemption = dict(base), base.get("preemption")
    if any(short.endswith("_mtbf") for short in stated(own)) and base.get("rates_90") is not None:
        result["rates_90_of"] = published
        if not published:
            result = {key: value for key, value in result.items() if key not in ("rates_90", "rates_90_of")}
    if life and isinstance(preemption, Mapping):
        result["preemption"] = {key: value for key, value in preemption.items() if key != "rates_90"}
    if life or len(published) < len(kinds):
        result = {key: value for key, value in result.items() if key not in ("name", "description", "source")}
    return result


def _with_given_rates(base: Mapping[str, Any], own: Mapping[str, Any]) -> Table:
    """A cluster whose links are of no sort where the scenario gives their bandwidth: that is then what transfers get."""
    result = dict(base)
    for name in ("intra_node", "inter_node", "host_link"):
        link, given = result.get(name), own.get(name)
        if isinstance(link, Mapping) and isinstance(given, Mapping) and given.keys() & {"bandwidth", "bandwidth_bytes_per_s"}:
            result[name] = {key: value for key, value in link.items() if key != "sort"}
    return result


def _with_new_figures(base: Mapping[str, Any], own: Mapping[str, Any]) -> Table:
    """A section with the prices or noise scale that the scenario gives: source, terms, date, interval of another figure do not hold."""
    result = dict(base)
    for key, figure in _NEW_AS_A_WHOLE.items():
        new, before = own.get(key), base.get(key)
        if not isinstance(new, Mapping):
            continue
        had = before if isinstance(before, Mapping) else {}
        if figure in new or (figure in had and new.keys() & {"owned", "reserved"}):
            result[key] = new
        elif had and figure not in had and new.keys() & {"owned", "reserved", "purchase_usd", "share_in_use"}:
            # the price of an hour is worked out of these
            result[key] = {name: value for name, value in had.items() if name in new or name not in ("terms", "source", "date")}
    return result


def _without_draws_of(base: Mapping[str, Any], own: Mapping[str, Any], parts: Sequence[str]) -> Table:
    """A workload or cluster whose uncertainty no longer speaks of what the scenario sets itself.

    Otherwise a draw would replace the scenario's own value. ``overridden`` lists the uncertain parameters and measured ``parts`` that were
    set. With the times of both passes go their spread and the device's share of them, which hold for the measured times.
    """
    result = dict(base)
    other_times = "fit" in base and all(_sets(own, [name]) for name in ("forward", "backward"))
    for first, *rest in DISTRIBUTION_PARTS:
        if first in own or other_times:
            result = {key: value for key, value in result.items() if key not in (first, *rest) or key in own}
    if other_times:
        result.pop("device_work", None)
    uncertain = result.get("uncertainty")
    # a malformed table is left as it is: validation says what is wrong with it
    drawn = Uncertainty.model_validate(uncertain) if uncertain is not None and is_valid(Uncertainty, uncertain) else None
    names = drawn.parameters if drawn else ()
    replaced = {name for name in (*names, *parts) if _sets(own, name.split("."))}
    if drawn and replaced:
        kept = [column for column, name in enumerate(names) if name not in replaced]
        result.pop("uncertainty")
        if kept:
            draws = [[draw[column] for column in kept] for draw in drawn.draws]
            result["uncertainty"] = {"parameters": [names[column] for column in kept], "draws": draws}
    if replaced and result.get("basis") != "assumed":  # one assumption may replace another without a word
        result["overridden"] = sorted(name for name in replaced if not any(other.startswith(f"{name}.") for other in replaced))
        if any(name.startswith("inter_node") for name in replaced) and "basis" in result:
            result["basis"] = "assumed"
    return result


_MEASURED_PARTS = (
    "inter_node", "forward", "backward", "apply_s", "jitter", "run_to_run_cv", "busy_core_slowdown", "device_work", "server", "variables",
)  # fmt: skip


def _sets(own: Mapping[str, Any], path: list[str]) -> bool:
    """Return whether a section sets the value of a dotted name, or a part of it."""
    part, *rest = path
    for key, value in own.items():
        if key == part or key == short_name(part):
            return not rest or not isinstance(value, Mapping) or "kind" in value or _sets(value, rest)
    return False


def scenario_from_table(table: Mapping[str, Any], source: str, beside: Path | None = None, prices: Prices | None = None) -> Scenario:
    """Validate a scenario given as nested tables, as its file has them.

    What it leaves open is decided later by :func:`simulator.resolve.resolve.resolve`.

    Parameters
    ----------
    table
        Sections ``workload``, ``cluster``, ``strategy`` and ``run``.
    source
        File name for messages.
    beside
        Folder that relative ``use`` paths are also looked up in.
    prices
        Of clusters by name, laid over what the file says.

    Raises
    ------
    ScenarioError
        One line for each rule broken; or the workload cannot be moved to the cluster's device.
    """
    if not table:
        raise ScenarioError(f"{source}: is empty; a scenario has the tables [workload], [cluster], [strategy] and [run]")
    resolved = dict(table)
    for path, kind in NAMED.items():
        section = at(resolved, path)
        if section is not None:
            resolved = put(resolved, path, _resolved(kind, section, f"{source}: {path}", beside))
    resolved = with_traces(resolved, source, beside)
    if prices is not None and isinstance(resolved.get("cluster"), Mapping):
        resolved["cluster"] = prices.applied(resolved["cluster"], str(table["cluster"].get("use", "")))
    load = resolved.get("workload")
    if isinstance(load, Mapping) and isinstance(own := table.get("workload"), Mapping):
        # a workload of the catalogue may carry a batch; the scenario's own replaces it
        for key, other in (("batch_per_replica", "global_batch"), ("global_batch", "batch_per_replica")):
            if own.get(key) is not None and own.get(other) is None and isinstance(resolved["workload"], dict):
                resolved["workload"].pop(other, None)
    scenario = validated(Scenario, _in_samples(resolved), source)
    try:
        # what cannot be is refused here, where the file is known; the scenario stays as it was written
        writing_of(resolve(scenario))
    except ScenarioError as error:
        raise ScenarioError(*(f"{source}: {line}" for line in error.args)) from None
    return scenario


def _in_samples(table: Table) -> Table:
    """A scenario whose job is given in samples where it was in tokens of sequences; itself if it has no such job."""
    tokens, sequence = at(table, "job.tokens"), at(table, "workload.transformer.sequence")
    if not (is_number(tokens) and is_number(sequence) and at(table, "job.samples") is None):
        return table
    job = {**table["job"], "samples": samples_of(tokens, sequence)}
    return {**table, "job": {key: value for key, value in job.items() if key != "tokens"}}


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value of a table is a positive finite number; loading refuses others."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def samples_of(tokens: float, sequence: float) -> float:
    """Sequences that hold a number of tokens, rounded up."""
    return float(math.ceil(tokens / sequence))


def load_scenario(scenario: Source, settings: Settings = (), prices: Prices | None = None) -> Scenario:
    """A scenario from wherever it is, with keys of it set, names resolved, validated.

    Raises
    ------
    ScenarioError
        One line for each rule broken.
    InputError
        Settings are no pairs, or a price is for a cluster of another name.
    """
    table, source, beside = table_of(scenario, settings)
    loaded = scenario_from_table(table, source, beside, prices)
    if prices is not None:
        prices.check()
    return loaded


def table_of(scenario: Source, settings: Settings = (), over: Iterable[str] = ()) -> tuple[Table, str, Path | None]:
    """A scenario as nested tables with settings applied, what messages call it, and the folder that its paths start from.

    Parameters
    ----------
    scenario
        From wherever it is.
    settings
        To apply.
    over
        Further keys that will be set.

    Raises
    ------
    ScenarioError
        There is no such file or name, or a key leads into a value.
    InputError
        Settings are no pairs.
    """
    source, beside = "scenario", None
    if isinstance(scenario, Scenario):
        table: Mapping[str, Any] = plain(scenario)
    elif isinstance(scenario, Mapping):
        table = {section: plain(value) for section, value in scenario.items()}
    else:
        file = scenario_file(scenario)
        table, source, beside = read_toml(file), str(file), file.parent
        if said := mistaken_table(table, file, "scenario"):
            raise ScenarioError(f"{file}: {said}")
    pairs = pairs_of(settings)
    # a section as a whole takes the place of the old one, and keeps the draws of its own uncertainty
    table = {**table, **{key: plain(value) for key, value in pairs if isinstance(value, Spec)}}
    named = {key for key, _ in pairs}.union(over)
    for path, kept in _KEPT.items():
        if isinstance(scenario, Scenario) and f"{path}.use" in named and (before := at(table, path)) is not None:
            # what was loaded came from another file; the one that is named now gives all but these
            table = put(table, path, {key: value for key, value in before.items() if key in kept})
    rest = [(key, value) for key, value in pairs if not isinstance(value, Spec)]
    return apply_settings(table, rest, f"{source}: ", say=True), source, beside


def with_measured(table: Table, source: str, beside: Path | None) -> Table:
    """A table that others are made from by changing keys: with what its workload was measured in, where that held a pull and a push."""
    if table.get("measured_in") is not None or not isinstance(table.get("workload"), Mapping):
        return table
    if table["workload"].get("measured_with", "device") == "device":
        return table
    try:
        base = scenario_from_table(table, source, beside)
    except ScenarioError:  # which is raised for what is made from it
        return table
    return {**table, "measured_in": base.model_dump(mode="json", context={"filled": True})} if base.servers else table


_KEPT = {
    "workload": ("batch_per_replica", "global_batch"),
    "cluster": ("nodes", "available"),
    "input": ("per",),
    "job.faults": ("trace", "detection_s", "restart_s", "startup_s", "replacement_s", "retries", "elastic", "min_workers"),
}
"""A scenario's own keys of a section, laid over the file that the section uses."""


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
            raise InputError(f"`settings`: {quoted(pair)} must be a key with its value, as in {{'strategy.workers': 8}}")
    return [(key, value) for key, value in pairs]


def plain(value: Any) -> Any:
    """A specification as nested tables, what is not set left out; anything else as it is."""
    return value.model_dump(mode="json", exclude_none=True) if isinstance(value, Spec) else value


def load_workload(path: str | Path) -> Workload:
    """Read and validate a workload file."""
    return validated(Workload, read_toml(path), str(path))


def load_cluster(path: str | Path) -> Cluster:
    """Read and validate a cluster file."""
    return validated(Cluster, read_toml(path), str(path))


def load_input(path: str | Path) -> InputPipeline:
    """Read and validate the file of an input pipeline."""
    return validated(InputPipeline, read_toml(path), str(path))


def load_faults(path: str | Path) -> Faults:
    """Read and validate a file of faults."""
    return validated(Faults, read_toml(path), str(path))
