"""Draws the timelines of these pages, from simulated steps: ``make timelines``.

All but those of ``models/scenarios/`` are of one small model on one small cluster, so that pictures can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from paceline.reporting.figures import KIND_LABELS
from paceline.reporting.simulated import timeline_of
from paceline.reporting.timeline import Bar, Kind, Timeline
from simulator import Scenario, load_scenario, scenario_from_table

__all__ = ["PICTURES", "Picture", "drawn"]

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
    return {"strategy": {"kind": "parameter-server", "workers": 4, "servers": 2, **keys}}


def _hybrid(micro_batches: int = 1, **keys: Any) -> dict[str, dict[str, Any]]:
    return {"strategy": {"kind": "hybrid", "workers": 4, **keys}, "training": {"micro_batches": micro_batches}}


def _fed(**keys: Any) -> dict[str, dict[str, Any]]:
    """Four replicas of a node with an input pipeline each, whose batches take about as long as a step computes."""
    pipeline = {"work": {"serial": {"base": "0 s", "per_sample": "350 us"}}, "per": "replica", "jitter": {"kind": "gamma", "shape": 20}}
    return {"strategy": {"kind": "mirrored", "replicas": 4}, **NODE_OF_FOUR, "input": {**pipeline, **keys}}


NODE_OF_FOUR = {"cluster": {"devices_per_node": 4}}
FILLED = {"run": {"warmup_steps": 3}}
SPLIT = {"forward_bytes_per_sample": [30_000], "backward_bytes_per_sample": [30_000]}
EXPERTS = {"count": 4, "used": 1, "work": 0.8, "bytes_per_sample": 30_000}
ONE_SLOW = {"cluster": {"node_speed": [1, 1, 1, 0.5]}}
TWO_OF_TWO = {"cluster": {"devices_per_node": 2}}
NEIGHBOURS = {
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
    "ssp": Picture("One slow worker, and a bound of one step", _servers(mode="ssp", bound=1) | ONE_SLOW),
    "backup": Picture("One slow worker that is not waited for", _servers(mode="sync", backup_workers=1) | ONE_SLOW),
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
    "virtual-devices": Picture(
        "Four replicas on one device: they compute at the same time, exchange through its memory, and update", file="virtual-devices"
    ),
    "pipeline": Picture("Four stages, eight micro-batches, one forward one backward", file="pipeline"),
    "pipedream": Picture("Four stages that are never flushed", file="pipedream"),
    "tensor-pipeline": Picture("Two stages of four devices each", file="tensor-pipeline"),
    "fsdp": Picture("Sixteen copies that share parameters", file="fsdp"),
    "experts": Picture("Eight experts on eight devices, twice", file="experts"),
    "neighbours": Picture("Messages of the same size take 4, 8 and 16 ms", NEIGHBOURS, connections=True),
}


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


def _style(kinds: list[Kind]) -> str:
    """Colours follow the reader's preference; the picture has a background of its own, so that it can be read on any."""
    light, dark = _colours()
    part = {kind: f"part-{'exposed-communication' if kind == 'communication' else kind}" for kind in kinds}

    def rules(colours: Mapping[str, str]) -> str:
        fills = {".card": "paper", "text": "ink", ".dim": "muted", ".on": "paper", **{f".{kind}": name for kind, name in part.items()}}
        lines = {".grid": "rule", ".message": "muted"}
        return "".join(
            [f"{at}{{fill:{colours[name]}}}" for at, name in fills.items()]
            + [f"{at}{{stroke:{colours[name]}}}" for at, name in lines.items()]
        )

    fixed = "text{font:13px system-ui,sans-serif}.on{font-size:11px;text-anchor:middle}.grid,.message{fill:none}.message{stroke-width:.7}"
    return f"<style>{fixed}{rules(light)}@media(prefers-color-scheme:dark){{{rules(dark)}}}</style>"


def _ticks(end: float) -> list[float]:
    """Round numbers from 0 on, about six."""
    step = next(step for step in (base * 10.0**power for power in range(-3, 6) for base in (1, 2, 5)) if end / step <= 7)
    return [count * step for count in range(int(end / step) + 1)]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _svg(picture: Picture, timeline: Timeline) -> str:
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
    legend, height = _legend(kinds, foot + 40)
    ticks = [(across(at / scale), at) for at in _ticks(end_s * scale)]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img">',
        f"<title>{escape(picture.title)}</title>",
        _style(kinds),
        f'<rect class="card" width="{_WIDTH}" height="{height}" rx="6"/>',
        f'<path class="grid" d="{"".join(f"M{_number(x)} {_TOP}V{foot}" for x, _ in ticks)}"/>',
        *(f'<text x="8" y="{y + 16}">{escape(lane)}</text>' for lane, y in row.items()),
        *(f'<path class="{kind}" d="{_filled([bar for bar in bars if bar.kind == kind], row, across)}"/>' for kind in kinds),
        *(_message(across(its.sent_s), across(its.arrived_s), row[its.source], row[its.target]) for its in timeline.arrows),
        *_labels(bars, row, across),
        *(f'<text class="dim" x="{_number(x)}" y="{foot + 16}" text-anchor="middle">{at:g}</text>' for x, at in ticks),
        f'<text class="dim" x="8" y="{foot + 16}">Time ({unit})</text>',
        *legend,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


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


def _legend(kinds: list[Kind], top: int) -> tuple[list[str], int]:
    """The colours that occur, in lines that fit; and where the picture ends."""
    found, x = [], 8.0
    for kind in kinds:
        width = 30 + len(KIND_LABELS[kind]) * _LETTER
        if x + width > _WIDTH:
            x, top = 8.0, top + 20
        found.append(f'<rect class="{kind}" x="{_number(x)}" y="{top - 11}" width="12" height="12" rx="2"/>')
        found.append(f'<text x="{_number(x + 17)}" y="{top}">{KIND_LABELS[kind]}</text>')
        x += width
    return found, top + 14


def drawn(name: str) -> str:
    """A picture, by its name."""
    picture = PICTURES[name]
    timeline = timeline_of(picture.scenario, name)
    if timeline is None:
        raise ValueError(f"{name}: no step ended")
    return _svg(picture, timeline)


if __name__ == "__main__":
    for name in PICTURES:
        (HERE / f"{name}.svg").write_text(drawn(name), encoding="utf-8")
