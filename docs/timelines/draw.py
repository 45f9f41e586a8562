"""Draws the pictures of these pages, from simulations, and one from the rows in evidence/tables/: ``make timelines``.

All timelines but those of ``models/scenarios/`` are of one small model on one small cluster, so that pictures can be compared.
"""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from paceline.reporting.axes import JOB_COLOURS
from paceline.reporting.figures import KIND_LABELS, strips_of
from paceline.reporting.simulated import timeline_of
from paceline.reporting.timeline import Bar, Kind, Timeline
from paceline.tables import PART_LABELS
from simulator import Scenario, load_scenario, scenario_from_table, simulate
from simulator.base.text import format_share, written
from simulator.spec.figures import Estimate

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

LAYERS = 4


def _layers(**keys: Any) -> list[dict[str, Any]]:
    """The layers of the model, with some keys besides."""
    return [
        {"name": f"layer_{index}", "forward": 1, "variables": [index], "output_bytes_per_sample": 10_000, **keys} for index in range(LAYERS)
    ]


MODEL: Mapping[str, Any] = {
    "name": "four layers",
    "batch_per_replica": 32,
    "forward": {"base": "0 s", "per_sample": "125 us"},
    "backward": {"base": "0 s", "per_sample": "250 us"},
    "apply": "1 ms",
    "jitter": {"kind": "normal", "cv": 0.04},
    "server": {"base": "100 us", "per_byte_s": 2e-10},
    "variables": [  # the last layer's gradient is ready first
        {"name": f"layer_{layer}", "size": "2 MB", "creation_index": layer, "ready": 1 - layer / LAYERS}
        for layer in reversed(range(LAYERS))
    ],
    "layers": _layers(),
}
"""12 ms of compute per step, and 8 MB of gradients."""
CLUSTER: Mapping[str, Any] = {
    "name": "four nodes",
    "inter_node": {"bandwidth": "10 Gbit/s", "latency": "20 us"},
    "intra_node": {"bandwidth": "10 GB/s", "latency": "5 us"},
}


@dataclass(frozen=True)
class Picture:
    """One timeline.

    Attributes
    ----------
    title
        What a reader who cannot see it is told.
    tables
        What the scenario has besides the small model and cluster; or what it changes of a file.
    file
        A scenario of ``models/scenarios/`` that is drawn in the place of the small one.
    connections
        Whether what each connection carries has a lane as well.
    """

    title: str
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    file: str = ""
    connections: bool = False

    @property
    def scenario(self) -> Scenario:
        """What is simulated."""
        if self.file:
            settings = {f"{table}.{key}": value for table, its in self.tables.items() for key, value in its.items()}
            return load_scenario(ROOT / "models" / "scenarios" / f"{self.file}.toml", list(settings.items()))
        own = {"workload": MODEL, "cluster": CLUSTER, "run": {"steps": 12, "replications": 2, "seed": 3}}
        tables = {name: {**own.get(name, {}), **self.tables.get(name, {})} for name in (*own, *self.tables)}
        return scenario_from_table(tables, self.title)


def _ring(**keys: Any) -> dict[str, dict[str, Any]]:
    return {"strategy": {"kind": "multi-worker-mirrored", "workers": 4, **keys}}


def _servers(**keys: Any) -> dict[str, dict[str, Any]]:
    """Hosts that take no time: a picture is of what waits for what."""
    return {"strategy": {"kind": "parameter-server", "workers": 4, "servers": 2, **keys}, **NO_HOSTS}


def _hybrid(micro_batches: int = 1, **keys: Any) -> dict[str, dict[str, Any]]:
    return {"strategy": {"kind": "hybrid", "workers": 4, **keys}, "training": {"micro_batches": micro_batches}}


def _fed(**keys: Any) -> dict[str, dict[str, Any]]:
    """Four replicas of a node with an input pipeline each, whose batches take about as long as a step computes."""
    pipeline = {"work": {"serial": {"base": "0 s", "per_sample": "350 us"}}, "per": "replica", "jitter": {"kind": "gamma", "shape": 20}}
    return {"strategy": {"kind": "mirrored", "replicas": 4}, **NODE_OF_FOUR, "input": {**pipeline, **keys}}


