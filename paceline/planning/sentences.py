"""The answer of a plan (:func:`answer_of_plan`), and the sentences that the plan stores.

:mod:`paceline.sentences` has sentences that other places share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from paceline.answers import MOST_FIGURES, Answer, Figure, figure, limit_of, next_of, throughput_figures, watch_out
from paceline.comparing import LITTLE, has_effect, never_validated
from paceline.planning.answer import BreakEven, Candidate, Improvement, Plan, Refused, configuration_name
from paceline.planning.configurations import Configuration, behind
from paceline.planning.goal import Goal, Prefer, job_of, rate_reached, reachable_confidence, required_rate, sets_of
from paceline.planning.space import Space
from paceline.sentences import (
    beyond_in_brackets,
    for_what,
    goal_in_words,
    helpfulness,
    running_in_words,
    stake_in_words,
    standing_in_words,
)
from simulator.base.text import (
    counted,
    format_bytes,
    format_hourly,
    format_number,
    format_seconds,
    format_share,
    format_throughput,
    format_usd,
    listed,
    sentence,
    written,
)
from simulator.memory import memory_of
from simulator.results.cost import bills_exactly, committed_usd, is_paid_in_advance, paid_for
from simulator.results.what_if import CHANGES, WITHIN
from simulator.strategies.strategy import SOFTWARE

_NEXT_TO_NOTHING = 0.001
"""Smaller probabilities are not given as a number."""


def answer_of_plan(plan: Plan) -> Answer:
    """Return the answer: configuration, figures, confidence and limit."""
    best = plan.chosen
    gain = _most_helpful(plan)
    limit = limit_of(best.result, tried=not gain)
    return Answer(
        headline=_headline(plan),
        figures=tuple(_figures(best, plan.goal))[:MOST_FIGURES],
        limit=f"{limit}; {gain}" if gain else limit,
        confidence=_sureness(plan),
        watch_out="; ".join(filter(None, (*plan.doubts, watch_out(best.result)))),
        next=_next(plan),
        met=plan.feasible,
    )


_FIRST = {"cheapest": "Cheapest", "fastest": "Fastest", "fewest-devices": "Fewest devices"}
_MOST_WORDS = 20
_UNTESTED = "but was never compared with real runs"


def _headline(plan: Plan) -> str:
    goal, best, others = plan.goal, plan.chosen, plan.chosen.others
    parts = [format_usd(best.cost_usd.mean)] if best.cost_usd is not None else []
    if best.time_s is not None:
        parts.append(f"done in {format_seconds(best.time_s.mean)}")
    else:
        parts.append(f"{format_number(best.result.rate.mean)} {plan.unit.per_s}")
    does, limited = ", ".join(parts), ""
    if not plan.feasible:
        sure, chance = "", ""
        if best.confidence > 1 - goal.confidence:
            sure, chance = f" with {format_share(goal.confidence)} confidence", f" ({format_share(best.confidence)})"
        first = f"Nothing reaches {goal_in_words(goal, plan.unit)}{sure}. Nearest{chance}"
    elif (pair := plan.decisive) is not None:
        first, does = _rent_or_buy(pair), does.replace("done in ", "")
        others = tuple(word for word in others if word not in (pair.own, pair.rented))
    else:
        limits = [f"deadline {written(goal.deadline_s, 'setting_s')}"] if goal.deadline_s is not None else []
        limits += [f"budget ${goal.budget_usd:,.10g}"] if goal.budget_usd is not None else []
        if goal.target_throughput_samples_per_s is not None:
            limits.append(f"goal {written(goal.target_throughput_samples_per_s * plan.unit.per_sample, 'setting')}")
        validated = " validated" if any(text.endswith(_UNTESTED) for text in plan.doubts) else ""
        first, limited = f"{_FIRST[goal.prefer]}{validated}", f" ({', '.join(limits)})" if limits else ""
    full = []
    for said in range(len(others), -1, -1):
        name = f"{first}: {configuration_name(best.what, others=others[:said])} on {counted(best.nodes, 'node')}"
        cluster = f" of {best.result.scenario.cluster.name}"
        full += [f"{name}{cluster}, {does}{limited}.", f"{name}{cluster}, {does}.", f"{name}, {does}."]
    return next((text for text in full if len(text.split()) <= _MOST_WORDS), full[-1])


def _rent_or_buy(pair: BreakEven) -> str:
    """``Rent (spot), buy if used above 63% (now 21%)``."""
    if pair.pays_above is None:
        return f"Rent ({pair.rented}), {pair.own} never pays"
    used = f"used {format_share(pair.share_in_use)}"
    buy, pays = ("Buy", "buying pays") if pair.own == "bought" else (f"Take {pair.own}", "it pays")
    if pair.share_in_use > pair.pays_above:
        return f"{buy}, {used} of the time: {pays} above {format_share(pair.pays_above)}"
    return f"Rent ({pair.rented}), {buy.lower()} if used above {format_share(pair.pays_above)} (now {format_share(pair.share_in_use)})"


def _next(plan: Plan) -> str:
    """What would narrow the interval; of a goal that is missed more workers if twice as many may be enough, else a goal within reach."""
    goal, result, workers = plan.goal, plan.chosen.result, plan.chosen.result.scenario.workers
    if plan.feasible or goal.budget_usd is not None:
        return next_of(result)
    reached = rate_reached(result, goal)
    most = next((note for note in plan.notes if note.startswith(_HAS_THE_MOST)), None)
    if most is None or 2 * reached < required_rate(goal, None):
        rate, total = f"{format_number(reached * plan.unit.per_sample, 2)} {plan.unit.per_s}", goal.samples
        possible = f"a goal of at most {rate}" if total is None else f"a deadline of at least {format_seconds(total / reached)}"
        return f"a faster device, or {possible}{'; twice the workers are not enough' if most is not None else ''}"
    if most.endswith(_WIDER):
        return f"`--workers 1..{2 * workers}` searches more than {workers:,} workers"
    return most.replace("the answer", "the nearest", 1)


def _figures(candidate: Candidate, goal: Goal) -> Iterator[Figure]:
    result = candidate.result
    of_job = "job " if job_of(result, goal) is not None else ""
    yield from throughput_figures(result)
    if candidate.time_s is not None:
        yield figure(f"{of_job}time", candidate.time_s, "seconds")
    if candidate.cost_usd is not None:
        yield figure(f"{of_job}cost", candidate.cost_usd, "usd", note=_product(candidate, goal))
    elif candidate.usd_per_hour is not None:
        yield Figure("cost", f"{format_hourly(candidate.usd_per_hour)} an hour")
    if (job := job_of(result, goal)) is not None:
        yield figure("goodput", job.goodput, "share", note="time in kept steps")
    if result.ranks > 1:
        yield figure("efficiency", result.scaling_efficiency, "share")
    if result.staleness.max:
        yield Figure("staleness", written(result.staleness.mean, "updates"), note=f"updates, p95 {result.staleness.p95:g}")


def _product(candidate: Candidate, goal: Goal) -> str:
    """``16 nodes x 6.86 h x $0.40``, or of machines that are bought ``share of $285,000 to buy``; empty where neither is what is paid."""
    scenario = candidate.result.scenario
    prices, committed = paid_for(scenario), committed_usd(scenario)
    if committed is not None:
        return f"share of {format_usd(sets_of(candidate.result, goal) * committed)} {for_what(scenario)}"
    if not bills_exactly(scenario) or len(prices) != 1 or candidate.time_s is None:
        return ""
    (nodes, price), job = prices[0], candidate.result.job
    if price is None or (job is not None and job.away_node_s):
        return ""
    return f"{counted(nodes, 'node')} x {format_seconds(candidate.time_s.mean)} x {format_hourly(price.usd_per_node_hour)}"


def sentences_of(plan: Plan, chosen: Configuration) -> tuple[str, ...]:
    """Return further sentences on the answer: what it misses, its layout and software, its price, and nodes that it does not need."""
    said = (
        "" if plan.feasible else _missed(plan, chosen),
        _layout(chosen),
        sentence(text) if (text := purchase_in_words(plan.chosen, plan.goal)) else "",
        _taken_whole(plan),
    )
    return tuple(filter(None, said))


def months_in_words(months: float | None, soonest: float | None, latest: float | None, within: str = "") -> str:
    """Return when a one-time cost pays off: ``pays after 14.2 months (90% of runs: 9.70 to never)``."""
    if soonest is None:
        return f"never pays {within}".rstrip()
    if latest == 0:
        return "costs less from the first month"
    shown = [format_number(number) if number is not None else "never" for number in (months, soonest, latest)]
    text = f"pays after {shown[0]} months" if months is not None else f"does not pay {within} on average"
    return text if shown[0] == shown[1] == shown[2] else f"{text} (90% of runs: {shown[1]} to {shown[2]})"


def _layout(chosen: Configuration) -> str:
    """Return the layout of a cut model, the memory of its fullest device, and the software that runs it."""
    scenario = chosen.scenario
    strategy, training = scenario.strategy, scenario.training
    able = strategy.software
    software = listed([SOFTWARE[name] for name in able]) or "No common software"
    runs = f"{software} run{'' if len(able) > 1 else 's'} it unmodified"
    if not strategy.cuts:
        return "" if "tensorflow" in able else f"{runs}."
    text = f"Its layout is {strategy.model_parallel(scenario).in_words}"
    each = format_number(scenario.batch / training.micro_batches)
    text += f"; a step of a copy is {training.micro_batches:,} micro-batch{'es' if training.micro_batches > 1 else ''} of {each} samples"
    text += f" with {training.recompute} recomputation" if training.recompute != "none" else ""
    fullest = max(memory_of(chosen.resolved), key=lambda device: device.need_bytes)
    if fullest.capacity_bytes is not None and all(part.size_bytes is not None for part in fullest.parts if part.name == "activations"):
        text += f"; the fullest device holds {fullest.need_in_words} of {format_bytes(fullest.capacity_bytes)}"
    return f"{text}. {runs}."


def _beyond_budget(chosen: Configuration, goal: Goal) -> str:
    """Explain why a configuration exceeds the budget at any throughput."""
    committed = committed_usd(chosen.scenario)
    if goal.budget_usd is None or chosen.usd_per_hour is None:
        return "It has no price"
    if committed is None:
        return f"The minimum charge exceeds the budget of {format_usd(goal.budget_usd)}"
    committed *= sets_of(chosen.result, goal)
    return f"Its machines cost {format_usd(committed)} {for_what(chosen.scenario)}, and the budget is {format_usd(goal.budget_usd)}"


def purchase_in_words(candidate: Candidate, goal: Goal) -> str:
    """Return the purchase or term price of a candidate's machines and the share that counts as its cost; empty if rented by the hour."""
    scenario = candidate.result.scenario
    held = [(nodes, price.committed_usd) for nodes, price in paid_for(scenario) if price is not None]
    paid = [(nodes, usd) for nodes, usd in held if usd is not None]
    if not paid or candidate.usd_per_hour is None:
        return ""
    sets = sets_of(candidate.result, goal)
    each, total = " + ".join(f"{nodes:,} x ${usd:,.10g}" for nodes, usd in paid), sets * math.fsum(nodes * usd for nodes, usd in paid)
    each = f"{counted(sets, 'set')} of {each}" if sets > 1 else each
    share, time_s = f"{format_hourly(candidate.usd_per_hour)} is the share of an hour", candidate.time_s
    if candidate.cost_usd is not None and time_s is not None:
        share = f"{format_usd(candidate.cost_usd.mean)} is the share of {format_seconds(time_s.mean, _EXACT)}"
    running = f"; {text}" if (text := running_in_words(scenario)) else ""
    return f"{each} = ${total:,.10g} {for_what(scenario)}; {share} by the terms of the price{running}"


