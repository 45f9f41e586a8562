"""Random plans do not contradict themselves: a number that two surfaces show is one number, and every interval obeys physics."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from support.examples import examples
from support.layered import layered
from support.plan_surfaces import Answered, Question, answered
from support.scenarios import scenario_table
from support.written_numbers import AMOUNT, closes, read, rounds_to

import paceline
from paceline.planning.answer import Candidate
from paceline.planning.sentences import IN_WORDS
from paceline.sentences import checkpoints_in_words
from simulator.base.text import format_seconds
from simulator.spec.uncertainty import between

HOUR_S = 3600.0
MONTH_H = 730.5
Z_90 = 1.6448536269514722

# -- questions ----------------------------------------------------------------------------------

FLAT = [
    ["ring"], ["halving-doubling"], ["ring", "sync-ps"], ["sync-ps", "async-ps"], ["ring", "async-ps"], ["single", "ring"],
    ["ssp", "backup"],
]  # fmt: skip
CUT = [["ring", "fsdp"], ["pipeline"], ["tensor", "zero1"]]
RATE = 400.0
"""Samples a second that such scenarios about make."""


def prices(chance: Random, *, job: bool) -> list[dict[str, Any]]:
    """A price, and offers beside it."""
    choose = chance.choice
    billing = choose([{}, {}, {"billing_minimum": "10 min", "billing_step": "1 h", "startup": "3 min"}])
    demand = {"name": "on demand", "usd_per_node_hour": choose([0.37, 3.0, 31.212]), **billing}
    taken = {"mtbf": choose(["5 h", "60 h"]), "replacement": "10 min"}
    spot = {"name": "spot", "usd_per_node_hour": choose([0.1, 1.3]), "preemption": taken}
    use, other_use = choose([({}, {}), ({"share_in_use": 0.5},) * 2, ({"share_in_use": 0.2}, {"share_in_use": 0.9})])
    term = {"years": choose([1, 3]), "upfront_usd": choose([0.0, 8766.0]), "usd_per_hour": choose([0.9, 2.1])}
    owned = {"years": choose([2, 5]), "residual_usd": choose([0, 3_000]), "power": "1 kW", "hosting_usd_per_month": choose([0, 60])}
    reserved = {"name": "reserved", **use, "reserved": term}
    bought = {"name": "bought", **other_use, "purchase_usd": choose([9_000.0, 90_000.0]), "owned": owned}
    ways = [[demand], [demand, bought], [demand, reserved], [reserved, bought], [bought]]
    return choose([*ways, [demand, spot], [demand, spot, bought], [spot, reserved]] if job else ways)


def question_of(chance: Random) -> Question:
    """A small plan: of any kind of strategy, of prices, a goal, and a job with faults."""
    choose = chance.choice
    job, cut = chance.random() < 0.6, chance.random() < 0.25
    price, *offers = prices(chance, job=job)
    upgrades = [
        {"name": "fast network", "usd_per_node": choose([40.0, 4_000.0]), "changes": {"inter_node.bandwidth": "8 GB/s"}},
        {"name": "newer devices", "usd_per_node": 2_000.0, "device_speed": choose([0.7, 2.0])},
    ]
    cluster = {
        "inter_node": {"bandwidth": choose(["100 MB/s", "500 MB/s", "4 GB/s"]), "latency": choose(["0 s", "100 us"])},
        "devices_per_node": choose([1, 2]), "price": price, "offers": offers, "upgrades": choose([[], upgrades]),
    }  # fmt: skip
    varies = {
        "jitter": choose([{"kind": "constant"}, {"kind": "lognormal", "sigma": 0.3}]), "run_to_run_cv": choose([0.0, 0.08]),
    }  # fmt: skip
    table = scenario_table(
        workload={**varies, "batch_per_replica": choose([8, 32])},
        cluster=cluster,
        strategy={"kind": "multi-worker-mirrored", "workers": 2},
        run={"steps": choose([10, 20]), "replications": choose([19, 19, 5])},
        discrepancy=choose([{}, {"compute": {"at": 0.05}, "communication": {"at": 0.3}}]),
    )
    if cut:
        table["workload"] = layered(layers=4, size_bytes=choose([1e5, 4e7]), batch=2) | varies
    if chance.random() < 0.4:  # as published
        del table["discrepancy"]
    samples = float(choose([2, 30, 150]) * RATE * HOUR_S)
    if job:
        use, often = {"use": "rsc-1"}, choose([{"every": "17 min"}, {"every_steps": 5_000}])
        faults = choose([None, use, {**use, "node_mtbf": "80 h", "replacement": "5 min"}, {"worker_mtbf": "100 h", "restart": "30 s"}])
        table["job"] = {
            "samples": samples, "startup": choose(["0 s", "90 s"]), "tracing": "5 s", **({"faults": faults} if faults else {}),
            "checkpoint": {"size": "200 MB", "write": "100 MB/s", **(choose([often, {"interval": "best"}]) if faults else often)},
        }  # fmt: skip
    limits = {"deadline": f"{samples / RATE / HOUR_S * choose([0.3, 1.5, 6.0]):.1f} h", "budget": choose([20.0, 5_000.0])}
    options = {
        "samples": samples, **{name: limits[name] for name in choose([["deadline"], ["deadline"], ["budget"], ["deadline", "budget"]])},
        "workers": choose([[1, 2], [2, 4], [4]]), "strategies": choose(CUT if cut else FLAT), "confidence": choose([0.5, 0.83]),
        "prefer": choose(["cheapest", "cheapest", "fastest"]), "trainings_per_month": choose([None, 2.0, 30.0, 400.0]),
        "scaling": None if cut else choose(["weak", "strong"]),
    }  # fmt: skip
    return Question(table, {name: value for name, value in options.items() if value is not None})


questions = some.integers(0, 2**32).map(lambda seed: question_of(Random(seed)))
"""Each from a number: neighbouring examples have nothing in common, so that few of them are many kinds."""


# -- one number on all surfaces -------------------------------------------------------------------


def same(*texts: str | None) -> str:
    """The text that all of them are."""
    assert len(set(texts)) == 1, texts
    (text,) = {*texts}
    assert text
    return text


def found(pattern: str, text: str) -> tuple[str, ...]:
    """What a pattern's groups are in a text, in which it must be; %A stands for a number."""
    match = re.search(pattern.replace("%A", f"({AMOUNT})"), text)
    assert match is not None, (pattern, text)
    return match.groups()


