"""What a profile tells of a training step, with or without the sizes of the model's variables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrate.xplane.gradients import gradient_ops
from calibrate.xplane.ops import Op
from calibrate.xplane.phases import MeasuredStep, StepsOfProfile

__all__ = ["ProfileReport", "Total", "report_of"]

_LONGEST = 10


@dataclass(frozen=True)
class Total:
    """Operations of one name or kind, as means over the steps.

    Attributes
    ----------
    name
        Of the operations.
    calls
        A step.
    seconds
        A step, added up over those that run at the same time.
    size_bytes
        A step, where recorded; else 0.
    """

    name: str
    calls: float
    seconds: float
    size_bytes: float


@dataclass(frozen=True)
class ProfileReport:
    """The steps of one batch size, in seconds.

    Attributes
    ----------
    batch
        Samples a step.
    steps
        How many.
    mean_s, p5_s, median_s, p95_s
        Of a step, from its beginning to the next one's.
    input_s, prepare_s
        Mean wait for input, and time to prepare a batch beside the computation.
    forward_s, backward_s, apply_s
        Means; backward and apply are None where no operation is named as a gradient's.
    collective_s
        Mean of collectives while a device computed nothing.
    communication, longest
        Collectives, transfers and copies by kind; the operations that take the most time.
    gradients
        Operations of the backward pass in the order in which they end, with the share of the
        pass after which they do.
    """

    batch: int
    steps: int
    mean_s: float
    p5_s: float
    median_s: float
    p95_s: float
    input_s: float
    prepare_s: float
    forward_s: float
    backward_s: float | None
    apply_s: float | None
    collective_s: float
    communication: tuple[Total, ...]
    longest: tuple[Total, ...]
    gradients: tuple[tuple[str, float], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as for JSON."""
        plain = {key: value for key, value in vars(self).items() if key not in ("communication", "longest")}
        return {**plain, "communication": [vars(one) for one in self.communication], "longest": [vars(one) for one in self.longest]}


def report_of(batch: int, profiles: Sequence[StepsOfProfile]) -> ProfileReport:
    """Summarise all steps of one batch size; ``profiles`` has at least one, each with at least one step."""
    steps = [step for one in profiles for step in one.steps]
    whole = np.array([step.whole_s for step in steps])
    p5, median, p95 = (float(value) for value in np.quantile(whole, [0.05, 0.5, 0.95]))
    split = [step for step in steps if step.backward_s is not None]
    named = bool(split)
    return ProfileReport(
        batch=batch,
        steps=len(steps),
        mean_s=float(whole.mean()),
        p5_s=p5,
        median_s=median,
        p95_s=p95,
        input_s=_mean([step.input_s for step in steps]),
        prepare_s=_mean([one.input.prepare_s for one in profiles]),
        forward_s=_mean([step.forward_s for step in split or steps]),
        backward_s=_mean([step.backward_s or 0.0 for step in split]) if named else None,
        apply_s=_mean([step.apply_s or 0.0 for step in split]) if named else None,
        collective_s=_mean([step.collective_s for step in steps]),
        communication=_totals(steps, lambda op: op.kind if op.role in ("communication", "copy") else ""),
        longest=_totals(steps, lambda op: op.kind if op.role not in ("communication", "copy") else "")[:_LONGEST],
        gradients=tuple((op.path, round(op.ready, 4)) for op in gradient_ops(steps)),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _totals(steps: Sequence[MeasuredStep], name_of: Any) -> tuple[Total, ...]:
    ops: dict[str, list[Op]] = defaultdict(list)
    for step in steps:
        for op in step.ops:
            name = name_of(op)
            if name:
                ops[name].append(op)
    found = [
        Total(
            name,
            len(its) / len(steps),
            sum(op.end_s - op.start_s for op in its) / len(steps),
            sum(op.size_bytes for op in its) / len(steps),
        )
        for name, its in ops.items()
    ]
    return tuple(sorted(found, key=lambda total: (-total.seconds, total.name)))