def _taken_whole(plan: Plan) -> str:
    """Explain that the whole cluster must be paid for although fewer nodes may suffice; empty if it does not apply."""
    scenario = plan.chosen.result.scenario
    cluster = scenario.cluster
    nodes, goal = cluster.nodes, plan.goal
    if nodes is None or (goal.budget_usd is None and (not plan.feasible or goal.prefer == "fastest")):
        return ""
    alike = (candidate.result.scenario for candidate in plan.candidates if candidate.meets)
    enough = min((other.nodes_needed for other in alike if other.cluster.name == cluster.name), default=nodes)
    if enough >= nodes and plan.feasible:
        return ""
    would = f"{enough:,} would suffice, and " if enough < nodes else ""
    return (
        f"cluster.nodes fixes the cluster at {counted(nodes, 'node')}, and a run pays for all: {would}"
        f"cluster.available = {nodes} lets the plan take fewer."
    )


_EXACT = 5
"""Significant digits of figures that readers may multiply."""


def _missed(plan: Plan, chosen: Configuration) -> str:
    """Return by how much the nearest configuration misses the goal, and single improvements that would reach it."""
    goal, needed, reached = plan.goal, chosen.needed, chosen.margin * chosen.needed
    if not math.isfinite(needed):
        return f"{_beyond_budget(chosen, goal)}."
    over = " over the whole job" if job_of(plan.chosen.result, goal) is not None else ""
    reaches, needs = (format_throughput(rate * plan.unit.per_sample) for rate in (reached, needed))
    text = (
        f"At confidence {format_number(goal.confidence, 4)} it reaches {reaches} of the {needs} {plan.unit.per_s} needed{over}: "
        f"{format_throughput(needed / reached)} times too slow."
    )
    committed = committed_usd(plan.chosen.result.scenario)
    enough = [f"{change.name}{beyond_in_brackets(change, plan)}" for change in plan.improvements if _is_enough(change, goal, committed)]
    if not enough:
        return f"{text} No single improvement tried reaches the goal."
    return f"{text} {sentence(listed(enough, 'or'))[:-1]} would reach the goal."


