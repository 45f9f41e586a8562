"""In which order a stage of a pipeline computes its micro-batches.

A schedule is a list of passes for each stage; a stage begins them in this order, each as
soon as what it needs has come. Of what they need: a forward pass the activations of the
stage before, a backward pass the gradients of the stage after and its own forward pass.
A new schedule also needs its bubble (``bubble_of`` in described.py) and the software that
runs it (``_RUN_BY`` in hybrid.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

Schedule = Literal["1f1b", "gpipe", "interleaved", "zero-bubble", "pipedream"]
Does = Literal["forward", "backward", "weights"]


class Pass(NamedTuple):
    """One pass of a stage.

    Attributes
    ----------
    does
        forward; backward: the gradients of what it was given, and those of weights unless these are computed apart; weights: those.
    micro_batch
        Which, from 0 on.
    chunk
        Which of the stage's parts of the model.
    """

    does: Does
    micro_batch: int
    chunk: int = 0


@lru_cache(maxsize=256)
def passes(schedule: Schedule, stages: int, micro_batches: int, chunks: int = 1) -> tuple[tuple[Pass, ...], ...]:
    """The passes of a step of each stage, in their order; shape (stages, passes).

    Parameters
    ----------
    schedule
        gpipe: all forward passes, then all backward passes (Huang et al., NeurIPS 2019, section 2.3). 1f1b: as few forward passes as
        fill the pipeline, then one backward pass for each (PipeDream-Flush: Narayanan et al., ICML 2021, section 2.2). interleaved: so
        with several chunks a stage, in turns of as many micro-batches as there are stages (Narayanan et al., SC 2021, section 2.2.2;
        needs a multiple of them). zero-bubble: backward passes are parted, and gradients of weights fill what would be idle, with no
        more activations kept than the first stage keeps by 1f1b (ZB-H1: Qi et al., ICLR 2024, section 2.1).
        pipedream: one forward and one backward pass a
        step, of an earlier step by as many as stages follow (Narayanan et al., SOSP 2019, section 3.2).
    stages, micro_batches, chunks
        How many.
    """
    return tuple(map(tuple, _ORDERS[schedule](stages, micro_batches, chunks)))


@lru_cache(maxsize=256)
def in_flight(schedule: Schedule, stages: int, micro_batches: int, chunks: int = 1) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Micro-batches whose activations a stage keeps of each of its chunks, at the moments of a step at which that may be most.

    Whatever the activations of each chunk take, together they take most at one of these. Arguments are those of :func:`passes`.

    Returns
    -------
    tuple of tuple of tuple
        Of each stage its moments, each with a number for each chunk; none of them has as many or fewer of every chunk than another.
    """
    return tuple(_kept_of(order, chunks) for order in passes(schedule, stages, micro_batches, chunks))


def _kept_of(order: Sequence[Pass], chunks: int) -> tuple[tuple[int, ...], ...]:
    last: Does = "weights" if any(each.does == "weights" for each in order) else "backward"
    now, seen = [0] * chunks, {(0,) * chunks}
    for each in order:
        now[each.chunk] += (each.does == "forward") - (each.does == last)
        seen.add(tuple(now))
    ranked = sorted(seen, key=lambda its: (-sum(its), its))
    kept: list[tuple[int, ...]] = []
    for its in ranked:  # one that has more in all comes before all that it covers
        if not any(all(mine <= other for mine, other in zip(its, one, strict=True)) for one in kept):
            kept.append(its)
    return tuple(kept)


def _gpipe(stages: int, micro_batches: int, chunks: int) -> list[list[Pass]]:
    del chunks
    forward = [Pass("forward", number) for number in range(micro_batches)]
    return [forward + [Pass("backward", number) for number in reversed(range(micro_batches))] for _ in range(stages)]


def _one_by_one(stages: int, micro_batches: int, chunks: int) -> list[list[Pass]]:
    found = []
    for stage in range(stages):
        forward = [_interleaved_pass("forward", number, stages, chunks) for number in range(micro_batches * chunks)]
        backward = [_interleaved_pass("backward", number, stages, chunks) for number in range(micro_batches * chunks)]
        ahead = stages - 1 - stage if chunks == 1 else 2 * (stages - 1 - stage) + (chunks - 1) * stages
        ahead = min(ahead, len(forward))
        order = forward[:ahead]
        for number, each in enumerate(forward[ahead:]):
            order += [each, backward[number]]
        found.append(order + backward[len(forward) - ahead :])
    return found


def _interleaved_pass(does: Does, number: int, stages: int, chunks: int) -> Pass:
    """The ``number``-th pass of its kind: of as many micro-batches as there are stages one chunk, then the next."""
    if chunks == 1:
        return Pass(does, number)
    turn, within = divmod(number, stages * chunks)
    chunk = within // stages
    return Pass(does, turn * stages + within % stages, chunk if does == "forward" else chunks - 1 - chunk)


def _pipedream(stages: int, micro_batches: int, chunks: int) -> list[list[Pass]]:
    del micro_batches, chunks
    return [[Pass("forward", 0), Pass("backward", 0)] for _ in range(stages)]


def _zero_bubble(stages: int, micro_batches: int, chunks: int) -> list[list[Pass]]:
    """As 1f1b, but gradients of weights are put off: the further from the first stage, the longer, so that all keep as much."""
    del chunks
    found = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, micro_batches)
        order = [Pass("forward", number) for number in range(ahead)]
        weights = 0
        for number in range(micro_batches):
            drains = number >= micro_batches - ahead
            order += [] if drains else [Pass("forward", ahead + number)]
            order.append(Pass("backward", number))
            if drains or number >= stage:
                order.append(Pass("weights", weights))
                weights += 1
        found.append(order + [Pass("weights", number) for number in range(weights, micro_batches)])
    return found


_ORDERS: dict[Schedule, Callable[[int, int, int], list[list[Pass]]]] = {
    "1f1b": _one_by_one,
    "gpipe": _gpipe,
    "interleaved": _one_by_one,
    "zero-bubble": _zero_bubble,
    "pipedream": _pipedream,
}
