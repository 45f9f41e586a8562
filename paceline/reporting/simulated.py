"""What a report shows besides its results, simulated: some steps of the result that is its answer, and what one change at a time would do.

``report.report`` asks for these sections before it makes a page, and hands them over as data: the modules that make the page
simulate nothing, and may not import this one (``pyproject.toml``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from paceline.comparing import Change, compare
from paceline.planning.improvements import Variation, improved, worsened
from paceline.reporting.columns import differ_in_layout
from paceline.reporting.content import Content
from paceline.reporting.coordinates import Coordinates
from paceline.reporting.timeline import Timeline, laid_out
from paceline.sweeping import Outcome, Runner, Simulations
from simulator.base.errors import SimulationError
from simulator.base.text import written
from simulator.engine.replication import replicate
from simulator.estimate import buckets_a_step
from simulator.observing.recording import Recording
from simulator.resolve.resolve import resolve
from simulator.results.intervals import FEWEST_REPLICATIONS
from simulator.results.results import Result
from simulator.scenario import Scenario
from simulator.spec.figures import Estimate

if TYPE_CHECKING:
    from paceline.planning.answer import Improvement

_MOST_RECORDS = 300_000
"""Some seconds of simulation, and some hundred megabytes of records."""
_FEWEST_RECORDED = 6
"""Steps of each replica in a timeline."""
_BESIDES = 3
"""Records of a step that are no message: its compute, its update and itself, about."""
_MOST_EVENTS = 300_000
"""Events of one what-if that one or two seconds of one core take."""
_MOST_EVENTS_OF_ALL = 2_000_000
"""Of one what-if of as few steps as make sense; beyond it has fewer replications than an interval without assumptions needs."""
_REFUSED_EVENTS = 5_000_000
_FEWEST, _FEWEST_STEPS = 5, 20
_MOST_LAYOUTS = 32
"""Of which a page holds steps in time: each takes about half a second and 60 kB."""
_EVENTS_AN_ALL_REDUCE, _EVENTS_A_RANK = 40, 0.1
"""What an all-reduce of all ranks at once costs, and each rank's part in a step, in events that take as long."""


def with_simulated(
    content: Content, jobs: int, *, progress: Callable[[int, int], None] | None = None
) -> tuple[Content, KeyboardInterrupt | None]:
    """Simulate the report's answer again: three of its steps for the timeline, and one change at a time; what fails is noted.

    Where results differ in how a model is cut, some steps of each are simulated too. Ctrl-C ends only the simulating.

    Parameters
    ----------
    content
        The report without these sections.
    jobs
        Processes for the what-ifs; 0 takes all cores.
    progress
        Called with what-ifs done and in all.

    Returns
    -------
    Content
        The report with them, and sentences on what is missing.
    KeyboardInterrupt or None
        What the user stopped it by.
    """
    answer = content.answer
    timeline: Timeline | None = None
    of_layouts: dict[str, Timeline] = {}
    changes: tuple[Change, ...] = ()
    notes: list[str] = []
    stopped: KeyboardInterrupt | None = None
    try:
        if differ_in_layout(content.results, content.at, content.failures):
            of_layouts = _of_layouts(content.results, content.at)
        try:
            timeline = of_layouts.get(answer.result.scenario_hash) or timeline_of(answer.result.scenario, answer.name)
        except SimulationError as error:
            notes.append(f"There is no timeline: {error}.")
        try:
            changes = changes_of(answer.result, jobs, progress)
        except SimulationError as error:
            notes.append(f"There are no what-ifs: {error}.")
    except KeyboardInterrupt as interrupted:
        stopped = interrupted
        notes.append(f"There are no what-ifs{'' if timeline is not None else ', and there is no timeline'}: they were interrupted.")
    told = (*content.notes, *notes)
    return replace(content, notes=told, timeline=timeline, sensitivity=changes, of_layouts=of_layouts), stopped


def _of_layouts(results: Sequence[Result], at: Coordinates) -> dict[str, Timeline]:
    """Some steps of each layout, of as many as a page holds; one that cannot be made small enough has none."""
    timelines: dict[str, Timeline] = {}
    for index, result in enumerate(results[:_MOST_LAYOUTS]):
        with contextlib.suppress(SimulationError):
            timeline = timeline_of(result.scenario, at.title_of(index))
            if timeline is not None:
                timelines[result.scenario_hash] = timeline
    return timelines


