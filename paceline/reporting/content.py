"""Everything that a report's page says, from results: what was asked, what the answer is, how far it can be trusted. No file, no drawing.

The templates read the attributes of :class:`Content` by name, as ``report``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from paceline.answers import Answer as Said
from paceline.answers import thing_counted
from paceline.comparing import LITTLE, Change, rank
from paceline.planning.sentences import answer_of_plan
from paceline.reporting.coordinates import Coordinates, coordinates_of, setting_name
from paceline.reporting.deciding import answer_of_several, decided, global_batches
from paceline.reporting.reproduce import Recipe, recipe_of
from paceline.sentences import doubled_in_words, helpfulness
from simulator.base.errors import ResultsError
from simulator.base.text import clean, counted, written
from simulator.results.cost import usd_per_hour, why_no_cost
from simulator.results.results import Failure, Result
from simulator.spec.figures import WARNINGS, Warned
from simulator.spec.workload import Workload

if TYPE_CHECKING:
    from paceline.learning.learned import Learned
    from paceline.planning.answer import Plan
    from paceline.reporting.measured import Overlay
    from paceline.reporting.timeline import Timeline

_MOST_EXPLAINED = 3


@dataclass(frozen=True)
class Answer:
    """The result that the page answers with.

    Attributes
    ----------
    index, result
        Which one it is among the results.
    name
        Its curve, and its settings where more than the number of workers is swept.
    one_batch
        Whether those it is compared with train with the same global batch.
    """

    index: int
    result: Result
    name: str
    one_batch: bool = True


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
    def _ranked(self) -> int:
        """Return what a plan chose, else the best result (:func:`paceline.comparing.rank`) with as many ranks as what was asked about.

        Where nothing was, with the most ranks that all curves have. It is ranked among those that meet the same conditions as the first
        of them: nobody chooses how often machines fail.
        """
        results, at, hashes = self.results, self.at, [result.scenario_hash for result in self.results]
        if self.plan is not None:
            chosen = self.plan.chosen.result.scenario_hash
            if chosen not in hashes:
                raise ResultsError(
                    f"the plan's answer, scenario {chosen}, is not among the results; give the results file that `paceline plan` wrote "
                    "with it"
                )
            return hashes.index(chosen)
        asked = None if self.asked not in hashes else hashes.index(self.asked)
        ranks = results[asked].ranks if asked is not None else _compared_at(results, at)
        there = [index for index, result in enumerate(results) if result.ranks == ranks]
        first = asked if asked is not None else there[0]
        return min((index for index in there if at.conditions[index] == at.conditions[first]), key=lambda index: rank(results[index]))

    @cached_property
    def answer(self) -> Answer:
        """Return the result that the headline names: that of a plan, what suffices or pays, else the best."""
        free = self.plan is None and self.learned is None and self.asked is None
        best = decided(self.results, self.at, self._ranked)[0] if free else self._ranked
        return Answer(best, self.results[best], self.at.title_of(best), len(global_batches(self.results, self.at, best)) == 1)

    @cached_property
    def decision(self) -> Said:
        """What the page, or the terminal, says first."""
        if self.plan is not None:
            return answer_of_plan(self.plan)
        if self.learned is not None:
            return self.learned.answer
        return answer_of_several(self.results, self.at, self._ranked)

    @property
    def counted(self) -> str:
        """Return what ``ranks`` of results are: ``worker`` or ``device``."""
        return thing_counted(self.results)

    def sized(self, result: Result) -> str:
        """How large a result is, as the page counts: ``16 workers``."""
        return counted(result.ranks, self.counted)

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
        whose = "worker" if self.counted == "worker" else "replica"
        kept = scaling_in_words(scalings, sorted(batch for batch in batches if batch is not None), whose)
        return f"{several}{place}, {size}, {kept}"

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

    @property
    def line(self) -> list[Result]:
        """The answer and those that differ from it in nothing but the number of replicas, or ranks, ascending."""
        at, index = self.at, self.answer.index
        own = at.curve_of[index], at.places[index][1:]
        there = zip(self.results, at.curve_of, at.places, strict=True)
        return sorted((result for result, curve, place in there if (curve, place[1:]) == own), key=lambda result: result.ranks)

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


def scaling_in_words(scalings: Sequence[str], batches: Sequence[int], whose: str) -> str:
    """Return what is kept as workers are added: ``weak``, the batch of each, or ``strong``, that of all; batch sizes ascend."""
    batch = f"{batches[0]:,}"
    if len(batches) > 1:
        batch = f"{batch} {'to' if len(batches) > 2 else 'and'} {batches[-1]:,}"
    if len(scalings) > 1:
        return f"weak and strong scaling: {'batches' if len(batches) > 1 else 'a batch'} of {batch} samples"
    weak = scalings[0] == "weak"
    if len(batches) > 1:
        return f"{scalings[0]} scaling with several batches: {batch} samples of {f'each {whose}' if weak else f'all {whose}s together'}"
    return f"{scalings[0]} scaling: {f'each {whose} keeps its' if weak else f'all {whose}s share a'} batch of {batch} samples"


def _compared_at(results: Sequence[Result], at: Coordinates) -> int:
    """The most ranks that all curves have, or all but those of one device; the most of any where there is no such number."""
    of: dict[int, set[int]] = {}
    for curve, result in zip(at.curve_of, results, strict=True):
        of.setdefault(curve, set()).add(result.ranks)
    several = [counts for counts in of.values() if max(counts) > 1]
    common = set.intersection(*several) if several else set()
    return max(common - {1}, default=max(result.ranks for result in results))


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


def helpful(changes: Sequence[Change]) -> list[Change]:
    """Those that gain something on average, what helps most first, whether that is certain or not."""
    gaining = [change for change in changes if change.gain is not None and change.gain >= LITTLE]
    return sorted(gaining, key=lambda change: -helpfulness(change.name, change.gain or 0.0))
