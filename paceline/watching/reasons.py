"""Why a run left its interval: what the record shows of the steps since then beside those before, cause by cause.

Each cause has a name of its own, as ``paceline why`` has it: ``input``, ``network``, ``compute``, ``shared-cores``, ``slow-worker``,
``between-steps``, ``start-up``. Processor time tells computing from waiting: a process that waits, for input, for bytes or for a core that
another has, uses none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from calibrate.observations import Predicted
from paceline.watching.verdict import Stretch, Verdict
from simulator.base.text import format_bytes, format_rate, format_seconds, format_share
from simulator.scenario import Scenario

TELLING = frozenset({"input", "compute", "shared-cores", "slow-worker", "network"})
"""Causes that a record shows by itself: no other explanation is looked for then."""
_PART = 0.25
"""Share of what steps take longer that a cause must explain."""
_ALIKE = 0.2
_TAKEN, _FULL = 0.25, 0.9
"""Cores that others must have taken besides, and share of all cores that are busy then: else the process had a core when it wanted one."""
_WORTH = 0.02


@dataclass(frozen=True)
class Reason:
    """A cause.

    Attributes
    ----------
    key
        Its name, to sort by.
    text
        What was seen of it.
    cost_s
        What it adds to a step; None where that is not known.
    remedy
        What to do, or to measure.
    """

    key: str
    text: str
    cost_s: float | None
    remedy: str

    def to_dict(self) -> dict[str, Any]:
        """For a line of JSON."""
        return dict(vars(self))


def reasons_of(scenario: Scenario, predicted: Predicted, verdict: Verdict, all_of_them: Sequence[Verdict]) -> tuple[Reason, ...]:
    """Causes for which a run is outside its interval, what costs most first.

    Parameters
    ----------
    scenario, predicted
        What was told of the training, and predicted.
    verdict
        Of the run; it has left its interval.
    all_of_them
        Of all its workers.
    """
    if verdict.doubts:
        return (Reason("doubtful", verdict.doubts[0], None, "set this right first: nothing else is concluded from such figures"),)
    since, now, before = verdict.since, verdict.now, verdict.before
    if since is None or now is None:
        return ()
    if since.state == "faster":
        faster = f"steps take {format_seconds(now.mean_s)}, {format_share(1 - now.mean_s / predicted.mean_s)} less than predicted"
        return (Reason("faster", faster, None, "the scenario is too slow for this run: fit it with --out-scenario, or calibrate again"),)
    rare = list(_rare(verdict, now))
    if now.by == "rare":
        return tuple(rare)
    found = [*rare, *_of_workers(scenario, verdict, all_of_them), *_between(verdict)]
    found += _since(scenario, verdict, before, now) if before is not None else _all_along(scenario, predicted, verdict, now)
    # what was measured itself before what is concluded
    return tuple(sorted(found, key=lambda its: -(its.cost_s or 0.0)))


def _of_workers(scenario: Scenario, verdict: Verdict, all_of_them: Sequence[Verdict]) -> Iterator[Reason]:
    others = [its for its in all_of_them if its is not verdict and its.now is not None]
    if len(others) and not any(its.left for its in others) and scenario.strategy.pace.asynchronous:
        yield Reason(
            "slow-worker",
            f"worker {verdict.run.worker or verdict.run.source} alone is slower; {len(others)} others are as predicted",
            None,
            "look for what else runs on that machine, its clock and its temperature",
        )


def _rare(verdict: Verdict, now: Stretch) -> Iterator[Reason]:
    """What long steps of a kind of their own cost; the others are explained without them."""
    if verdict.found.rare is not None and now.rare_s > _WORTH * now.mean_s:
        yield Reason(
            "between-steps",
            verdict.found.rare.text,
            now.rare_s,
            "see what the script does at these steps, such as saving, evaluating, or tracing a new shape, and do it less often or apart",
        )


def _between(verdict: Verdict) -> Iterator[Reason]:
    """What source and steps do not tell apart where rows are means of several."""
    if verdict.run.each == "step":
        return
    yield Reason(
        "between-steps",
        f"each figure of {verdict.run.source} is a mean over several steps, and may hold checkpoints, evaluations and tracing",
        None,
        "record each step with paceline.keras_callback, which tells them apart",
    )


def _since(scenario: Scenario, verdict: Verdict, before: Stretch, now: Stretch) -> Iterator[Reason]:
    """What changed when the level did."""
    longer_s = now.mean_s - before.mean_s
    if longer_s <= 0:
        return

    def means(name: str) -> tuple[float, float] | None:
        one, other = verdict.mean(name, before), verdict.mean(name, now)
        return None if one is None or other is None else (one, other)

    explained = False
    for key, name, what, remedy in (
        ("input", "input_s", "waiting for input takes", "prepare input in parallel and ahead, or read it from nearer storage"),
        ("compute", "compute_s", "the device computes for", "look for a lower clock, heat, or another program on the device"),
    ):
        pair = means(name)
        if pair is not None and pair[1] - pair[0] >= _PART * longer_s:
            explained = True
            yield Reason(
                key, f"{what} {format_seconds(pair[1])} of a step in place of {format_seconds(pair[0])}", pair[1] - pair[0], remedy
            )
    others, cpu = means("others_s"), means("cpu_s")
    cores = verdict.run.facts.cores
    if others is not None:
        taken_s, before_s = others[1] / now.mean_s, others[0] / before.mean_s
        # in cores: processor seconds per second
        used_s = taken_s + (cpu[1] / now.mean_s if cpu is not None else 0.0)
        if taken_s - before_s > _TAKEN and taken_s > 1.5 * before_s and used_s > _FULL * (cores or 1):
            explained = True
            yield Reason(
                "shared-cores",
                f"other processes take {taken_s:.2g} of {cores or 'the'} cores in place of {before_s:.2g}",
                longer_s,
                "find them with top, and give the training cores of its own",
            )
    size = means("received_bytes"), means("sent_bytes")
    moved = [sum(pair[place] for pair in size if pair is not None) for place in (0, 1)]
    if scenario.nodes_needed > 1 and moved[0] > 0 and abs(moved[1] / moved[0] - 1) < _ALIKE:
        rates = [moved[0] / before.mean_s, moved[1] / now.mean_s]
        yield Reason(
            "network",
            f"the same {format_bytes(moved[1])} of a step come and go at {format_rate(rates[1])} in place of {format_rate(rates[0])}",
            None,
            "measure the link now: paceline calibrate-link, or iperf3 between two of the machines",
        )
    elif scenario.nodes_needed > 1 and moved[0] > 0 and moved[1] > (1 + _ALIKE) * moved[0]:
        yield Reason(
            "network",
            f"{format_bytes(moved[1])} come and go in a step in place of {format_bytes(moved[0])}",
            None,
            "look for what else uses the network of this machine",
        )
    if cpu is None or explained:
        return
    added_s = cpu[1] - cpu[0]
    computes = f"{format_seconds(cpu[1])} of processor time in place of {format_seconds(cpu[0])}"
    text = f"a step takes {format_seconds(longer_s)} longer, and {computes}"
    if added_s < _PART * longer_s:
        waits = "input" if scenario.nodes_needed == 1 else "input or other workers"
        yield Reason(
            "input" if scenario.nodes_needed == 1 else "waiting",
            f"{text}: the process waits for {waits}",
            longer_s - max(added_s, 0.0),
            "the same run on one batch kept in memory (dataset.take(1).cache().repeat()) tells whether it is the input",
        )
    else:
        yield Reason(
            "compute",
            f"{text}: it computes for longer",
            min(added_s, longer_s),
            "look for a lower clock, other programs on the same cores, or samples that are larger than before",
        )


def _all_along(scenario: Scenario, predicted: Predicted, verdict: Verdict, now: Stretch) -> Iterator[Reason]:
    """Why a run that never was as predicted is slower, as far as its record tells."""
    longer_s = now.mean_s - predicted.mean_s
    waited_s, others_s, cpu_s = (verdict.mean(name, now) for name in ("input_s", "others_s", "cpu_s"))
    if waited_s is not None and waited_s >= _PART * longer_s:
        text = f"waiting for input takes {format_seconds(waited_s)} of a step"
        yield Reason("input", text, min(waited_s, longer_s), "prepare input in parallel and ahead, or read it from nearer storage")
    if others_s is not None and others_s / now.mean_s > _TAKEN:
        text = f"other processes take {others_s / now.mean_s:.2g} of {verdict.run.facts.cores or 'the'} cores"
        yield Reason("shared-cores", text, None, "find them with top, and give the training cores of its own")
    if cpu_s is not None:
        text = f"of the {format_seconds(now.mean_s)} of a step the process computes for {format_seconds(cpu_s)} of processor time"
        yield Reason("unknown", text, None, f"`paceline why` explains it from runs of one and of {max(scenario.workers, 2)} workers")
