"""``[strategy.compression]``: bytes, collectives, cost and memory of compressed gradients."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from oracles.audit import audit

from paceline.planning.bounds import Ceilings
from simulator import scenario_from_table, simulate
from simulator.base.catalog import own_file
from simulator.base.errors import InputError
from simulator.resolve.resolve import Asked, resolve
from simulator.spec.accelerator import memory_bandwidth_of
from simulator.spec.gradients import Compression
from simulator.spec.workload import Variable
from tests.support.closed_forms import ring_all_reduce_s, ring_half_s
from tests.support.scenarios import scenario_table

RING = {"kind": "multi-worker-mirrored", "workers": 4}
SERVERS = {"kind": "parameter-server", "mode": "sync", "workers": 2, "servers": 1}
FREE = {"compress_per_byte_s": 0.0, "decompress_per_byte_s": 0.0}
KINDS = [
    {"kind": "fp16"},
    {"kind": "int8"},
    {"kind": "int8", "exchange": "all-reduce"},
    {"kind": "1-bit"},
    {"kind": "top-k", "ratio": 0.01},
    {"kind": "powersgd", "rank": 2},
]
COMPUTE_S = 2e-3 + 4e-3 + 0.5e-3
"""Of a step of the small scenario, with its update."""


def variable(values, **more):
    return Variable(name="v", size_bytes=4.0 * values, creation_index=0, ready=1.0, **more)


def table(compression, strategy=RING, **parts):
    given = {**strategy, **({"compression": compression} if compression else {})}
    load = {"variables": [{"name": "kernel", "size": "1 MB", "creation_index": 0, "ready": 1.0, "rows": 500}], **parts.pop("workload", {})}
    return scenario_table(strategy=given, workload=load, **parts)


def scenario(compression, strategy=RING, **parts):
    return scenario_from_table(table(compression, strategy, **parts), "test")


# 250,000 values, a matrix of 500 x 500: what one rank sends


@pytest.mark.parametrize(
    ("compression", "sent", "gathers"),
    [
        ({"kind": "fp16"}, (500_000.0,), False),
        ({"kind": "int8"}, (250_004.0,), True),
        ({"kind": "int8", "exchange": "all-reduce"}, (250_004.0,), False),
        ({"kind": "1-bit"}, (31_258.0,), True),
        ({"kind": "top-k", "ratio": 0.01}, (2_500 * 8.0,), True),
        ({"kind": "top-k", "ratio": 1e-9}, (8.0,), True),
        ({"kind": "powersgd", "rank": 2}, (4_000.0, 4_000.0), False),
        ({"kind": "powersgd", "rank": 300}, (1e6, 0.0), False),
    ],
)
def test_bytes_have_their_closed_form(compression, sent, gathers):
    found = Compression.model_validate(compression)
    assert found.sent_bytes(variable(250_000, rows=500), 1) == sent
    assert found.gathers == gathers
    assert found.collective_bytes(variable(250_000, rows=500), 1, 8) == tuple(each * (8 if gathers else 1) for each in sent)


def test_sparse_gradients_and_vectors_go_as_they_are():
    rows = variable(1000, sparse_bytes_per_sample=12.0)
    assert Compression(kind="top-k", ratio=0.1).sent_bytes(rows, 3) == (36.0,)
    assert Compression(kind="powersgd", rank=1).sent_bytes(rows, 3) == (36.0, 0.0)
    assert Compression(kind="powersgd", rank=1).sent_bytes(variable(1000), 3) == (4000.0, 0.0)
    assert Compression(kind="fp16").collective_bytes(rows, 3, 8) == (36.0 * 4,)


def resnet_18():
    """Variables of ResNet-18 for CIFAR-10 as TensorFlow has them: kernels of height x width x in x out, and vectors."""
    kernels = [(9, 3, 64)] + [(9, 64, 64)] * 4
    for wide in (64, 128, 256):
        kernels += [(9, wide, 2 * wide), (9, 2 * wide, 2 * wide), (1, wide, 2 * wide), *[(9, 2 * wide, 2 * wide)] * 2]
    for area, inner, outer in kernels:
        yield variable(area * inner * outer, rows=math.isqrt(area), columns=outer)
        yield from (variable(outer, rows=outer) for _ in range(2))
    yield variable(512 * 10, rows=512)
    yield variable(10, rows=10)


@pytest.mark.parametrize(("rank", "times"), [(1, 243), (2, 136), (4, 72)])
def test_powersgd_compresses_as_published(rank, times):
    """Vogels et al., NeurIPS 2019, table 3: ResNet-18 is sent 243, 136 and 72 times as short at ranks 1, 2 and 4."""
    whole = sum(each.size_bytes for each in resnet_18())
    assert whole / 4 == 11_173_962
    sent = sum(sum(Compression(kind="powersgd", rank=rank).sent_bytes(each, 1)) for each in resnet_18())
    assert round(whole / sent) == times


@pytest.mark.parametrize("compression", KINDS, ids=lambda its: "-".join(map(str, its.values())))
def test_a_step_has_its_closed_form(compression):
    """One ring of four replicas after the backward pass: rings of what is added, half rings of what is gathered."""
    found = Compression.model_validate(compression)
    sent = found.sent_bytes(variable(250_000, rows=500), 10)
    wanted_s = COMPUTE_S
    for size in sent:
        wanted_s += ring_half_s(4, 4 * size, 1e9, 1e-5) if found.gathers else ring_all_reduce_s(4, size, 1e9, 1e-5)
    parts = {"cluster": {"inter_node": {"bandwidth": "1 GB/s", "latency": "10 us"}}}
    given = scenario({**compression, **FREE}, **parts)
    result = simulate(given)
    assert result.mean_step_s.mean == pytest.approx(wanted_s, rel=1e-9)
    assert resolve(given).lone_step_s == pytest.approx(wanted_s, rel=1e-9)
    by_messages = simulate(scenario({**compression, **FREE}, run={"detail": "messages"}, **parts))
    assert by_messages.mean_step_s.mean == pytest.approx(wanted_s, rel=1e-6)
    assert {each.size_bytes for each in result.all_reduces} == {4 * size if found.gathers else size for size in sent}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [RING, {**RING, "bucket_size": "2 KB"}, {"kind": "mirrored", "replicas": 2}])
@pytest.mark.parametrize("compression", KINDS, ids=lambda its: "-".join(map(str, its.values())))
def test_every_law_holds(compression, strategy):
    variables = [{"name": str(n), "size": "400 KB", "creation_index": n, "ready": (n + 1) / 3, "rows": 100} for n in range(3)]
    load, cluster = {"variables": variables}, {"devices_per_node": 2 if strategy["kind"] == "mirrored" else 1}
    for detail in ("at-once", "messages"):
        assert audit(
            scenario({**compression, "compress_per_byte_s": 1e-9}, strategy, workload=load, cluster=cluster, run={"detail": detail})
        )


@pytest.mark.parametrize("compression", [each for each in KINDS if each["kind"] != "powersgd" and "exchange" not in each])
def test_servers_get_compressed_gradients_and_give_whole_variables(compression):
    given = scenario({**compression, **FREE}, {**SERVERS, "workers": 1}, workload={"server": {"base": "0 s", "per_byte_s": 1e-9}})
    (sent,) = Compression.model_validate(compression).sent_bytes(variable(250_000), 10)
    # pull of 1 MB, compute, push of what is sent, and the server's work on 1 MB of gradient and on its sum
    assert simulate(given).mean_step_s.mean == pytest.approx(1e-3 + 6e-3 + sent / 1e9 + 2e-3, rel=1e-6)
    assert audit(scenario({**compression, "decompress_per_byte_s": 1e-9}, SERVERS))


@pytest.mark.parametrize("compression", KINDS, ids=lambda its: "-".join(map(str, its.values())))
def test_bounds_hold(compression):
    slow = {"inter_node": {"bandwidth": "100 MB/s", "latency": "10 us"}}
    given = resolve(scenario({**compression, "compress_per_byte_s": 1e-9}, cluster=slow))
    rates = simulate(given).throughput_of_each_replication
    assert all(rate <= most for rate, most in zip(rates, Ceilings().of(Asked.of(given)), strict=True))


# -- cost ------------------------------------------------------------------------------------


def test_compression_takes_the_device_as_long_as_is_given():
    """1 MB at 1 ns/B before; of four ranks' values 1% each, 4 x 10 KB at 2 ns/B after."""
    cost = {"kind": "top-k", "ratio": 0.01, "compress_per_byte_s": 1e-9, "decompress_per_byte_s": 2e-9}
    free, paid = simulate(scenario({**cost, **FREE})), simulate(scenario(cost))
    assert paid.mean_step_s.mean - free.mean_step_s.mean == pytest.approx(1e-3 + 4 * 1e4 * 2e-9, rel=1e-6)
    assert paid.breakdown_s.compute - free.breakdown_s.compute == pytest.approx(1e-3, rel=1e-6)
    assert resolve(scenario(cost)).lone_step_s == pytest.approx(paid.mean_step_s.mean, rel=1e-9)
    assert paid.speedup.mean < free.speedup.mean, "the single-replica baseline compresses nothing"


