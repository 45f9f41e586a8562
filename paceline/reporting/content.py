"""Everything that a report's page says, from results: what was asked, what the answer is, how far it can be trusted. No file, no drawing.

The templates read the attributes of :class:`Content` by name, as ``report``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from paceline.answers import Answer as Said
from paceline.comparing import LITTLE, NOTHING, compare, has_effect, pays_until, rank, rivals_of, verdict
from paceline.planning.sentences import answer_of_plan
from paceline.reporting.coordinates import Coordinates, coordinates_of, setting_name
from paceline.reporting.deciding import answer_of_several
from paceline.reporting.reproduce import Recipe, recipe_of
from paceline.sentences import doubled_in_words, helpfulness
from simulator.base.errors import ResultsError
from simulator.base.text import clean, counted, format_number, format_seconds, format_share, format_throughput, format_usd, listed, written
from simulator.results.cost import placement_of, usd_per_hour, why_no_cost
from simulator.results.results import Failure, Result
from simulator.spec.figures import WARNINGS, Estimate, Warned
from simulator.spec.workload import Workload

if TYPE_CHECKING:
    from paceline.learning.learned import Learned
    from paceline.planning.answer import Plan
    from paceline.reporting.measured import Overlay
    from paceline.reporting.timeline import Timeline

_MOST_EXPLAINED = 3


@dataclass(frozen=True)
class Answer:
    """The fastest result among those with the most ranks that all curves have, and what else must be said of it.

    Attributes
    ----------
    index, result
        Which one it is among the results.
    name
        Its curve, and its settings where more than the number of replicas is swept.
    choice, met
        The same without what nobody chooses, and that in words.
    peak, peak_name
        The highest throughput anywhere, where that is elsewhere and its runs leave no doubt.
    alone
        Whether there is nothing to compare it with.
    of_each_batch
        Where those it is compared with train with other global batches: of each batch the fastest, its batch, name and throughput.
    batches_in_words
        That its rivals train with other global batches, and which is the fastest with each; empty where they do not.
    """

    index: int
    result: Result
    name: str
    choice: str
    met: str
    peak: Result | None
    peak_name: str
    alone: bool
    of_each_batch: tuple[tuple[int, str, float], ...] = ()
    batches_in_words: str = ""


@dataclass(frozen=True)
class Content:
    """Everything that the page says: what it is given, and what follows from that, worked out when it is asked for.

    Attributes
    ----------
    results
        Each scenario of each file once.
    at
        Where each of them stands.
    given_title
        In place of the workloads' names.
    notes
        Sentences that the report repeats, such as that a file was cut off.
    asked
        Hash of the scenario that was asked about: the answer is the fastest with as many ranks; left out: with the most.
    plan
        What a plan answered, if these are its results.
    measured
        Measured points and their predictions.
    timeline
        Some steps as a Gantt chart.
    sensitivity
        What single changes to the answer's configuration gain.
    learned
        What was learned with several ways of training.
    failures
        Scenarios that have no result, and why.
    of_layouts
        Of results that differ in how a model is cut some steps as a Gantt chart, by the hash of the scenario.
    """

    results: tuple[Result, ...]
    at: Coordinates
    given_title: str = ""
    notes: tuple[str, ...] = ()
    asked: str | None = None
    plan: Plan | None = None
    measured: Overlay | None = None
    timeline: Timeline | None = None
    sensitivity: tuple[Change, ...] = ()
    learned: Learned | None = None
    failures: tuple[Failure, ...] = ()
    of_layouts: Mapping[str, Timeline] = field(default_factory=dict)

    @cached_property
    def answer(self) -> Answer:
        """Return what a plan chose, else the best result (:func:`paceline.comparing.rank`) with as many ranks as what was asked about.

        Where nothing was, with the most ranks that all curves have. It is ranked among those that meet the same conditions as the first
        of them: nobody chooses how often machines fail.
        """
        results, at, hashes = self.results, self.at, [result.scenario_hash for result in self.results]
        planned: int | None = None
        if self.plan is not None:
            chosen = self.plan.chosen.result.scenario_hash
            if chosen not in hashes:
                raise ResultsError(
                    f"the plan's answer, scenario {chosen}, is not among the results; give the results file that `paceline plan` wrote "
                    "with it"
                )
            planned = hashes.index(chosen)
        asked = None if self.asked not in hashes else hashes.index(self.asked)
        ranks = results[planned].ranks if planned is not None else results[asked].ranks if asked is not None else _compared_at(results, at)
        there = [index for index, result in enumerate(results) if result.ranks == ranks]
        first = planned if planned is not None else asked if asked is not None else there[0]
        there = [index for index in there if at.conditions[index] == at.conditions[first]]
        best = planned if planned is not None else min(there, key=lambda index: rank(results[index]))
        rates = [result.throughput_samples_per_s.mean for result in results]
        top = max((index for index in range(len(results)) if at.conditions[index] == at.conditions[best]), key=rates.__getitem__)
        elsewhere = planned is None and results[best].job is None and compare(results[top], results[best]).ratio.low > 1.0
        of_each_batch = _fastest_of_each_batch([(_global_batch(results[index]), at.title_of(index), rates[index]) for index in there])
        return Answer(
            index=best,
            result=results[best],
            name=at.title_of(best),
            choice=at.title_of(best, conditions=False),
            met=at.met_by(best),
            peak=results[top] if elsewhere else None,
            peak_name=at.title_of(top) if elsewhere else "",
            alone=len(there) == 1,
            of_each_batch=of_each_batch,
            batches_in_words=_batches_in_words(of_each_batch, _global_batch(results[best]), at),
        )

    @cached_property
    def decision(self) -> Said:
        """What the page, or the terminal, says first."""
        if self.plan is not None:
            return answer_of_plan(self.plan)
        if self.learned is not None:
            return self.learned.answer
        return answer_of_several(self.results, self.at, self.answer.index)

    @property
    def counted(self) -> str:
        """Return what ``ranks`` of results are: ``replica``, or ``rank`` where some replicas are cut over several devices."""
        return _counted(self.results)

    @property
    def request(self) -> str:
        """Return what is asked, as a sentence without its end."""
        ranks = [result.ranks for result in self.results]
        loads = [result.scenario.workload for result in self.results]
        clusters = list(dict.fromkeys(result.scenario.cluster.name for result in self.results))
        several = f"{len(self.at.curves)} variants on " if len(self.at.curves) > 1 else "on "
        place = clean(clusters[0]) if len(clusters) == 1 else f"{len(clusters)} clusters"
        size = f"{f'{min(ranks):,} to ' if min(ranks) < max(ranks) else ''}{counted(max(ranks), self.counted)}"
        scalings = next(group.labels for group in self.at.groups if group.id == "scaling")
        batches = {load.batch_per_replica or load.global_batch for load in loads}
        return f"{several}{place}, {size}, {scaling_in_words(scalings, sorted(batch for batch in batches if batch is not None))}"

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """One of each name, in the order in which they first occur."""
        return tuple({result.scenario.workload.name: result.scenario.workload for result in reversed(self.results)}.values())[::-1]

    @property
    def title(self) -> str:
        """As it is given, or the workloads' names."""
        loads = self.workloads
        more = f" and {len(loads) - 2} more" if len(loads) > 2 else ""
        return clean(self.given_title) if self.given_title else " and ".join(clean(load.name) for load in loads[:2]) + more

    @cached_property
    def names(self) -> list[str]:
        """Of each result the name of its curve."""
        return [self.at.name_of(index) for index in range(len(self.results))]

    @cached_property
    def against(self) -> str:
        """The answer against the next fastest with as many ranks, of whole jobs with the time of that; empty where there is none."""
        results, answer = self.results, self.answer
        others = rivals_of(results, answer.index, self.at.conditions)
        if not others:
            return ""
        ours, theirs = answer.result, results[others[0]]
        name, more = self.at.title_of(others[0], conditions=False), len(others) - 1
        text = verdict(ours, theirs, "it", name, "there")
        if theirs.job is not None:
            text += f"; {'that' if name in text else name} takes {format_seconds(theirs.job.time_s.mean)}"
        text += f"; {'one other is' if more == 1 else f'{more} others are'} slower on average" if more else ""
        return text

    @property
    def line(self) -> list[Result]:
        """The answer and those that differ from it in nothing but the number of replicas, or ranks, ascending."""
        at, index = self.at, self.answer.index
        own = at.curve_of[index], at.places[index][1:]
        there = zip(self.results, at.curve_of, at.places, strict=True)
        return sorted((result for result, curve, place in there if (curve, place[1:]) == own), key=lambda result: result.ranks)

    @cached_property
    def stop(self) -> str:
        """Up to where more devices pay, on the answer's line; empty where it has one number of them."""
        line = self.line
        if len(line) < _PAIR:
            return ""
        if all(result.job is not None for result in line):
            return _jobs_to_stop_at(line)
        last = pays_until([(result.ranks, result.throughput_samples_per_s.mean) for result in line])
        thing, all_pay = _counted(line), last == len(line) - 1
        fewer, other = line[max(last - 1, 0) :][:2] if all_pay else line[last : last + 2]
        step = f"from {fewer.ranks:,} to {other.ranks:,} brings {_more(compare(other, fewer).ratio)} for {_times(fewer, other)}"
        return f"not before {counted(other.ranks, thing)}: {step}" if all_pay else f"at {counted(fewer.ranks, thing)}: {step}"

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Why some results have no cost, one sentence per cluster; of many, the first."""
        reasons = {
            result.scenario.cluster.name: why_no_cost(result.scenario) for result in self.results if usd_per_hour(result.scenario) is None
        }
        texts = tuple(reasons.values())
        more = len(texts) - _MOST_EXPLAINED
        return texts if more <= 0 else (*texts[:_MOST_EXPLAINED], f"{more} more clusters have no price either")

    @cached_property
    def hollow(self) -> int:
        """How many results lie beyond what was measured."""
        return sum(result.extrapolated for result in self.results)

    @property
    def uncalibrated(self) -> bool:
        """Return whether some workload does not record what was measured."""
        return any(load.calibrated is None and not load.is_computed for load in self.workloads)

    @cached_property
    def cares(self) -> list[str]:
        """Return what a reader must know before anything is built on the numbers, each a sentence without its end."""
        count, loads, cares = len(self.results), self.workloads, []
        if self.hollow and not (self.plan is not None and self.plan.sentences):
            which = "the result lies" if count == 1 else f"all {count:,} results lie" if self.hollow == count else ""
            among = ", this one among them," if self.answer.result.extrapolated else ""
            cares.append(f"{which or f'{self.hollow:,} of {count:,} results{among} lie'} beyond what was measured (drawn hollow)")
        if not self.hollow and self.uncalibrated:
            some, they = ("", "it") if len(loads) == 1 else (" for some workloads", "they")
            cares.append(f"what was measured is not recorded{some}, so nothing tells how far {they} can be trusted")
        if any(warned.code == "disturbed-calibration" for result in self.results for warned in result.warnings):
            cares.append("the workload was calibrated on a busy machine, so its times may be too long and too uneven")
        if computed := [load.name for load in loads if load.is_computed]:
            cares.append(f"nobody measured {_and_more(computed)}: times are computed from the model’s dimensions")
        clusters = [result.scenario.cluster for result in self.results]
        if assumed := list(dict.fromkeys(cluster.name for cluster in clusters if cluster.basis == "assumed")):
            cares.append(f"the network ({_and_more(assumed)}) is assumed, not measured")
        if any(load.uncertainty is None for load in loads):
            cares.append("the workload carries no uncertainty, so intervals hold only the variation from run to run")
        return cares

    @cached_property
    def warnings(self) -> tuple[WarningGroup, ...]:
        """Those of all results by code and path, the most frequent first."""
        grouped: dict[tuple[str, str, str], list[tuple[Warned, str, Result]]] = {}
        for name, result in zip(self.names, self.results, strict=True):
            for warned in result.warnings:
                key = warned.code, warned.path, str(warned.value) if warned.code in _ONE_OF_EACH else ""
                grouped.setdefault(key, []).append((warned, name, result))
        order = sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0]))
        return tuple(_group(code, path, held, len(self.results)) for (code, path, _), held in order)

    @cached_property
    def recipe(self) -> Recipe:
        """How to get the numbers again."""
        return recipe_of(self.results, self.names)


def content_of(
    results: Sequence[Result],
    notes: Sequence[str] = (),
    *,
    labels: Sequence[str] | None = None,
    title: str = "",
    **sections: Any,
) -> Content:
    """Arrange results for reading.

    Parameters
    ----------
    results
        At least one; in any order. Of results of the same scenario in the same file the last counts.
    labels
        Of each result, the file that it comes from, where several are compared.
    notes, title, sections
        As :class:`Content` has them.

    Raises
    ------
    ResultsError
        There is no result, or not one label per result, or a plan's answer is not among them.
    """
    if not results:
        raise ResultsError("a report needs at least one result")
    if labels is not None and len(labels) != len(results):
        raise ResultsError(f"a report of {len(results)} results needs as many labels, not {len(labels)}")
    sources = list(labels) if labels is not None else [""] * len(results)
    last = {(source, result.scenario_hash): index for index, (source, result) in enumerate(zip(sources, results, strict=True))}
    unique = tuple(results[index] for index in last.values())
    all_notes = (*notes, *filter(None, [doubled_in_words(len(results) - len(unique))]))
    at = coordinates_of(unique, None if labels is None else [source for source, _ in last])
    content = Content(unique, at, title, all_notes, **sections)
    content.answer  # noqa: B018 - which a plan may name in vain
    return content


def scaling_in_words(scalings: Sequence[str], batches: Sequence[int]) -> str:
    """Return what is kept as workers are added: ``weak``, the batch of each replica, or ``strong``, that of all; batch sizes ascend."""
    batch = f"{batches[0]:,}"
    if len(batches) > 1:
        batch = f"{batch} {'to' if len(batches) > 2 else 'and'} {batches[-1]:,}"
    if len(scalings) > 1:
        return f"weak and strong scaling: {'batches' if len(batches) > 1 else 'a batch'} of {batch} samples"
    weak = scalings[0] == "weak"
    if len(batches) > 1:
        whose = "each replica" if weak else "all replicas together"
        return f"{scalings[0]} scaling with several batches: {batch} samples of {whose}"
    return f"{scalings[0]} scaling: {'each replica keeps its' if weak else 'all replicas share a'} batch of {batch} samples"


def _counted(results: Sequence[Result]) -> str:
    return "replica" if all(result.ranks == result.replicas for result in results) else "rank"


def _and_more(names: Sequence[str]) -> str:
    return clean(names[0]) + (f" and {len(names) - 1} more" if len(names) > 1 else "")


_PAIR = 2


def _more(ratio: Estimate) -> str:
    """Return what a step brings, such as ``35% more (20% to 41%)``."""
    change = ratio.mean - 1
    if abs(change) < NOTHING:
        return "nothing"
    return f"{format_share(abs(change))} {'more' if change > 0 else 'less'}"


def _times(fewer: Result, other: Result) -> str:
    """How many times the machines, or where these are as many the devices."""
    nodes, more = (placement_of(result.scenario).nodes for result in (fewer, other))
    things, times = ("machines", more / nodes) if more != nodes else ("devices", other.ranks / fewer.ranks)
    return f"twice the {things}" if times == 2 else f"{format_number(times, 2).removesuffix('.0')} times the {things}"


def _jobs_to_stop_at(line: Sequence[Result]) -> str:
    """Of whole jobs the cheapest and the shortest."""
    jobs = [(result.job, result.ranks) for result in line if result.job is not None]
    shortest, most = min(jobs, key=lambda pair: pair[0].time_s.mean)
    text = f"shortest with {most:,}: {format_seconds(shortest.time_s.mean)}"
    text += f" for {format_usd(shortest.cost_usd.mean)}" if shortest.cost_usd is not None else ""
    priced = [(job.cost_usd.mean, job, ranks) for job, ranks in jobs if job.cost_usd is not None]
    if not priced:
        return text
    cost, cheapest, ranks = min(priced, key=lambda pair: pair[0])
    if ranks == most:
        return f"{text}, which is also cheapest"
    return f"cheapest with {ranks:,}: {format_seconds(cheapest.time_s.mean)} for {format_usd(cost)}; {text}"


def _compared_at(results: Sequence[Result], at: Coordinates) -> int:
    """The most ranks that all curves have, or all but those of one device; the most of any where there is no such number."""
    of: dict[int, set[int]] = {}
    for curve, result in zip(at.curve_of, results, strict=True):
        of.setdefault(curve, set()).add(result.ranks)
    several = [counts for counts in of.values() if max(counts) > 1]
    common = set.intersection(*several) if several else set()
    return max(common - {1}, default=max(result.ranks for result in results))


def _batches_in_words(of_each: Sequence[tuple[int, str, float]], own: int, at: Coordinates) -> str:
    if not of_each:
        return ""
    smallest, *_, largest = of_each
    differ = f"global batches differ, {smallest[0]:,} to {largest[0]:,} samples, and with them what is learned"
    if any("batch" in key.path and len(key.values) > 1 for key in at.keys):
        return differ
    batch, name, rate = smallest if smallest[0] != own else largest
    return f"{differ}. With {batch:,} the fastest is {clean(name)}: {format_throughput(rate)} samples/s"


def _global_batch(result: Result) -> int:
    """Samples that all replicas take per step."""
    return round(result.scenario.batch * result.replicas)


def _fastest_of_each_batch(compared: Sequence[tuple[int, str, float]]) -> tuple[tuple[int, str, float], ...]:
    """Of each global batch the fastest; nothing where all have the same."""
    fastest: dict[int, tuple[int, str, float]] = {}
    for candidate in compared:
        if candidate[0] not in fastest or candidate[2] > fastest[candidate[0]][2]:
            fastest[candidate[0]] = candidate
    return tuple(fastest[batch] for batch in sorted(fastest)) if len(fastest) > 1 else ()


# -- warnings, said once each with the results that they are about -------------------------


_ONE_OF_EACH = ("moved-device", "servers-not-moved", "device-not-known")
"""About a device: each device by itself, with a sentence that says its range."""


@dataclass(frozen=True)
class WarningGroup:
    """One kind of warning about one setting.

    Attributes
    ----------
    setting
        What is warned about, in words.
    texts
        What the warnings say: all where they are few, else the first and the last.
    values
        The values warned about, as text: one, or "smallest to largest".
    affected
        (name of the curve, its numbers of ranks) of the results that carry it.
    """

    code: str
    title: str
    setting: str
    texts: tuple[str, ...]
    values: str
    range: tuple[float, float] | None
    affected: tuple[tuple[str, tuple[int, ...]], ...]
    all_results: bool


def _group(code: str, path: str, held: list[tuple[Warned, str, Result]], of: int) -> WarningGroup:
    ordered = sorted((warned for warned, *_ in held), key=lambda warned: warned.value if isinstance(warned.value, float) else 0.0)
    texts = tuple(dict.fromkeys(warned.text for warned in ordered))
    values = tuple(dict.fromkeys(w.value if isinstance(w.value, str) else written(w.value, "setting") for w in ordered))
    numbers: dict[str, set[int]] = {}
    for _, name, result in held:
        numbers.setdefault(name, set()).add(result.ranks)
    return WarningGroup(
        code=code,
        title=WARNINGS[code].title if code in WARNINGS else code.replace("-", " ").capitalize(),
        setting=setting_name(path),
        texts=texts if len(texts) <= 2 else (texts[0], texts[-1]),
        values=values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}",
        range=held[0][0].range if code not in _ONE_OF_EACH else None,
        affected=tuple((name, tuple(sorted(counted))) for name, counted in numbers.items()),
        all_results=len({result.scenario_hash for *_, result in held}) == of,
    )


@dataclass(frozen=True)
class Change:
    """One change to the configuration that the report answers with.

    Attributes
    ----------
    name
        Such as ``2x network``.
    text
        What was changed, in a sentence.
    gain
        Throughput over that without the change, run by run, less 1: the mean; none where it is not known.
    low, high
        Ends of its 90% prediction interval.
    reason
        What limits it then; or why it is not known.
    row
        What is changed, such as ``network``: a change up and one down share a row of the tornado.
    run
        How long was simulated, with and without the change, where that is less than the result itself rests on.
    """

    name: str
    text: str
    gain: float | None
    low: float | None
    high: float | None
    reason: str
    row: str
    run: str = ""

    @property
    def moves(self) -> bool:
        """Return whether the throughput changes on average, as far as anybody reads."""
        return self.gain is not None and abs(self.gain) >= NOTHING

    @property
    def seen(self) -> bool:
        """Return whether the runs show an effect: the interval of the gain leaves out nought."""
        if self.gain is None or self.low is None or self.high is None:
            return False
        return has_effect(Estimate(mean=1 + self.gain, low=1 + self.low, high=1 + self.high))


def helpful(changes: Sequence[Change]) -> list[Change]:
    """Those that gain something on average, what helps most first, whether that is certain or not."""
    gaining = [change for change in changes if change.gain is not None and change.gain >= LITTLE]
    return sorted(gaining, key=lambda change: -helpfulness(change.name, change.gain or 0.0))


_MOST_NAMED = 2


def most_helpful_in_words(changes: Sequence[Change]) -> str:
    """Return what helps most for certain, and what may help more but is not certain; empty where nothing was tried."""
    if not any(change.gain is not None for change in changes):
        return ""
    gaining = helpful(changes)
    certain = next((change for change in gaining if change.seen), None)
    if certain is None:
        maybe = gaining[:_MOST_NAMED]
        if not maybe:
            return f"None of the changes tried one at a time brings more than {format_share(LITTLE)}."
        return f"No change that was tried helps for certain; {listed([_with_ends(change) for change in maybe])} may."
    text = f"Of the changes tried one at a time, {clean(certain.name)} helps most: throughput {_ends(certain)}."
    more = [change for change in gaining[: gaining.index(certain)] if not change.seen][:_MOST_NAMED]
    return text + (f" {listed([_with_ends(change) for change in more])} may help more, but not for certain." if more else "")


def _with_ends(change: Change) -> str:
    return f"{clean(change.name)} {_ends(change)}"


def _ends(change: Change) -> str:
    """The gain with its interval, where its ends can be told apart."""
    assert change.gain is not None
    assert change.low is not None
    assert change.high is not None
    gain, low, high = (written(each, "change") for each in (change.gain, change.low, change.high))
    return gain if low == high else f"{gain} ({low} to {high})"