def _sureness(plan: Plan) -> str:
    """Return the probability of reaching the goal, and of being the best candidate."""
    goal, best = plan.goal, plan.chosen
    aims = ["meet the deadline"] * (goal.deadline_s is not None) + ["keep the budget"] * (goal.budget_usd is not None)
    texts = [f"{_confidence(best)} to {listed(aims) or 'reach the goal'}"]
    if stake := stake_in_words(best):
        texts.append(stake)
    if best.result.discrepancy is None:
        texts.append("model error is unknown and not included")
    return "; ".join(texts)


def _confidence(best: Candidate) -> str:
    """Return the probability of success; ``at least`` where replications resolve no more."""
    runs = len(best.result.throughput_of_each_replication)
    bound = "at least " if best.confidence >= reachable_confidence(runs) - 1e-12 else ""
    return f"{bound}{format_share(best.confidence)}"


def _probability(value: float) -> str:
    return f"less than {_NEXT_TO_NOTHING}" if 0 < value < _NEXT_TO_NOTHING else format_number(value, 2)


def _most_helpful(plan: Plan) -> str:
    """Return the most helpful single improvement with its price; empty if none certainly helps."""
    effects = [(change, change.effect) for change in plan.improvements]
    clear = [(change, effect) for change, effect in effects if effect is not None and effect.mean - 1 >= LITTLE and has_effect(effect)]
    if not clear:
        return ""
    best, effect = max(clear, key=lambda pair: helpfulness(pair[0].name, pair[1].mean - 1))
    name = IN_WORDS.get(best.name, best.name)
    return f"{name}{beyond_in_brackets(best, plan)}: {written(effect.mean - 1, 'change')}{_price_of(best, plan)}"