# -- some steps in time ----------------------------------------------------------------------


def timeline_of(scenario: Scenario, name: str) -> Timeline | None:
    """Simulate replication 0 again and lay out some of its steps (:func:`paceline.reporting.timeline.laid_out`).

    A long or large run is cut to its first steps, or to fewer ranks if that is not
    enough; the note says so.

    Parameters
    ----------
    scenario
        What to look into.
    name
        What the chart is to be called.

    Returns
    -------
    Timeline or None
        None where no step ended.

    Raises
    ------
    SimulationError
        The run cannot be made small enough.
    """
    short, note = shortened(scenario)
    resolved = resolve(short)
    recording = Recording(resolved)
    replicate(resolved, 0, recording)
    return laid_out(recording, name, warmup=short.warmup * len({step.replica for step in recording.steps}), note=note)


def shortened(scenario: Scenario) -> tuple[Scenario, str]:
    """The scenario with fewer steps, and if that is not enough with fewer ranks, so that its records fit into memory.

    Fewer steps are the first steps of the very same run: its random streams do not depend
    on how long it is. Fewer ranks are another scenario.

    Returns
    -------
    Scenario
        The scenario itself where it is short enough.
    str
        What was changed, as sentences; empty where nothing was.

    Raises
    ------
    SimulationError
        It cannot be made small enough.
    """
    notes: list[str] = []
    ranks = scenario.ranks
    fewer = ranks
    while fewer > 2 and records_a_step(scenario, fewer) * _FEWEST_RECORDED > _MOST_RECORDS:
        fewer = max(2, fewer // 2)
    if fewer < ranks:
        scenario = _with_ranks(scenario, fewer)
        notes.append(
            f"Simulated with {scenario.ranks:,} {_makes_steps(scenario)} in place of "
            f"{ranks:,}, of which every message would take too long: "
            "how long messages and queues take differs from the run with all."
        )
    whole = scenario.run.total_steps(scenario.ranks) / scenario.ranks
    steps = max(_FEWEST_RECORDED, _MOST_RECORDS // records_a_step(scenario, scenario.ranks))
    if steps < whole:
        warmup = min(scenario.run.warmup, steps // 3)
        scenario = scenario.shortened(steps, warmup)
        steps = scenario.run.steps
        notes.append(f"The run is cut to the first {steps:,} of {written(whole, 'count')} steps of each replica.")
    return scenario, " ".join(notes)


def _makes_steps(scenario: Scenario) -> str:
    """Return what its ranks are: replicas, or where these are cut over devices, ranks by no other name."""
    return "replicas" if scenario.ranks == scenario.replicas else "ranks"


def records_a_step(scenario: Scenario, ranks: int) -> int:
    """About how many records one step of that many ranks makes."""
    messages = 0
    if scenario.servers:
        tensors = scenario.strategy.tensors(scenario)
        carried = len(tensors.variables) + len(tensors.gradients)
        copied = carried if scenario.cluster.host_link is not None else 0
        messages = carried + copied + 2 * len(tensors.gradients) + len(tensors.forward) + len(tensors.backward)
    else:
        # each with the piece of compute that its gradients come from
        messages = buckets_a_step(scenario) * (1 + (2 * (ranks - 1) if scenario.rank_messages else 1))
        messages += scenario.strategy.messages_a_step(scenario)
    return ranks * (messages + _BESIDES)


def _with_ranks(scenario: Scenario, ranks: int) -> Scenario:
    """The same with that many ranks, each replica with as many samples as before."""
    load = scenario.workload.model_copy(update={"batch_per_replica": scenario.batch, "global_batch": None})
    try:
        strategy = scenario.strategy.fewer(ranks, scenario.ranks)
        return Scenario(**{**scenario.sections, "workload": load, "strategy": strategy})
    except ValidationError as error:
        reason = " ".join(str(error.errors(include_url=False)[0]["msg"]).split())
        raise SimulationError(
            f"the timeline needs a smaller run, and with {ranks:,} {_makes_steps(scenario)} there is none: {reason}"
        ) from None


# -- one change at a time --------------------------------------------------------------------


def changes_of(result: Result, jobs: int = 0, progress: Callable[[int, int], None] | None = None) -> tuple[Change, ...]:
    """Simulate improvements and their opposites, each alone, with the same random streams as the configuration itself.

    So each run with a change has its pair without. A configuration that takes long to
    simulate is simulated with 19 replications only, then with fewer steps, then with fewer
    replications, the one without a change too; each change says so.

    Parameters
    ----------
    result
        Of the configuration that is changed.
    jobs
        Processes; 0 takes all cores.
    progress
        Called with scenarios done and known so far.

    Returns
    -------
    tuple of Change
        Those with the greatest effect first, those not known last.

    Raises
    ------
    SimulationError
        It takes too long even so, or a process was killed.
    """
    scenario, run_in_words = _affordable(result)
    with Runner(jobs=jobs) as runner:
        run = Simulations(runner, progress=progress)
        (base,) = run([scenario])
        if not isinstance(base, Result):
            raise SimulationError(base.failed.text)
        better = [_of_improvement(row, improvement, run_in_words) for row, improvement in improved(scenario, base, run)]
        worse = worsened(scenario)
        outcomes = run([change.scenarios[0] for change in worse])
    changes = better + [_of_worse(change, outcome, base, run_in_words) for change, outcome in zip(worse, outcomes, strict=True)]
    return tuple(sorted(changes, key=lambda change: (change.gain is None, -abs(change.gain or 0.0), change.name)))


def _affordable(result: Result) -> tuple[Scenario, str]:
    """The scenario with as many replications and steps as some seconds allow, and what was changed for that, in words."""
    scenario = result.scenario
    run = scenario.run
    rank_steps = run.total_steps(scenario.ranks) * run.replications
    work = result.events + rank_steps * (_EVENTS_A_RANK + _EVENTS_AN_ALL_REDUCE * buckets_a_step(scenario) / scenario.replicas)
    if work <= _MOST_EVENTS:
        return scenario, ""

    def fewer(count: int, fewest: int, most_events: float) -> int:
        """As many of a count as so much work allows."""
        return min(count, max(fewest, int(count * most_events / work)))

    replications, steps = fewer(run.replications, FEWEST_REPLICATIONS, _MOST_EVENTS), run.steps
    work *= replications / run.replications
    if run.job_steps is None and work > _MOST_EVENTS:
        steps = fewer(steps, _FEWEST_STEPS, _MOST_EVENTS)
        work *= steps / run.steps
    if work > _MOST_EVENTS_OF_ALL:
        replications, all_of_them = fewer(replications, _FEWEST, _MOST_EVENTS_OF_ALL), replications
        work *= replications / all_of_them
    if work > _REFUSED_EVENTS:
        raise SimulationError("one change alone would take minutes to simulate; simulate some yourself with `paceline sweep --over`")
    if run.job_steps is None:
        scenario = scenario.shortened(steps, min(run.warmup, steps // 4))
        steps = scenario.run.steps
    short = scenario.run.model_copy(update={"replications": replications})
    length = f"{steps:,} steps" if run.job_steps is None else f"{run.job_steps:,} steps of all workers together"
    run_in_words = f"{replications} replications of {length}"
    return scenario.model_copy(update={"run": short}), run_in_words


def _of_improvement(row: str, change: Improvement, run: str) -> Change:
    if change.effect is None:
        return Change(change.name, "", None, None, None, change.text, row)
    return _changed(change.name, change.text, change.effect, change.bottleneck, row, run)


def _of_worse(change: Variation, outcome: Outcome, base: Result, run: str) -> Change:
    if not isinstance(outcome, Result):
        return Change(change.name, change.text, None, None, None, outcome.failed.text, change.what)
    return _changed(change.name, change.text, compare(outcome, base).ratio, outcome.bottleneck.label, change.what, run)


def _changed(name: str, text: str, ratio: Estimate, reason: str, row: str, run: str) -> Change:
    return Change(name, text, ratio.mean - 1, ratio.low - 1, ratio.high - 1, reason, row, run)
