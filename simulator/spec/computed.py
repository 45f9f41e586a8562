"""Workloads without measurements: the cost of a step, computed from a model's dimensions for a device with a datasheet.

A model is a chain of :class:`Block`, made by dimensions.py: each has the work of its passes (floating-point operations of matrix products,
bytes of memory-bound kernels, kernels to launch), its variables, its output and its activations. On a device a pass takes

    roofline of its products / share of it + bytes of what memory limits / (memory bandwidth x share of it)
    + operations of fused attention / (peak x share of it x what its length, its heads and its mask leave)

and at least the time in which the host launches its kernels. The roofline of a product is the longer of its operations at the device's peak
and its operands at the memory's bandwidth: a kernel loads one tile while it multiplies another (Williams et al., "Roofline", CACM 2009;
NVIDIA, "Matrix Multiplication Background User's Guide", 2020). So each kind of kernel has its own efficiency; on devices newer than the
published trainings, matrix products and fused attention reach less. The constants, each with a 90% interval and its source, are in
``models/practice.toml`` (:mod:`simulator.spec.constants`) under the names in :data:`CONSTANTS`; joint draws of them are the workload's
uncertainty. ``evidence.published.shares`` fits some of them, so a changed formula needs new ones. docs/numbers.md has every formula with
its source.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from pydantic import Field

from simulator.base.spec import Spec
from simulator.base.text import did_you_mean
from simulator.spec.accelerator import Accelerator, accelerator_named, accelerators
from simulator.spec.constants import Known, constants
from simulator.spec.layers import Attention, Experts, Layer, TensorSplit

DEFAULT_DEVICE = "A100-SXM4-80GB"
NEWER = "newer_matrix_share", "newer_attention_share"
BLACKWELL = "blackwell_matrix_share"
"""Factor on these shares for a device of a newer generation (:attr:`~simulator.spec.accelerator.Accelerator.newer`)."""
EAGER = "launch_s"
"""Seconds of the host for each kernel where a framework launches one after the other, in place of ``kernel_start_s``."""
LAUNCH_SHARES = "newer_launch_share", "grace_launch_share"
"""Factor on it for hosts other than those next to known generations (:attr:`~simulator.spec.accelerator.Accelerator.launch_share`)."""
CONSTANTS = (
    "matrix_share", "decoder_matrix_share", "elementwise_share", "fused_elementwise_share", "normalisation_share",
    "fused_attention_share", "flash_attention_2_share", "flash_attention_3_share", "kernel_start_s", *NEWER,
    BLACKWELL, EAGER, *LAUNCH_SHARES,
)  # fmt: skip
"""Constants of ``models/practice.toml`` used to compute times; each model has its own (:attr:`Dimensions.constants`)."""
_DRAWS, _TURN = 60, math.sqrt(2.0)
_FILLING = 32.0
"""Steps along the inner dimension that filling a tile's pipeline and writing its result cost a product.

With it products with 8,192 columns reach the same share of an A100's peak within 2.5% whether they sum 1,024 or 28,672 products (those
of tests/oracle/test_products.py).
"""
_ATTENDING = 150.0
"""Sequence length at which a fused attention reaches half of its speed for infinitely long sequences."""
_FULL_HEAD, _HEAD = 128, 16.0
_MASKED, _BACK = 0.92, 0.87
"""Factors of a causal mask and of the backward pass on the speed.

All of these are of FlashAttention-2 on an H100 (Shah et al., "FlashAttention-3", arXiv:2407.08608, figures 5 and 6): sequences of 512 to
16,384, heads of 64 and 128, forward with and without mask, backward; within 13% of each of the 30 figures but the shortest backward one.
"""


_FLASH_2_PEAK = 560e12
"""Peak of a newer device as FlashAttention-2 gets of it, whose instructions are those of Ampere: with its share the 370 TFLOP/s that it
reaches on an H100 (the same figures); prime-rl's longest sequences say as much of a B200 (evidence.studies.gpu_runs)."""


class Parameter(NamedTuple):
    """A variable: its name, its shape, whether experts have it, and whether it is not trained."""

    name: str
    shape: tuple[int, ...]
    of_experts: bool = False
    frozen: bool = False

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


