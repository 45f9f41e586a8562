"""Everything that a report's page says, from results: what was asked, what the answer is, how far it can be trusted. No file, no drawing.

The templates read the attributes of :class:`Content` by name, as ``report``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paceline.comparing import LITTLE, NOTHING, compare, has_effect, pays_until, rank, rivals_of, verdict
from paceline.reporting.coordinates import Coordinates, coordinates_of, setting_name
from paceline.reporting.reproduce import Recipe, recipe_of
from paceline.sentences import doubled_in_words, fastest_in_words, helpfulness
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
class Request:
    """What is asked.

    Attributes
    ----------
    fewest, most
        Replicas, or ranks.
    counted
        Which of them: ``replica``, or ``rank`` where some replicas are cut over several devices, each with a rank of its own.
    curves
        How many strategies, clusters and so on are compared.
    scalings
        ``weak``: the batch of each replica is fixed; ``strong``: that of all together is.
    batches
        The batch sizes, of one replica (weak) or of all (strong), ascending.
    """

    fewest: int
    most: int
    counted: str
    curves: int
    clusters: tuple[str, ...]
    scalings: tuple[str, ...]
    batches: tuple[int, ...]

    @property
    def text(self) -> str:
        """All of it, as a sentence without its end."""
        few = f"{self.fewest:,} to " if self.fewest < self.most else ""
        size = f"{few}{self.most:,} {self.counted}{'s' if self.most > 1 else ''}"
        several = f"{self.curves} variants on " if self.curves > 1 else "on "
        place = clean(self.clusters[0]) if len(self.clusters) == 1 else f"{len(self.clusters)} clusters"
        batch = f"{self.batches[0]:,}"
        if len(self.batches) > 1:
            batch = f"{batch} {'to' if len(self.batches) > 2 else 'and'} {self.batches[-1]:,}"
        if len(self.scalings) > 1:
            each = "batches" if len(self.batches) > 1 else "a batch"
            return f"{several}{place}, {size}, weak and strong scaling: {each} of {batch} samples"
        if len(self.batches) > 1:
            whose = "each replica" if self.scalings[0] == "weak" else "all replicas together"
            return f"{several}{place}, {size}, {self.scalings[0]} scaling with several batches: {batch} samples of {whose}"
        if self.scalings[0] == "weak":
            return f"{several}{place}, {size}, weak scaling: each replica keeps its batch of {batch} samples"
        return f"{several}{place}, {size}, strong scaling: all replicas share a batch of {batch} samples"


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
    batch_swept
        Whether a key says which batch each has.
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
    batch_swept: bool = False

    @property
    def batches_in_words(self) -> str:
        """That its rivals train with other global batches, and which is the fastest with each; empty where they do not."""
        if not self.of_each_batch:
            return ""
        smallest, *_, largest = self.of_each_batch
        differ = f"global batches differ, {smallest[0]:,} to {largest[0]:,} samples, and with them what is learned"
        if self.batch_swept:
            return differ
        batch, name, rate = smallest if smallest[0] != _global_batch(self.result) else largest
        return f"{differ}. With {batch:,} the fastest is {clean(name)}: {format_throughput(rate)} samples/s"


@dataclass(frozen=True)
class Trust:
    """What the numbers rest on.

    Attributes
    ----------
    results, hollow
        How many there are, and how many lie beyond what was measured.
    assumed
        Clusters whose figures are assumed.
    uncalibrated, computed
        Workloads that do not record what was measured, and those whose times nobody measured.
    disturbed
        Whether a workload was calibrated on a machine that did something else as well.
    unfitted
        Whether a workload carries no uncertainty.
    workers, batch, device
        What was measured, where there is one workload.
    """

    results: int
    hollow: int
    assumed: tuple[str, ...]
    uncalibrated: tuple[str, ...]
    computed: tuple[str, ...]
    disturbed: bool
    unfitted: bool
    workers: tuple[int, int] | None
    batch: tuple[int, int] | None
    device: str

    def cares(self, *, answer_beyond: bool, beyond_said: bool, workloads: int) -> list[str]:
        """What a reader must know before anything is built on the numbers, each a sentence without its end.

        Parameters
        ----------
        answer_beyond
            Whether the answer lies beyond what was measured.
        beyond_said
            Whether something else says so.
        workloads
            How many there are.
        """
        cares = []
        if self.hollow and not beyond_said:
            every = self.hollow == self.results
            which = "the result lies" if self.results == 1 else f"all {self.results:,} results lie" if every else ""
            among = ", this one among them," if answer_beyond else ""
            cares.append(f"{which or f'{self.hollow:,} of {self.results:,} results{among} lie'} beyond what was measured (drawn hollow)")
        if not self.hollow and self.uncalibrated:
            some, they = ("", "it") if workloads == 1 else (" for some workloads", "they")
            cares.append(f"what was measured is not recorded{some}, so nothing tells how far {they} can be trusted")
        if self.disturbed:
            cares.append("the workload was calibrated on a busy machine, so its times may be too long and too uneven")
        if self.computed:
            more = f" and {len(self.computed) - 1} more" if len(self.computed) > 1 else ""
            cares.append(f"nobody measured {clean(self.computed[0])}{more}: times are computed from the model’s dimensions")
        if self.assumed:
            more = f" and {len(self.assumed) - 1} more" if len(self.assumed) > 1 else ""
            cares.append(f"the network ({clean(self.assumed[0])}{more}) is assumed, not measured")
        if self.unfitted:
            cares.append("the workload carries no uncertainty, so intervals hold only the variation from run to run")
        return cares


@dataclass(frozen=True)
class Content:
    """Everything that the page says.

    Attributes
    ----------
    results
        Each scenario of each file once.
    at
        Where each of them stands.
    against
        The answer against the next fastest with as many ranks; empty where there is none.
    stop
        Up to where more devices pay, on the answer's curve; empty where it has one number of them.
    unpriced
        Why some results have no cost, one sentence per cluster.
    """

    title: str
    results: tuple[Result, ...]
    at: Coordinates
    request: Request
    answer: Answer
    against: str
    stop: str
    trust: Trust
    unpriced: tuple[str, ...]
    workloads: tuple[Workload, ...]
    warnings: tuple[WarningGroup, ...]
    recipe: Recipe
    notes: tuple[str, ...]
    plan: Plan | None
    measured: Overlay | None
    timeline: Timeline | None
    sensitivity: tuple[Change, ...]
    learned: Learned | None = None
    failures: tuple[Failure, ...] = ()
    of_layouts: Mapping[str, Timeline] = field(default_factory=dict)


def content_of(
    results: Sequence[Result],
    notes: Sequence[str] = (),
    *,
    labels: Sequence[str] | None = None,
    plan: Plan | None = None,
    measured: Overlay | None = None,
    timeline: Timeline | None = None,
    sensitivity: Sequence[Change] = (),
    learned: Learned | None = None,
    failures: Sequence[Failure] = (),
    of_layouts: Mapping[str, Timeline] | None = None,
    title: str = "",
    asked: str | None = None,
) -> Content:
    """Arrange results for reading.

    Parameters
    ----------
    results
        At least one; in any order. Of results of the same scenario in the same file the last counts.
    notes
        Sentences that the report repeats, such as that a file was cut off.
    labels
        Of each result, the file that it comes from, where several are compared.
    plan
        What a plan answered, if these are its results.
    measured
        Measured points beside the predictions.
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
    title
        In place of the workloads' names.
    asked
        Hash of the scenario that was asked about: the answer is the fastest with as many ranks; left out: with the most.

    Raises
    ------
    ResultsError
        There is no result, or not one label per result.
    """
    if not results:
        raise ResultsError("a report needs at least one result")
    if labels is not None and len(labels) != len(results):
        raise ResultsError(f"a report of {len(results)} results needs as many labels, not {len(labels)}")
    sources = list(labels) if labels is not None else [""] * len(results)
    last = {(source, result.scenario_hash): index for index, (source, result) in enumerate(zip(sources, results, strict=True))}
    unique = [results[index] for index in last.values()]
    all_notes = [*notes, *filter(None, [doubled_in_words(len(results) - len(unique))])]
    at = coordinates_of(unique, None if labels is None else [source for source, _ in last])
    names = [at.name_of(index) for index in range(len(unique))]
    workloads = tuple({result.scenario.workload.name: result.scenario.workload for result in reversed(unique)}.values())[::-1]
    named = " and ".join(clean(load.name) for load in workloads[:2]) + (f" and {len(workloads) - 2} more" if len(workloads) > 2 else "")
    answer = answer_of(unique, at, plan.chosen.result.scenario_hash if plan is not None else None, asked)
    return Content(
        title=clean(title) if title else named,
        results=tuple(unique),
        at=at,
        request=request_of(unique, at),
        answer=answer,
        against=_against(unique, at, answer),
        stop=_where_to_stop(unique, at, answer),
        trust=trust_of(unique),
        unpriced=_unpriced(unique),
        workloads=workloads,
        warnings=warnings_of(unique, names),
        recipe=recipe_of(unique, names),
        notes=tuple(all_notes),
        plan=plan,
        measured=measured,
        timeline=timeline,
        sensitivity=tuple(sensitivity),
        learned=learned,
        failures=tuple(failures),
        of_layouts=of_layouts or {},
    )


def _against(results: Sequence[Result], at: Coordinates, answer: Answer) -> str:
    """The answer against the next; of whole jobs with the time of that."""
    others = rivals_of(results, answer.index, at.conditions)
    if not others:
        return ""
    ours, theirs = answer.result, results[others[0]]
    name, more = at.title_of(others[0], conditions=False), len(others) - 1
    text = verdict(ours, theirs, "it", name, "there")
    if theirs.job is not None:
        text += f"; {'that' if name in text else name} takes {format_seconds(theirs.job.time_s.mean)}"
    text += f"; {'one other is' if more == 1 else f'{more} others are'} slower on average" if more else ""
    compared = compare(ours, theirs, whole_jobs=theirs.job is not None)
    if compared.clear or compared.wins == compared.losses:
        return text
    stake = fastest_in_words([answer.result, *(results[index] for index in others)], 0, "it", "there")
    return f"{text}. {stake}" if stake else text


def line_of(results: Sequence[Result], at: Coordinates, index: int) -> list[Result]:
    """A result and those that differ from it in nothing but the number of replicas, or ranks, ascending."""
    places, own = at.places[index][1:], at.curve_of[index]
    line = [result for result, curve, place in zip(results, at.curve_of, at.places, strict=True) if curve == own and place[1:] == places]
    return sorted(line, key=lambda result: result.ranks)


def _where_to_stop(results: Sequence[Result], at: Coordinates, answer: Answer) -> str:
    """On the answer's curve, with its other settings: from which number of devices to which the next step is the last that pays."""
    line = line_of(results, at, answer.index)
    if len(line) < _PAIR:
        return ""
    if all(result.job is not None for result in line):
        return _jobs_to_stop_at(line)
    last = pays_until([(result.ranks, result.throughput_samples_per_s.mean) for result in line])
    thing = "replica" if all(result.ranks == result.replicas for result in line) else "rank"
    fewer, other = line[max(last - 1, 0)] if last == len(line) - 1 else line[last], line[min(last + 1, len(line) - 1)]
    step = f"from {fewer.ranks:,} to {other.ranks:,} brings {_more(compare(other, fewer).ratio)} for {_times(fewer, other)}"
    if last == len(line) - 1:
        return f"not before {counted(other.ranks, thing)}: {step}"
    return f"at {counted(fewer.ranks, thing)}: {step}"


