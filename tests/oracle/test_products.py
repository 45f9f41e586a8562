"""Times of matrix products and of kernels that memory limits, against published measurements of single kernels."""

from __future__ import annotations

import itertools
import math

import pytest

from simulator.spec.accelerator import accelerator_named
from simulator.spec.computed import Product
from simulator.spec.constants import constants
from simulator.spec.dimensions import Transformer

MEASURED = "https://github.com/microsoft/vidur, data/profiling/compute/{a100,h100}/meta-llama/Llama-2-70b-hf/mlp.csv"
"""Agrawal et al., "Vidur", MLSys 2024: means of 20 runs in float16 on devices of a DGX, at 25e529de (A100) and 683364e9 (H100)."""

# rows, columns and inner dimension of the product, milliseconds
LARGE = {
    "A100-SXM4-80GB": [
        (4096, 10240, 8192, 2.86465), (4096, 8192, 8192, 2.374), (4096, 57344, 8192, 15.87705), (4096, 8192, 28672, 8.0429),
        # an eighth of each, as where tensors are split over eight devices
        (4096, 1280, 8192, 0.3551), (4096, 8192, 1024, 0.3015), (4096, 7168, 8192, 1.9718), (4096, 8192, 3584, 1.06285),
    ],
    "H100-SXM5-80GB": [
        (4096, 10240, 8192, 0.9796), (4096, 8192, 8192, 0.78885), (4096, 57344, 8192, 5.63645), (4096, 8192, 28672, 2.58605),
    ],
}  # fmt: skip
SMALL = {
    "A100-SXM4-80GB": [
        (1024, 1280, 8192, 0.1175), (1024, 8192, 1024, 0.07835), (1024, 7168, 8192, 0.54275), (1024, 8192, 3584, 0.2693),
        (896, 1280, 8192, 0.0956), (896, 8192, 1024, 0.07705), (896, 7168, 8192, 0.4274), (896, 8192, 3584, 0.2235),
    ],
}  # fmt: skip
# bytes that a kernel reads and writes, milliseconds: sum with what came in, gate times activation, root-mean-square norm
MOVING = {
    "A100-SXM4-80GB": [(3 * 2 * 4096 * 8192, 0.1123), (3 * 2 * 4096 * 28672, 0.67225), (2 * 2 * 4096 * 8192, 0.1932)],
    "H100-SXM5-80GB": [(3 * 2 * 4096 * 8192, 0.06245), (3 * 2 * 4096 * 28672, 0.35865), (2 * 2 * 4096 * 8192, 0.1221)],
}


def product(rows: int, columns: int, inner: int) -> Product:
    """In float16, its second operand included: here it is no variable's share of a batch."""
    return Product(2.0 * rows * columns * inner, 2.0 * (rows * inner + inner * columns + rows * columns), inner)


def at_roofline_s(device: str, rows: int, columns: int, inner: int) -> float:
    its = accelerator_named(device)
    assert its is not None
    peak = its.peak("mixed_float16")
    assert peak is not None
    return product(rows, columns, inner).roofline_s(peak, its.memory_bandwidth_bytes_per_s)


def test_large_products_take_what_was_measured():
    """The share was fitted to whole trainings of BERT and ResNet-50, to no single product."""
    share = constants()["matrix_share"].value
    for *sizes, measured_ms in LARGE["A100-SXM4-80GB"]:
        assert at_roofline_s("A100-SXM4-80GB", *sizes) / share == pytest.approx(measured_ms / 1e3, rel=0.1), (MEASURED, sizes)


def test_on_a_newer_device_products_alone_reach_less_than_on_older_ones_and_more_than_in_trainings():
    """So the share of a newer generation lies between those of trainings and those of single kernels (models/practice.toml)."""
    share, newer = constants()["matrix_share"].value, constants()["newer_matrix_share"]
    reached = [at_roofline_s("H100-SXM5-80GB", *sizes) / (ms / 1e3) for *sizes, ms in LARGE["H100-SXM5-80GB"]]
    assert all(newer.value * share < each < share for each in reached), reached
    assert newer.low < math.prod(reached) ** (1 / len(reached)) / share < newer.high


