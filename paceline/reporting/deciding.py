"""The answer of several results: which setting to take, and from where on more brings little."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.answers import Answer, answer_of, confidence_of, limit_of, next_of, outcome_in_words, size_in_words, watch_out
from paceline.comparing import compare, fastest, is_condition, pays_until
from paceline.reporting.coordinates import Coordinates, Key
from paceline.sentences import chance_in_words
from simulator.base.text import format_share, kind_of_setting, written
from simulator.results.results import Result

_ENOUGH = 0.05
"""What a larger value must bring to be worth having."""


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
    index, headline = _suffices(results, at) or _pays(results, at) or (best, "")
    result = results[index]
    sized, name = size_in_words(result), at.title_of(index, conditions=False)
    there = [other for other, each in enumerate(results) if each.ranks == result.ranks and at.conditions[other] == at.conditions[index]]
    if not headline:
        met = f" ({at.met_by(index)})" if at.met_by(index) else ""
        headline = f"{'Fastest' if len(there) > 1 else 'Largest'} on {sized}{met}: {name}, {outcome_in_words(result)}."
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
        watch_out=watch_out(result, more="in the report"),
        next=next_of(result),
    )


def _suffices(results: Sequence[Result], at: Coordinates) -> tuple[int, str] | None:
    """Of one key with numbers, besides that of workers, the least value that loses little against the best, with the most workers."""
    key = _only_key(at)
    if key is None or is_condition(key.path) or len(at.curves) > 1 or any(result.job is not None for result in results):
        return None
    column, most = at.keys.index(key), max(result.ranks for result in results)
    ordered = sorted((index for index, result in enumerate(results) if result.ranks == most), key=lambda index: at.places[index][column])
    rates = [results[index].throughput_samples_per_s.mean for index in ordered]
    top = ordered[rates.index(max(rates))]
    least = next(index for index, rate in zip(ordered, rates, strict=True) if rate >= (1 - _ENOUGH) * max(rates))
    first, last = (written(key.values[at.places[index][column]], kind_of_setting(key.path)) for index in (least, top))
    first = f"{key.name} {first}"
    sized = f"On {size_in_words(results[top])}, {first[:1].lower()}{first[1:]}" if len(at.keys[0].values) > 1 else first
    if least == top:
        return top, f"{sized} is fastest: {outcome_in_words(results[top])}; lower values lose more than {_ENOUGH:.0%}."
    loss = 1 - compare(results[least], results[top]).ratio.mean
    return least, f"{sized} suffices: {outcome_in_words(results[least])}, {format_share(max(loss, 0.0))} below {last}."


def _only_key(at: Coordinates) -> Key | None:
    """The one key that was swept besides the number of workers."""
    swept = [key for key in at.keys[1:] if len(key.values) > 1]
    return swept[0] if len(swept) == 1 else None


def _pays(results: Sequence[Result], at: Coordinates) -> tuple[int, str] | None:
    """Of results that differ in their number of workers alone: up to where more of them pay."""
    line = sorted(range(len(results)), key=lambda index: results[index].ranks)
    if len(at.keys[0].values) < len(results) or len(at.curves) > 1 or any(result.job is not None for result in results):
        return None
    last = pays_until([(results[index].ranks, results[index].throughput_samples_per_s.mean) for index in line])
    result = results[line[last]]
    if last == len(line) - 1:
        return line[last], f"More workers pay up to {size_in_words(result)}, the most simulated: {outcome_in_words(result)}."
    after = results[line[last + 1]]
    gain = compare(after, result).ratio.mean - 1
    bring = f"{size_in_words(after)} bring {format_share(gain)} more" if gain > 0 else f"{size_in_words(after)} bring nothing more"
    return line[last], f"More workers pay up to {size_in_words(result)}: {outcome_in_words(result)}; {bring}."
