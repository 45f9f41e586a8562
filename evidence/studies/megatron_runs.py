"""Memory and step times of real runs by Megatron-LM, predicted from the models' dimensions by the scenario that a user would write.

``tests/data/megatron_runs.csv`` has runs of dense models on A100, H100 and GB200 that NVIDIA's tests record: NVIDIA/Megatron-LM at
d98e8a64dd, tests/functional_tests/test_cases/gpt/CASE/golden_values_HARDWARE.json. ``step_s`` is the median iteration, ``peak_bytes``
the most that PyTorch's allocator gave the last rank, without CUDA's context and reserve. ``option`` names what a run does that no key
of Paceline describes. Which attention ran is recorded where the case asks for one; elsewhere the scores tell, which are a third
to a half of the peak: it is that of the nearer prediction. Two options hold about as much as scores, logits in 32 bits; which attention
ran beside them is taken from the plain runs of the same case and hardware, above which nearly all lie by 0.8 to 1.2 times those logits.

    python -m evidence.studies.megatron_runs [steps]
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from evidence.published.tables import number_of
from simulator import scenario_from_table, simulate
from simulator.base.spec import Spec
from simulator.base.validation_errors import validated
from simulator.memory import memory
from simulator.results.results import Result
from simulator.scenario import Scenario
from simulator.spec.constants import constants
from simulator.spec.figures import Estimate

RUNS = Path(__file__).parents[2] / "tests" / "data" / "megatron_runs.csv"
CLUSTERS = {"A100": "dgx-a100-80gb", "H100": "nd96isr_h100_v5", "GB200": "nd96isr_h100_v5"}
"""Of GB200, which no catalogue has, memory alone is predicted, for which a device of a generation as new does."""
_REPEATS = "_resume_torch_dist", "_resume_torch", "_1node", "_no_mmap_bin_files", "_fim_dataset"
"""What names of cases say of how a run begins, is fed or placed, which changes nothing of what a device holds."""
HOLD_LOGITS = "cross_entropy_loss_fusion", "defer_embedding_wgrad_compute"
"""Options with which a device holds logits in 32 bits once more, or as much; no key of Paceline describes them."""
_SWITCH = {"true": True, "false": False}


class Run(Spec):
    """One run, by the columns of the table."""

    case: str
    hardware: str
    device: str
    devices: int
    layers: int
    hidden: int
    feed_forward: int
    heads: int
    key_value_heads: int
    sequence: int
    vocabulary: int
    micro_batch: int
    micro_batches: int
    tensor: int
    pipeline: int
    chunks: int
    sequence_parallel: bool
    shard: str
    shard_group: int | None = None
    precision: str
    attention: str
    gated: bool
    tied: bool
    option: str | None = None
    step_s: float | None = Field(default=None)
    peak_bytes: float

    @property
    def kind(self) -> str:
        """The case, without how it begins: runs of one kind are no independent evidence."""
        name = self.case
        for repeat in _REPEATS:
            name = name.replace(repeat, "")
        return name

    @property
    def table(self) -> dict[str, Any]:
        """The scenario that a user would write of it, as nested tables."""
        dimensions = (
            "layers",
            "hidden",
            "feed_forward",
            "heads",
            "key_value_heads",
            "sequence",
            "vocabulary",
            "attention",
            "gated",
            "tied",
        )
        strategy = {name: getattr(self, name) for name in ("tensor", "pipeline", "sequence_parallel", "shard", "shard_group")}
        if self.chunks > 1:
            strategy |= {"schedule": "interleaved", "chunks": self.chunks}
        return {
            "workload": {
                "name": self.case,
                "precision": self.precision,
                "batch_per_replica": self.micro_batch * self.micro_batches,
                "transformer": {name: getattr(self, name) for name in dimensions},
            },
            "cluster": {"use": CLUSTERS[self.device]},
            "strategy": {"kind": "hybrid", "workers": self.devices, "stages": "even", **strategy},
            "training": {"micro_batches": self.micro_batches, "optimizer": "adam"},
            "run": {"steps": 2, "warmup_steps": 1, "replications": 19, "memory": "ignore"},
        }


def read_runs(path: Path = RUNS) -> tuple[Run, ...]:
    """All runs, in the order of the table."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return tuple(
        validated(Run, {key: _SWITCH.get(value, number_of(value)) for key, value in row.items() if value}, f"{path}") for row in rows
    )