NODE_OF_FOUR: dict[str, dict[str, Any]] = {"cluster": {"devices_per_node": 4}}
FILLED = {"run": {"warmup_steps": 3}}
SPLIT = {"forward_bytes_per_sample": [30_000], "backward_bytes_per_sample": [30_000]}
EXPERTS = {"count": 4, "used": 1, "work": 0.8, "bytes_per_sample": 30_000}
NO_HOSTS: dict[str, dict[str, Any]] = {"cluster": {"transport": {"software": "given"}}}
ONE_SLOW: dict[str, dict[str, Any]] = {"cluster": {"node_speed": [1, 1, 1, 0.5]}}
ONE_SLOW_OF_SERVERS = {"cluster": {**ONE_SLOW["cluster"], **NO_HOSTS["cluster"]}}
TWO_OF_TWO = {"cluster": {"devices_per_node": 2}}
NEIGHBOURS: dict[str, dict[str, Any]] = {
    "workload": {
        "forward": {"base": "2 ms", "per_sample": "0 s"},
        "backward": {"base": "3 ms", "per_sample": "0 s"},
        "jitter": {"kind": "constant"},
        "server": {},
        "variables": [{"name": "all", "size": "4 MB", "creation_index": 0, "ready": 1}],
        "layers": [],
    },
    "cluster": {
        "inter_node": {"bandwidth": "1 GB/s", "latency": "0 s"},
        "transport": {"software": "given"},
        "background": {"trace": [{"at": "0 s"}, {"at": "20 ms", "flows": 1}, {"at": "40 ms", "load": 0.75}]},
    },
    "strategy": {"kind": "parameter-server", "mode": "async", "workers": 1, "servers": 1},
    "run": {"steps": 3, "warmup_steps": 0, "start": "together"},
}
"""One worker and its server: a 4 MB message takes 4 ms alone, 8 ms beside one flow, 16 ms beside a load of three quarters."""
PICTURES: dict[str, Picture] = {
    "single": Picture("One device", {"strategy": {"kind": "single"}}),
    "mirrored": Picture("Four devices of one node", {"strategy": {"kind": "mirrored", "replicas": 4}, **NODE_OF_FOUR}),
    "ring": Picture("Four workers, one all-reduce after the backward pass", _ring()),
    "ring-buckets": Picture("Four workers, an all-reduce for each bucket", _ring(bucket_size="2 MB")),
    "tree": Picture("Four workers, reduced along two trees", _ring(algorithm="double-binary-tree")),
    "hierarchical": Picture("Two nodes of two devices", _ring(algorithm="hierarchical") | TWO_OF_TWO),
    "sync-servers": Picture("Four workers and two servers, synchronous", _servers(mode="sync")),
    "async-servers": Picture("Four workers and two servers, asynchronous", _servers(mode="async")),
    "ssp": Picture("One slow worker, and a bound of one step", _servers(mode="ssp", bound=1) | ONE_SLOW_OF_SERVERS),
    "backup": Picture("One slow worker that is not waited for", _servers(mode="sync", backup_workers=1) | ONE_SLOW_OF_SERVERS),
    "slow-worker": Picture("One slow worker in a ring", _ring() | ONE_SLOW),
    "slow-input": Picture(
        "Four workers that wait for their batches", _ring() | {"workload": {"input": {"base": "30 ms", "per_sample": "0 s"}}}
    ),
    "local": Picture("Four workers that average every third step", _ring(sync_every=3)),
    "gossip": Picture("Four workers that average with two neighbours", {"strategy": {"kind": "gossip", "workers": 4}}),
    "gpipe": Picture("Four stages, all forward passes first", _hybrid(4, pipeline=4, schedule="gpipe")),
    "1f1b": Picture("Four stages, one forward one backward", _hybrid(8, pipeline=4)),
    "interleaved": Picture("Two stages of two chunks each", _hybrid(4, workers=2, pipeline=2, schedule="interleaved", chunks=2)),
    "zero-bubble": Picture("Four stages, gradients of weights fill gaps", _hybrid(8, pipeline=4, schedule="zero-bubble")),
    "never-flushed": Picture(
        "Four stages that are never flushed", _hybrid(1, pipeline=4, schedule="pipedream") | {"run": {"warmup_steps": 3}}
    ),
    "split-tensors": Picture(
        "Four devices that split each layer",
        {**_hybrid(tensor=4), **NODE_OF_FOUR, "workload": {"layers": _layers(tensor=SPLIT)}},
    ),
    "spread-experts": Picture(
        "Four copies that hold a quarter of the experts each",
        {**_hybrid(expert=4), **NODE_OF_FOUR, "workload": {"layers": _layers(experts=EXPERTS)}},
    ),
    "zero-1": Picture("Four copies that share optimizer slots", _hybrid(shard="optimizer")),
    "zero-3": Picture("Four copies that share parameters too", _hybrid(shard="parameters")),
    "input-bound": Picture("No batch is prepared ahead", _fed(prefetch=0)),
    "prefetch": Picture("Two batches ahead", _fed(prefetch=2)),
    "neighbours": Picture("Messages of the same size take 4, 8 and 16 ms", NEIGHBOURS, connections=True),
}


