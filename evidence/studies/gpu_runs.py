"""Memory and step times of real GPU runs, predicted from the scenario that a user would write of each.

``tests/data/gpu_runs.csv`` has runs of Megatron-LM on A100, H100 and GB200 that NVIDIA's tests record (NVIDIA/Megatron-LM at d98e8a64dd,
tests/functional_tests/test_cases/CASE/golden_values_HARDWARE.json) and of prime-rl's trainer (PrimeIntellect-ai/prime-rl at 559b44772,
benchmarks/baselines): ``step_s`` is the median iteration, ``peak_bytes`` the most that PyTorch's allocator gave the last rank, without
CUDA's context and reserve. All other columns are a scenario's keys; of Megatron-LM's they follow from the options of the run, and where
these leave something out from its ``model_config.yaml``; of prime-rl's from the models' published configurations. ``note`` names what a
run does that no key describes. Runs whose attention is Transformer Engine's choice have that of the nearer prediction: scores take a third
to a half of the peak.

    python -m evidence.studies.gpu_runs [steps] [markdown]
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evidence.published.tables import number_of
from simulator import scenario_from_table, simulate
from simulator.memory import DeviceMemory, memory
from simulator.results.results import Result
from simulator.scenario import Scenario
from simulator.spec.figures import Estimate

RUNS = Path(__file__).parents[2] / "tests" / "data" / "gpu_runs.csv"
_REPEATS = "_frozen_resume_torch_dist", "_resume_torch_dist", "_resume_torch", "_1node", "_no_mmap_bin_files", "_fim_dataset", "_sm"
"""What names of cases say of how a run begins, is fed or placed, which changes nothing of what a device holds."""
_SWITCH = {"true": True, "false": False}


class Run(NamedTuple):
    """One run.

    Attributes
    ----------
    case, hardware
        Its names at its source.
    kind
        What it is a case of: the rarest of what it does.
    note
        What it does that no key describes, or why it failed; empty: nothing.
    source
        ``megatron-lm`` or ``prime-rl``.
    step_s, peak_bytes
        What was measured; None: was not.
    keys
        Of the scenario: dotted names and values.
    """

    case: str
    hardware: str
    kind: str
    note: str
    source: str
    step_s: float | None
    peak_bytes: float | None
    keys: tuple[tuple[str, Any], ...]

    @property
    def shape(self) -> str:
        """The case, without how it begins: runs of one shape are no independent evidence."""
        name = self.case
        for repeat in _REPEATS:
            name = name.replace(repeat, "")
        return name

    @property
    def scenario(self) -> Scenario:
        """The scenario that a user would write of it."""
        table: dict[str, Any] = {
            "workload": {"name": "run"},
            "strategy": {"kind": "hybrid", "stages": "even"},
            "run": {"steps": 2, "warmup_steps": 1, "replications": 19, "memory": "ignore"},
        }
        for key, value in self.keys:
            *path, name = key.split(".")
            at = table
            for part in path:
                at = at.setdefault(part, {})
            at[name] = [int(number) for number in str(value).split()] if name == "stages" else value
        return scenario_from_table(table, self.case)

    @property
    def samples(self) -> float:
        """Samples of a step of all devices."""
        degrees: Mapping[str, Any] = dict(self.keys)
        copies = degrees["strategy.workers"]
        for name in ("tensor", "context", "pipeline"):
            copies //= degrees.get(f"strategy.{name}", 1)
        return float(copies * degrees["workload.batch_per_replica"])


def read_runs(path: Path = RUNS) -> tuple[Run, ...]:
    """All runs, in the order of the table."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    runs = []
    for row in rows:
        case, hardware, kind, note, source = (row.pop(name) for name in ("case", "hardware", "kind", "note", "source"))
        step_s, peak_bytes = (float(value) if (value := row.pop(name)) else None for name in ("step_s", "peak_bytes"))
        keys = tuple((key, _SWITCH.get(value, number_of(value))) for key, value in row.items() if value)
        runs.append(Run(case, hardware, kind, note, source, step_s, peak_bytes, keys))
    return tuple(runs)


# -- memory --------------------------------------------------------------------------------


@cache
def _last_device(keys: tuple[tuple[str, Any], ...]) -> DeviceMemory:
    return memory(Run("run", "", "", "", "", None, None, keys).scenario).devices[-1]