IN_WORDS = {"2x device": CHANGES["compute"].words, "half latency": WITHIN["latency"].words, "2x network": "a network twice as fast"}
"""Improvements as other answers name them."""


def _is_enough(improvement: Improvement, goal: Goal, committed: float | None) -> bool:
    """Return whether the lower end of its interval reaches the goal, on machines with unchanged cost."""
    rate = improvement.job_samples_per_s or improvement.throughput_samples_per_s
    return rate is not None and rate.low >= required_rate(goal, improvement.usd_per_hour, committed)


def _price_of(improvement: Improvement, plan: Plan) -> str:
    """Return what an improvement adds to the hourly price; empty if nothing, or if that depends on how much trainings use nodes."""
    chosen = plan.chosen
    as_used = plan.goal.trainings_per_month is not None and is_paid_in_advance(chosen.result.scenario)
    if as_used or improvement.usd_per_hour is None or chosen.usd_per_hour is None or improvement.usd_per_hour == chosen.usd_per_hour:
        return f" for {format_usd(improvement.usd)} once" if improvement.usd is not None else ""
    return f" for {format_hourly(improvement.usd_per_hour - chosen.usd_per_hour)} an hour more"


def why_this(meeting: Sequence[Configuration], missing: Sequence[Configuration]) -> str:
    """Explain why the first configuration is the answer."""
    if not meeting:
        if len(missing) == 1:
            return "It is the only simulated configuration, and misses the goal."
        return f"It is the nearest of {len(missing)} simulated configurations, all of which miss the goal."
    best, *others = meeting
    does = {"cheapest": "costs least", "fastest": "is fastest", "fewest-devices": "takes the fewest devices"}[best.goal.prefer]
    count, reach = len(meeting) + len(missing), "reaches" if not others else "reach"
    better = any(row.value < best.value for row in others)
    but = ", except some with a higher expected regret, a larger batch, or no validation" if better else ""
    simulated = f"{counted(count, 'configuration')} {'was' if count == 1 else 'were'} simulated"
    texts = [f"{simulated}, {len(meeting)} {reach} the goal, and this one {does}{but}."]
    if inexact := _inexact(best):
        exact = next((row for row in meeting if not _inexact(row)), None)
        instead = "no other simulated configuration reaches the goal without that"
        if exact is not None:
            far = f": {behind(exact, best)}" if math.isfinite(exact.value) else ", which has no price"
            instead = f"the best without that is {exact.title}{far}"
        texts.append(f"{inexact[0].upper()}{inexact[1:]}, so that it may need more samples; {instead}.")
    return " ".join(filter(None, texts))