@dataclass(frozen=True)
class Curves:
    """Scaling efficiency over the number of replicas, a curve for each of several cases.

    Attributes
    ----------
    title
        What a reader who cannot see it is told.
    replicas
        How many there are at each point.
    cases
        What a scenario has, by the name of the case and the number of replicas.
    """

    title: str
    replicas: tuple[int, ...]
    cases: Mapping[str, Callable[[int], Mapping[str, Mapping[str, Any]]]]

    def points(self, case: str) -> list[tuple[int, Estimate]]:
        """Of one curve."""
        return [(count, simulate(scenario_from_table(self.cases[case](count), case)).scaling_efficiency) for count in self.replicas]


def _one_variable(size: str, forward: str, backward: str) -> dict[str, Any]:
    times = {"forward": {"base": forward, "per_sample": "0 s"}, "backward": {"base": backward, "per_sample": "0 s"}}
    return {
        "name": "one variable",
        "batch_per_replica": 32,
        **times,
        "variables": [{"name": "all", "size": size, "creation_index": 0, "ready": 1}],
    }


def _slow_together(of: str) -> Callable[[int], dict[str, Any]]:
    """Devices that are slow for a while, at the same time as others of their node, rack or cluster, or by themselves."""
    slowdown = {"of": of, "factor": 3, "mean_slow_steps": 5, "mean_normal_steps": 95}
    links = {"inter_node": {"bandwidth": "100 Gbit/s", "latency": "1 us"}, "intra_node": {"bandwidth": "100 GB/s", "latency": "1 us"}}
    cluster = {"name": "racks", "devices_per_node": 4, **links, "fabric": {"nodes_per_leaf": 4}, "slowdown": slowdown}
    return lambda count: {
        "workload": _one_variable("1 kB", "4 ms", "8 ms"),
        "cluster": cluster,
        "strategy": {"kind": "multi-worker-mirrored", "workers": count, "algorithm": "hierarchical"},
        "discrepancy": "none",
        "run": {"steps": 400, "seed": 1},
    }


