"""Fits what shares of peak and bandwidth computed workloads reach: ``python -m evidence.published.shares``.

It writes them into ``models/practice.toml``. Rows are published throughputs of single devices (``models/published/speeds.csv``) of models
whose dimensions are published: BERT (Devlin et al. 2019) and residual networks (He et al.
2016). Each row's time for a sample is operations over (peak x ``matrix_share``) plus bytes over
(bandwidth x ``elementwise_share``, or ``normalisation_share`` of a residual network). Sizes of
logarithmic errors are minimised, those beyond 15% counting less, and a source counts as
one however many rows it has. The optimizer's update is left out: most rows do not say
over how many batches gradients were summed, and it takes a few percent.

Medians of the errors: transformers 11%, residual networks 22%; a source by a fit without it 7 to 46%; the K80 and P100 (old software) by a
fit without them 80% too fast and 4% too slow. Two measurements took no part and agree. Single products of Llama-2-70B in float16 (Agrawal
et al., Vidur, MLSys 2024, ``data/profiling/compute``) reach 0.73 to 0.78 of the roofline on an A100, 0.69 to 0.75 on an H100, 0.59 to 0.79
split over eight devices; a sum 0.88 and 0.96 of the bandwidth, a gate 0.51 and 0.59, a norm 0.34 and 0.33. Fused attention in 77 pairs of
lengths of llm-foundry (A100, 512 to 65,536 tokens) reaches 0.31 of the peak in the median, nine in ten 0.24 to 0.36: a
``fused_attention_share`` of 0.37, that of the first FlashAttention. The second reaches 0.59 (measured) to 0.73 (published) alone.

Interval: drawn independently, the constants make times scatter as much as rows scatter
around the fit. No row of several devices takes part, nor any of a model larger than BERT-large. Larger models of newer software scatter
less: the interval of ``decoder_matrix_share`` follows from published trainings of decoders on many devices (:func:`of_decoders`), none of
which decides its value.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache
from statistics import fmean
from typing import NamedTuple

import numpy as np
import tomlkit
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibrate.validation.comparison import Compared
from evidence.discrepancy import validated_rows
from simulator.base.catalog import own_file
from simulator.base.text import digits
from simulator.resolve.published_throughputs import PublishedThroughputs, load_published_throughputs
from simulator.results.inadequacy import CUT, DIMENSIONS
from simulator.spec.accelerator import accelerator_named
from simulator.spec.computed import Dimensions, value_bytes_of
from simulator.spec.constants import Known, constants
from simulator.spec.dimensions import Residual, Transformer
from simulator.spec.uncertainty import Regime

SHARES = ("matrix_share", "elementwise_share", "normalisation_share")
_SCALE = 0.15
_NORMAL_95 = 1.6448536269514722


def _bert(layers: int, hidden: int, sequence: int, *, pretrained: bool) -> Transformer:
    """Fine-tuning on questions predicts two places of a sequence, and no token of a vocabulary."""
    return Transformer(
        architecture="encoder", layers=layers, hidden=hidden, heads=hidden // 64, sequence=sequence, positions=512, vocabulary=30522,
        kernels="separate", predicted=1e-3 if pretrained else None,
    )  # fmt: skip


MODELS: dict[str, Dimensions] = {
    "bert-base-128": _bert(12, 768, 128, pretrained=False),
    "bert-base-384": _bert(12, 768, 384, pretrained=True),
    "bert-large-128": _bert(24, 1024, 128, pretrained=False),
    "bert-large-384": _bert(24, 1024, 384, pretrained=True),
    "resnet-50": Residual(stages=(3, 4, 6, 3)),
    "resnet-101": Residual(stages=(3, 4, 23, 3)),
}
"""Published models of ``models/published/speed_models.toml`` by their dimensions."""


class SharesRow(NamedTuple):
    """One model on one device by one software of one source; repeats and batches are one row."""

    model: str
    precision: str
    device: str
    source: str
    software: str
    moves_at: str
    product_s: float
    """Of a sample, each product at its roofline; on a device of a newer generation at what that gets of it."""
    moving_s: float
    """Of a sample, at the full bandwidth."""
    measured_s: float

    def predicted_s(self, values: dict[str, float]) -> float:
        """Seconds of a sample with shares by name."""
        return self.product_s / values["matrix_share"] + self.moving_s / values[self.moves_at]


class Shares(NamedTuple):
    """Result of a fit: constants by name, and the logarithmic errors of its rows."""

    constants: dict[str, Known]
    errors: NDArray[np.float64]


@lru_cache(maxsize=4)
def rows_of(speeds: PublishedThroughputs) -> tuple[SharesRow, ...]:
    """Every row that takes part."""
    found: dict[tuple[str, ...], list[tuple[float, float, float]]] = {}
    for row in speeds.rows:
        model, device = speeds.model_of(row.model), accelerator_named(row.device)
        if row.devices > 1 or model is None or model.id not in MODELS or device is None or device.cores is not None:
            continue
        peak = device.peak(row.precision)
        if peak is None:
            continue
        dimensions = MODELS[model.id]
        passes = [each for block in dimensions.blocks(value_bytes_of(row.precision)) for each in (block.forward, block.backward)]
        key = (model.id, row.precision, device.name, row.source, row.software, dimensions.constants[1])
        bandwidth = device.memory_bandwidth_bytes_per_s
        product_s = math.fsum(each.roofline_s(peak, bandwidth) for each in passes)
        if device.newer:
            product_s /= constants()["newer_matrix_share"].value
        times = product_s, math.fsum(each.moved_bytes for each in passes) / bandwidth, 1.0 / row.throughput
        found.setdefault(key, []).append(times)
    return tuple(_row(key, np.exp(np.mean(np.log(times), axis=0)).tolist()) for key, times in found.items())


def _row(key: tuple[str, ...], means: list[float]) -> SharesRow:
    model, precision, device, source, software, moves_at = key
    return SharesRow(model, precision, device, source, software, moves_at, *means)


def fitted(rows: Iterable[SharesRow]) -> Shares:
    """The constants that fit best, each with its interval.

    Raises
    ------
    ValueError
        Not every constant is felt by some row.
    """
    rows = list(rows)
    if {each.moves_at for each in rows} != set(SHARES[1:]):
        raise ValueError(f"rows of transformers and of residual networks are needed to fit {', '.join(SHARES)}")
    many = Counter(each.source for each in rows)
    weights = np.array([1.0 / math.sqrt(many[each.source]) for each in rows])

    def errors(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        values = dict(zip(SHARES, np.exp(logs).tolist(), strict=True))
        return np.array([math.log(each.predicted_s(values) / each.measured_s) for each in rows])

    def sizes(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Roots of what least_squares sums: soft beyond the scale, then weighed."""
        squares = (errors(logs) / _SCALE) ** 2
        return np.asarray(weights * np.sqrt(2.0 * (np.sqrt(1.0 + squares) - 1.0)))

    found = least_squares(sizes, np.log([0.7, 0.5, 0.7]), bounds=(-np.inf, [0.0, np.inf, np.inf]))
    values = dict(zip(SHARES, np.exp(found.x).tolist(), strict=True))
    left = errors(found.x)
    parts = np.array([each.product_s / values["matrix_share"] / each.predicted_s(values) for each in rows])
    felt = parts**2 + (1.0 - parts) ** 2
    spread = math.sqrt(float(np.average(left**2, weights=weights**2) / np.average(felt, weights=weights**2)))
    return Shares({name: _known(value, math.exp(_NORMAL_95 * spread), name) for name, value in values.items()}, left)