def doubts_of(meeting: Sequence[Configuration]) -> tuple[str, ...]:
    """Return what speaks against the first: a better one of a kind that was never validated, and more samples for its larger batch."""
    if not meeting or meeting[0].goal.prefer == "fewest-devices":
        return ()
    best, texts = meeting[0], []
    other = next((row for row in meeting if row.value < best.value and never_validated(row.result)), None)
    if other is not None and not never_validated(best.result):
        better = behind(other, best) if best.goal.prefer == "fastest" else f"costs {behind(other, best)}"
        texts.append(f"{other.line.what} on {counted(other.scenario.nodes_needed, 'node')} {better}, {_UNTESTED}")
    smaller = next((row for row in meeting if row.global_batch < best.global_batch), None)
    if smaller is not None and best.value < smaller.value < math.inf and best.value and _batch(smaller) != _batch(best):
        more = format_share(smaller.value / best.value - 1)
        texts.append(f"batch {_batch(best):,} pays only if it needs less than {more} more samples than batch {_batch(smaller):,}")
    return tuple(texts)


def _batch(row: Configuration) -> int:
    return row.scenario.workload.batch_per_replica or row.scenario.workload.global_batch or 0


def _inexact(row: Configuration) -> str:
    """Return how its updates differ from those of one device with the global batch; empty if they are equal."""
    if row.result.staleness.max > 0:
        return "its gradients are stale"
    return row.scenario.strategy.inexact


def notes_of(plan: Plan, chosen: Configuration, space: Space) -> list[str]:
    """Return further notes on a plan."""
    notes = [_scaling_note(space)]
    line = chosen.line
    if line.searched and chosen.workers == max(line.candidates) and len(line.candidates) > 1:
        notes.append(_most_note(chosen))
    if plan.passed_over:
        were = f"{plan.passed_over:,} configurations were" if plan.passed_over > 1 else "1 configuration was"
        why = "because they lie between simulated ones"
        if space.cuts:
            why += ", or similar cuts are better by closed forms or in short runs"
        notes.append(f"{were} skipped, {why}; the neighbours of the answer were simulated")
    notes.append(
        f"configurations are compared by {plan.unit.per_s}; effects of larger batches, stale gradients or rarer averaging on convergence "
        "are not predicted"
    )
    steps = chosen.scenario.run.steps
    notes.append(f"each simulated run has {steps:,} steps per worker; longer runs average out variation between steps, not between runs")
    return notes