def shown_in(text: str, *values: float, unit: str = "") -> None:
    """That numbers joined by "to", of which the last has the unit of all, round to what JSON has."""
    texts = text.removesuffix(unit).rstrip().split(" to ")
    _, space, last = texts[-1].partition(" ")
    written = [each if " " in each else f"{each}{space}{last}" for each in texts]
    assert len(texts) == len(values)
    assert all(rounds_to(each, value) for each, value in zip(written, values, strict=True)), (text, values)


def estimate(text: str, pattern: str, of: dict[str, float]) -> tuple[str, ...]:
    """The three numbers of an estimate in a text, each of which rounds to what JSON has."""
    numbers = found(pattern + r" \(90% of runs: %A to %A[);]", text)
    for number, end in zip(numbers, ("mean", "low", "high"), strict=True):
        assert rounds_to(number, of[end]), (text, of)
    return numbers


def first_row(of: Answered) -> dict[str, str]:
    (title,) = of.tables.keys() & {"answer and runners-up", "nearest and runners-up"}
    return of.tables[title][0]


def headline_and_tables(of: Answered) -> None:
    """Figures of the answer are one text in the headline, in its table, on the terminal, on the page and in JSON."""
    answer, chosen = of.answer, of.data["chosen"]
    row, page = first_row(of), of.page.tables["plan-candidates"][0]
    assert of.said[0] == answer.headline
    assert answer.headline in of.page.text
    result, job = chosen["result"], "job " if chosen["result"].get("job") else ""
    known = {"throughput": result["throughput_samples_per_s"], f"{job}time": chosen["time_s"], f"{job}cost": chosen["cost_usd"]}
    for name, known_as in {**known, "efficiency": result["scaling_efficiency"]}.items():
        if (figure := of.figures.get(name)) is None:
            assert known_as is None or name == "efficiency"
            continue
        shown_in(figure.mean, known_as["mean"], unit="samples/s")
        if figure.interval:
            shown_in(figure.interval, known_as["low"], known_as["high"], unit="samples/s")
        assert "\n".join(filter(None, (name.capitalize(), figure.mean, figure.interval))) in of.page.text
    rate = result["throughput_samples_per_s"]
    for head, end in ("Throughput (samples/s)", "mean"), ("Low", "low"), ("High", "high"):
        assert rounds_to(page[head], rate[end])
    assert rounds_to(row["samples/s"], rate["mean"])
    assert rounds_to(row["low"], rate["low"])
    if chosen["time_s"] is not None:
        time = same(found(r", (?:done in )?%A(?: \([^()]*\))?\.$", answer.headline)[0], of.figures[f"{job}time"].mean)
        same(time, row["time"], page["Time of training"])
    if chosen["cost_usd"] is not None:
        same(found(r", %A, (?:done|\d)", answer.headline)[0], of.figures[f"{job}cost"].mean, row["cost"], page["Cost of the training"])
    sure = re.match(r"(?:at least )?(\S+) to", answer.confidence)
    assert sure is not None
    assert rounds_to(sure[1], chosen["confidence"])
    same(sure[1], row["conf."].removeprefix("≥").strip(), page["Confidence"].removeprefix("≥").strip())
    (of_page,) = [of.page.data["columns"]["throughput_samples_per_s"]["values"][place] for place in answer_places(of)]
    assert of_page == result["throughput_samples_per_s"]["mean"]