def test_who_adds_a_part_compresses_it_again():
    cost = {"kind": "int8", "exchange": "all-reduce", "compress_per_byte_s": 1e-9, "decompress_per_byte_s": 1e-9}
    free, paid = simulate(scenario({**cost, **FREE})), simulate(scenario(cost))
    assert paid.mean_step_s.mean - free.mean_step_s.mean == pytest.approx(1e-3 * (1 + 1 / 4) + 2e-3, rel=1e-6)


def test_buckets_wait_for_their_own_compression():
    """Two equal gradients, ready at the half and at the end of 4 ms: compressed at 1 ns/B they go after 2.5 and 5 ms."""
    variables = [{"name": str(n), "size": "500 KB", "creation_index": n, "ready": (n + 1) / 2} for n in range(2)]
    strategy = {**RING, "bucket_size": "1 KB"}
    given = scenario({"kind": "fp16", **FREE, "compress_per_byte_s": 1e-9}, strategy, workload={"variables": variables})
    starts = sorted({round(each.sent_s, 9) for each in audit(given).transfers if each.name.startswith("all-reduce") and each.sent_s < 8e-3})
    assert starts == pytest.approx([2e-3 + 2.5e-3, 2e-3 + 5e-3])


def test_a_cost_that_is_left_out_is_what_memory_takes_and_is_told():
    given = scenario({"kind": "fp16"}, cluster={"device": "Tesla V100-SXM2"})
    rate = memory_bandwidth_of("Tesla V100-SXM2")
    assert given.strategy.encoding_s(given) == pytest.approx((1.5e6 / rate, 1.5e6 / rate))
    (told,) = [each for each in Asked.of(given).assumed if "compression" in each.path]
    assert "lower limit" in told.reason
    (told,) = [each for each in Asked.of(scenario({"kind": "fp16"})).assumed if "compression" in each.path]
    assert "costs nothing" in told.reason
    assert not [each for each in Asked.of(scenario({"kind": "fp16", **FREE})).assumed if "compression" in each.path]