class Product(NamedTuple):
    """A matrix product or a convolution: its operations, and the bytes of its inputs and outputs, per sample.

    Reading a matrix of variables is left out: it happens once per batch, and is negligible for batches of a few hundred tokens.
    """

    flops: float
    operand_bytes: float
    inner: float = math.inf
    """Number of products summed per element of the result: the operands' common dimension."""
    float8: bool = False
    """Whether its operands have 8 bits."""

    def roofline_s(self, peak_flops_per_s: float, bandwidth_bytes_per_s: float, float8_flops_per_s: float | None = None) -> float:
        """Minimum seconds: at the peak rate with tiles being filled and emptied, or at the memory bandwidth."""
        peak = float8_flops_per_s if self.float8 and float8_flops_per_s is not None else peak_flops_per_s
        return max(self.flops * (1.0 + _FILLING / self.inner) / peak, self.operand_bytes / bandwidth_bytes_per_s)


def attention_reach(sequence: int, head: float, *, causal: bool, backward: bool) -> float:
    """Speed of a fused attention as a share of its best: of long sequences without mask in the forward pass, with heads of 128 values.

    Parameters
    ----------
    sequence
        Tokens of a sample.
    head
        Values of a head.
    causal
        Whether a token attends to those before it alone, which are half of them.
    backward
        Whether it is the backward pass.
    """
    attended = sequence / 2 if causal else sequence
    filled = min((head / (head + _HEAD)) / (_FULL_HEAD / (_FULL_HEAD + _HEAD)), 1.0)
    return attended / (attended + _ATTENDING) * filled * (_MASKED if causal else 1.0) * (_BACK if backward else 1.0)


class Pass(NamedTuple):
    """Work of a forward or backward pass on any device, per sample; the number of kernels does not depend on the batch."""

    products: tuple[Product, ...] = ()
    """Matrix products and convolutions, each a kernel of its own."""
    moved_bytes: float = 0.0
    """Bytes read and written by all other kernels, which are memory-bound."""
    kernels: float = 0.0
    fused_flops: float = 0.0
    """Operations of matrix products inside kernels that do more, such as a fused attention."""
    fused_flops_at_best: float = 0.0
    """Operations that would take, at the best speed of such kernels, as long as those."""

    def __add__(self, other: object) -> Pass:
        """The sum of two passes in sequence."""
        assert isinstance(other, Pass)
        pairs: Iterator[tuple[Any, Any]] = zip(self, other, strict=True)
        return Pass(*(mine + theirs for mine, theirs in pairs))

    def roofline_s(self, peak_flops_per_s: float, bandwidth_bytes_per_s: float, float8_flops_per_s: float | None = None) -> float:
        """Seconds of its products, each at its roofline."""
        return math.fsum(each.roofline_s(peak_flops_per_s, bandwidth_bytes_per_s, float8_flops_per_s) for each in self.products)

    @property
    def all_flops(self) -> float:
        """Operations of all products."""
        return math.fsum(each.flops for each in self.products) + self.fused_flops

    @property
    def all_bytes(self) -> float:
        """Bytes read and written by all kernels, products included."""
        return self.moved_bytes + math.fsum(each.operand_bytes for each in self.products)


class Block(NamedTuple):
    """One layer of a model, by formula.

    Attributes
    ----------
    forward, backward
        All of its passes.
    whole
        Of the forward pass what splitting the layer over devices leaves whole; None: it cannot be split.
    again
        Of the forward pass what selective recomputation computes once more.
    by_experts
        Of the forward pass what experts do.
    output_bytes, kept_bytes, kept_selectively_bytes, temporary_bytes, logits
        Per sample, as :class:`~simulator.spec.layers.Layer` has them.
    kept_whole_bytes
        Of what is kept, what every device keeps whole where a layer is split.
    all_reduces
        Bytes per sample of each all-reduce of a split layer, forward and backward.
    attention
        What it is of the forward pass, and the bytes of the keys and values of a sample.
    experts
        Their count, how many each token is sent to, the bytes of all tokens of a sample, and of those that experts keep, and whether one
        kernel computes all of them.
    tied
        Variables of other blocks that it uses too, as ``block/name``.
    """

    name: str
    parameters: tuple[Parameter, ...]
    forward: Pass
    backward: Pass
    output_bytes: float
    kept_bytes: float
    kept_selectively_bytes: float | None = None
    kept_whole_bytes: float = 0.0
    temporary_bytes: float = 0.0
    logits: float = 0.0
    whole: Pass | None = None
    again: Pass = Pass()
    by_experts: Pass = Pass()
    all_reduces: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    attention: tuple[Pass, float] | None = None
    experts: tuple[int, int, float, float, bool] | None = None
    tied: tuple[str, ...] = ()

    @property
    def trained(self) -> tuple[Parameter, ...]:
        """Its variables that are trained."""
        return tuple(each for each in self.parameters if not each.frozen)