def answer_places(of: Answered) -> list[int]:
    """Where the answer stands among the points of the page: it is the one chosen there."""
    return [
        place
        for place, curve in enumerate(of.page.data["curve"])
        if curve == of.page.data["chosen"]["curve"]
        and all(of.page.data["at"][key][place] == at for key, at in enumerate(of.page.data["chosen"]["at"]))
    ]


def nodes_hours_and_price(of: Answered) -> None:
    """Nodes x hours x price of an hour are the cost, as a reader multiplies them."""
    chosen = of.data["chosen"]
    if chosen["usd_per_hour"] is not None:
        assert rounds_to(of.page.tables["plan-candidates"][0]["Cost of an hour"], chosen["usd_per_hour"])
    cost = of.figures.get("cost", of.figures.get("job cost"))
    scenario, job = of.plan.chosen.result.scenario, of.plan.chosen.result.job
    if cost is None or chosen["time_s"] is None or chosen["cost_usd"] is None:
        return
    price = scenario.cluster.price
    assert price is not None
    inexact = price.billing_step_s or price.startup_s or price.billing_minimum_s or (job is not None and job.away_node_s)
    if price.committed_usd is not None:
        assert rounds_to(*((found("of %A", cost.note)[0]), chosen["nodes"] * price.committed_usd * sets_at(of, of.plan.chosen, "mean")))
    elif inexact:
        assert not cost.note
    else:
        nodes, time, usd = found(r"^(\d+) nodes? x %A x %A$", cost.note)
        assert int(nodes) == chosen["nodes"]
        assert closes(cost.mean, nodes, f"{read(time)[0] / HOUR_S:.4g}", usd)
        assert chosen["usd_per_hour"] == pytest.approx(int(nodes) * read(usd)[0], rel=read(usd)[1] / read(usd)[0] + 1e-9)


def every_table(of: Answered) -> None:
    """A configuration has one set of figures on all tables of terminal and page."""
    headings = {"Throughput (samples/s)": "samples/s", "Time of training": "time", "Cost of the training": "cost", "Confidence": "conf."}
    pages = [row for name in ("plan-candidates", "plan-pareto", "plan-all") for row in of.page.tables.get(name, ())]
    by_name: dict[str, dict[str, str]] = {}
    for row in pages:
        shown = {short: row[name] for name, short in headings.items() if name in row}
        assert by_name.setdefault(row["Configuration"], shown) == shown
    for title, rows in of.tables.items():
        for row in rows if "configuration" in (rows or [{}])[0] else ():
            shown = {name: value for name, value in row.items() if name in headings.values() and not value.endswith("*")}
            rate = shown.pop("samples/s", "–")
            alike = [known for known in by_name.values() if shown.items() <= known.items()]
            assert any(rate == "–" or rounds_to(rate, read(known["samples/s"])[0]) for known in alike), (title, row)
    for candidate in (of.plan.chosen, *of.plan.candidates):
        assert candidate.result.replicas == candidate.result.scenario.replicas


def ways_to_pay(of: Answered) -> None:
    """Costs of ways to pay are one text in both tables, and of the answer that of the headline."""
    plan = of.plan
    if not plan.payments:
        return
    rows = {row["way to pay"]: row for row in of.tables["Ways to pay"]}
    pages = {row["Way to pay"]: row for row in of.page.tables["plan-payments"]}
    costs: dict[str, float] = {}
    for payment in of.data["payments"]:
        best, name = payment["best"], payment["name"]
        if best is None:
            continue
        if best["cost_usd"] is not None:
            for key, head, heading in (("mean", "cost", "Cost of the training"), ("low", "low", "Low cost"), ("high", "high", "High cost")):
                assert rounds_to(same(rows[name][head], pages[name][heading]), best["cost_usd"][key])
        if payment["capital_usd"]:
            assert rounds_to(same(rows[name]["in advance"], pages[name]["In advance"]), payment["capital_usd"])
        same(rows[name]["time"], pages[name]["Time of training"])
        same(rows[name]["per hour"], pages[name]["Cost of an hour"])
        if best["meets"]:
            costs[name] = best["cost_usd"]["mean"] if best["cost_usd"] else best["usd_per_hour"]
    cheapest = [payment.name for payment in plan.payments if payment.cheapest]
    assert [costs[name] for name in cheapest] == [min(costs.values(), default=0.0)] * bool(costs)
    if not costs:
        return
    own = next(payment.name for payment in plan.payments if payment.best is not None and payment.best.result == plan.chosen.result)
    same(first_row(of)["cost"], rows[own]["cost"])
    if plan.goal.prefer == "cheapest" and plan.feasible and ", except " not in plan.why:
        assert costs[own] == min(costs.values()), (own, costs)


