"""The answer of several results: which setting to take, and from where on more brings little."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.answers import Answer, answer_of, confidence_of, limit_of, next_of, outcome_in_words, size_in_words, thing_counted, watch_out
from paceline.comparing import compare, fastest, is_condition, pays_until
from paceline.reporting.coordinates import Coordinates, Key
from paceline.sentences import chance_in_words
from simulator.base.text import format_number, format_share, format_usd, kind_of_setting, written
from simulator.results.results import Result

_ENOUGH = 0.05
"""What a larger value must bring to be worth having."""
_AS_TIMES = 2.0


def answer_of_several(results: Sequence[Result], at: Coordinates, best: int) -> Answer:
    """The answer of results that were compared.

    Parameters
    ----------
    results
        At least one.
    at
        Where each of them lies.
    best
        The place of the one that is recommended where nothing but strategies or clusters differ.
    """
    if len(results) == 1:
        return answer_of(results[0])
    index, headline = decided(results, at, best)
    result = results[index]
    sized, name = size_in_words(result), _in_words(result, at.title_of(index, conditions=False))
    there = [other for other, each in enumerate(results) if each.ranks == result.ranks and at.conditions[other] == at.conditions[index]]
    if not headline:
        met = f" ({at.met_by(index)})" if at.met_by(index) else ""
        first = ("Shortest job" if result.job is not None else "Fastest") if len(there) > 1 else ""
        first = f"{first} on {sized}" if first else sized[:1].upper() + sized[1:]
        headline = f"{first}{met}: {name}, {outcome_in_words(result)}{_enough_of(results, at, index)}."
    confidence = confidence_of(result)
    rivals = [result, *(results[other] for other in there if other != index)]
    if len(rivals) > 1 and (runs := min(len(each.throughput_of_each_replication) for each in rivals)) > 1 and index == best:
        stake = fastest(rivals)[0]
        confidence = f"fastest of {len(rivals)} on {sized} with probability {chance_in_words(stake.best, runs)}; {confidence}"
    return Answer(
        headline=headline,
        figures=answer_of(result).figures,
        limit=limit_of(result),
        confidence=confidence,
        watch_out="; ".join(filter(None, (_batches_in_words(results, at, index), watch_out(result, more="in the report")))),
        next=next_of(result),
    )


def _in_words(result: Result, name: str) -> str:
    """The name of a result with its strategy as people say it: ``ring all-reduce`` without the name of a TensorFlow class."""
    strategy = result.scenario.strategy
    title = strategy.title()
    return (strategy.in_words + name[len(title) :] if name.startswith(title) else name).replace(" · ", ", ")


def decided(results: Sequence[Result], at: Coordinates, best: int) -> tuple[int, str]:
    """Return the place of the result that the headline names, and the headline; without one where nothing suffices, and no more pay."""
    return _suffices(results, at) or _pays(results, at) or (best, "")


def global_batches(results: Sequence[Result], at: Coordinates, index: int) -> list[int]:
    """Samples of a step of all workers, of a result and those of its size under its conditions; ascending."""
    ranks, met = results[index].ranks, at.conditions[index]
    there = (result for result, own in zip(results, at.conditions, strict=True) if result.ranks == ranks and own == met)
    return sorted({round(result.scenario.batch * result.replicas) for result in there})


def _batches_in_words(results: Sequence[Result], at: Coordinates, index: int) -> str:
    """Return that results of one size train with other global batches, and so learn differently, where nobody swept them."""
    smallest, *larger = global_batches(results, at, index)
    swept = any("batch" in key.path and len(key.values) > 1 for key in at.keys)
    return f"global batches differ, {smallest:,} to {larger[-1]:,} samples" if larger and not swept else ""


def _suffices(results: Sequence[Result], at: Coordinates) -> tuple[int, str] | None:
    """Return the most modest value of the only swept key that loses little against the best value, at the most workers."""
    key = _only_key(at)
    if key is None or is_condition(key.path) or len(at.curves) > 1 or any(result.job is not None for result in results):
        return None
    column, most = at.keys.index(key), max(result.ranks for result in results)
    ordered = sorted((index for index, result in enumerate(results) if result.ranks == most), key=lambda index: at.places[index][column])
    rates = [results[index].throughput_samples_per_s.mean for index in ordered]
    worse = "lower"
    if rates[0] > rates[-1]:  # such as a latency
        ordered, rates, worse = ordered[::-1], rates[::-1], "higher"
    top = ordered[rates.index(max(rates))]
    least = next(index for index, rate in zip(ordered, rates, strict=True) if rate >= (1 - _ENOUGH) * max(rates))
    first, last = (written(key.values[at.places[index][column]], kind_of_setting(key.path)) for index in (least, top))
    first = f"{key.name} {first}"
    sized = f"On {size_in_words(results[top])}, {first[:1].lower()}{first[1:]}" if len(at.keys[0].values) > 1 else first
    if least == top:
        return top, f"{sized} is fastest: {outcome_in_words(results[top])}; {worse} values lose more than {_ENOUGH:.0%}."
    loss = 1 - compare(results[least], results[top]).ratio.mean
    return least, f"{sized} suffices: {outcome_in_words(results[least])}, {format_share(max(loss, 0.0))} below {last}."


def _only_key(at: Coordinates) -> Key | None:
    """The one key that was swept besides the number of workers."""
    swept = [key for key in at.keys[1:] if len(key.values) > 1]
    return swept[0] if len(swept) == 1 else None


def _pays(results: Sequence[Result], at: Coordinates) -> tuple[int, str] | None:
    """Return up to how many workers pay, where results differ in nothing else."""
    line = sorted(range(len(results)), key=lambda index: results[index].ranks)
    if len(at.keys[0].values) < len(results) or len(at.curves) > 1 or len(results) == 1:
        return None
    jobs = [result.job for result in results if result.job is not None]
    if jobs:
        return _cheapest(results, line) if len(jobs) == len(results) else None
    last = pays_until([(results[index].ranks, results[index].throughput_samples_per_s.mean) for index in line])
    result, things = results[line[last]], f"{thing_counted(results).capitalize()}s"
    if last == len(line) - 1:
        return line[last], f"{things} pay off up to {result.ranks:,}, the most simulated: {outcome_in_words(result)}."
    after = results[line[last + 1]]
    ratio = compare(after, result).ratio.mean
    more = "nothing" if ratio <= 1 else f"{format_share(ratio - 1)}" if ratio < _AS_TIMES else f"{format_number(ratio, 2)} times as much"
    bring = f"{after.ranks:,} bring {'only ' if ratio > 1 else ''}{more}{' more' if ratio < _AS_TIMES else ''}"
    return line[last], f"{things} pay off up to {result.ranks:,}: {outcome_in_words(result)}; {bring}."


def _enough_of(results: Sequence[Result], at: Coordinates, index: int) -> str:
    """Return the smaller number of workers that are nearly as fast by the same choice; empty where fewer are slower."""
    own = (at.curve_of[index], at.places[index][1:])
    same = (result for result, curve, places in zip(results, at.curve_of, at.places, strict=True) if (curve, places[1:]) == own)
    least = (1 - _ENOUGH) * results[index].throughput_samples_per_s.mean
    enough = min(result.ranks for result in same if result.throughput_samples_per_s.mean >= least)
    return f"; {enough:,} are as fast" if enough < results[index].ranks and results[index].job is None else ""


def _cheapest(results: Sequence[Result], line: Sequence[int]) -> tuple[int, str] | None:
    """Return the cheapest and the shortest of whole jobs that differ only in their number of workers."""
    jobs = {index: job for index in line if (job := results[index].job) is not None}
    costs = {index: job.cost_usd.mean for index, job in jobs.items() if job.cost_usd is not None}
    shortest = min(jobs, key=lambda index: jobs[index].time_s.mean)
    cheapest = min(costs, key=costs.__getitem__, default=shortest)

    def said(index: int) -> str:
        cost = f", {format_usd(costs[index])}" if index in costs else ""
        return f"on {size_in_words(results[index])}: {written(jobs[index].time_s.mean, 'seconds')}{cost}"

    if cheapest == shortest:
        return shortest, f"{'Cheapest and shortest' if costs else 'Shortest'} {said(shortest)}."
    return cheapest, f"Cheapest {said(cheapest)}; shortest {said(shortest)}."