_PAIR = 2


def _more(ratio: Estimate) -> str:
    """What a step brings, such as ``35% more (20% to 41%)``."""
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


def _unpriced(results: Sequence[Result]) -> tuple[str, ...]:
    """Why there is no cost, for each cluster without a price; of many, the first."""
    reasons = {result.scenario.cluster.name: why_no_cost(result.scenario) for result in results if usd_per_hour(result.scenario) is None}
    texts = tuple(reasons.values())
    more = len(texts) - _MOST_EXPLAINED
    return texts if more <= 0 else (*texts[:_MOST_EXPLAINED], f"{more} more clusters have no price either")


def request_of(results: Sequence[Result], at: Coordinates) -> Request:
    """What the results together ask."""
    loads = [result.scenario.workload for result in results]
    batches = {load.batch_per_replica or load.global_batch for load in loads}
    return Request(
        fewest=min(result.ranks for result in results),
        most=max(result.ranks for result in results),
        counted="replica" if all(result.ranks == result.replicas for result in results) else "rank",
        curves=len(at.curves),
        clusters=tuple(dict.fromkeys(result.scenario.cluster.name for result in results)),
        scalings=next(group.labels for group in at.groups if group.id == "scaling"),
        batches=tuple(sorted(batch for batch in batches if batch is not None)),
    )