class Dimensions(Protocol):
    """A table of dimensions, which a workload may give in place of measurements."""

    @property
    def device(self) -> str:
        """The device for which times are computed if the cluster names none."""

    @property
    def constants(self) -> tuple[str, str, str, str]:
        """Constants that decide its times: shares of the peak, of the bandwidth, of the peak in fused kernels, and a kernel's start."""

    @property
    def input_bytes_per_sample(self) -> float:
        """Bytes of a sample as fed to the model."""

    def blocks(self, value_bytes: int) -> Sequence[Block]:
        """Return the layers in the order of the forward pass, with ``value_bytes`` bytes per activation."""


class Computed(Spec):
    """Record that a workload's times were computed from dimensions, not measured, and how."""

    device: str = Field(min_length=1, max_length=200, description="device for which the times are computed")
    keys: tuple[str, ...] = Field(description="parts of the workload that were computed from the dimensions; all others were given")
    constants: dict[str, Known] = Field(description="constants used to compute the times, each with its 90% interval")

    @property
    def timed(self) -> bool:
        """Return whether the forward or backward pass was computed."""
        return "forward" in self.keys or "backward" in self.keys


def value_bytes_of(precision: str) -> int:
    """Bytes of an activation in a precision of TensorFlow's."""
    return 4 if precision == "float32" else 2


def parameter_bytes_of(precision: str) -> int:
    """Bytes of a variable's value, of its gradient's and of each slot's: float32 in TensorFlow's mixed precision too."""
    return 2 if precision == "bfloat16" else 4


def known_device(name: str) -> Accelerator:
    """The accelerator with this name, for which times can be computed.

    Raises
    ------
    ValueError
        ``models/devices`` does not have it, or it is a CPU; the message continues after the name.
    """
    device = accelerator_named(name)
    if device is None:
        raise ValueError(f"must be a device of models/devices; {did_you_mean(name, accelerators(), '`paceline models list` shows them')}")
    if device.cores is not None:
        raise ValueError("must be an accelerator: the share of peak that a CPU reaches is unknown")
    return device