def _most_note(chosen: Configuration) -> str:
    """Explain why an answer with the most workers of its line cannot have more."""
    scenario = chosen.scenario
    nodes = scenario.cluster.room
    if nodes is not None and scenario.strategy.with_count(scenario.workers + 1).layout(scenario.cluster).nodes > nodes:
        limit, then = f"{scenario.cluster.room_key} ({nodes}) allows", "more nodes may be better"
    elif chosen.workers < chosen.line.most:
        limit, then = "are possible", "larger numbers of the range are refused"
    else:
        limit, then = "the range allows", _WIDER
    return f"{_HAS_THE_MOST} {limit}: {chosen.workers}; {then}"


_HAS_THE_MOST = "the answer has the most workers that"
_WIDER = "a wider range may contain a better one"


def _scaling_note(space: Space) -> str:
    """Explain weak or strong scaling for this plan."""
    loads = [line.first.workload for line in space.lines if not line.cut or line.scaling == "strong"]
    each = sorted({load.batch_per_replica for load in loads if load.batch_per_replica is not None})
    together = sorted({load.global_batch for load in loads if load.global_batch is not None})
    texts = [f"weak scaling: each replica takes {_either(each)} samples per step, whatever their number"] if each else []
    texts += [f"strong scaling: all replicas together take {_either(together)} samples per step, whatever their number"] if together else []
    cut = next((line.first for line in space.lines if line.cut and line.scaling == "weak"), None)
    if cut is not None:
        samples = format_number(cut.batch / cut.layout.ranks_per_replica)
        texts.append(
            f"weak scaling of a model that is cut: each device takes {samples} samples per step, so a copy takes that times its devices"
        )
    return "; ".join(texts)


def _either(values: Sequence[int]) -> str:
    return " or ".join(f"{value:,}" for value in values)


# -- each cluster, each strategy -----------------------------------------------------------


def near_miss_in_words(near: Candidate, *, prefer: Prefer) -> str:
    """Describe a configuration that would beat the best of its cluster if it reached the goal."""
    cost = f" for {format_usd(near.cost_usd.mean)}" if near.cost_usd is not None and prefer == "cheapest" else ""
    return f"a near miss with {near.placement}{cost}, confidence {_probability(near.confidence)}"


def beside_the_answer(best: Configuration, chosen: Configuration, candidate: Candidate) -> str:
    """Compare a configuration that meets the goal with the answer; ``candidate`` describes it."""
    if best is chosen:
        return "the answer"
    if not math.isfinite(best.value):
        return "reaches the goal; without a price it comes after those that have one"
    return "; ".join(filter(None, (behind(best, chosen), standing_in_words(candidate))))


def why_not(rows: Sequence[Configuration], nearest: Configuration | None, refused: Sequence[Refused]) -> str:
    """Explain why nothing on a cluster, or with a strategy, reaches the goal; ``refused`` are its impossible configurations."""
    if not rows:
        return f"not possible: {refused[0].text if refused else 'every configuration is refused'}"
    goal = rows[0].goal
    if not any(math.isfinite(row.needed) for row in rows):
        committed = [(usd, row.scenario) for row in rows if (usd := committed_usd(row.scenario)) is not None]
        if committed and goal.budget_usd is not None:
            lowest, scenario = min(committed, key=lambda pair: pair[0])
            budget = format_usd(goal.budget_usd)
            return f"its fewest machines cost {format_usd(lowest)} {for_what(scenario)}, and the budget is {budget}"
        return "its price is unknown, so a budget cannot be checked"
    if nearest is None:
        failed = next((row.failed.text for row in rows if row.failed), "")
        if failed:
            return f"could not be simulated: {failed}"
        most = max(rows, key=lambda row: row.promised)
        unit = most.scenario.unit
        at_most, needed = (format_throughput(rate * unit.per_sample) for rate in (most.ceiling, most.needed))
        rates = f"{at_most} {unit.per_s} of {needed} needed"
        return f"too slow at every allowed size: at most {rates} (closed forms)"
    unit = nearest.scenario.unit
    reached, needed = (format_throughput(rate * unit.per_sample) for rate in (nearest.margin * nearest.needed, nearest.needed))
    needs = f"{reached} {unit.per_s} at the required confidence, {needed} needed"
    if confidence := nearest.confidence:
        return f"reaches the goal with confidence {_probability(confidence)} ({format_number(goal.confidence, 4)} required); {needs}"
    return f"too slow at every size {'tried' if any(row.reachable for row in rows) else 'allowed'}: {needs}"
