"""Finds what tells results apart, and names it: labels to choose by, swept numbers for sliders, settings in words.

A setting is named by its dotted key in a scenario; ``_NAMES`` has those whose key says too little to a reader.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import ne
from typing import Any

from pydantic import BaseModel

from paceline.answers import thing_counted
from paceline.comparing import is_condition
from simulator.base.text import clean, format_hourly, kind_of_setting, listed, written
from simulator.results.results import Result
from simulator.results.rows import COLUMNS
from simulator.scenario import Scenario
from simulator.strategies.catalogue import KEYS_OF_NAMES

_PROSE = ("description", "provenance", "fit", "fit_hosts", "calibrated", "uncertainty", "variables", "schema_version")
_OF_ANY_DEVICE = ("workload.name", "workload.batch_per_replica", "workload.global_batch", "workload.precision")

ABSENT = -1
"""Place of a point on a key that it does not have, such as servers of an all-reduce."""

_OWN = KEYS_OF_NAMES | {"cluster.name", "cluster.nodes", "cluster.available", "run.seed", "workload.name"}
"""Settings that the replicas, a label or a key of their own say already."""

_LAST_RESORT = ("cluster.nodes", "cluster.available", "strategy.workers", "run.seed")
_MOST_NAMED = 3
_NAMES = {
    "strategy.servers": COLUMNS["servers"].heading,
    "workload.batch_per_replica": COLUMNS["batch_per_replica"].heading,
    "workload.global_batch": COLUMNS["global_batch"].heading,
    "cluster.inter_node.bandwidth_bytes_per_s": "Network bandwidth",
    "cluster.inter_node.latency_s": "Network latency",
    "cluster.nodes": COLUMNS["nodes"].heading,
    "cluster.available": "Nodes available",
    "run.seed": COLUMNS["seed"].heading,
}
_UNITS = ("_bytes_per_s", "_bytes", "_s")
"""How names of settings end that have a unit; their values are written with it."""


@dataclass(frozen=True)
class Key:
    """A number that was swept.

    Attributes
    ----------
    path
        ``replicas``, ``ranks`` where some replicas are cut over several devices, or the dotted name of a setting.
    name
        What a reader calls it.
    values
        All that occur, ascending, in SI units; written as :func:`simulator.base.text.kind_of_setting` has it of the path.
    counted
        What one of them is called where it is a number of things, such as ``worker``.
    """

    path: str
    name: str
    values: tuple[float, ...]
    counted: str = ""


@dataclass(frozen=True)
class Group:
    """What a reader may choose among: strategies, clusters, workloads, files or kinds of scaling."""

    id: str
    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Curve:
    """One choice in each group.

    Attributes
    ----------
    name
        Its labels, those that are the same for all curves left out.
    labels
        Index of its label in each group.
    """

    name: str
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Coordinates:
    """Where each result stands.

    Attributes
    ----------
    keys
        Replicas first; ranks in their place where some replicas are cut over several devices.
    groups, curves
        In the order in which they first occur.
    curve_of
        Of each result, the index of its curve.
    places
        Of each result, for each key the index of its value, or :data:`ABSENT`.
    conditions
        Of each result a number for what it meets and nobody chooses (:func:`paceline.comparing.is_condition`): results are ranked
        among those with the same.
    """

    keys: tuple[Key, ...]
    groups: tuple[Group, ...]
    curves: tuple[Curve, ...]
    curve_of: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    conditions: tuple[int, ...] = ()

    def name_of(self, result: int) -> str:
        """The name of the curve that a result lies on."""
        return self.curves[self.curve_of[result]].name

    def title_of(self, result: int, *, conditions: bool = True) -> str:
        """The same, and its settings where more than the number of replicas is swept; those that nobody chooses only on demand."""
        parts = [self.name_of(result)]
        parts += [text for key, text in self._settings_of(result) if conditions or not is_condition(key.path)]
        return " · ".join(parts)

    def met_by(self, result: int) -> str:
        """Swept settings of a result that nobody chooses, in words; empty where there are none."""
        return listed([text for key, text in self._settings_of(result) if is_condition(key.path)])

    def has_neighbour(self, result: int) -> bool:
        """Return whether another result on its curve differs from it in one key alone."""
        own = [places for curve, places in zip(self.curve_of, self.places, strict=True) if curve == self.curve_of[result]]
        return any(sum(map(ne, self.places[result], places)) == 1 for places in own)

    def _settings_of(self, result: int) -> Iterator[tuple[Key, str]]:
        for key, place in list(zip(self.keys, self.places[result], strict=True))[1:]:
            if len(key.values) > 1 and place >= 0:
                yield key, setting_text(key.path, key.values[place])


def coordinates_of(results: Sequence[Result], labels: Sequence[str] | None = None) -> Coordinates:
    """Find what tells results apart.

    A setting that a name tells already (another cluster differs in all its figures) is no
    coordinate; one that goes with the strategy becomes part of its label; any other becomes
    a key if it is a number, else part of the label too.

    Parameters
    ----------
    results
        At least one.
    labels
        Of each result, the file that it comes from, where several are compared.
    """
    scenarios = [result.scenario for result in results]
    sources = list(labels) if labels is not None else [""] * len(results)
    settings = [_with_prices_named(scenario, settings_of(scenario, idle=False)) for scenario in scenarios]
    base = [scenario.strategy.title(servers=False) for scenario in scenarios]
    named = [
        (name, scenario.workload.name, scenario.cluster.name, source, scenario.scaling)
        for name, scenario, source in zip(base, scenarios, sources, strict=True)
    ]
    # of replicas that are cut over more devices a larger batch is the same to each device
    per_rank = {scenario.batch * scenario.replicas / scenario.ranks for scenario in scenarios}
    told = {"workload.batch_per_replica"} if len(per_rank) == 1 else set()
    keys: list[str] = []
    named_too: list[str] = []
    for path in (path for path in _varied(settings) if path not in told):
        own = [each.get(path) for each in settings]
        if path not in _OWN and _constant_within(own, [_tellers(path, each) for each in named]):
            continue
        if path == "strategy.servers":
            if not _constant_within(own, named):
                keys.append(path)
        elif path not in _OWN:
            (named_too if _constant_within(own, named) or not _numeric(own) or _given_or_not(own, named) else keys).append(path)
    servers = "strategy.servers" not in keys
    variants = [_variant(scenario, each, named_too, servers=servers) for scenario, each in zip(scenarios, settings, strict=True)]
    rows: list[tuple[str, ...]] = [(variant, *each[1:]) for variant, each in zip(variants, named, strict=True)]
    keys = _until_apart(rows, [result.ranks for result in results], settings, keys)
    clusters = [scenario.cluster.name for scenario in scenarios]
    columns: list[list[Any]] = [[result.ranks for result in results]]
    columns += [_swept(path, [each.get(path) for each in settings], clusters) for path in keys]
    rows = _numbered(rows, columns)
    cut = any(result.ranks != result.replicas for result in results)
    swept = _keys(["ranks" if cut else "replicas", *keys], columns, thing_counted(results))
    met = [[repr(each.get(path)) for path in (*keys, *named_too) if is_condition(path)] for each in settings]
    at = _assembled(swept, columns, rows, _words_for_files(rows, settings))
    return replace(at, conditions=tuple(map(met.index, met)))


def _with_prices_named(scenario: Scenario, settings: dict[str, Any]) -> dict[str, Any]:
    """With one setting in place of all that a price consists of, preemptions included: its name, and what an hour of a node costs."""
    price, faults = scenario.cluster.price, scenario.job.faults if scenario.job is not None else None
    paid = _PRICES if faults is None or price is None or faults.preemption != price.preemption else (*_PRICES, "job.faults.preemption")
    kept = {path: value for path, value in settings.items() if not path.startswith(paid)}
    return kept | {"cluster.price": None if price is None else f"{price.called}, {format_hourly(price.usd_per_node_hour)} an hour"}


_PRICES = ("cluster.price", "cluster.offers", "cluster.upgrades")


def _words_for_files(rows: Sequence[tuple[str, ...]], settings: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return what curves of each file are called by: the settings in which files differ; "" where other names tell curves apart already.

    Where no setting tells the files apart, by their own names.
    """
    files = list(dict.fromkeys(row[_FILE] for row in rows))
    others = [row[:_FILE] + row[_FILE + 1 :] for row in rows]
    if _constant_within([row[_FILE] for row in rows], others):
        return dict.fromkeys(files, "")
    differing = []
    for path in _varied(settings):
        own = [each.get(path) for each in settings]
        if path not in _OWN and _constant_within(own, [row[_FILE] for row in rows]) and not _constant_within(own, others):
            differing.append(path)
    first = {row[_FILE]: each for row, each in reversed(list(zip(rows, settings, strict=True)))}
    words = {
        file: " · ".join(_shortly([setting_text(path, own[path]) for path in differing if path in own])) for file, own in first.items()
    }
    return words if len(set(words.values())) == len(files) and all(words.values()) else {file: file for file in files}


