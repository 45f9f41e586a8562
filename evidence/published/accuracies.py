"""Accuracy lost to stale gradients: published trainings of ResNet-32 compared with a stand-in that learns with the same schedules.

CIFAR-10 comes with nothing that Paceline may install, so the stand-in is ``digits-cnn``, a small CNN on 8 x 8 pixels. It makes as many
passes over its data with as many images a gradient as the published trainings, by the schedules of their scenarios
(:mod:`evidence.published.trainings`), at the rate that its optimizer has and at that of ``resnet_cifar_32_vanilla`` in
cake-lab/transient-deep-learning@df8091e4 (0.1). Synchronous training is also shown at eight times the rate (Goyal et al., "Accurate, large
minibatch SGD", 2017). Nothing was chosen by what came out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evidence.published.trainings import GRADIENTS, published, switched, trainings_of
from evidence.rows import rows_in
from paceline.learning import Contender, Course, Target, contenders_of
from paceline.learning import learn as replayed
from paceline.sweeping.grid import axes_of

PROBLEM = "digits-cnn"
BATCH = 128
EPOCHS = GRADIENTS * BATCH / 50_000
"""Passes over the training data; CIFAR-10 has 50,000 images to train on."""
RATES = (1.0, 0.1)
"""Times the optimizer's 0.05: its own; the other was added when eight workers had learned nothing at that."""
LINEARLY_SCALED = 8.0
SHARES = (0.05, 0.10)
"""Of gradients before the switch, as published."""
WORKERS = (1, 2, 4, 8)
SEEDS = 3
_SYNCHRONOUS = "synchronous, 8 workers"
_COLUMNS = ("way", "rate", "seed", "staleness", "accuracy", "loss", "diverged")


class Accuracy(NamedTuple):
    """Final accuracies of published trainings of one way."""

    way: str
    values: tuple[float, ...]


class Learnt(NamedTuple):
    """How good the stand-in was in the end: one seed of a way at one rate."""

    way: str
    rate: float
    seed: int
    staleness: float
    accuracy: float
    loss: float
    diverged: bool


def published_accuracies() -> tuple[Accuracy, ...]:
    """By way of training; trainings that switch after 5% had workers that were slowed down, those after 10% several rules of momentum."""
    found = []
    for (device, servers), runs in published().items():
        for workers in dict.fromkeys(one.workers for one in runs):
            its = tuple(one.accuracy for one in runs if one.workers == workers and one.accuracy is not None)
            where = f"{servers} server{'s' if servers > 1 else ''}" if servers else "no server"
            found.append(Accuracy(f"asynchronous, {workers} x {device}, {where}", its))
    for way, share in (("asynchronous", 0.0), ("synchronous", 1.0), *(("switched", share) for share in SHARES)):
        its = tuple(one.accuracy for one in switched() if one.way == way and abs(one.synchronous_share - share) < 0.005)
        found.append(Accuracy(_of_eight(way, share), its))
    return tuple(found)


def _of_eight(way: str, share: float) -> str:
    return f"synchronous for {share:.0%}, then asynchronous, 8 workers" if way == "switched" else f"{way}, 8 workers, 8 servers"


def ways() -> dict[str, Contender]:
    """Ways of training by their names, all with one server, by the scenarios of on-demand K80s.

    Sync-Switch's eight servers are more than the stand-in has variables, so that it could not be spread over them; staleness is the same.
    """
    scenario = {key: its for key, its in trainings_of("K80", 1)[8].items() if key != "job"}
    strategies = ("sync-ps", *(f"sync-ps/async-ps@{share}" for share in SHARES))
    names = [f"asynchronous, {count} worker{'s' if count > 1 else ''}" for count in WORKERS]
    names += [_SYNCHRONOUS, *(_of_eight("switched", share) for share in SHARES)]
    contenders = [
        *contenders_of(scenario, axes_of({"strategy.workers": list(WORKERS)}), ["async-ps"], (), None),
        *contenders_of(scenario, (), strategies, (), None),
    ]
    return dict(zip(names, contenders, strict=True))


def learnt(
    measurements: Path,
    rates: Sequence[float] = RATES,
    *,
    chosen: Iterable[str] | None = None,
    seeds: int = SEEDS,
    epochs: float = EPOCHS,
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[Learnt, ...]:
    """Let the stand-in learn in every way at every rate; synchronous training also at the rate scaled with its batch.

    Parameters
    ----------
    measurements
        Folder of replays; what is there is not replayed again.
    chosen
        Names of ways; left out: all.
    """
    every = ways()
    names = list(every) if chosen is None else list(chosen)
    found: list[Learnt] = []
    for rate in rates:
        found += _learnt([(name, every[name]) for name in names], rate, measurements, seeds, epochs, progress)
    if _SYNCHRONOUS in names:
        found += _learnt([(_SYNCHRONOUS, every[_SYNCHRONOUS])], LINEARLY_SCALED, measurements, seeds, epochs, progress)
    return tuple(found)


def _learnt(
    named: Sequence[tuple[str, Contender]], rate: float, measurements: Path, seeds: int, epochs: float, progress: Any
) -> Iterator[Learnt]:
    course = Course(
        PROBLEM, Target.of("accuracy=0.95"), measurements, epochs, seeds, (rate,), checkpoints=4, timeout_s=3600.0,
        progress=progress or (lambda *_: None),
    )  # fmt: skip
    its = replayed([contender for _, contender in named], course)
    for (name, _), way in zip(named, its.ways, strict=True):
        for run in way.runs:
            last = run.points[-1].metrics
            yield Learnt(
                name, rate, run.seed, way.staleness, last.get("accuracy", math.nan), last.get("loss", math.nan), run.diverged
            )  # fmt: skip


def learnt_from(path: Path) -> tuple[Learnt, ...]:
    """What ``--learnt`` wrote."""
    return tuple(
        Learnt(
            row["way"], float(row["rate"]), int(row["seed"]), float(row["staleness"]), float(row["accuracy"]), float(row["loss"]),
            row["diverged"] == "True",
        )
        for row in rows_in(path)
    )  # fmt: skip
