"""Published trainings scaled from one device to another by each rule, compared with measurements there.

A row is predicted on another device from its own throughput here, and from nothing else
of its own: by pairs of other sources, with the scatter of other models; by a roofline with
every row of its model left out. Pairs of a source go from the older device to the newer, once each.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from calibrate.validation.comparison import Compared
from simulator.resolve.device_transfer import achieved, efficiency, moved_to, pair_range
from simulator.resolve.published_throughputs import Pair, PublishedThroughputs, Range, load_published_throughputs
from simulator.spec.accelerator import Accelerator, accelerators, spelled
from simulator.spec.figures import Estimate
from simulator.spec.workload import Affine, Variable, Workload, WorkloadRange

BY_PAIR = "moved, published pair"
BY_RATIO = "moved, two rooflines"
BY_ROOFLINE = "moved, one roofline"
MOVED_BY = (BY_PAIR, BY_RATIO, BY_ROOFLINE)
"""Groups of the rows, by the rule that led there."""
_KNOWN = {
    "Tesla K80 (one die)": "a K80 stays far below the peak of its highest boost clock; at its base clock it has two thirds of it",
    "tacotron2": "of two containers the newer gains nothing by mixed precision in this model on V100, the older does",
    "waveglow": "of two containers the newer gains nothing by mixed precision in this model on V100, the older does",
    "mask-rcnn": "MLPerf's rows, of eight devices each, are no faster on A100 than on V100",
}
"""Known errors, by model or device."""
_FORWARD = 1 / 3
"""Share of a step that the forward pass takes here; it does not matter."""
_USUAL_BATCH = 64
"""Where a source does not state its batch."""


def moved_rows(speeds: PublishedThroughputs | None = None) -> tuple[Compared, ...]:
    """Every published pair, predicted by each rule that leads there without it.

    Parameters
    ----------
    speeds
        Published rows; left out: those of the catalogue.

    Returns
    -------
    tuple
        Throughput of one device, measured and predicted with its range, in three groups:
        by pairs of the same model in other sources; by the ratio of two rooflines, without
        the model; and by the roofline of the device there alone, without the model, as from a
        processor.
    """
    speeds = load_published_throughputs() if speeds is None else speeds
    return (*_by_pair(speeds), *_by_ratio(speeds), *_by_roofline(speeds))


def _newer(pairs: tuple[Pair, ...]) -> Iterator[tuple[Pair, Accelerator, Accelerator]]:
    """Pairs of two devices with datasheets, from the older to the newer."""
    devices = accelerators()
    for pair in pairs:
        here, there = devices.get(spelled(pair.here)), devices.get(spelled(pair.there))
        if here is not None and there is not None and (here.year, here.memory_bandwidth_bytes_per_s, here.name) < (
            there.year, there.memory_bandwidth_bytes_per_s, there.name
        ):  # fmt: skip
            yield pair, here, there


def _by_pair(speeds: PublishedThroughputs) -> Iterator[Compared]:
    for pair, here, there in _newer(speeds.pairs):
        others = _without(speeds, source=pair.source).pairs_of(pair.model, pair.precision, pair.here, pair.there)
        if others:
            yield _compared(BY_PAIR, pair, here, there, pair_range(others, _without(speeds, model=pair.model).scatter))


@lru_cache(maxsize=128)
def _without(speeds: PublishedThroughputs, *, source: str | None = None, model: str | None = None) -> PublishedThroughputs:
    """Made once for all rows that it judges."""
    return speeds.without(source=source, model=model)


def _by_ratio(speeds: PublishedThroughputs) -> Iterator[Compared]:
    for pair, here, there in _newer(speeds.pairs):
        model = speeds.model_of(pair.model)
        if model is not None and here.peak(pair.precision) and there.peak(pair.precision):
            moved = moved_to(_workload(speeds, pair, here), there.name, (), _without(speeds, model=model.id)).moved
            assert moved is not None
            yield _compared(BY_RATIO, pair, here, there, Range(*moved.low_mid_high))


def _by_roofline(speeds: PublishedThroughputs) -> Iterator[Compared]:
    for row in achieved(speeds):
        known = efficiency(_without(speeds, model=row.model))
        if known is None:
            continue
        mean, low, high = (row.rate * share / row.efficiency for share in (known.mid, known.low, known.high))
        yield Compared(
            name=f"{row.model} in {row.precision}, {row.source}, {row.software}: {row.device}",
            group=BY_ROOFLINE,
            unit=row.unit,
            measured=(row.rate,),
            predicted=Estimate(mean=mean, low=low, high=high),
            settings={"table": row.source, "model": row.model, "precision": row.precision, "to": row.device, "source": row.url},
            note=_note(row.model, row.device),
        )


def _workload(speeds: PublishedThroughputs, pair: Pair, here: Accelerator) -> Workload:
    """What a profile would have said of the pair's training here: its time, and its model's operations where they were counted."""
    model = speeds.model_of(pair.model)
    batch = pair.batch or _USUAL_BATCH
    return Workload(
        name=pair.model,
        precision=pair.precision,
        batch_per_replica=batch,
        forward=Affine(base_s=0.0, per_sample_s=_FORWARD / pair.rate),
        backward=Affine(base_s=0.0, per_sample_s=(1.0 - _FORWARD) / pair.rate),
        variables=(Variable(name="all", size_bytes=4.0 * (model.parameters if model else 1), creation_index=0, ready=1.0),),
        calibrated=WorkloadRange(batch=(batch, batch), device=here.name),
        counted=model.counted(pair.precision) if model else None,
    )


def _compared(group: str, pair: Pair, here: Accelerator, there: Accelerator, factor: Range) -> Compared:
    low, mid, high = factor
    return Compared(
        name=f"{pair.model} in {pair.precision}, {pair.source}, {pair.software}: {here.name} to {there.name}",
        group=group,
        unit=pair.unit,
        measured=(pair.rate / pair.factor,),
        predicted=Estimate(mean=pair.rate / mid, low=pair.rate / high, high=pair.rate / low),
        baselines=_baselines(pair, here, there),
        settings={
            "table": pair.source, "model": pair.model, "precision": pair.precision, "from": here.name, "to": there.name, "source": pair.url
        },
        note=_note(pair.model, here.name, there.name),
    )  # fmt: skip


def _note(*names: str) -> str:
    return "; ".join(_KNOWN[name] for name in names if name in _KNOWN)


def _baselines(pair: Pair, here: Accelerator, there: Accelerator) -> dict[str, float]:
    """Throughput if it grew as the device's peak, or as its memory's bandwidth."""
    found = {"bandwidth": pair.rate * there.memory_bandwidth_bytes_per_s / here.memory_bandwidth_bytes_per_s}
    peaks = here.peak(pair.precision), there.peak(pair.precision)
    if peaks[0] and peaks[1]:
        found["peak"] = pair.rate * peaks[1] / peaks[0]
    return found