def break_even(of: Answered) -> None:
    """When it pays is one text; for a month's trainings that is where the training costs less."""
    plan = of.plan
    for pair in plan.break_even:
        (said,) = re.findall(rf"^{re.escape(pair.own)} against {re.escape(pair.rented)} (.+?): ", pair.text)
        assert any(line.strip() == pair.text for line in of.said)
        row = next(row for row in of.page.tables["plan-break-even"] if (row["In advance"], row["Against"]) == (pair.own, pair.rented))
        if pair.months is not None and "pays after" in said:
            same(found("pays after %A months", said)[0], row["Pays after (months)"])
        payments = {payment.name: payment.best for payment in plan.payments}
        own, rented = payments[pair.own], payments[pair.rented]
        if plan.goal.trainings_per_month is not None and own is not None and rented is not None and own.cost_usd and rented.cost_usd:
            assert (pair.months is not None) == (own.cost_usd.mean <= rented.cost_usd.mean), (pair, own.cost_usd, rented.cost_usd)
            assert ("pays after" in said or "from the first month" in said) == (pair.months is not None)
        elif own is not None and rented is not None and own.usd_per_hour is not None and rented.usd_per_hour is not None:
            use = own.result.scenario.cluster.price
            assert use is not None
            assert pair.share_in_use == pytest.approx(use.share_in_use or 1.0)
            if own.cost_usd and rented.cost_usd:
                assert (pair.months is not None) == (own.cost_usd.mean <= rented.cost_usd.mean), (pair, own.cost_usd, rented.cost_usd)
        paid = next(payment.capital_usd for payment in plan.payments if payment.name == pair.own)
        assert pair.capital_usd == paid
        for shown in re.findall(rf"{AMOUNT} a month", pair.text):
            assert any(
                rounds_to(shown.removesuffix(" a month"), value.mean) for value in (pair.own_usd_per_month, pair.rented_usd_per_month)
            )


def regret(of: Answered) -> None:
    """Probability and regret are one text on all surfaces, the answer has the least regret, and probabilities are those of one of them."""
    plan, sure = of.plan, of.answer.confidence
    decided = [(candidate, candidate.decision) for candidate in (plan.chosen, *plan.runners_up) if candidate.decision is not None]
    if plan.chosen.decision is None:
        assert "no alternative" not in sure
        return
    ours = plan.chosen.decision
    page = of.page.tables["plan-candidates"]
    for place, candidate in enumerate((plan.chosen, *plan.runners_up)):
        if candidate.decision is None:
            continue
        probability, loss = page[place]["Best with probability"], page[place]["Expected regret"]
        share = page[place]["Share of the best"]
        line = rf"^[^:]*: best with probability {re.escape(probability)}, expected regret {re.escape(loss)} \({re.escape(share)}\)"
        ranks = [place + 1 in ranks_of(text.partition(":")[0], 1 + len(plan.runners_up)) for text in of.said if re.search(line, text)]
        assert any(ranks), (line, of.said)
        assert rounds_to(probability.removeprefix("at least ").removeprefix("at most "), candidate.decision.best)
        assert rounds_to(loss.removesuffix(" samples/s"), candidate.decision.regret) or not candidate.decision.regret
    assert rounds_to(found("%A that no alternative is (?:cheaper|faster)", sure)[0], ours.best)
    if (ours.regret_where_not_best or 0.0) >= 0.001:
        assert rounds_to(found("this (?:costs|takes|is) %A (?:more|longer|slower) on average", sure)[0], ours.regret_where_not_best)
    least = min(decision.regret for _, decision in decided)
    if ", except " not in plan.why:
        assert ours.regret <= least + 1e-6 * abs(ours.regret / ours.regret_share if ours.regret_share else 1.0)
    lowest = 1 / (ours.runs + 1)
    assert sum(decision.best for _, decision in decided if decision.best > lowest + 1e-9) <= 1 + 1e-9
    assert ours.among == len(decided)


def ranks_of(text: str, count: int) -> set[int]:
    """Which rows of a table a remark below it is of."""
    if text == "all":
        return set(range(1, count + 1))
    if match := re.fullmatch(r"(\d+) to (\d+)", text):
        return set(range(int(match[1]), int(match[2]) + 1))
    return {int(number) for number in re.findall(r"\d+", text)}


