"""All points of a report as plain data: what the page's script draws figures and fills tables from.

The script knows no column, heading, unit or format of its own: it gets the columns of
:mod:`simulator.results.rows` that it shows, the formats of :mod:`simulator.base.text`, and how figures look
from :mod:`paceline.reporting.axes`. The keys of the data are names that ``templates/*.js`` read: change them on both sides.
Figures that do not follow the reader's choices are made in figures.py; :func:`map_of` makes what the map of two settings is drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from paceline.comparing import NOTHING, compare, is_condition, over_whole_job, rank, rivals_of
from paceline.gain_bounds import NO_BOUNDS, bounds_between, speeds_of
from paceline.reporting.axes import JOB_COLOURS, band_colour, marker_symbol, series_colour, text_colour, what_scripts_need
from paceline.reporting.coordinates import ABSENT, Coordinates, Key, setting_name, settings_of
from paceline.sentences import NOT_CERTAIN
from paceline.tables import CONFIGURATION
from simulator.base.table import FORMULA, Cell, Column
from simulator.base.text import clean, digits, kind_of_setting, written
from simulator.results.results import Failure, Result, unit_of
from simulator.results.rows import COLUMNS, IN_SAMPLES, IN_TOKENS
from simulator.scenario import Scenario
from simulator.spec.figures import Breakdown, Histogram

PARTS = {part: COLUMNS[f"{part}_s"].heading for part in Breakdown.model_fields}
"""The parts of a step and what they are called, in the order in which they are stacked."""

_PAIR_DIGITS = 5
"""Of gains, of which a page may hold many thousand."""
_MOST_PAIRS, _FEWEST_OF_EACH = 8_000, 8
"""Pairs of results of different curves that a page holds (some 40 bytes each), equally many of each result, but at least so many."""

MOST_BINS = 48
"""Bars of a histogram of staleness; more values than that share bars."""

_LONGEST_TEXT = 600
_STANDING = {"checked": "checked against real runs of its kind", "interpolation": "between what was measured"}
"""How a result stands to what was measured, by its grade."""

_MFU = ("mfu", "mfu_low", "mfu_high")
_COST = ("usd_per_million_samples", "usd_per_million_samples_low", "usd_per_million_samples_high")
_COST_OF_TOKENS = ("usd_per_billion_tokens", "usd_per_billion_tokens_low", "usd_per_billion_tokens_high")
_OF_TOKENS = (*IN_TOKENS, *_COST_OF_TOKENS, *_MFU, "mfu_with_attention")
_EFFICIENCY = ("scaling_efficiency", "scaling_efficiency_low", "scaling_efficiency_high")
_SPEEDUP = ("speedup", "speedup_low", "speedup_high")
_STALENESS = ("staleness_mean", "staleness_p50", "staleness_p95", "staleness_p99", "staleness_max")
_STEP = tuple(f"{part}_s" for part in PARTS)
_BUSY = ("devices_busy", "links_busy", "busiest_link_busy", "servers_busy", "busiest_server_busy", "cores_busy")
_OF_SERVERS = ("servers", "servers_busy", "busiest_server_busy")

_TABLES: dict[str, tuple[str, ...]] = {
    "throughput": (*IN_SAMPLES, *IN_TOKENS, *_MFU, *_SPEEDUP),
    "efficiency": _EFFICIENCY,
    "cost": (*_COST, *_COST_OF_TOKENS, "usd_per_hour"),
    "staleness": _STALENESS,
    "steps": (*_STEP, "step_mean_s", "hidden_communication_s"),
    "busy": (*_BUSY, "busiest_link", "all_reduce"),
    "results": (
        *IN_SAMPLES, *IN_TOKENS, *_MFU, "mfu_with_attention", "monte_carlo_error_samples_per_s", *_SPEEDUP, *_EFFICIENCY, "updates_per_s",
        "step_mean_s", "step_p50_s", "step_p95_s", "step_p99_s", *_STEP, "hidden_communication_s",
        *_STALENESS, "dropped_share", "wasted_samples_per_s", *_BUSY,
        "replicas", "servers", "devices_per_node", "batch_per_replica", "global_batch",
        "steps_of_a_replica", "job_steps", "replications", "usd_per_hour",
        *_COST, *_COST_OF_TOKENS, "bottleneck_label", "busiest_link", "all_reduce", "placement", "extrapolated", "warnings",
        "warning_texts", "seed", "scenario_hash",
    ),
}  # fmt: skip
"""Columns of the tables behind figures, after those that say which point a row is of."""

_JOB_PARTS = {f"job_{part}_s": colour for part, colour in JOB_COLOURS.items()}
_JOB = (
    "job_time_s", "job_time_low_s", "job_time_high_s", "job_cost_usd", "job_cost_low_usd", "job_cost_high_usd",
    "goodput", "goodput_low", "goodput_high", *_JOB_PARTS, "job_faults", "checkpoint_interval_s", "best_checkpoint_interval_s",
)  # fmt: skip
"""Columns of whole jobs, which only reports of some hold."""

_COMPUTED: dict[str, tuple[Column, ...]] = {
    "against": (
        CONFIGURATION, COLUMNS["scaling"], Column("Against", "text"), Column("Scaling of that", "text"),
        Column("Faster by", "change"), Column("Low", "change"), Column("High", "change"),
        Column("Faster in runs", "count"), Column("Of runs", "count"),
    ),
    "around": (
        Column("What is changed", "text"), COLUMNS["scaling"], Column("From", "text"), Column("To", "text"),
        Column("Faster by", "change"), Column("Low", "change"), Column("High", "change"),
    ),
    "distribution": (
        CONFIGURATION, COLUMNS["scaling"],
        Column("Staleness from", "count"), Column("to", "count"), Column("Share of updates", "share"),
    ),
}  # fmt: skip
"""Columns of tables whose rows are not points: the script computes them from what is chosen."""

_NOT_IN_TABLES = ("nodes", "standing", "bottleneck_text")
_FURTHER = {
    column.name: column
    for column in (
        Column(
            "cores_busy",
            "share",
            "Cores busy",
            by=lambda result: result.utilisation.cores if result.scenario.cluster.shared_cores else None,
        ),
        Column("bottleneck_label", "text", "Limited by", of="bottleneck.label"),
        Column(
            "all_reduce",
            "text",
            "All-reduce",
            by=lambda result: "; ".join(dict.fromkeys(f"{each.algorithm} ({each.protocol})" for each in result.all_reduces)),
        ),
        Column("standing", "text", "Standing", by=lambda result: _standing(result)),
        Column("extrapolated", "text", COLUMNS["extrapolated"].heading, by=lambda result: written(result.extrapolated, "any")),
        Column("seed", "text", COLUMNS["seed"].heading, by=lambda result: str(result.seed)),
    )
}
"""Columns that the page has beside those of :data:`simulator.results.rows.COLUMNS`, or in another form."""
_WARNINGS = Column("warning_texts", "text", "What they say")


def columns_of(results: Sequence[Result], at: Coordinates, chosen: int = 0, measured: Sequence[tuple[int, float]] = ()) -> dict[str, Any]:
    """Plain data, ready to become JSON.

    Parameters
    ----------
    results
        In the order of ``at``.
    at
        Where each stands.
    chosen
        The result that the page begins with.
    measured
        Measured throughputs, in samples/s, each with the index of its prediction.

    Returns
    -------
    dict
        ``keys``, ``groups``, ``curves``
            With everything that is written of them.
        ``curve``, ``at``
            Of each result its curve; for each key, of each result, the index of its value.
        ``columns``, ``tables``
            For each name ``heading``, ``kind`` and ``values``, which for text are indices into ``texts``, one or
            several; for each figure the names of its columns, or the columns where the script computes the rows.
        ``hollow``, ``parts``, ``job_parts``, ``busy``
            Whether a result lies beyond what was measured; columns of the parts of a step, each with its colour and that of text on
            it, of the parts of a job, each with its colour, and of busy shares.
        ``chosen``, ``measured``
            Curve and indices of values to begin with; as given.
        ``conditions``, ``ranked``
            Of each result a number for what it meets and nobody chooses; columns of what results with equal numbers are ranked by,
            with its interval, whether the least is the best, and what is compared run by run, in words.
        ``histograms``
            Of each result none, or [first staleness, width of a bin, counts].
        ``pairs``, ``most_compared``, ``nothing``
            Of each result those that are compared with it: [index, gain, its low and its high end, wins, runs that share their draws];
            with how many of other curves, the best, where they are too many for all, else 0; the change that reads as none.
        ``rate``, ``unit``
            Columns of the throughput and the ends of its interval, and their unit.
        ``cost``
            Columns of the cost and the ends of its interval, and of what ``many`` it is.
        ``formats``, ``none``, ``formula``, ``style``, ``words``
            How it is written, drawn and said.
    """
    rows = [_row(result) for result in results]
    jobs = results[chosen].job is not None
    unit = unit_of(results)
    rate = IN_TOKENS if unit == "tokens" else IN_SAMPLES
    ranked = _JOB[:3] if jobs else rate  # as paceline.comparing.rank does: the mean, and the ends of its interval
    shown = _shown_tables(jobs=any(result.job is not None for result in results), tokens=unit == "tokens")
    pairs, most_compared = _pairs(results, at, jobs=jobs)
    named = dict.fromkeys([*chain(*shown.values()), *_NOT_IN_TABLES])
    columns = _points(results, at) | {
        name: _column({**COLUMNS, **_FURTHER}[name], [row.get(name) for row in rows]) for name in named if name != _WARNINGS.name
    }
    computed = {name: [_heading(column) for column in columns] for name, columns in _COMPUTED.items()}
    computed["around"].append(_heading(COLUMNS[ranked[0]]))
    computed["distribution"].insert(2, {"heading": at.keys[0].name, "kind": "count"})
    columns["warning_texts"] = {**_heading(_WARNINGS), **_warnings(results)}
    return {
        "keys": [_key(key) for key in at.keys],
        "groups": [{"id": group.id, "name": group.name, "labels": list(group.labels)} for group in at.groups],
        "curves": [
            {
                "name": curve.name,
                "labels": list(curve.labels),
                "colour": series_colour(index),
                "band": band_colour(index),
                "symbol": marker_symbol(index),
            }
            for index, curve in enumerate(at.curves)
        ],
        "curve": list(at.curve_of),
        "at": [[place[index] for place in at.places] for index in range(len(at.keys))],
        "columns": columns,
        "tables": _tables(columns, at, shown) | computed,
        "hollow": [int(result.extrapolated) for result in results],
        "parts": [[f"{part}_s", (colour := f"var(--part-{part.replace('_', '-')})"), text_colour(colour)] for part in PARTS],
        "job_parts": [[part, colour] for part, colour in _JOB_PARTS.items() if part in columns],
        "busy": list(_BUSY),
        "chosen": {"curve": at.curve_of[chosen], "at": _beginning(results, at, chosen)},
        "conditions": list(at.conditions),
        "ranked": {"columns": ranked, "least": jobs, "what": "the speed of the whole job" if jobs else "throughput"},
        "rate": rate,
        "unit": f"{unit}/s",
        "cost": {
            "columns": _COST_OF_TOKENS if unit == "tokens" else _COST,
            "many": "a billion tokens" if unit == "tokens" else "a million samples",
        },
        "measured": [[index, value * (results[index].scenario.unit.per_sample if unit == "tokens" else 1)] for index, value in measured],
        "histograms": [_histogram(result.staleness.histogram) if _asynchronous(result) else None for result in results],
        "pairs": pairs,
        "most_compared": most_compared,
        "nothing": NOTHING,
        **what_scripts_need(),
        "formula": "".join(FORMULA),
        "words": {"uncertain": NOT_CERTAIN},
    }


def differ_in_layout(results: Sequence[Result], at: Coordinates, failures: Sequence[Failure] = ()) -> bool:
    """Return whether the map of results (:func:`map_of`) is one of how a model is cut over devices."""
    mapped = map_of(results, at, failures)
    return mapped is not None and mapped["rows"]["key"] < 0


def map_of(results: Sequence[Result], at: Coordinates, failures: Sequence[Failure] = ()) -> dict[str, Any] | None:
    """What a map of results by two settings is drawn from: by how the model is cut, else by the keys with most values that are chosen.

    Parameters
    ----------
    results
        In the order of ``at``.
    at
        Where each stands.
    failures
        Scenarios that have no result.

    Returns
    -------
    dict or None
        None where there are not two such settings, or too few cells to see a map.

        ``rows``, ``columns``
            Each the ``name`` of the setting, its values as ``texts`` and as they are ``told``, and the index of its ``key``; -1 where
            it is part of the names of curves.
        ``of``
            Of each result its row and its column; none where it has not both.
        ``failures``
            Of each failure its place on every key, :data:`~paceline.reporting.coordinates.ABSENT` where it has none; its row and
            column, or none; and why it failed.
    """
    own = [settings_of(result.scenario) for result in results]
    tried = [*own, *(settings_of(failed.scenario) for failed in failures)]
    cuts = [sorted({each.get(path, 1) for each in tried}) for path in _CUTS]
    paths: Sequence[str] = _CUTS
    if min(map(len, cuts)) == 1:
        chosen = [index for index, key in enumerate(at.keys) if len(key.values) > 1 and not is_condition(key.path)]
        most = sorted(chosen, key=lambda index: -len(at.keys[index].values))[:2]
        if len(most) < len(_CUTS):
            return None
        paths = [at.keys[index].path for index in sorted(most, reverse=True)]
        cuts = [list(key.values) for path in paths for key in at.keys if key.path == path]

    def cell(settings: Mapping[str, Any], scenario: Scenario) -> list[int] | None:
        known = {"replicas": scenario.replicas, "ranks": scenario.ranks, **settings}
        places = [known.get(path, 1 if path in _CUTS else None) for path in paths]
        return [values.index(value) for value, values in zip(places, cuts, strict=True)] if all(map(_held, places, cuts)) else None

    def side(path: str, values: Sequence[Any]) -> dict[str, Any]:
        key = next((index for index, key in enumerate(at.keys) if key.path == path), -1)
        name = at.keys[key].name if key >= 0 else setting_name(path).capitalize()
        drawn = _key(Key(path, name, tuple(values), at.keys[key].counted if key >= 0 else ""))
        return {"name": drawn["name"], "texts": drawn["texts"], "told": drawn["told"], "key": key}

    of = [cell(settings, result.scenario) for settings, result in zip(own, results, strict=True)]
    failed = [_failure(at, failure, cell) for failure in failures]
    if len({tuple(place) for place in (*of, *(each["of"] for each in failed)) if place is not None}) < _FEWEST_CELLS:
        return None
    return {
        "rows": side(paths[0], cuts[0]),
        "columns": side(paths[1], cuts[1]),
        "of": of,
        "failures": failed,
    }


_FEWEST_CELLS = 4
_CUTS = ("strategy.tensor", "strategy.pipeline")
"""How a model is cut over devices; 1 where a strategy does not."""


def _held(value: Any, values: Sequence[Any]) -> bool:
    return value in values


def _failure(at: Coordinates, failed: Failure, cell: Callable[[Mapping[str, Any], Scenario], list[int] | None]) -> dict[str, Any]:
    scenario = failed.scenario
    own = settings_of(scenario) | {"replicas": scenario.replicas, "ranks": scenario.ranks}
    places = [key.values.index(value) if (value := own.get(key.path)) in key.values else ABSENT for key in at.keys]
    return {"at": places, "of": cell(own, scenario), "text": clean(failed.failed.text, _LONGEST_TEXT)}


def _row(result: Result) -> dict[str, Cell]:
    """Every figure of a result that the page shows; none where it does not apply."""
    row = result.row()
    if not _asynchronous(result):
        row |= dict.fromkeys(_STALENESS)
    if not result.scenario.servers:
        row |= dict.fromkeys(_OF_SERVERS)
    return row | {name: column.read(result) for name, column in _FURTHER.items()}


def _standing(result: Result) -> str:
    if result.extrapolated:
        return "beyond what was measured"
    if result.scenario.workload.is_computed:
        return "computed, not measured"
    if result.scenario.workload.calibrated is None:
        return "what was measured is not recorded"
    return _STANDING.get(result.grade, "within what was measured")


def _points(results: Sequence[Result], at: Coordinates) -> dict[str, dict[str, Any]]:
    """Columns that say which point a row is of; the scaling is named in every table."""
    named = [at.name_of(index) for index in range(len(results))]
    columns = {
        "configuration": _column(CONFIGURATION, named),
        "scaling": _column(COLUMNS["scaling"], [result.scenario.scaling for result in results]),
    }
    for index, key in enumerate(at.keys):
        values = [None if place[index] == ABSENT else key.values[place[index]] for place in at.places]
        columns[f"key.{key.path}"] = _column(Column(key.path, kind_of_setting(key.path), key.name), values)
    return columns


def _shown_tables(*, jobs: bool, tokens: bool) -> dict[str, tuple[str, ...]]:
    """Columns of each table, those of whole jobs and of tokens where there are any."""
    unsaid = () if tokens else _OF_TOKENS
    shown = {table: tuple(name for name in names if name not in unsaid) for table, names in _TABLES.items()}
    if not jobs:
        return shown
    *kept, last = shown["results"]
    return {**shown, "job": (*_JOB, "usd_per_hour"), "results": (*kept, *_JOB, last)}


def _tables(columns: dict[str, dict[str, Any]], at: Coordinates, shown: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """Names of the columns of each table; ``shown`` are those of all results that say anything."""
    keys = [f"key.{key.path}" for index, key in enumerate(at.keys) if len(key.values) > 1 or index == 0]
    point = ["configuration", "scaling", *keys, "nodes"]
    named, own = {columns[name]["heading"] for name in point}, {key.path for key in at.keys}
    tables = {
        figure: [*point, *(name for name in names if figure != "results" or (columns[name]["heading"] not in named and name not in own))]
        for figure, names in shown.items()
    }
    return tables | {"shown": [name for name in tables["results"] if name != "warning_texts" and _says_anything(columns[name])]}


def _says_anything(column: dict[str, Any]) -> bool:
    return any(column["texts"] if "texts" in column else column["values"])


def _column(column: Column, values: Sequence[Cell]) -> dict[str, Any]:
    if column.kind == "text":
        texts, indices = _indexed([clean(str(value), _LONGEST_TEXT) if value else "" for value in values])
        return {**_heading(column), "texts": texts, "values": indices}
    return {**_heading(column), "values": [_number(value) for value in values]}


def _heading(column: Column) -> dict[str, str]:
    return {"heading": column.title, "kind": column.kind}


def _key(key: Key) -> dict[str, Any]:
    kind = kind_of_setting(key.path)
    counted = key.counted
    texts = [written(value, kind) for value in key.values]
    lower = key.name[:1].lower() + key.name[1:]
    told = [
        f"{text} {counted}{'' if value == 1 else 's'}" if counted else f"{lower} {text}"
        for text, value in zip(texts, key.values, strict=True)
    ]
    written_values = {"kind": kind, "values": list(key.values), "texts": texts, "told": told, "counted": counted}
    return {"path": key.path, "name": key.name, "condition": is_condition(key.path), **written_values}


def _beginning(results: Sequence[Result], at: Coordinates, chosen: int) -> list[int]:
    """Where the sliders stand at first: at the answer, and for a key that it does not have at the best of its rivals that has."""
    order = [chosen, *rivals_of(results, chosen, at.conditions)]
    return [next((at.places[index][key] for index in order if at.places[index][key] != ABSENT), 0) for key in range(len(at.keys))]


def _pairs(results: Sequence[Result], at: Coordinates, *, jobs: bool) -> tuple[list[list[list[Any]]], int]:
    """Of each result those that the page compares with it, each with the gain, its interval, and in how many of how many runs it is faster.

    And with how many of other curves at most, where some are left out for their number, the slowest first; else 0.

    They are those of other curves with the same settings, and the neighbours on its own curve in each key; a setting that one of the
    two lacks is left out of the comparison.
    """
    speeds = [None if jobs else speeds_of(result.scenario) for result in results]
    if jobs:
        results = [over_whole_job(result) for result in results]

    def compared(ours: int, theirs: int) -> list[Any]:
        bounds = NO_BOUNDS if jobs else bounds_between(speeds[ours], speeds[theirs])
        how = compare(results[ours], results[theirs], bounds=bounds)
        return [theirs, *(digits(getattr(how.ratio, end) - 1.0, _PAIR_DIGITS) for end in ("mean", "low", "high")), how.wins, how.runs]

    places, curves = np.array(at.places), np.array(at.curve_of)
    pairs: list[list[list[Any]]] = [[] for _ in results]
    most, cut = max(_FEWEST_OF_EACH, _MOST_PAIRS // len(results)), False
    for here in range(len(results)):
        apart = (places != places[here]) & (places != ABSENT) & (places[here] != ABSENT)
        others = np.flatnonzero(~apart.any(axis=1) & (curves != curves[here])).tolist()
        cut = cut or len(others) > most
        best = sorted(others, key=lambda index: rank(results[index]))[:most]
        pairs[here] += [compared(here, other) for other in sorted(best)]
        for key in range(len(at.keys)):
            alike = ~np.delete(apart, key, axis=1).any(axis=1) & (curves == curves[here]) & (places[:, key] != ABSENT)
            for side in (places[:, key] < places[here, key], places[:, key] > places[here, key]):
                beside = alike & side & (places[here, key] != ABSENT)
                if beside.any():
                    nearest = np.abs(places[:, key] - places[here, key]) == np.abs(places[beside, key] - places[here, key]).min()
                    for other in np.flatnonzero(beside & nearest).tolist():
                        pairs[other].append(compared(other, here))
    return pairs, most if cut else 0


def _asynchronous(result: Result) -> bool:
    return result.scenario.strategy.pace.asynchronous


def _number(value: Cell) -> Cell:
    """JSON knows no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _indexed(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    places: dict[str, int] = {}
    indices = [places.setdefault(text, len(places)) for text in texts]
    return list(places), indices


def _warnings(results: Sequence[Result]) -> dict[str, Any]:
    """Sentences of several results are there once."""
    places: dict[str, int] = {}
    of = [[places.setdefault(clean(warned.text, _LONGEST_TEXT), len(places)) for warned in result.warnings] for result in results]
    return {"texts": list(places), "values": of}


def _histogram(histogram: Histogram) -> list[Any] | None:
    """At most :data:`MOST_BINS` bins of equal width, from the least value on."""
    if not sum(histogram.counts):
        return None
    low, high = min(histogram.values), max(histogram.values)
    width = max(1, math.ceil((high - low + 1) / MOST_BINS))
    bins = [0] * ((high - low) // width + 1)
    for value, count in zip(histogram.values, histogram.counts, strict=True):
        bins[(value - low) // width] += count
    return [low, width, bins]