def held(run: Run) -> tuple[float, float, float]:
    """Predicted bytes of the last rank with their interval, without the framework's reserve, which PyTorch's allocator does not count."""
    device = _last_device(run.keys)
    reserve = sum(part.size_bytes or 0.0 for part in device.parts if part.name == "reserve")
    low, high = device.interval_bytes
    return device.need_bytes - reserve, low - reserve, high - reserve


def megatron_bytes(run: Run) -> float:
    """Peak by Megatron-LM's own estimate, ``report_theoretical_memory`` of megatron/training/theoretical_memory_usage.py.

    Parameters of the first stage at 18 bytes each, or 6 and 12 over those that share the optimizer; activations of 18 + 4 f / h values of
    each layer, whether or not attention is fused, and float32 logits without a pipeline.
    """
    known: Mapping[str, Any] = dict(run.keys)

    def of(name: str, otherwise: Any) -> Any:
        return known.get(f"workload.transformer.{name}", otherwise)

    layers, h, heads, s, v = (of(name, 0) for name in ("layers", "hidden", "heads", "sequence", "vocabulary"))
    f, groups, width = of("feed_forward", 4 * h), of("key_value_heads", heads), of("head_width", h // heads)
    t, p, c, workers = (known.get(f"strategy.{name}", 1) for name in ("tensor", "pipeline", "context", "workers"))
    gate, experts, b = (1.5 if of("gated", False) else 1.0), of("experts.count", 1), run.samples / known["training.micro_batches"]
    b /= workers / (t * p * c)
    of_layers = 2 * layers * h * h * ((1 + groups / heads) * (width * heads / h) + (f / h) * experts * gate + 2 / h + 1 / (layers * h))
    embedding, untied = h * v, not of("tied", True)
    parameters = (of_layers / p + embedding * (2 if untied and p == 1 else 1)) / t
    each = 6 + 12 / (workers / (t * p)) if known.get("strategy.shard") == "optimizer" else 18
    activations = s * b * h * (18 + 4 * f / h) * layers + 8 * s * b * p + s * b * h * p
    micro_batches, chunks = known["training.micro_batches"], known.get("strategy.chunks", 1)
    if chunks > 1:
        activations *= 1 + (p - 1) / (p * chunks)
    elif p > 1:
        activations *= min(1, micro_batches / p)
    else:
        activations += s * b * h * 4 * (1 + v / h)
    return float(parameters * each + activations / (t * c))


class Score(NamedTuple):
    """How predictions of some runs compare with what was measured."""

    kind: str
    runs: int
    shapes: int
    median: float
    """Of the sizes of relative errors."""
    bias: float
    """Median of relative errors."""
    ninth: float
    """90th percentile of their sizes."""
    within: float
    """Share of runs within 8%."""
    inside: float
    """Share of runs inside the 90% interval."""
    megatron: float
    """Median size of errors of Megatron-LM's estimate."""


def score(kind: str, runs: Sequence[Run]) -> Score:
    """Compare predicted peaks with measured ones."""
    predicted = [held(run) for run in runs]
    errors = [value / (run.peak_bytes or 1.0) - 1 for run, (value, _, _) in zip(runs, predicted, strict=True)]
    sizes = [abs(error) for error in errors]
    inside = [low <= (run.peak_bytes or 0.0) <= high for run, (_, low, high) in zip(runs, predicted, strict=True)]
    theirs = [abs(megatron_bytes(run) / (run.peak_bytes or 1.0) - 1) for run in runs]
    return Score(
        kind, len(runs), len({run.shape for run in runs}), statistics.median(sizes), statistics.median(errors),
        float(np.quantile(sizes, 0.9)), statistics.fmean(size <= 0.08 for size in sizes), statistics.fmean(inside),
        statistics.median(theirs),
    )  # fmt: skip


def scores(runs: Iterable[Run]) -> Iterator[Score]:
    """Scores of each kind of runs that a scenario describes, of all of them, and of the largest."""
    measured = [run for run in runs if run.peak_bytes is not None]
    described = [run for run in measured if not run.note]
    for kind in dict.fromkeys(run.kind for run in described):
        yield score(kind, [run for run in described if run.kind == kind])
    yield score("all", described)
    yield score("above 20 GB", [run for run in described if (run.peak_bytes or 0.0) > 20e9])
    for note in dict.fromkeys(run.note for run in measured if run.note):
        yield score(note, [run for run in measured if run.note == note])


_WORDS = {
    "bert": "BERT", "dist optimizer": "distributed optimizer", "virtual": "interleaved pipeline", "context": "context parallel",
    "mla": "latent attention", "fp8": "products in 8 bits", "lora": "FSDP, LoRA", "fsdp": "FSDP",
}  # fmt: skip


def markdown(runs: Sequence[Run]) -> Iterator[str]:
    """Lines of the table of docs/large-models.md."""
    yield "| runs with | runs | shapes | median error | bias | 90% below | inside the interval | Megatron-LM's own estimate |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    notes = {run.note for run in runs}
    for each in scores(runs):
        if each.kind not in notes:
            signed = f"{each.bias:+.1%}".replace("-", "−")
            theirs = f"{each.megatron:.0%}" if each.kind not in ("lora", "fsdp", "all", "above 20 GB") else ""
            yield (
                f"| {_WORDS.get(each.kind, each.kind)} | {each.runs} | {each.shapes} | {each.median:.1%} | {signed} | {each.ninth:.1%} "
                f"| {each.inside:.0%} | {theirs} |"
            )


def interval(ratios: Iterable[float]) -> tuple[float, float]:
    """90% interval: of ten runs, nine lie inside."""
    low, high = np.quantile(list(ratios), (0.05, 0.95))
    return float(low), float(high)


def left_out_coverage(runs: Sequence[Run]) -> float:
    """Share of runs inside the interval of the other shapes' runs, each shape left out by turns."""
    ratios = {run: (run.peak_bytes or 0.0) / held(run)[0] for run in runs}
    inside = 0
    for shape in {run.shape for run in runs}:
        low, high = interval(ratio for run, ratio in ratios.items() if run.shape != shape)
        inside += sum(low <= ratio <= high for run, ratio in ratios.items() if run.shape == shape)
    return inside / len(runs)


def _of_memory(runs: Sequence[Run]) -> Iterator[str]:
    """Signed errors of each run, and what they come to."""
    for run in runs:
        value, low, high = held(run)
        told = f"{value / 1e9:7.2f} GB ({low / 1e9:.2f} to {high / 1e9:.2f})"
        error = f"{value / run.peak_bytes - 1:+7.1%}" if run.peak_bytes else "       "
        yield f"{run.case:94} {run.hardware:24} {told} {error}  {run.note}"
    yield f"{'kind':48} runs shapes  median    bias    90%  within 8%  inside  Megatron-LM"
    for each in scores(runs):
        yield (
            f"{each.kind:48} {each.runs:4} {each.shapes:6} {each.median:7.1%} {each.bias:+7.1%} {each.ninth:6.1%} {each.within:10.0%} "
            f"{each.inside:7.0%} {each.megatron:12.0%}"
        )
    described = [run for run in runs if run.peak_bytes is not None and not run.note]
    dense = [run for run in described if run.kind in ("dist optimizer", "virtual", "pipeline", "context")]
    yield f"inside intervals of the other shapes: {left_out_coverage(dense):.0%} of dense models, {left_out_coverage(described):.0%} of all"


# -- steps ---------------------------------------------------------------------------------


CONTENDED = "_1node"
"""Cases on one node of four GB200, which take 5 to 12 times as long as on two, and vary twofold within a run: no key describes why."""


def result_of(run: Run, launch: str | None = None) -> Result:
    """The prediction; simulated once for runs that differ in what a scenario does not say."""
    return _simulated(run.keys if launch is None else (*run.keys, ("training.launch", launch)))


@cache
def _simulated(keys: tuple[tuple[str, Any], ...]) -> Result:
    return simulate(Run("run", "", "", "", "", None, None, keys).scenario)


def step_interval_s(run: Run, launch: str | None = None) -> Estimate:
    """Seconds of a step, with the 90% interval that follows from the throughput's."""
    rate = result_of(run, launch).throughput_samples_per_s
    return Estimate(mean=run.samples / rate.mean, low=run.samples / rate.high, high=run.samples / rate.low)


def step_error(run: Run, launch: str | None = None) -> float:
    """Relative error of the predicted step."""
    return step_interval_s(run, launch).mean / (run.step_s or 1.0) - 1


def errors_after_one(runs: Sequence[Run]) -> Iterator[float]:
    """Errors of each run, scaled as each run of its shape on another device or in another version asks: what a refit does."""
    for run in runs:
        for other in runs:
            if other.shape == run.shape and other.hardware != run.hardware:
                yield (1 + step_error(run)) / (1 + step_error(other)) - 1


class StepScore(NamedTuple):
    """How predicted steps of some runs compare with measured ones: sizes of relative errors in the median."""

    kind: str
    runs: int
    shapes: int
    median: float
    bias: float
    ninth: float
    """90th percentile of their sizes."""
    inside: float
    """Share of runs inside the 90% interval."""
    after_one: float | None
    """Where another run of the shape was given; None: there is none."""
    without: float
    """Where a graph launches kernels, which takes the host next to no time."""


def step_score(kind: str, runs: Sequence[Run]) -> StepScore:
    """Compare predicted steps with measured ones."""
    errors, told = [step_error(run) for run in runs], [step_interval_s(run) for run in runs]
    sizes, after = [abs(error) for error in errors], [abs(error) for error in errors_after_one(runs)]
    inside = [each.low <= (run.step_s or 0.0) <= each.high for run, each in zip(runs, told, strict=True)]
    return StepScore(
        kind, len(runs), len({run.shape for run in runs}), statistics.median(sizes), statistics.median(errors),
        float(np.quantile(sizes, 0.9)), statistics.fmean(inside), statistics.median(after) if after else None,
        statistics.median(abs(step_error(run, "graph")) for run in runs),
    )  # fmt: skip


def step_scores(runs: Iterable[Run]) -> Iterator[StepScore]:
    """Scores of each kind of runs where the host decides, of all of them, of those where devices do, and of what no key describes."""
    timed = [run for run in runs if run.step_s is not None]
    told = [run for run in timed if not run.note and CONTENDED not in run.case]
    host = [run for run in told if result_of(run).bottleneck.name == "host"]
    for kind in dict.fromkeys(run.kind for run in host):
        yield step_score(kind, [run for run in host if run.kind == kind])
    yield step_score("the host decides", host)
    devices = [run for run in told if run not in host]
    yield step_score("devices decide", devices)
    yield step_score("of these, supervised", [run for run in devices if not run.case.startswith("rl ")])
    yield step_score("one node of four GB200", [run for run in timed if CONTENDED in run.case])
    for note in dict.fromkeys(run.note for run in timed if run.note):
        yield step_score(note, [run for run in timed if run.note == note])


def step_markdown(runs: Sequence[Run]) -> Iterator[str]:
    """Lines of the second table of docs/large-models.md."""
    yield "| steps with | runs | shapes | median error | bias | 90% below | inside the interval | after one run | without the host |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    notes = {run.note for run in runs}
    for each in step_scores(runs):
        if each.kind not in notes:
            after = "" if each.after_one is None else f"{each.after_one:.0%}"
            signed = f"{each.bias:+.0%}".replace("-0%", "0%").replace("+0%", "0%").replace("-", "−")
            yield (
                f"| {_WORDS.get(each.kind, each.kind)} | {each.runs} | {each.shapes} | {each.median:.0%} | {signed} | {each.ninth:.0%} "
                f"| {each.inside:.0%} | {after} | {each.without:.0%} |"
            )


def _of_steps(runs: Sequence[Run]) -> Iterator[str]:
    """Measured and predicted steps, and what they come to."""
    for run in runs:
        if run.step_s is not None:
            told, limit = step_interval_s(run), result_of(run).bottleneck.name
            seconds = f"{run.step_s:.4f} s, predicted {told.mean:.4f} ({told.low:.4f} to {told.high:.4f}), {step_error(run):+.0%}"
            yield f"{run.case:94} {run.hardware:24} {seconds}, {limit} {run.note}"
    yield f"{'kind':48} runs shapes  median    bias    90%  inside  after one  without the host"
    for each in step_scores(runs):
        after = "" if each.after_one is None else f"{each.after_one:.1%}"
        yield (
            f"{each.kind:48} {each.runs:4} {each.shapes:6} {each.median:7.1%} {each.bias:+7.1%} {each.ninth:6.1%} {each.inside:7.0%} "
            f"{after:>10} {each.without:17.1%}"
        )


if __name__ == "__main__":
    _WAYS = {"steps": _of_steps, "markdown": markdown, "steps markdown": step_markdown}
    for line in _WAYS.get(" ".join(sys.argv[1:]), _of_memory)(read_runs()):
        sys.stdout.write(f"{line}\n")