def scenario_of(run: Run) -> Scenario:
    """The scenario that a user would write of a run."""
    return scenario_from_table(run.table, run.case)


def memory_ratio(run: Run) -> float:
    """Memory of the last rank divided by its computed memory, without the framework's reserve, which PyTorch does not count."""
    last = memory(scenario_of(run)).devices[-1]
    return run.peak_bytes / sum(part.size_bytes or 0.0 for part in last.parts if part.name != "reserve")


def interval(ratios: Iterable[float]) -> tuple[float, float]:
    """90% interval: of ten runs, nine lie inside."""
    low, high = np.quantile(list(ratios), (0.05, 0.95))
    return float(low), float(high)


def left_out_coverage(runs: Sequence[Run], ratios: Sequence[float]) -> float:
    """Share of runs inside the interval of the other kinds' runs, each kind left out by turns."""
    inside = 0
    for kind in {run.kind for run in runs}:
        low, high = interval(ratio for run, ratio in zip(runs, ratios, strict=True) if run.kind != kind)
        inside += sum(low <= ratio <= high for run, ratio in zip(runs, ratios, strict=True) if run.kind == kind)
    return inside / len(runs)


def result_of(run: Run) -> Result:
    """The prediction; simulated once for runs that differ in what a scenario does not say."""
    return _simulated(run.model_copy(update={"case": "run", "hardware": "", "option": None, "step_s": None, "peak_bytes": 0.0}))


@cache
def _simulated(run: Run) -> Result:
    return simulate(scenario_of(run))


def step_interval_s(run: Run) -> Estimate:
    """Seconds of a step, with the 90% interval that follows from the throughput's."""
    rate = result_of(run).throughput_samples_per_s
    samples = run.micro_batch * run.micro_batches * run.devices / (run.tensor * run.pipeline)
    return Estimate(mean=samples / rate.mean, low=samples / rate.high, high=samples / rate.low)


def _of_memory(runs: Sequence[Run]) -> Iterator[str]:
    """Signed errors of each run, and what they come to."""
    ratios = [memory_ratio(run) for run in runs]
    for run, ratio in zip(runs, ratios, strict=True):
        yield f"{run.case:94} {run.device:6} {run.attention:8} {1 / ratio - 1:+7.1%}  {run.option or ''}"
    told = constants()["memory_need"]
    groups = {
        "without options": [number for number, run in enumerate(runs) if run.option is None],
        "without more logits": [number for number, run in enumerate(runs) if run.option not in HOLD_LOGITS],
        "with more logits": [number for number, run in enumerate(runs) if run.option in HOLD_LOGITS],
    }
    for name, numbers in groups.items():
        some = [ratios[number] for number in numbers]
        low, high = interval(some)
        yield (
            f"{name}: {len(some)} runs, {statistics.median(abs(1 / ratio - 1) for ratio in some):.1%} in the median, "
            f"{sum(ratio > 1 for ratio in some)} above the prediction; 90% of measured over predicted {low:.3f} to {high:.3f}, "
            f"which holds {left_out_coverage([runs[number] for number in numbers], some):.1%} where their kind is left out; "
            f"{told.low:g} to {told.high:g} holds {statistics.fmean(told.low <= ratio <= told.high for ratio in some):.1%}"
        )


def _of_steps(runs: Sequence[Run]) -> Iterator[str]:
    """Measured and predicted steps, and how many lie inside their interval."""
    timed = [(run, run.step_s, step_interval_s(run)) for run in runs if run.step_s is not None and run.device != "GB200"]
    for run, step_s, told in timed:
        limit = result_of(run).bottleneck.name
        yield f"{run.case:94} {run.device:6} {step_s:.4f} s, predicted {told.mean:.4f} ({told.low:.4f} to {told.high:.4f}), {limit}"
    for name, by_host in (("limited by the host", True), ("others", False)):
        some = [(step_s, told) for run, step_s, told in timed if (result_of(run).bottleneck.name == "host") == by_host]
        inside = sum(told.low <= step_s <= told.high for step_s, told in some)
        ratio = statistics.median(step_s / told.mean for step_s, told in some)
        yield f"{name}: {inside} of {len(some)} inside the 90% interval; measured over predicted {ratio:.2f} in the median"


if __name__ == "__main__":
    for line in (_of_steps if "steps" in sys.argv[1:] else _of_memory)(read_runs()):
        sys.stdout.write(f"{line}\n")
