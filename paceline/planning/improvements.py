"""Single changes to a configuration (twice the network, half the batch, ...): the gain or loss of each, or why it is unknown.

A change is a :class:`Variation`; :mod:`simulator.results.what_if` makes its scenarios. Plans simulate improvements; the report's what-ifs
(:mod:`paceline.reporting.simulated`) also simulate their opposites.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from paceline.comparing import compare, has_effect
from paceline.planning.answer import Improvement
from paceline.planning.around import Use, months_of, use_of
from paceline.planning.goal import Goal, job_of, time_of
from paceline.planning.search import bucket_in_words, fastest_of, may_be_fastest, with_buckets
from paceline.planning.sentences import months_in_words
from paceline.sentences import LARGER_BATCH, NOT_CERTAIN, nodes_beyond
from paceline.sweeping import Simulate
from simulator.base.errors import ScenarioError
from simulator.base.text import counted, format_hourly, format_number, format_rate, format_usd, written
from simulator.catalogue.loading import load_scenario
from simulator.memory import does_not_fit
from simulator.resolve.device_transfer import precision_gain
from simulator.resolve.resolve import resolve
from simulator.results.cost import is_paid_in_advance, placement_of, usd_of, usd_per_hour
from simulator.results.results import Result
from simulator.results.what_if import (
    changed,
    with_batch,
    with_compute,
    with_host_link,
    with_inner_links,
    with_input,
    with_latency,
    with_micro_batches,
    with_network,
    with_one_more_server,
)
from simulator.scenario import Scenario
from simulator.spec.cluster import Link
from simulator.spec.figures import Estimate
from simulator.spec.paying import Upgrade, sets_of_nodes

# -- what can be changed ---------------------------------------------------------------------


class Variation(NamedTuple):
    """One change: its component, name, text and scenarios.

    ``what`` is the component that it changes, such as ``network``. ``scenarios`` has one; for a range the pessimistic, middle and
    optimistic one; with ``choice`` several, of which the fastest counts; none if the gain is unknown, for the reason in ``text``. An
    ``upgrade`` has a price.
    """

    what: str
    name: str
    text: str
    scenarios: tuple[Scenario, ...] = ()
    choice: bool = False
    upgrade: Upgrade | None = None


def _tried(what: str, name: str, text: str, change: Callable[[], Scenario], idle: str = "") -> Variation:
    """Return a change, unless a rule forbids it or it has no effect for the reason ``idle``."""
    if idle:
        return Variation(what, name, f"nothing to gain: {idle}")
    try:
        return Variation(what, name, text, (change(),))
    except ScenarioError as error:
        return Variation(what, name, f"not possible: {error.reasons[0]}")


def _variations(scenario: Scenario, *, better: bool) -> Iterator[Variation]:
    """Yield all changes for better or worse, except of links that are not used."""
    cluster, load, sending = scenario.cluster, scenario.workload, scenario.strategy.sending(scenario)
    between, inside, host, latency_s = cluster.inter_node, cluster.intra_node, cluster.host_link, cluster.inter_node.latency_s
    factor, several = 2.0 if better else 0.5, scenario.nodes_needed > 1
    twice = "2x" if better else "half"

    def rates(link: Link) -> str:
        return f"{format_rate(link.bandwidth_bytes_per_s)} to {format_rate(link.bandwidth_bytes_per_s * factor)}"

    cap = cluster.transport.flow_cap_bytes_per_s if better else None
    text = f"links between nodes from {rates(between)}"
    text += f"; one connection still gets at most {format_rate(cap)}" if cap is not None else ""
    idle = "" if several else "all devices are on one node"
    yield _tried("network", f"{twice} network", text, lambda: with_network(scenario, factor), idle)
    if several:
        text = f"latency between nodes from {written(latency_s, 'setting_s')} to {written(latency_s / factor, 'setting_s')}"
        idle = "" if latency_s > 0 else "the cluster's latency between nodes is 0"
        yield _tried("latency", "half latency" if better else "2x latency", text, lambda: with_latency(scenario, 1 / factor), idle)
    if sending.inside_nodes and not scenario.servers:
        text = f"links inside a node from {rates(inside)}"
        yield _tried("links in a node", f"{twice} links in a node", text, lambda: with_inner_links(scenario, factor))
    if sending.through_host and host is not None:
        text = f"links between device and host from {rates(host)}"
        yield _tried("host link", f"{twice} host link", text, lambda: with_host_link(scenario, factor))
    if better and (fused := with_buckets(scenario)):
        yield Variation("buckets", "other buckets", "gradients fused into another number of all-reduces", tuple(fused), choice=True)
    text = "devices compute twice as fast" if better else "devices compute half as fast"
    text += f"; hosts, servers and links stay as they are{', and so does the price' if better else ''}"
    yield _tried("device", f"{twice} device", text, lambda: with_compute(scenario, 1 / factor))
    servers = scenario.servers
    text = f"{servers} to {servers + 1 if better else servers - 1} parameter servers"
    if better:
        text += " on its own node" if scenario.layout.server_nodes else ""
        idle = "" if servers else "this strategy has no parameter servers"
        more = _tried("server", "one more PS", text, lambda: with_one_more_server(scenario), idle)
        beyond = [nodes_beyond(made.nodes_needed, scenario) for made in more.scenarios]
        yield more._replace(text=", ".join(filter(None, (more.text, *beyond))))
    elif servers > 1:
        yield _tried("server", "one PS fewer", text, lambda: changed(scenario, strategy=scenario.strategy.with_servers(servers - 1)))
    whose, size = ("of each replica", load.batch_per_replica) if load.global_batch is None else ("of all replicas", load.global_batch)
    assert size is not None, "a scenario has one of the two"
    text = f"batch {whose} from {size:,} to {2 * size if better else size // 2:,} samples"
    if better:
        text += "; the effect on convergence is not predicted"
        larger = Variation("batch", LARGER_BATCH, text)  # of a model that is cut taken in whichever way is best
        yield larger if scenario.strategy.cuts_batches else _tried(*larger[:3], lambda: with_batch(scenario, 2))
    elif scenario.batch % 2 == 0:
        yield _tried("batch", "half batch", text, lambda: _with_half_batch(scenario))


def _with_half_batch(scenario: Scenario) -> Scenario:
    load = scenario.workload
    if load.global_batch is None:
        return changed(scenario, workload=load.replaced({"batch_per_replica": scenario.batch // 2}))
    return changed(scenario, workload=load.timed_at(load.global_batch).replaced({"global_batch": load.global_batch // 2}))


def worsened(scenario: Scenario) -> tuple[Variation, ...]:
    """Yield every halving that applies to a scenario, except of unused links and missing servers.

    They are the opposites of :func:`improved`; changes that break a rule are left out.
    """
    return tuple(change for change in _variations(scenario, better=False) if change.scenarios)


# -- improvements ----------------------------------------------------------------------------


def improved(
    scenario: Scenario,
    base: Result,
    run: Simulate,
    goal: Goal | None = None,
    beside: Sequence[Scenario] = (),
    use: Use | None = None,
) -> tuple[tuple[str, Improvement], ...]:
    """Simulate changes of one component at a time.

    Parameters
    ----------
    scenario
        The scenario to improve.
    base
        Its result; changed scenarios share its seed and replications, and so its draws.
    run
        Simulates scenarios.
    goal
        Goal of the plan; for a whole job, the job with each change is predicted too.
    beside
        Other ways to cut the same model on the same machines, which may suit a larger batch better.
    use
        Use of the nodes, to find when upgrades pay off; None: as their prices say.

    Returns
    -------
    tuple of (str, Improvement)
        Each with its component, such as ``network``, which changes for the worse share. The largest gain of throughput first; unknown
        gains last, with the reason.
    """
    changes = list(_changes(scenario, beside))
    tried = [may_be_fastest(change.scenarios, run) if change.choice else change.scenarios for change in changes]
    outcomes = iter(run([made for scenarios in tried for made in scenarios]))
    improvements = []
    for change, scenarios in zip(changes, tried, strict=True):
        own = [next(outcomes) for _ in scenarios]
        results = [outcome for outcome in own if isinstance(outcome, Result)]
        if change.choice and (fastest := fastest_of(results)) is not None:
            better = _improvement(_chosen(change, fastest, scenario), [fastest], base, goal)
        elif len(results) == len(own) and results:
            better = _improvement(change, results, base, goal)
            if change.upgrade is not None:
                better = _paid_back(better, change.upgrade, results[0], base, goal, use or use_of(scenario))
        else:
            failed = next((outcome.failed.text for outcome in own if not isinstance(outcome, Result)), "")
            text = f"{change.text}; it could not be simulated: {failed}" if failed else change.text
            better = Improvement(name=change.name, text=text)
        improvements.append((change.what, better))
    return tuple(sorted(improvements, key=lambda pair: -pair[1].gain if pair[1].gain is not None else float("inf")))


def _chosen(change: Variation, fastest: Result, before: Scenario) -> Variation:
    """Return a change with the choice made, in its text."""
    strategy, own = fastest.scenario.strategy, before.strategy
    texts = [change.text]
    if (fused := bucket_in_words(fastest.scenario)) != bucket_in_words(before):
        texts.append(f"{fused} instead of {bucket_in_words(before)}")
    if strategy.in_words != own.in_words:
        texts.append(f"cut again: {strategy.in_words} instead of {own.in_words}")
    return change._replace(text="; ".join(texts))


def _improvement(change: Variation, results: list[Result], base: Result, goal: Goal | None) -> Improvement:
    middle = results[len(results) // 2]
    placement = placement_of(middle.scenario)
    gain = _over([compare(result, base).ratio for result in results])
    jobs = [job.samples_per_s for result in results if goal is not None and (job := job_of(result, goal)) is not None]
    limited, limits = base.bottleneck, middle.bottleneck
    before, after = limited.label, limits.label
    then = f", then mostly {limits.detail}" if limits.detail and limits.name != limited.name else ""
    stays = f"{before} limit{'s' if limited.balance is None else ''} before and after{then}"
    limit = stays if before == after else f"the limit moves from {before} to {after}"
    outside = {warning.text for warning in middle.warnings if warning.code == "outside-calibration"}
    new = outside - {warning.text for warning in base.warnings}
    beyond = "".join(f"; {text}" for text in sorted(new))
    return Improvement(
        name=change.name,
        text=f"{change.text}; {limit}{beyond}{'' if has_effect(gain) else f'; {NOT_CERTAIN}'}",
        throughput_samples_per_s=_over([result.throughput_samples_per_s for result in results]),
        job_samples_per_s=_over(jobs) if jobs else None,
        gain=gain.mean - 1,
        gain_low=gain.low - 1,
        gain_high=gain.high - 1,
        usd_per_hour=usd_per_hour(middle.scenario),
        nodes=placement.nodes,
        placement=placement.text,
        bottleneck=after,
    )


def _over(ends: Sequence[Estimate]) -> Estimate:
    """Return the middle of a range of changes, with the low end of the worst and the high end of the best."""
    return Estimate(mean=ends[len(ends) // 2].mean, low=min(end.low for end in ends), high=max(end.high for end in ends))


def _changes(scenario: Scenario, beside: Sequence[Scenario]) -> Iterator[Variation]:
    for change in _variations(scenario, better=True):
        cut = change.what == "batch" and scenario.strategy.cuts_batches
        yield _larger_batch(change, scenario, beside) if cut else change
    yield _mixed_precision(scenario)
    yield from _input(scenario)
    for upgrade in scenario.cluster.upgrades:
        change = _tried(upgrade.name, upgrade.name, _upgrade_said(upgrade), partial(upgraded, scenario, upgrade))
        yield change._replace(upgrade=upgrade)


def _input(scenario: Scenario) -> Iterator[Variation]:
    """Yield changes of the input pipeline, if any."""
    pipeline = scenario.input
    if pipeline is None:
        return
    ahead, calls = max(2 * pipeline.prefetch, 1), 2 * pipeline.parallel_calls
    text = f"{pipeline.prefetch:,} to {ahead:,} batches ready ahead"
    yield _tried("input", "more prefetch", text, lambda: with_input(scenario, prefetch=ahead))
    if pipeline.work.parallel.base_s or pipeline.work.parallel.per_sample_s:
        text = f"{pipeline.parallel_calls:,} to {calls:,} parallel calls of each pipeline"
        yield _tried("input", "2x parallel calls", text, lambda: with_input(scenario, parallel_calls=calls))


# -- upgrades that have a price ----------------------------------------------------------------


def upgraded(scenario: Scenario, upgrade: Upgrade) -> Scenario:
    """Return the scenario on nodes with better parts.

    Raises
    ------
    ScenarioError
        A key of its changes is not the cluster's, or breaks a rule.
    """
    settings = [(f"cluster.{key}", value) for key, value in upgrade.changes.items()]
    made = changed(scenario, cluster=load_scenario(scenario, settings).cluster) if settings else scenario
    return with_compute(made, 1.0 / upgrade.device_speed) if upgrade.device_speed != 1.0 else made


def check_upgrades(scenario: Scenario, source: str) -> None:
    """Refuse impossible upgrades before anything is simulated.

    Raises
    ------
    ScenarioError
        One line for each.
    """
    for place, upgrade in enumerate(scenario.cluster.upgrades):
        try:
            upgraded(scenario, upgrade)
        except ScenarioError as error:
            where = f"{source}: cluster.upgrades.{place} ({upgrade.name[:60]})"
            raise ScenarioError(*(f"{where}: {reason}" for reason in error.reasons)) from None


def _upgrade_said(upgrade: Upgrade) -> str:
    changes = [f"{key} = {value}" for key, value in upgrade.changes.items()]
    changes += [f"devices {upgrade.device_speed:g} times as fast"] if upgrade.device_speed != 1.0 else []
    return f"{', '.join(changes)}; {format_usd(upgrade.usd_per_node)} for a node ({upgrade.origin})"


def _paid_back(better: Improvement, upgrade: Upgrade, result: Result, base: Result, goal: Goal | None, use: Use) -> Improvement:
    """Add the price of an upgrade, and the months after which it has saved that.

    If trainings are counted by the month, savings are the reduction of their bill; for nodes paid in advance only the cost of hours in use,
    and of sets of nodes no longer needed. Otherwise the same work takes a share of 1 - 1/g fewer hours with g times the throughput, and
    other work fills these hours at the same price.
    """
    scenario = base.scenario
    nodes, hourly, price = placement_of(scenario).nodes, usd_per_hour(scenario), scenario.cluster.price
    time_s = time_of(base, goal) if goal is not None else None
    hours, often = use.hours(None if time_s is None else time_s.mean), use.per_month
    usd = upgrade.usd_per_node * nodes * sets_of_nodes(hours)
    if hourly is None:
        text = f"{better.text}; {format_usd(usd)} in all; savings are unknown without a price of the nodes"
        return better.replaced({"usd": usd, "text": text})

    def saved_usd(gain: float) -> float:
        """Return monthly savings for a ratio of throughputs."""
        if often is None or time_s is None:
            return hourly * hours * (1.0 - 1.0 / gain)
        before, after = (usd_of(scenario, each_s, per_month=often) or 0.0 for each_s in (time_s.mean, time_s.mean / gain))
        return often * (before - after)

    ratio = _ratio(result, base, goal)
    years = price.costs.years if price is not None else None
    lasts = (years or _YEARS) * 12.0
    gains = ratio.mean, ratio.high, ratio.low
    mean, soonest, latest = (months_of(usd, saved_usd(gain), lasts) if gain > 1.0 else None for gain in gains)
    within = f"within {lasts:g} months{' that the nodes last' if years is not None else ''}"
    text = (
        f"{format_usd(usd)} for {counted(nodes * sets_of_nodes(hours), 'node')} {months_in_words(mean, soonest, latest, within)}, which "
        f"work {format_number(hours / sets_of_nodes(hours))} h a month{'' if use.said else ' (assumed)'}"
    )
    if often is None or not is_paid_in_advance(scenario):
        text += f" at {format_hourly(hourly)} an hour"
    elif latest is None:
        text += "; nodes paid in advance cost the same when idle, unless other work fills the saved hours"
    update = {"usd": usd, "months": mean, "months_low": soonest, "months_high": latest, "text": f"{better.text}; {text}"}
    return better.replaced(update)


_YEARS = 10.0
"""In which better parts have to pay, where nothing says how long the nodes last."""


def _ratio(result: Result, base: Result, goal: Goal | None) -> Estimate:
    """Return the ratio of samples/s to the base, paired by run; of the whole job, if the goal is about one."""
    whole_jobs = goal is not None and None not in (job_of(result, goal), job_of(base, goal))
    return compare(result, base, whole_jobs=whole_jobs).ratio


def _larger_batch(change: Variation, scenario: Scenario, beside: Sequence[Scenario]) -> Variation:
    """Return a larger batch of a cut model, with the best of several cuts."""
    fitting: list[Scenario] = []
    for cut in (scenario, *beside):
        for pieces in (1, 2):  # micro-batches twice as large, or twice as many
            try:
                larger = with_micro_batches(with_batch(cut, 2), pieces)
            except ScenarioError:
                continue
            fitting += [larger] if does_not_fit(resolve(larger)) is None else []
    text = change.text if fitting else f"not possible: {change.text}, which does not fit into memory"
    return change._replace(text=text, scenarios=tuple(fitting), choice=True)


def _mixed_precision(scenario: Scenario) -> Variation:
    load, name = scenario.workload, "mixed precision"
    if load.precision != "float32":
        known = "computed for" if load.is_computed else "measured in"
        return Variation(name, name, f"nothing to gain: the workload was {known} {load.precision}")
    device = scenario.cluster.device or load.device
    gain = precision_gain(device, load.model or None) if device else None
    if gain is None:
        where = f"on {device}" if device else "can be looked up, since neither cluster nor workload names a device"
        return Variation(
            name, name, f"unknown: no published pair of float32 and mixed precision {where}; measure it with `paceline calibrate`"
        )
    low, middle, high, sources = gain
    pairs = f"{len(sources)} published pairs, such as {sources[0]}" if len(sources) > 1 else "; ".join(sources)
    faster = f"{format_number(low, 2)} to {format_number(high, 2)} times as fast"
    text = f"devices compute {faster} ({pairs}); gradients stay float32, so traffic is unchanged"
    return Variation(name, name, text, tuple(with_compute(scenario, 1 / factor) for factor in (low, middle, high)))