def test_products_over_few_or_many_steps_take_the_same_share_but_for_filling_their_tiles():
    """8,192 columns, 4,096 rows and 1,024 to 28,672 inner steps: within 2.5% of one share."""
    its = sorted((inner, ms, rows, columns) for rows, columns, inner, ms in LARGE["A100-SXM4-80GB"] if columns == 8192)
    reached = [at_roofline_s("A100-SXM4-80GB", rows, columns, inner) / (ms / 1e3) for inner, ms, rows, columns in its]
    assert [inner for inner, *_ in its] == [1024, 3584, 8192, 28672]
    assert reached == pytest.approx([0.75] * 4, rel=0.025)


def test_the_share_of_the_peak_hardly_depends_on_the_size_of_large_products():
    """From 0.07 to 3.8 million million operations, whole or split over eight devices: within 10% of each other."""
    for device, its in LARGE.items():
        reached = [at_roofline_s(device, *sizes) / (ms / 1e3) for *sizes, ms in its]
        assert max(reached) / min(reached) < 1.1


def test_products_of_a_thousand_rows_are_within_the_interval():
    """Waves of tiles that do not come out even cost up to a quarter there; the model does not know of them."""
    known = constants()["matrix_share"]
    for device, its in SMALL.items():
        for *sizes, measured_ms in its:
            reached = at_roofline_s(device, *sizes) / (measured_ms / 1e3)
            assert known.low < reached < known.high
            assert 0.75 < reached / known.value < 1.05


def test_no_published_product_is_faster_than_its_roofline():
    for table in (LARGE, SMALL):
        for device, its in table.items():
            assert all(at_roofline_s(device, *sizes) < measured_ms / 1e3 for *sizes, measured_ms in its)


@pytest.mark.parametrize("device", MOVING)
def test_kernels_that_memory_limits_reach_what_trainings_reach(device):
    its = accelerator_named(device)
    assert its is not None
    reached = [size / (ms / 1e3) / its.memory_bandwidth_bytes_per_s for size, ms in MOVING[device]]
    known = constants()["elementwise_share"]
    assert known.low < math.prod(reached) ** (1 / len(reached)) < known.high
    assert known.value == pytest.approx(math.prod(reached) ** (1 / len(reached)), rel=0.25)


def test_a_larger_product_takes_no_less_and_none_beats_peak_or_memory():
    sizes = [64, 128, 1024, 8192]
    peak, bandwidth = 312e12, 2039e9
    for m, n, k in itertools.product(sizes, repeat=3):
        seconds = product(m, n, k).roofline_s(peak, bandwidth)
        assert seconds > 2.0 * m * n * k / peak
        assert seconds >= 2.0 * (m * k + k * n + m * n) / bandwidth
        for larger in ((2 * m, n, k), (m, 2 * n, k), (m, n, 2 * k)):
            assert product(*larger).roofline_s(peak, bandwidth) > seconds
    # scores of a head of 64 values: 2 x 64 operations for each of 2 bytes, of which an A100 could do 306
    assert product(2048, 2048, 64).roofline_s(peak, bandwidth) == 2.0 * (2 * 2048 * 64 + 2048 * 2048) / bandwidth


def test_fusing_kernels_saves_what_was_published():
    """Ivanov et al., "Data movement is all you need", MLSys 2021 (arXiv:2007.00072), abstract: up to 22.91% for a layer of BERT."""
    layers = [
        Transformer(architecture="encoder", layers=2, hidden=1024, heads=16, sequence=512, vocabulary=30522, kernels=kernels).blocks(2)[1]
        for kernels in ("fused", "separate")
    ]
    fused, separate = (layer.forward.all_bytes + layer.backward.all_bytes for layer in layers)
    assert 1.0 - fused / separate == pytest.approx(0.2291, abs=0.04)