def _by_algorithm(algorithm: str) -> Callable[[int], dict[str, Any]]:
    """Nodes with four devices and four rails, in racks of four, whose switches can add."""
    cluster = {
        "name": "rails",
        "devices_per_node": 4,
        "nics_per_node": 4,
        "rails": 4,
        "inter_node": {"bandwidth": "200 Gbit/s", "latency": "10 us"},
        "intra_node": {"bandwidth": "450 GB/s", "latency": "3 us"},
        "fabric": {"nodes_per_leaf": 4, "oversubscription": 2, "latency": "2 us", "rail_optimised": True, "sharp": True},
    }
    return lambda count: {
        "workload": _one_variable("10 MB", "0.6 ms", "1 ms"),
        "cluster": cluster,
        "strategy": {"kind": "multi-worker-mirrored", "workers": count // 4, "replicas_per_worker": 4, "algorithm": algorithm},
        "discrepancy": "none",
        "run": {"steps": 20, "replications": 2},
    }


CURVES: dict[str, Curves] = {
    "stragglers": Curves(
        "The more chains, the more steps are slow for all",
        (1, 4, 8, 16, 32, 64),
        {f"one chain per {of}": _slow_together(of) for of in ("device", "node", "rack", "cluster")},
    ),
    "sharp": Curves(
        "Efficiency of a ring, of rings inside nodes and between them, and of switches that add",
        (4, 8, 16, 32, 64, 128),
        {"ring": _by_algorithm("ring"), "hierarchical": _by_algorithm("hierarchical"), "sharp": _by_algorithm("sharp")},
    ),
}

JOB = "whole-job"

FIDELITY = "predicted-over-measured"
_MODELS_CUT = ("llm-foundry", "megatron-lm", "nemo-megatron-launcher", "torchtitan", "vtrain-several-nodes-from-dimensions")
HELD_AGAINST: dict[str, tuple[str, ...]] = {
    "published, all-reduce": ("published-all-reduce",),
    "published, models cut over devices": tuple(f"hybrids-{name}" for name in _MODELS_CUT),
    "published, synchronous servers": ("published-sync-ps",),
    "published, asynchronous servers": ("published-async-ps",),
    "real TensorFlow clusters": (
        "testbed-first",
        "testbed-headline",
        "testbed-random-20261122-12",
        "testbed-random-2611260355-12",
        "testbed-random-2611301421-18",
    ),
}
"""Files of evidence/tables/ by what they are of."""
NAMES = (*PICTURES, *CURVES, JOB, FIDELITY)


def held_out(what: str) -> list[tuple[float, float]]:
    """What was measured and what was predicted, of all settings that took no part in a fit; models that are cut from their dimensions."""
    rows: list[dict[str, str]] = []
    for name in HELD_AGAINST[what]:
        with (ROOT / "evidence" / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
            rows += csv.DictReader(lines)
    chosen = [row for row in rows if row["fitted"] == "0" and row.get("settings.way", "from dimensions") == "from dimensions"]
    return [(float(row["measured"]), float(row["predicted"])) for row in chosen]


# -- drawing ---------------------------------------------------------------------------

_WIDTH, _RIGHT, _TOP = 560, 14, 12
_LANE, _BAR = 26, 20
_NARROWEST = 0.2
_LETTER = 7.2
"""Pixels, as all of these: bars that nobody sees are left out, and letters are about that wide."""
_COLOUR = re.compile(r"--([\w-]+): (#[0-9a-f]{6})")


def _colours() -> tuple[dict[str, str], dict[str, str]]:
    """Those of the report, by name: on a light background, and on a dark one."""
    light, dark, *_ = (ROOT / "paceline" / "reporting" / "templates" / "report.css").read_text().split("@media")
    return dict(_COLOUR.findall(light)), dict(_COLOUR.findall(dark))


def _picture(title: str, height: int, fills: Mapping[str, str], lines: Mapping[str, str], parts: Iterable[str]) -> str:
    """The whole of a picture.

    Colours follow the reader's preference; it has a background of its own, so that it can be read on any. ``fills`` and ``lines``
    have the names of colours by what they are of.
    """
    light, dark = _colours()
    fills = {".card": "paper", "text": "ink", ".dim": "muted", ".on": "paper", **fills}
    lines = {".grid": "rule", ".message": "muted", **lines}

    def rules(colours: Mapping[str, str]) -> str:
        found = [f"{at}{{fill:{colours[name]}}}" for at, name in fills.items()]
        return "".join(found + [f"{at}{{stroke:{colours[name]}}}" for at, name in lines.items()])

    fixed = "text{font:13px system-ui,sans-serif}.on{font-size:11px;text-anchor:middle}.grid,.message,.line{fill:none}"
    more = ".message{stroke-width:.7}.line{stroke-width:2}.band{opacity:.15}"
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{fixed}{more}{rules(light)}@media(prefers-color-scheme:dark){{{rules(dark)}}}</style>",
        f'<rect class="card" width="{_WIDTH}" height="{height}" rx="6"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(found) + "\n"


def _ticks(end: float) -> list[float]:
    """Round numbers from 0 on, about six."""
    step = next(step for step in (base * 10.0**power for power in range(-3, 6) for base in (1, 2, 5)) if end / step <= 7)
    return [count * step for count in range(int(end / step) + 1)]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _timeline(picture: Picture, timeline: Timeline) -> str:
    used = {bar.lane for bar in timeline.bars}
    lanes = [lane for lane in timeline.lanes[1:] if lane in used and (picture.connections or "→" not in lane)]  # but the critical path
    row = {lane: _TOP + index * _LANE for index, lane in enumerate(lanes)}
    bars = [bar for bar in timeline.bars if bar.lane in row]
    end_s = max(bar.end_s for bar in bars)
    unit, scale = next((unit, scale) for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)) if end_s * scale >= 1 or unit == "µs")

    left = 16 + max(len(name) for name in ("Time (ms)", *lanes)) * _LETTER

    def across(time_s: float) -> float:
        return left + (_WIDTH - left - _RIGHT) * time_s / end_s

    foot = _TOP + _LANE * len(lanes)
    kinds: list[Kind] = [kind for kind in KIND_LABELS if any(bar.kind == kind for bar in bars)]
    legend, height = _legend({kind: KIND_LABELS[kind] for kind in kinds}, foot + 40)
    ticks = [(across(at / scale), at) for at in _ticks(end_s * scale)]
    parts = [
        f'<path class="grid" d="{"".join(f"M{_number(x)} {_TOP}V{foot}" for x, _ in ticks)}"/>',
        *(f'<text x="8" y="{y + 16}">{escape(lane)}</text>' for lane, y in row.items()),
        *(f'<path class="{kind}" d="{_filled([bar for bar in bars if bar.kind == kind], row, across)}"/>' for kind in kinds),
        *(_message(across(its.sent_s), across(its.arrived_s), row[its.source], row[its.target]) for its in timeline.arrows),
        *_labels(bars, row, across),
        *(f'<text class="dim" x="{_number(x)}" y="{foot + 16}" text-anchor="middle">{at:g}</text>' for x, at in ticks),
        f'<text class="dim" x="8" y="{foot + 16}">Time ({unit})</text>',
        *legend,
    ]
    fills = {f".{kind}": f"part-{'exposed-communication' if kind == 'communication' else kind}" for kind in kinds}
    return _picture(picture.title, height, fills, {}, parts)