def answer_of(results: Sequence[Result], at: Coordinates, chosen: str | None = None, asked: str | None = None) -> Answer:
    """Find the best result (:func:`paceline.comparing.rank`) with the most ranks that all curves have, or as many as what was asked about.

    It is ranked among those that meet the same conditions as the first one: nobody chooses how often machines fail.

    Parameters
    ----------
    results
        In the order of ``at``.
    at
        Where each stands.
    chosen
        Hash of a scenario that something else chose, such as a plan; it is the answer then.
    asked
        Hash of the scenario that was asked about.

    Raises
    ------
    ResultsError
        The chosen one is not among the results.
    """

    def rate(index: int) -> float:
        return results[index].throughput_samples_per_s.mean

    most = next((result.ranks for result in results if result.scenario_hash == asked), None) or _compared_at(results, at)
    planned = next((index for index, result in enumerate(results) if result.scenario_hash == chosen), None)
    there = [index for index, result in enumerate(results) if result.ranks == (most if planned is None else results[planned].ranks)]
    if chosen is not None and planned is None:
        raise ResultsError(
            f"the plan's answer, scenario {chosen}, is not among the results; give the results file that `paceline plan` wrote with it"
        )
    first = next((index for index in there if results[index].scenario_hash == asked), there[0])
    there = [index for index in there if at.conditions[index] == at.conditions[first if planned is None else planned]]
    best = planned if planned is not None else min(there, key=lambda index: rank(results[index]))
    top = max((index for index in range(len(results)) if at.conditions[index] == at.conditions[best]), key=rate)
    elsewhere = planned is None and results[best].job is None and compare(results[top], results[best]).ratio.low > 1.0
    return Answer(
        index=best,
        result=results[best],
        name=at.title_of(best),
        choice=at.title_of(best, conditions=False),
        met=at.met_by(best),
        peak=results[top] if elsewhere else None,
        peak_name=at.title_of(top) if elsewhere else "",
        alone=len(there) == 1,
        of_each_batch=_fastest_of_each_batch([(_global_batch(results[index]), at.title_of(index), rate(index)) for index in there]),
        batch_swept=any("batch" in key.path and len(key.values) > 1 for key in at.keys),
    )