def _shortly(parts: Sequence[str]) -> list[str]:
    more = [f"and {len(parts) - _MOST_NAMED} more"] if len(parts) > _MOST_NAMED else []
    return [*parts[:_MOST_NAMED], *more]


def _tellers(path: str, named: tuple[str, ...]) -> Hashable:
    """Those names of a result that say what such a setting is."""
    _, workload, cluster, source, scaling = named
    section = path.partition(".")[0]
    return {"workload": (workload, cluster, source, scaling), "cluster": (cluster, source), "run": (source, scaling)}.get(section, path)


def _varied(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Settings that differ among the results that have them."""
    values: dict[str, set[str]] = {}
    for own in settings:
        for path, value in own.items():
            values.setdefault(path, set()).add(repr(value))
    nothing = {path for own in settings for path, value in own.items() if value is None}
    for path, seen in values.items():  # a table that some have, and others have not, differs in all that it says
        if any(path.startswith(f"{table}.") for table in nothing):
            seen.add(repr(None))
    return [path for path, seen in values.items() if len(seen) > 1 and path != "schema_version"]


def _constant_within(values: Sequence[Any], groups: Sequence[Hashable]) -> bool:
    first: dict[Hashable, Any] = {}
    return all(first.setdefault(group, value) == value for group, value in zip(groups, values, strict=True))


def _numeric(values: Iterable[Any]) -> bool:
    return all(value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)) for value in values)


def _given_or_not(values: Sequence[Any], groups: Sequence[Hashable]) -> bool:
    """Return whether some of one group have a number and others none, so that no place on a slider is that of all of them."""
    return not _constant_within([value is None for value in values], groups)


def _variant(scenario: Scenario, own: dict[str, Any], paths: Sequence[str], *, servers: bool) -> str:
    parts = [setting_text(path, own[path]) for path in paths if own.get(path) not in (None, "none")]
    return " · ".join([scenario.strategy.title(servers=servers), *_shortly(parts)])


def _until_apart(
    rows: Sequence[tuple[str, ...]], ranks: Sequence[int], settings: Sequence[dict[str, Any]], keys: Sequence[str]
) -> list[str]:
    """The keys, with further ones as long as results coincide and these tell them apart."""

    def distinct(paths: Sequence[str]) -> int:
        return len({(row, count, *(own.get(path) for path in paths)) for row, count, own in zip(rows, ranks, settings, strict=True)})

    chosen = list(keys)
    for path in _LAST_RESORT:
        if distinct(chosen) < len(rows) and distinct([*chosen, path]) > distinct(chosen):
            chosen.append(path)
    return chosen


def _numbered(rows: list[tuple[str, ...]], columns: Sequence[Sequence[Any]]) -> list[tuple[str, ...]]:
    """Results that still coincide get a number into their label."""
    seen: dict[Hashable, int] = {}
    numbered = []
    for row, place in zip(rows, zip(*columns, strict=True), strict=True):
        count = seen[row, place] = seen.get((row, place), 0) + 1
        numbered.append(row if count == 1 else (f"{row[0]} · variant {count}", *row[1:]))
    return numbered


def _swept(path: str, values: list[Any], clusters: Sequence[str]) -> list[Any]:
    """The values of a key; of a cluster whose name tells the only one that it has, none."""
    if not path.startswith("cluster.") or path in ("cluster.nodes", "cluster.available") or len(set(clusters)) == 1:
        return values
    of_cluster: dict[str, set[Any]] = {}
    for cluster, value in zip(clusters, values, strict=True):
        of_cluster.setdefault(cluster, set()).add(value)
    return [value if len(of_cluster[cluster]) > 1 else None for cluster, value in zip(clusters, values, strict=True)]


def _keys(paths: Sequence[str], columns: Sequence[Sequence[Any]], thing: str) -> tuple[Key, ...]:
    """Keys with what occurs of each, the first being a number of ``thing``; those of one name get their section before it."""
    names = [f"{thing.capitalize()}s", *(clean(_NAMES.get(path) or setting_name(path).capitalize(), 40) for path in paths[1:])]
    counted = [thing, *("server" if path == "strategy.servers" else "" for path in paths[1:])]
    whole = [clean(path.replace("_", " ").replace(".", ", "), 60).capitalize() for path in paths]
    told = [name if names.count(name) == 1 else longer for name, longer in zip(names, whole, strict=True)]
    return tuple(
        Key(path, name, tuple(sorted({value for value in column if value is not None})), things)
        for path, name, column, things in zip(paths, told, columns, counted, strict=True)
    )


_FILE = 3
"""Place of the file among the names of a result."""


def _assembled(
    keys: tuple[Key, ...], columns: Sequence[Sequence[Any]], rows: Sequence[tuple[str, ...]], files: Mapping[str, str]
) -> Coordinates:
    titles = (("strategy", "Strategies"), ("workload", "Workloads"), ("cluster", "Clusters"), ("source", "Files"), ("scaling", "Scaling"))
    groups: list[Group] = []
    indices: list[list[int]] = []
    for (id_, title), column in zip(titles, zip(*rows, strict=True), strict=True):
        raw = list(dict.fromkeys(column))
        groups.append(Group(id_, title, _labels(raw, 72 if id_ == "strategy" else 40)))
        indices.append([raw.index(value) for value in column])
    curves: dict[tuple[int, ...], int] = {}
    curve_of = [curves.setdefault(labels, len(curves)) for labels in zip(*indices, strict=True)]
    ranks = [{value: rank for rank, value in enumerate(key.values)} for key in keys]
    places = tuple(
        tuple(ABSENT if value is None else rank[value] for rank, value in zip(ranks, at, strict=True)) for at in zip(*columns, strict=True)
    )
    names = [*groups]
    words = [files[file] for file in dict.fromkeys(row[_FILE] for row in rows)]
    names[_FILE] = replace(groups[_FILE], labels=_labels(words, 72) if any(words) else tuple(words))
    named = tuple(Curve(_curve_name(names, labels), labels) for labels in curves)
    return Coordinates(keys, tuple(groups), named, tuple(curve_of), places)


def _labels(raw: Sequence[str], longest: int) -> tuple[str, ...]:
    """Names as they may be shown; those that look the same then get a number."""
    seen: dict[str, int] = {}
    shown = []
    for name in raw:
        text = clean(name, longest)
        seen[text] = seen.get(text, 0) + 1
        shown.append(text if seen[text] == 1 else f"{text} ({seen[text]})")
    return tuple(shown)


def _curve_name(groups: Sequence[Group], labels: Sequence[int]) -> str:
    several = [(group, label) for group, label in zip(groups, labels, strict=True) if len(group.labels) > 1 or group.id == "strategy"]
    parts = [f"{group.labels[label]} scaling" if group.id == "scaling" else group.labels[label] for group, label in several]
    return " · ".join(filter(None, parts))


def varied_settings(results: Sequence[Result]) -> list[str]:
    """Dotted names of the settings that are not the same in all results, those left out that the name of a section says already."""
    varied = _varied([settings_of(result.scenario) for result in results])
    if any(path.startswith("workload.moved") for path in varied):  # with another device all times are others; the cluster's name says it
        varied = [path for path in varied if not path.startswith("workload.") or path in _OF_ANY_DEVICE]
    for section in ("workload", "cluster"):
        if f"{section}.name" in varied:  # another workload differs in everything; its name says it
            varied = [path for path in varied if path == f"{section}.name" or not path.startswith(f"{section}.")]
    return varied


def settings_of(scenario: Scenario, *, idle: bool = True) -> dict[str, Any]:
    """Every setting of a scenario under its dotted name, without prose and measurements; with ``idle`` those of another mode too."""
    flat: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, BaseModel):
            beside = getattr(value, "goes_with", {})
            unused = {name for name, (other, values) in beside.items() if not idle and getattr(value, other) not in values}
            value = {name: getattr(value, name) for name in type(value).model_fields if name not in unused}
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key not in _PROSE:
                    walk(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    walk("", scenario)
    return flat


def setting_text(path: str, value: Any) -> str:
    """A setting in words, such as ``"bandwidth 10 Gbit/s"``."""
    if path.rpartition(".")[2] == "name":
        return clean(str(value), 40)
    if isinstance(value, bool):
        text = "on" if value else "off"
    elif isinstance(value, (int, float)):
        text = written(value, kind_of_setting(path))
    elif isinstance(value, tuple):
        text = ", ".join(str(getattr(item, "name", item)) for item in value) or "none"
    else:
        text = "not set" if value is None else str(value)
    return f"{setting_name(path)} {clean(text, 40)}"


def setting_name(path: str) -> str:
    """What a setting is called: the last part of its dotted name without its unit; where that says little, with the part before it."""
    *tables, leaf = path.split(".")
    plain = leaf.removesuffix(next((unit for unit in _UNITS if leaf.endswith(unit)), ""))
    inside = tables[-1] if len(tables) > 1 else ""
    words = (inside,) if inside and leaf == "kind" else (inside, plain) if inside not in ("", "inter_node") else (plain,)
    return " ".join(words).replace("_", " ")