def test_error_feedback_is_kept_in_memory():
    both = (variable(1000, rows=10), variable(50, sparse_bytes_per_sample=4.0))
    assert Compression(kind="top-k", ratio=0.1).kept_bytes(both) == 4000.0
    assert Compression(kind="top-k", ratio=0.1, error_feedback=False).kept_bytes(both) == 0.0
    assert Compression(kind="fp16").kept_bytes(both) == 0.0
    assert Compression(kind="powersgd", rank=1).kept_bytes(both) == 4000.0 + 4 * 100


# -- what stays, and what is refused -----------------------------------------------------------


def test_without_compression_scenarios_are_what_they_were():
    for strategy in (RING, SERVERS):
        assert "compression" not in scenario(None, strategy).model_dump()["strategy"]
    assert scenario({"kind": "fp16"}).hash != scenario(None).hash
    assert "columns" not in scenario(None).model_dump()["workload"]["variables"][0]


def test_tables_and_plans_say_it():
    assert scenario({"kind": "top-k", "ratio": 0.01}).strategy.in_words == "ring all-reduce, top-k 1%"
    assert scenario({"kind": "powersgd", "rank": 4}).strategy.in_words == "ring all-reduce, PowerSGD rank 4"
    assert scenario({"kind": "1-bit"}, SERVERS).strategy.in_words == "sync PS, 1 server, 1-bit gradients"


@pytest.mark.parametrize(
    ("compression", "more", "says"),
    [
        ({"kind": "top-k"}, {}, "needs ratio"),
        ({"kind": "powersgd"}, {}, "needs rank"),
        ({"kind": "fp16", "ratio": 0.1}, {}, 'ratio .* applies to kind = "top-k"'),
        ({"kind": "zip"}, {}, "kind"),
        ({"kind": "top-k", "ratio": 0.0}, {}, "ratio"),
        ({"kind": "1-bit"}, {"algorithm": "halving-doubling"}, 'strategy.algorithm = "halving-doubling" cannot: give ring'),
        ({"kind": "fp16"}, {"sync_every": 2}, "sync_every averages variables"),
        ({"kind": "powersgd", "rank": 1}, {"priority": "forward", "bucket_size": "1 KB"}, "two all-reduces in sequence"),
        ({"kind": "powersgd", "rank": 1}, SERVERS, "needs replicas that all-reduce"),
        ({"kind": "int8", "exchange": "all-reduce"}, SERVERS, "leave it out"),
    ],
)
def test_bad_input_is_told_in_one_line(compression, more, says):
    with pytest.raises(InputError, match=says):
        scenario(compression, {**RING, **more} if "kind" not in more else more)


def test_published_pairs_are_on_record():
    """Pairs with and without compression, each with its source; they lack what a scenario needs, so that they are not predicted."""
    path = Path(own_file("published/compression.csv"))
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert all(row["source"].startswith("http") for row in rows)