def _compared_at(results: Sequence[Result], at: Coordinates) -> int:
    """The most ranks that all curves have, or all but those of one device; the most of any where there is no such number."""
    of: dict[int, set[int]] = {}
    for curve, result in zip(at.curve_of, results, strict=True):
        of.setdefault(curve, set()).add(result.ranks)
    several = [counts for counts in of.values() if max(counts) > 1]
    common = set.intersection(*several) if several else set()
    return max(common - {1}, default=max(result.ranks for result in results))


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


def trust_of(results: Sequence[Result]) -> Trust:
    """Collect what the numbers rest on."""
    loads = {result.scenario.workload.name: result.scenario.workload for result in results}
    ranges = [load.calibrated for load in loads.values() if load.calibrated is not None]
    first = ranges[0] if len(ranges) == 1 and len(loads) == 1 else None
    return Trust(
        results=len(results),
        hollow=sum(result.extrapolated for result in results),
        assumed=tuple(dict.fromkeys(result.scenario.cluster.name for result in results if result.scenario.cluster.basis == "assumed")),
        uncalibrated=tuple(name for name, load in loads.items() if load.calibrated is None and not load.is_computed),
        computed=tuple(name for name, load in loads.items() if load.is_computed),
        disturbed=any(warned.code == "disturbed-calibration" for result in results for warned in result.warnings),
        unfitted=any(load.uncertainty is None for load in loads.values()),
        workers=(int(first.workers[0]), int(first.workers[1])) if first else None,
        batch=(int(first.batch[0]), int(first.batch[1])) if first else None,
        device=first.device if first else "",
    )


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