def apart(of: Answered) -> None:
    """How far behind the answer others are is what their costs, times or throughput say; so are differences of expected regret."""
    plan = of.plan
    if not plan.feasible:
        return

    def value(candidate: Candidate) -> float | None:
        if plan.goal.prefer == "cheapest":
            return candidate.cost_usd.mean if candidate.cost_usd is not None else None
        return candidate.time_s.mean if candidate.time_s is not None else None

    best = value(plan.chosen)
    said = [
        (its.best, its.text)
        for its in (*plan.clusters, *plan.strategies, *plan.payments, *plan.ways)
        if its.best is not None and its.best.meets
    ]
    for candidate, text in said:
        other = value(candidate)
        if best is None or other is None or not best:
            continue
        if match := re.match(rf"({AMOUNT}) (more|less)(;|$)", text):
            assert rounds_to(match[1], abs(other / best - 1)), (text, other, best)
            assert (match[2] == "more") == (other > best)
        elif match := re.match(rf"({AMOUNT}) times as much", text):
            assert rounds_to(match[1], other / best), (text, other, best)
        elif match := re.match(rf"({AMOUNT}) (higher|lower) throughput", text):
            assert rounds_to(match[1], abs(best / other - 1)), (text, other, best)
    ours = plan.chosen.decision
    if best is None or ours is None or any(its.result.discrepancy is not None for its in plan.candidates):
        return
    for other in plan.runners_up:
        behind = value(other)
        if other.decision is not None and behind is not None:
            scatter = 0.01 * abs(behind - best) + 0.001 * best
            assert other.decision.regret - ours.regret == pytest.approx(behind - best, abs=scatter), (
                other.name,
                behind,
                best,
                other.decision,
                ours,
            )


def limit(of: Answered) -> None:
    """The limit is one in the answer, in tables and in JSON; what helps most is the first of the table that is certain."""
    plan, text = of.plan, of.answer.limit
    label = of.page.tables["plan-candidates"][0]["Limited by"]
    its = plan.chosen.result.bottleneck
    assert text.startswith(its.label)
    same(label, its.label)
    for row, payment in zip(of.page.tables.get("plan-payments", ()), plan.payments, strict=False):
        if payment.best is not None and payment.best.result.scenario_hash == plan.chosen.result.scenario_hash:
            same(row["Limited by"], label)
    gains = of.tables.get(f"Gain of one improvement, {plan.chosen.scaling} scaling", [])
    pages = {row["Improvement"]: row for row in of.page.tables.get("plan-improvements", ())}
    improvements = {one.name: one for one in plan.improvements}
    for row in gains:
        one, page = improvements[row[""]], pages[row[""]]
        if one.gain is None:
            continue
        for head, heading, value in (
            ("gain", "Throughput gained", one.gain), ("low", "Least gained", one.gain_low), ("high", "Most gained", one.gain_high),
        ):  # fmt: skip
            assert value is not None
            assert rounds_to(row[head], value)
            assert rounds_to(page[heading], value)
        same(row["gain"], page["Throughput gained"])
        rate = one.throughput_samples_per_s
        assert rate is not None
        assert rounds_to(row["samples/s"], rate.mean)
        assert rounds_to(page["Throughput (samples/s)"], rate.mean)
        assert one.text.startswith(tuple(line for line in [one.text]))
        assert row["limit then"] == one.bottleneck
        assert (
            f"{label} limit{'' if its.balance else 's'} before and after" in one.text
            or f"moves from {label} to {one.bottleneck}" in one.text
        )
    if match := re.search(rf"; ([^;]+?)(?: \([^()]*\))?: ({AMOUNT})(?: for [^;]*)?$", text):
        row = next(row for row in gains if IN_WORDS.get(row[""], row[""]) == match[1])
        same(match[2], row["gain"])
    assert " for −" not in text  # nothing that is bought besides makes an hour cheaper


def whole_job(of: Answered) -> None:
    """The job's time, cost and goodput are those of the headline; more workers change them by what the table of workers has."""
    plan, data = of.plan, of.data["chosen"]
    job = data["result"].get("job")
    if job is None:
        assert "The whole job" not in of.page.text
        return
    share = of.figures["goodput"].mean
    assert rounds_to(of.figures["job time"].mean, job["time_s"]["mean"])
    assert rounds_to(share, job["goodput"]["mean"])
    same(share, *found(r"\nGoodput\n%A(?: \(90% of runs: [^()]*\))? of the time", of.page.text))
    if "Workers" in (rows := of.page.tables.get("plan-workers", [{}]))[0]:
        own = next((row for row in rows if row["Workers"] == f"{plan.chosen.result.scenario.workers:,}"), None)
        if own is not None:
            assert rounds_to(first_row(of)["samples/s"], read(own["Throughput (samples/s)"])[0])
            if not plan.goal.trainings_per_month:
                same(own["Cost of the job"], first_row(of)["cost"])
            same(own["Time of the job"], first_row(of)["time"])


def other_sizes(of: Answered) -> None:
    """Fewer devices that may do, and as many as pay, have the figures of their own candidates."""
    plan = of.plan
    sizes = [size for size in (plan.fewest, plan.most) if size is not None]
    rows = of.tables.get("the fewest devices that may suffice, and the most that pay", [])
    for row, size in zip(rows, sizes, strict=True):
        assert rounds_to(row["workers"], size.result.scenario.workers)
        assert size.time_s is not None
        assert rounds_to(row["time"], size.time_s.mean)
        assert size.cost_usd is not None
        assert rounds_to(row["cost"], size.cost_usd.mean)
        assert size in plan.candidates