def of_decoders(rows: Iterable[Compared], without: str = "") -> Known:
    """``decoder_matrix_share``: the value of ``matrix_share``, and an interval from errors of predictions from dimensions.

    Parameters
    ----------
    rows
        Predictions; those of other regimes take no part.
    without
        A source that is left out.
    """
    squares: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.reached is not None and row.reached.regime == Regime(CUT, DIMENSIONS) and row.reached.source != without:
            squares[row.reached.source][row.reached.series].append(math.log(row.predicted.mean / row.mean) ** 2)
    means = [fmean(fmean(values) for values in of_source.values()) for of_source in squares.values()]
    square = np.average(means, weights=[math.sqrt(len(of_source)) for of_source in squares.values()])
    spread = math.sqrt(max(square - _BY_OTHERS**2, 0.0)) / _OF_A_STEP
    return _known(constants()["matrix_share"].value, math.exp(_NORMAL_95 * spread), "decoder_matrix_share")


_OF_A_STEP, _BY_OTHERS = 0.8, 0.08
"""Share of matrix products in a step of a decoder of 1,000 million parameters or more, and standard deviation of the logarithm of its time
by all other constants."""


def _known(value: float, wider: float, name: str) -> Known:
    """Two digits; no matrix product exceeds the peak."""
    value = digits(value, 2)
    high = digits(value * wider, 2)
    return Known(value=value, low=digits(value / wider, 2), high=max(min(high, 1.0), value) if name.endswith("matrix_share") else high)


def main() -> None:
    """Fit, and write the values into their file."""
    rows = rows_of(load_published_throughputs())
    found = {**fitted(rows).constants, "decoder_matrix_share": of_decoders(validated_rows())}
    file = own_file("practice.toml")
    document = tomlkit.parse(file.read_text(encoding="utf-8"))
    for entry in document["constant"]:
        if (name := str(entry["name"])) in found:
            figures = found[name].plain.model_dump()
            entry.update(figures)
            prior = tomlkit.inline_table()
            prior.update({**figures, "source": _source(rows, name) if name in SHARES else entry["prior"]["source"]})
            entry["prior"] = prior
    file.write_text(tomlkit.dumps(document), encoding="utf-8")


def _source(rows: Iterable[SharesRow], name: str) -> str:
    felt = [each for each in rows if name in ("matrix_share", each.moves_at)]
    sources = ", ".join(sorted({each.source for each in felt}))
    what = f"{len(felt)} trainings on single devices (models/published/speeds.csv: {sources})"
    return f"fitted by python -m evidence.published.shares to {what}"


if __name__ == "__main__":
    main()