def warnings_of(results: Sequence[Result], names: Sequence[str]) -> tuple[WarningGroup, ...]:
    """Group the warnings of all results by code and path, the most frequent first."""
    grouped: dict[tuple[str, str, str], list[tuple[Warned, str, int, str]]] = {}
    for name, result in zip(names, results, strict=True):
        for warned in result.warnings:
            key = warned.code, warned.path, str(warned.value) if warned.code in _ONE_OF_EACH else ""
            grouped.setdefault(key, []).append((warned, name, result.ranks, result.scenario_hash))
    return tuple(
        _group(code, path, held, len(results))
        for (code, path, _), held in sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0]))
    )


def _group(code: str, path: str, held: list[tuple[Warned, str, int, str]], of: int) -> WarningGroup:
    ordered = sorted(held, key=lambda entry: entry[0].value if isinstance(entry[0].value, float) else 0.0)
    texts = tuple(dict.fromkeys(warned.text for warned, *_ in ordered))
    values = tuple(dict.fromkeys(_written(warned.value) for warned, *_ in ordered))
    numbers: dict[str, set[int]] = {}
    for _, name, ranks, _ in held:
        numbers.setdefault(name, set()).add(ranks)
    return WarningGroup(
        code=code,
        title=WARNINGS[code].title if code in WARNINGS else code.replace("-", " ").capitalize(),
        setting=setting_name(path),
        texts=texts if len(texts) <= 2 else (texts[0], texts[-1]),
        values=values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}",
        range=held[0][0].range if code not in _ONE_OF_EACH else None,
        affected=tuple((name, tuple(sorted(counted))) for name, counted in numbers.items()),
        all_results=len({scenario_hash for *_, scenario_hash in held}) == of,
    )


def _written(value: float | str) -> str:
    return value if isinstance(value, str) else written(value, "setting")


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
        """Whether the throughput changes on average, as far as anybody reads."""
        return self.gain is not None and abs(self.gain) >= NOTHING

    @property
    def seen(self) -> bool:
        """Whether the runs show an effect: the interval of the gain leaves out nought."""
        if self.gain is None or self.low is None or self.high is None:
            return False
        return has_effect(Estimate(mean=1 + self.gain, low=1 + self.low, high=1 + self.high))


def helpful(changes: Sequence[Change]) -> list[Change]:
    """Those that gain something on average, what helps most first, whether that is certain or not."""
    gaining = [change for change in changes if change.gain is not None and change.gain >= LITTLE]
    return sorted(gaining, key=lambda change: -helpfulness(change.name, change.gain or 0.0))


_MOST_NAMED = 2


def most_helpful_in_words(changes: Sequence[Change]) -> str:
    """What helps most for certain, and what may help more but is not certain; empty where nothing was tried."""
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