def sums(of: Answered) -> None:
    """Counts add up: replications that reach the goal, configurations, nodes of the placement."""
    plan = of.plan
    assert 0 <= plan.chosen.reached_by <= len(plan.chosen.result.throughput_of_each_replication)
    assert plan.considered == len(plan.candidates) + plan.discarded + plan.passed_over + sum(one.configurations for one in plan.refused)
    meeting = [candidate for candidate in plan.candidates if candidate.meets]
    assert plan.feasible == bool(meeting) == plan.chosen.meets
    if plan.feasible and len(plan.candidates) > 1:
        assert plan.why.startswith(f"{len(plan.candidates)} configurations were simulated, {len(meeting)} reach")
    for candidate in plan.candidates:
        assert re.findall(r"on (\d+) nodes?", candidate.placement), candidate.placement
        assert candidate.nodes >= candidate.result.placement.worker_nodes


# -- physics --------------------------------------------------------------------------------------


def estimates_in(value: Any, path: str = "") -> Iterator[tuple[str, float, float, float]]:
    """Everything with a lower and an upper end, by its path."""
    if isinstance(value, dict):
        if {"mean", "low", "high"} <= value.keys():
            yield path, value["low"], value["mean"], value["high"]
        for name in value:
            if f"{name}_low" in value and value[name] is not None and not isinstance(value[name], dict):
                ends = [value[f"{name}_{end}"] for end in ("low", "high")]
                yield f"{path}.{name}", *(item if item is not None else math.inf for item in (ends[0], value[name], ends[1]))
            yield from estimates_in(value[name], f"{path}.{name}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from estimates_in(item, f"{path}.{place}")


def ends_in_order(of: Answered) -> None:
    """Lower end <= value <= upper end."""
    for path, low, value, high in estimates_in(of.data):
        if ".scenario." in path or ".assumed." in path:
            continue
        assert low <= value + 1e-9 * abs(value), (path, low, value, high)
        assert value <= high + 1e-9 * abs(value), (path, low, value, high)


def within_capacity(of: Answered) -> None:
    """Efficiency is at most 100%, rentals are no more than nodes for their hours, and months no less than at full use."""
    plan = of.plan
    for candidate in plan.candidates:
        own_speed(candidate)
        runs = len(candidate.result.throughput_of_each_replication)
        assert candidate.confidence <= runs / (runs + 1) + 1e-9
        rent_of(candidate)
        job = candidate.result.job
        if job is not None:
            assert 0 <= job.goodput.low <= job.goodput.high <= 1 + 1e-9
            steps = candidate.result.throughput_samples_per_s
            assert job.samples_per_s.mean <= steps.mean * (1 + 1e-9), candidate.name
            assert job.samples_per_s.high <= steps.high * (1 + 1e-9), candidate.name
    for pair in plan.break_even:
        bests = {payment.name: payment for payment in plan.payments}
        own, rented = bests[pair.own], bests[pair.rented].best
        assert own.best is not None
        assert rented is not None
        price = rented.result.scenario.cluster.price
        assert price is not None
        assert pair.share_in_use <= 1 + 1e-9
        assert pair.capital_usd == pytest.approx(own.capital_usd)
        assert sets_at(of, own.best, "low") <= pair.sets_of_nodes <= sets_at(of, own.best, "high")
        ends = [months for months in (pair.months_low, pair.months, pair.months_high) if months is not None]
        assert all(0 <= months <= pair.lasts_months * (1 + 1e-9) for months in ends), pair
        if price.billing_step_s or price.startup_s or price.billing_minimum_s:
            continue
        # of jobs that nodes taken away make longer, as many more hours are rented
        longer = max(rented.time_s.high / own.best.time_s.low, 1.0) if rented.time_s is not None and own.best.time_s is not None else 1.0
        capacity_usd = MONTH_H * rented.nodes * price.usd_per_node_hour * longer * (1 + 1e-9)
        assert pair.rented_usd_per_month.mean <= pair.sets_of_nodes * capacity_usd, pair
        assert all(months >= min(own.capital_usd / pair.sets_of_nodes / capacity_usd, pair.lasts_months) * (1 - 1e-9) for months in ends), (
            pair
        )


def own_speed(candidate: Candidate) -> None:
    """No device works better than it does alone, without its update where servers, or shared state, take that from it."""
    result = candidate.result
    load, scenario = result.scenario.workload, result.scenario
    alone_s = load.forward.base_s + load.backward.base_s + scenario.batch * (load.forward.per_sample_s + load.backward.per_sample_s)
    update_s = load.apply_s
    linear = 1 + update_s / alone_s if scenario.servers or getattr(scenario.strategy, "shard", "none") != "none" else 1.0
    if load.jitter.kind == "constant" and not load.run_to_run_cv and load.uncertainty is None:
        assert result.scaling_efficiency.high <= linear * (1 + 1e-9), (candidate.name, result.scaling_efficiency)
        rates = result.throughput_of_each_replication
        most = result.ranks * scenario.batch / alone_s * (1 + 1e-9)
        assert max(rates) <= most, (candidate.name, rates, most)
        if result.discrepancy is None:
            assert result.throughput_samples_per_s.high <= most, (candidate.name, result.throughput_samples_per_s, most)
    else:  # draws are in common, so that chance does not help either, but for a window of few steps
        assert result.scaling_efficiency.mean <= linear * 1.1, (candidate.name, result.scaling_efficiency)


def sets_at(of: Answered, own: Candidate, end: str) -> int:
    """Sets of nodes that a month's trainings take at one end of their time."""
    often = of.plan.goal.trainings_per_month
    if often is None or own.time_s is None:
        return 1
    return max(math.ceil(often * getattr(own.time_s, end) / HOUR_S / MONTH_H - 1e-6), 1)


def rent_of(candidate: Candidate) -> None:
    """No rental of nodes that are billed exactly costs more than all of them for the whole time."""
    price, cost, time_s = candidate.result.scenario.cluster.price, candidate.cost_usd, candidate.time_s
    if price is None or cost is None or time_s is None or price.committed_usd is not None:
        return
    if price.billing_step_s or price.startup_s or price.billing_minimum_s:
        return
    for end in ("low", "mean", "high"):
        assert getattr(cost, end) <= candidate.nodes * price.usd_per_node_hour * getattr(time_s, end) / HOUR_S * (1 + 1e-9), (
            candidate.name, end, cost, time_s,
        )  # fmt: skip


def least_and_cheapest(of: Answered) -> None:
    """What the headline calls the cheapest, or fastest, is so among all that reach the goal, unless it is said why another is not taken."""
    plan = of.plan
    if not plan.feasible or ", except " in plan.why:
        return
    for candidate in plan.candidates:
        if candidate.meets and plan.goal.prefer == "cheapest" and candidate.cost_usd is not None and plan.chosen.cost_usd is not None:
            assert plan.chosen.cost_usd.mean <= candidate.cost_usd.mean * (1 + 1e-9), candidate.name
        elif candidate.meets and plan.goal.prefer == "fastest" and candidate.time_s is not None and plan.chosen.time_s is not None:
            assert plan.chosen.time_s.mean <= candidate.time_s.mean * (1 + 1e-9), candidate.name


def changes_within_their_pairs(of: Answered) -> None:
    """A gain of another network lies, with its interval, within the pairs of runs and what the model errs otherwise on either side."""
    chosen = of.plan.chosen.result
    link = chosen.scenario.cluster.inter_node
    settings = {
        "2x network": {"bandwidth_bytes_per_s": 2 * link.bandwidth_bytes_per_s},
        "half latency": {"latency_s": link.latency_s / 2},
        "fast network": {"bandwidth_bytes_per_s": 8e9},
    }
    for one in of.plan.improvements:
        if one.gain is None or one.gain_low is None or one.gain_high is None or one.name not in settings:
            continue
        ((key, value),) = settings[one.name].items()
        other = paceline.simulate(chosen.scenario, {f"cluster.inter_node.{key}": value})
        pairs = [
            our / their for our, their in zip(other.throughput_of_each_replication, chosen.throughput_of_each_replication, strict=True)
        ]
        times = value / getattr(link, key) if value else 1.0
        if key == "bandwidth_bytes_per_s":
            assert one.gain_high <= max(times - 1, 0) + 1e-9, (one, times)
        error = between(other.discrepancy, chosen.discrepancy)
        reach = [math.log(end) for end in (min(pairs), max(pairs))]
        if len(pairs) < 19:  # a normal distribution is assumed: Student's quantile of 4 degrees of freedom
            half = 2.132 * math.sqrt(1 + 1 / len(pairs)) * statistics.stdev(pairs)
            middle = statistics.fmean(pairs)
            reach = [math.log(max(end, 1e-9)) for end in (middle - half, middle + half)]
        least = reach[0] - Z_90 * error.low
        most = reach[1] + Z_90 * error.high
        assert math.exp(least) - 1 - 1e-6 <= max(one.gain_low, min(times - 1, 0)), (one.name, one.gain_low, pairs, error)
        assert one.gain_high <= math.exp(most) - 1 + 1e-6, (one.name, one.gain_high, pairs, error)
        assert min(pairs) - 1 - 1e-6 <= one.gain <= max(pairs) - 1 + 1e-6 or one.gain in (0, times - 1)


CHECKS = (
    headline_and_tables, apart, nodes_hours_and_price, every_table, ways_to_pay, break_even, regret, limit, whole_job, other_sizes, sums,
    ends_in_order, within_capacity, least_and_cheapest, changes_within_their_pairs,
)  # fmt: skip


@pytest.mark.slow
@examples(100, 11)
@given(question=questions)
@example(question=question_of(Random(424)))  # what was simulated to find how many workers pay was counted nowhere
def test_what_two_surfaces_show_of_a_random_plan_is_one_number_within_physics(question: Question) -> None:
    of = answered(question)
    for check in CHECKS:
        check(of)


@pytest.mark.long
@examples(400, 80)
@given(question=questions)
def test_many_random_plans_agree(question: Question) -> None:
    of = answered(question)
    for check in CHECKS:
        check(of)


@pytest.mark.long
@pytest.mark.parametrize(
    ("example", "options"),
    [
        ("buy-or-rent", {"deadline": "12h", "strategies": ["ring"], "workers": [8], "trainings_per_month": 40}),
        ("whole-job", {"deadline": "30 min", "workers": [8, 16]}),
        ("fsdp", {"samples": 1e7, "deadline": "96h", "workers": [8]}),
    ],
)
def test_plans_of_the_documents_agree(example: str, options: dict[str, Any]) -> None:
    of = answered(Question(example, options))
    for check in CHECKS:
        check(of)


# -- what a user states --------------------------------------------------------------------------


def job_at(price: dict[str, Any], faults: dict[str, Any], every: dict[str, Any], hours: float) -> dict[str, Any]:
    """Two workers without chance, whose job takes so many hours of steps."""
    table = scenario_table(
        strategy={"kind": "multi-worker-mirrored", "workers": 2},
        cluster={"inter_node": {"bandwidth": "1000 Tbit/s", "latency": "0 s"}, "price": price},
        run={"replications": 19},
    )
    checkpoint = {"size": "100 MB", "write": "100 MB/s", **every}
    job = {"samples": hours * HOUR_S * 20 / STEP_S // 1, "startup": "1 min", "tracing": "0 s", "checkpoint": checkpoint}
    return {**table, "job": {**job, **({"faults": faults} if faults else {})}}


STEP_S = 6.5e-3
"""Of a worker with 10 samples."""
PUBLISHED = [{"use": "rsc-1"}, {"use": "rsc-2"}, {"use": "llama-3"}, {"use": "gce-k80-preemptible"}]


@pytest.mark.slow
@examples(60, 5)
@given(
    life_h=some.sampled_from([2.0, 5.0, 20.0]),
    crash_h=some.sampled_from([None, 3.0, 50.0]),
    minutes=some.integers(10, 90),
    usd=some.sampled_from([0.37, 1.3]),
    published=some.sampled_from(PUBLISHED[:3]),
    on_spot=some.booleans(),
)
def test_nothing_published_rescales_what_a_user_states(
    life_h: float, crash_h: float | None, minutes: int, usd: float, published: dict[str, Any], on_spot: bool
) -> None:
    """How often nodes are taken and crash, prices and the checkpoints' interval are the same with published faults, with these known
    exactly, and without.
    """
    taken = {"mtbf": f"{life_h} h", "replacement": "2 min"}
    crashes = {} if crash_h is None else {"worker_mtbf": f"{crash_h} h", "restart": "30 s"}
    price = {"name": "mine", "usd_per_node_hour": usd, **({"preemption": taken} if on_spot else {})}
    own = crashes if on_spot else {**crashes, "preemption": taken}
    every = {"every": f"{minutes} min"}
    hours = 6 * life_h
    outcomes = []
    for faults in ({**published, **own}, {**published, **own, "rates_90": [1.0, 1.0]}, own):
        result = paceline.simulate(job_at(price, faults, every, hours))
        job, scenario = result.job, result.scenario
        assert job is not None
        assert job.checkpointing is not None
        assert job.checkpointing.set_s == 60.0 * minutes
        assert abs(job.checkpointing.interval_s - 60.0 * minutes) <= STEP_S
        assert rounds_to(*found("^every %A of steps", checkpoints_in_words(job.checkpointing)), 60.0 * minutes)
        shown = scenario.cluster.price
        assert shown is not None
        assert shown.usd_per_node_hour == usd
        known = shown.preemption if on_spot else scenario.job.faults.preemption
        assert known.mtbf_s == life_h * HOUR_S
        assert known.rates_90 is None
        if on_spot:
            assert f"a node is preempted after {format_seconds(life_h * HOUR_S)} on average" in shown.said
        if crash_h is not None:
            assert scenario.job.faults.worker_mtbf_s == crash_h * HOUR_S
        # what is published of nodes is rare beside that, and is taken off at its mean
        nodes_h = (job.time_s.mean * 2 - job.away_node_s) / HOUR_S
        outcomes.append(job.faults / nodes_h - rate_of(scenario.job.faults))
        assert job.faults > 4
    stated = 1 / life_h + (1 / crash_h if crash_h is not None else 0.0)
    for rate in outcomes:  # of 19 jobs with a dozen faults each
        assert rate == pytest.approx(stated, rel=0.3)


def rate_of(faults: Any) -> float:
    """Published faults of a node and hour, which are of nodes, or of the job of two."""
    if faults is None:
        return 0.0
    return (HOUR_S / faults.node_mtbf_s if faults.node_mtbf_s else 0.0) + (HOUR_S / faults.job_mtbf_s / 2 if faults.job_mtbf_s else 0.0)