def _filled(bars: list[Bar], row: Mapping[str, int], across: Callable[[float], float]) -> str:
    """One path of rectangles."""
    found = []
    for bar in bars:
        left, right = across(bar.start_s), across(bar.end_s)
        if right - left >= _NARROWEST:
            width, top = _number(max(right - left - 0.3, 0.3)), row[bar.lane] + (_LANE - _BAR) // 2
            found.append(f"M{_number(left)} {top}h{width}v{_BAR}h-{width}z")
    return "".join(found)


def _labels(bars: list[Bar], row: Mapping[str, int], across: Callable[[float], float]) -> Iterator[str]:
    """Micro-batches, by their numbers, where these fit."""
    for bar in bars:
        left, right = across(bar.start_s), across(bar.end_s)
        if bar.label and right - left > len(bar.label) * _LETTER:
            yield f'<text class="on" x="{_number((left + right) / 2)}" y="{row[bar.lane] + 17}">{bar.label}</text>'


def _message(sent: float, arrived: float, source: int, target: int) -> str:
    begin, end = (source + _BAR + 3, target + 3) if target > source else (source + 3, target + _BAR + 3)
    return f'<path class="message" d="M{_number(sent)} {begin}L{_number(arrived)} {end}"/>'


def _legend(labels: Mapping[str, str], top: int) -> tuple[list[str], int]:
    """The colours that occur, in lines that fit; and where the picture ends."""
    found, x = [], 8.0
    for name, label in labels.items():
        width = 30 + len(label) * _LETTER
        if x + width > _WIDTH:
            x, top = 8.0, top + 20
        found.append(f'<rect class="{name}" x="{_number(x)}" y="{top - 11}" width="12" height="12" rx="2"/>')
        found.append(f'<text x="{_number(x + 17)}" y="{top}">{escape(label)}</text>')
        x += width
    return found, top + 14