def step_of(
    dimensions: Dimensions, precision: str, device: str, own: Mapping[str, Known] | None = None, *, eager: bool = False
) -> dict[str, Any]:
    """Compute a workload from its dimensions on a device, by the workload's keys.

    Parameters
    ----------
    dimensions
        Of the model.
    precision
        Of the workload, in TensorFlow's words.
    device
        A name of ``models/devices``.
    own
        Constants in place of those of ``models/practice.toml``.
    eager
        Whether a framework launches each kernel from its own code.

    Returns
    -------
    dict
        ``variables``, ``layers``, ``counted``, ``forward``, ``backward``, ``apply_s``,
        ``uncertainty`` and so on, as tables.

    Raises
    ------
    ValueError
        The device is unknown or has no peak rate for this precision; the message continues after its name.
    """
    on = known_device(device)
    peak = on.peak(precision)
    if peak is None:
        raise ValueError(f"needs a peak rate for {precision} in models/devices to compute times")
    known = {**constants(), **(own or {})}
    products, moving, fused, start = dimensions.constants
    needed = products, moving, fused, EAGER if eager else start
    newer = (
        *(NEWER if on.newer else ()),
        *((BLACKWELL,) if on.blackwell else ()),
        *((on.launch_share,) if eager and on.launch_share else ()),
    )
    used = {name: known[name].plain for name in dict.fromkeys((*needed, *newer))}
    bandwidth = on.memory_bandwidth_bytes_per_s
    blocks = dimensions.blocks(value_bytes_of(precision))
    each_bytes = parameter_bytes_of(precision)
    variable_bytes = each_bytes * sum(each.size for block in blocks for each in block.trained)
    passes = {"forward": [block.forward for block in blocks], "backward": [block.backward for block in blocks]}
    float8 = on.peak_flops_per_s.float8  # a device without computes in 16 bits
    fused_peak = min(peak, _FLASH_2_PEAK) if on.newer and fused == "flash_attention_2_share" else peak
    asked = [_asked(works, peak, bandwidth, float8, fused_peak) for works in passes.values()]
    names = [*(f"{which}.{part}" for which in passes for part in ("per_sample_s", "least_s")), "apply_s"]

    def times(values: Mapping[str, float]) -> tuple[float, ...]:
        """Seconds by these names, with the constants of those values."""
        reached = _reached(needed, values)
        of_passes = (seconds for work in asked for seconds in (reached.per_sample_s(work), work.kernels * reached.start_s))
        # Adam reads gradient, both moments and variable, and writes the last three
        return *of_passes, 7 * variable_bytes / (bandwidth * reached.moving_share)

    values = {name: each.value for name, each in used.items()}
    nominal = dict(zip(names, times(values), strict=True))
    draws = [times(dict(zip(used, row, strict=True))) for row in _joint_draws(used)]
    draws.sort(key=lambda draw: draw[0] + draw[2])  # by time: replications take draws that are spread evenly over this order
    if eager:  # and those that follow each other over launching
        least = sorted((there, back) for _, there, _, back, _ in draws)
        turns = np.argsort(np.argsort([number * _TURN % 1.0 for number in range(_DRAWS)]))
        draws = [(draw[0], least[turn][0], draw[2], least[turn][1], draw[4]) for draw, turn in zip(draws, turns, strict=True)]
    reached = _reached(needed, values)

    def seconds_of(work: Pass) -> float:
        return reached.per_sample_s(_asked([work], peak, bandwidth, float8, fused_peak))

    return {
        "variables": _variables(blocks, seconds_of, each_bytes),
        "layers": tuple(_layers(blocks, seconds_of, each_bytes)),
        "counted": {
            "flops_per_sample": math.fsum(work.all_flops for works in passes.values() for work in works),
            "per_sample_bytes": math.fsum(work.all_bytes for works in passes.values() for work in works),
            "kernels": round(math.fsum(work.kernels for work in asked)),
        },
        **{which: {"base_s": 0.0, **{part: nominal[f"{which}.{part}"] for part in ("per_sample_s", "least_s")}} for which in passes},
        "apply_s": nominal["apply_s"],
        "uncertainty": {"parameters": names, "draws": draws},
        "input_bytes_per_sample": dimensions.input_bytes_per_sample,
        "computed": {"device": on.name, "constants": used},
    }


class _Asked(NamedTuple):
    """Work of passes on one device, per sample: seconds at full rates; and kernels."""

    products_s: float
    moving_s: float
    fused_s: float
    kernels: float


def _asked(passes: Iterable[Pass], peak: float, bandwidth: float, float8: float | None, fused: float) -> _Asked:
    asked = [(work.roofline_s(peak, bandwidth, float8), work.moved_bytes, work.fused_flops_at_best, work.kernels) for work in passes]
    products_s, moved_bytes, fused_flops, kernels = (math.fsum(column) for column in zip(*asked, strict=True))
    return _Asked(products_s, moved_bytes / bandwidth, fused_flops / fused, kernels)


class _Reached(NamedTuple):
    """Achieved shares of a device's rates, and its host's time per kernel."""

    product_share: float
    moving_share: float
    fused_share: float
    start_s: float

    def per_sample_s(self, asked: _Asked) -> float:
        """Seconds for each sample."""
        return asked.products_s / self.product_share + asked.moving_s / self.moving_share + asked.fused_s / self.fused_share


def _reached(names: tuple[str, str, str, str], values: Mapping[str, float]) -> _Reached:
    """Shares by the names of their constants; on a newer device less of those of products, and a faster host."""
    products, moving, fused, start_s = (values[name] for name in names)
    start_s *= math.prod(values.get(name, 1.0) for name in LAUNCH_SHARES)
    newer, newer_fused = (values.get(name, 1.0) for name in NEWER)
    newer *= values.get(BLACKWELL, 1.0)
    if names[2] == names[0]:  # no kernels of their own
        newer_fused = newer
    elif names[2].startswith("flash_"):  # of a known version
        newer_fused = 1.0
    return _Reached(products * newer, moving, fused * newer_fused, start_s)


def _joint_draws(used: Mapping[str, Known]) -> list[tuple[float, ...]]:
    """Joint draws of independent constants: equally spaced quantiles of each, in an order from the stream of its name."""
    columns = []
    for name, known in used.items():
        order = np.random.default_rng(np.random.SeedSequence(zlib.crc32(f"computed {name}".encode()))).permutation(_DRAWS)
        drawn = [known.quantile((int(place) + 0.5) / _DRAWS, keeps="inverse" if name.endswith("_share") else "mean") for place in order]
        columns.append([min(value, 1.0) for value in drawn] if name.endswith("matrix_share") or name in NEWER else drawn)
    return list(zip(*columns, strict=True))


def _variables(blocks: Sequence[Block], seconds_of: Callable[[Pass], float], value_bytes: int) -> list[dict[str, Any]]:
    """List variables in the order in which gradients become ready: from the last layer on, within a layer in proportion to sizes."""
    index = sum(len(block.trained) for block in blocks)
    work = [seconds_of(block.backward) for block in blocks]
    whole, done, variables = math.fsum(work), 0.0, []
    for block, of_block in zip(reversed(blocks), reversed(work), strict=True):
        size, seen = sum(each.size for each in block.trained), 0
        for each in reversed(block.trained):
            index, seen = index - 1, seen + each.size
            variables.append(
                {"name": f"{block.name}/{each.name}", "size_bytes": float(value_bytes * each.size), "creation_index": index,
                 "ready": min(round((done + of_block * seen / size) / whole, 9), 1.0), "rows": each.shape[0]}
            )  # fmt: skip
        done += of_block
    return variables


def _layers(blocks: Sequence[Block], seconds_of: Callable[[Pass], float], value_bytes: int) -> Iterator[Layer]:
    """Yield layers whose work is in seconds per sample."""
    names = [f"{block.name}/{each.name}" for block in blocks for each in block.trained]
    first = 0
    for block in blocks:
        places = range(first, first + len(block.trained))
        first += len(block.trained)
        frozen = [sum(each.size for each in block.parameters if each.frozen and each.of_experts == apart) for apart in (False, True)]
        forward_s = seconds_of(block.forward)
        whole = block.whole
        split = experts = attention = None
        if whole is not None:
            split = TensorSplit(
                divided=1.0 - seconds_of(whole) / forward_s,
                forward_bytes_per_sample=block.all_reduces[0],
                backward_bytes_per_sample=block.all_reduces[1],
                kept_whole=block.kept_whole_bytes / block.kept_bytes if block.kept_bytes else 0.0,
            )
        if block.attention is not None:
            attending, size = block.attention
            attention = Attention(bytes_per_sample=size, work=seconds_of(attending) / forward_s)
        if block.experts is not None:
            count, used, size, kept, grouped = block.experts
            mine = tuple(index for index, each in zip(places, block.trained, strict=True) if each.of_experts)
            experts = Experts(
                count=count,
                used=used,
                work=seconds_of(block.by_experts) / forward_s,
                launched=block.by_experts.kernels / block.forward.kernels,
                bytes_per_sample=size,
                kept_bytes_per_sample=kept,
                grouped=grouped,
                variables=mine,
                frozen_bytes=value_bytes * frozen[1],
            )
        yield Layer(
            name=block.name,
            forward=forward_s,
            backward=seconds_of(block.backward),
            kernels=block.forward.kernels + block.backward.kernels,
            variables=tuple(places),
            frozen_bytes=value_bytes * frozen[0],
            output_bytes_per_sample=block.output_bytes,
            kept_bytes_per_sample=block.kept_bytes,
            kept_selectively_bytes_per_sample=block.kept_selectively_bytes,
            temporary_bytes_per_sample=block.temporary_bytes,
            logits_per_sample=block.logits,
            selective_work=seconds_of(block.again) / forward_s,
            tensor=split,
            attention=attention,
            tied=tuple(names.index(name) for name in block.tied if name in names),
            experts=experts,
        )