_CHART = 200


def _chart(curves: Curves) -> str:
    """Lines over the number of replicas, each in the band of its interval."""
    left, foot = 56, _TOP + _CHART
    first, last = math.log2(curves.replicas[0]), math.log2(curves.replicas[-1])

    def across(count: float) -> str:
        return _number(left + (_WIDTH - left - 3 * _RIGHT) * (math.log2(count) - first) / (last - first))

    def down(share: float) -> str:
        return _number(foot - _CHART * share / 1.05)

    shares = [0, 0.25, 0.5, 0.75, 1]
    parts = [f'<path class="grid" d="{"".join(f"M{left} {down(share)}H{_WIDTH - _RIGHT}" for share in shares)}"/>']
    parts += [f'<text class="dim" x="8" y="{float(down(share)) + 4:.0f}">{share:.0%}</text>' for share in shares]
    parts += [f'<text class="dim" x="{across(count)}" y="{foot + 18}" text-anchor="middle">{count}</text>' for count in curves.replicas]
    parts += [f'<text class="dim" x="{_WIDTH // 2}" y="{foot + 38}" text-anchor="middle">Replicas</text>']
    for index, case in enumerate(curves.cases, start=1):
        points = curves.points(case)
        upper = [f"{across(count)} {down(min(its.high, 1.05))}" for count, its in points]
        lower = [f"{across(count)} {down(its.low)}" for count, its in reversed(points)]
        parts.append(f'<path class="band fill{index}" d="M{"L".join(upper + lower)}z"/>')
        parts.append(f'<path class="line line{index}" d="M{"L".join(f"{across(count)} {down(its.mean)}" for count, its in points)}"/>')
        parts += [f'<circle class="fill{index}" cx="{across(count)}" cy="{down(its.mean)}" r="3.5"/>' for count, its in points]
    legend, height = _legend({f"fill{index}": case for index, case in enumerate(curves.cases, start=1)}, foot + 62)
    numbers = range(1, len(curves.cases) + 1)
    fills, lines = ({f".{what}{index}": f"series-{index}" for index in numbers} for what in ("fill", "line"))
    return _picture(curves.title, height, fills, lines, [*parts, *legend])


_FARTHEST = 6.0


def _fidelity() -> str:
    """Predicted over measured of every setting that was held out, against what was measured; both axes are logarithmic."""
    its = {what: held_out(what) for what in HELD_AGAINST}
    measured = [value for points in its.values() for value, _ in points]
    first, last = math.log10(min(measured)) - 0.1, math.log10(max(measured)) + 0.1
    left, top, foot = 46, _TOP + 22, _TOP + _CHART + 60

    def across(value: float) -> float:
        return left + (_WIDTH - left - _RIGHT) * (math.log10(value) - first) / (last - first)

    def down(ratio: float) -> float:
        inside = min(max(ratio, 1 / _FARTHEST), _FARTHEST)
        return top + (foot - top) * (1 - math.log(inside) / math.log(_FARTHEST)) / 2

    ratios = (0.25, 0.5, 1, 2, 4)
    decades = [10.0**power for power in range(math.ceil(first), math.floor(last) + 1)]
    parts = [
        f'<text class="dim" x="8" y="{_TOP + 12}">Predicted over measured</text>',
        f'<path class="grid" d="{"".join(f"M{left} {_number(down(ratio))}H{_WIDTH - _RIGHT}" for ratio in ratios)}"/>',
        *(f'<text class="dim" x="8" y="{down(ratio) + 4:.0f}">{ratio:g}</text>' for ratio in ratios),
        *(
            f'<text class="dim" x="{_number(across(at))}" y="{foot + 18}" text-anchor="middle">{written(at, "tick")}</text>'
            for at in decades
        ),
        f'<text class="dim" x="{_WIDTH // 2}" y="{foot + 38}" text-anchor="middle">Measured: samples, tokens or updates per second</text>',
    ]
    legend, height = [], foot + 62
    colours = dict(
        zip((f"{number}" for number in range(1, len(its) + 1)), ("series-1", "series-2", "series-3", "series-4", "ink"), strict=True)
    )
    for (what, points), index in zip(its.items(), colours, strict=True):
        places = dict.fromkeys((_number(across(value)), _number(down(predicted / value))) for value, predicted in points)
        dots = "".join(f"M{x} {y}h0" for x, y in places)
        parts.append(f'<path class="line{index}" fill="none" stroke-width="4" stroke-linecap="round" opacity=".7" d="{dots}"/>')
        size = statistics.median(abs(predicted / value - 1) for value, predicted in points)
        line, height = _legend({f"fill{index}": f"{what}: {len(points):,} rows, median error {format_share(size)}"}, height)
        legend += line
        height += 6
    parts.append(f'<path class="message" d="M{left} {_number(down(1))}H{_WIDTH - _RIGHT}"/>')
    fills, lines = ({f".{what}{index}": colour for index, colour in colours.items()} for what in ("fill", "line"))
    return _picture("Predicted over measured throughput", height, fills, lines, [*parts, *legend])


_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
_LEAST_IN_UNIT = 3.0
_AXIS = 26


def _job() -> str:
    """The whole job of a scenario, an epoch of each kind, and a fault; each group has an axis of its own."""
    strips = strips_of(simulate(load_scenario(ROOT / "models" / "scenarios" / "whole-job.toml")))
    left = 16 + max(len(its.name) for its in strips) * _LETTER
    parts, top, used = [], _TOP, {piece.part for its in strips for piece in its.pieces}
    for scale in dict.fromkeys(its.scale for its in strips):
        group = [its for its in strips if its.scale == scale]
        end_s = max(sum(piece.seconds for piece in its.pieces) for its in group)
        unit, seconds = next(its for its in _UNITS if end_s / its[1] >= _LEAST_IN_UNIT or its[1] == 1)
        pixels = (_WIDTH - left - _RIGHT) / end_s
        foot = top + _LANE * len(group)
        ticks = [(_number(left + at * seconds * pixels), at) for at in _ticks(end_s / seconds)]
        parts.append(f'<path class="grid" d="{"".join(f"M{x} {top}V{foot}" for x, _ in ticks)}"/>')
        parts += [f'<text class="dim" x="{x}" y="{foot + 16}" text-anchor="middle">{at:g}</text>' for x, at in ticks]
        parts.append(f'<text class="dim" x="8" y="{foot + 16}">Time ({unit})</text>')
        for row, its in enumerate(group):
            parts.append(f'<text x="8" y="{top + row * _LANE + 16}">{its.name}</text>')
            x = left
            for piece in its.pieces:
                width = piece.seconds * pixels
                parts.append(
                    f'<rect class="{piece.part}" x="{_number(x)}" y="{top + row * _LANE + 3}" width="{_number(width)}" height="{_BAR}"/>'
                )
                x += width
        top = foot + _AXIS
    labels = {part: label for part, label in PART_LABELS.items() if part in used}
    legend, height = _legend(labels, top + 14)
    fills = {f".{part}": colour.removeprefix("var(--").removesuffix(")") for part, colour in JOB_COLOURS.items() if part in used}
    return _picture("The whole job, its first epochs, and a fault", height, fills, {}, [*parts, *legend])


def drawn(name: str) -> str:
    """A picture, by its name."""
    if name == JOB:
        return _job()
    if name == FIDELITY:
        return _fidelity()
    if name in CURVES:
        return _chart(CURVES[name])
    picture = PICTURES[name]
    timeline = timeline_of(picture.scenario, name)
    if timeline is None:
        raise ValueError(f"{name}: no step ended")
    return _timeline(picture, timeline)


if __name__ == "__main__":
    for name in NAMES:
        (HERE / f"{name}.svg").write_text(drawn(name), encoding="utf-8")
