"""What a device holds while it trains: closed forms in bytes, properties, refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.scenarios import scenario_table

from simulator import Scenario, scenario_from_table, simulate
from simulator.base.errors import InputError
from simulator.base.text import format_bytes
from simulator.memory import DeviceMemory, does_not_fit, largest_batch, memory, memory_of, not_checked
from simulator.resolve.resolve import Asked, resolve
from simulator.spec.accelerator import accelerator_named
from simulator.spec.constants import Known
from simulator.strategies.data_parallel import Single
from simulator.strategies.holding import Held
from simulator.strategies.setup import Setup

A100 = {"device": "A100-SXM4-80GB"}
BILLION = 1e9


class Holding(Single):
    """A strategy that only says what is held."""

    stages: tuple[tuple[Held, ...], ...] = ((Held(),),)

    def held(self, setup: Setup) -> tuple[tuple[Held, ...], ...]:  # noqa: ARG002
        """As given."""
        return self.stages


def workload(layers: int = 4, mib: float = 64.0, *, experts: bool = False, **more) -> dict:
    """Layers that are alike: a variable, kept activations of 2 MiB a sample of which half are cheap to compute, a quarter held whole."""
    size = mib * 2**20
    block = {
        "forward": 1.0,
        "output_bytes_per_sample": 2.0**18,
        "kept_bytes_per_sample": 2.0**21,
        "kept_selectively_bytes_per_sample": 2.0**20,
    }
    variables = [{"name": f"v{i}", "size_bytes": size, "creation_index": i, "ready": 1.0, "rows": 4096} for i in range(layers)]
    its = [
        {"name": f"block {i}", **block, "variables": [i], "tensor": {"kept_whole": 0.25}}
        | ({"experts": {"count": 8, "bytes_per_sample": 1.0, "variables": [i]}} if experts else {})
        for i in range(layers)
    ]
    return {"variables": variables, "layers": its, "batch_per_replica": 8, "input_bytes_per_sample": 1024.0, **more}


def scenario(load: dict | None = None, cluster: dict | None = None, strategy: dict | None = None, **sections) -> Scenario:
    table = scenario_table(workload=load or workload(), cluster=A100 | (cluster or {}), strategy=strategy or {"kind": "single"})
    return scenario_from_table({**table, **sections}, "test")


def holding(some: Scenario, *stages: tuple[Held, ...] | Held) -> Scenario:
    """A scenario whose devices hold that."""
    chunks = tuple(stage if isinstance(stage, tuple) and not isinstance(stage, Held) else (stage,) for stage in stages)
    return some.model_copy(update={"strategy": Holding.model_construct(stages=chunks)})


def sizes(device: DeviceMemory) -> dict[str, float | None]:
    return {part.name: part.size_bytes for part in device.parts}


def lone(some: Scenario) -> dict[str, float | None]:
    """Parts of the only kind of device."""
    (device,) = memory_of(resolve(some))
    return sizes(device)


# -- parameters, gradients, slots ----------------------------------------------------------


@pytest.mark.parametrize(
    ("shards", "paper_gb"),
    [({}, 120.0), ({"slot_shards": 64}, 31.4), ({"slot_shards": 64, "gradient_shards": 64}, 16.6),
     ({"slot_shards": 64, "gradient_shards": 64, "parameter_shards": 64}, 1.9)],
)  # fmt: skip
def test_state_is_that_of_zero(shards: dict[str, int], paper_gb: float) -> None:
    # Rajbhandari et al., SC 2020, figure 1: 7.5 billion parameters, Adam in mixed precision, 64 devices
    load = workload(1, 7.5 * BILLION * 4 / 2**20, precision="mixed_float16")
    parts = lone(holding(scenario(load, training={"optimizer": "adam"}), Held(**shards)))
    assert parts["parameters"] is not None
    assert parts["gradients"] is not None
    assert parts["optimizer"] is not None
    # they keep gradients in 16 bits; TensorFlow's are those of float32 variables
    assert (parts["parameters"] + parts["gradients"] / 2 + parts["optimizer"]) / BILLION == pytest.approx(paper_gb, abs=0.06)


@pytest.mark.parametrize(
    ("strategy", "bytes_each"),
    [({"shard": "optimizer"}, 6 + 12 / 8), ({"shard": "gradients"}, 2 + 18 / 8), ({"shard": "parameters"}, 16 / 8),
     ({"reduce_precision": "compute"}, 20), ({"shard": "optimizer", "reduce_precision": "compute"}, 4 + 16 / 8)],
)  # fmt: skip
def test_state_that_eight_devices_share_is_what_their_software_keeps(strategy: dict[str, str], bytes_each: float) -> None:
    # Megatron-LM's distributed optimizer; estimate_zero2_model_states_mem_needs of DeepSpeed; FSDP of PyTorch; stages 0 and 1 of DeepSpeed
    load = workload(1, 2851e6 * 4 / 2**20, precision="mixed_bfloat16")
    shared = {"kind": "hybrid", "workers": 8, **strategy}
    parts = lone(scenario(load, strategy=shared, cluster={"devices_per_node": 8}, training={"optimizer": "adam"}))
    state_bytes = sum(parts[name] or 0.0 for name in ("parameters", "gradients", "optimizer"))
    assert state_bytes == pytest.approx(2851e6 * bytes_each)


def test_pure_bfloat16_holds_eight_bytes_a_parameter() -> None:
    dimensions = {"layers": 32, "hidden": 4096, "heads": 32, "sequence": 2048, "vocabulary": 32000, "feed_forward": 11008,
                  "gated": True, "tied": False, "bias": False, "dropout": False, "positions": 0, "attention": "fused"}  # fmt: skip
    of_7b = {"cluster": {"use": "dgx-a100-80gb"}, "strategy": {"kind": "single"}}

    def of(precision: str, trained: str | None = None) -> Scenario:
        load = {"precision": precision, "batch_per_replica": 1, "transformer": dimensions}
        return scenario_from_table({**of_7b, "workload": load, "training": {"precision": trained} if trained else {}}, "7b")

    pure, mixed = of("bfloat16"), of("mixed_bfloat16")
    parts = lone(pure)
    state_bytes = sum(parts[name] or 0.0 for name in ("parameters", "gradients", "optimizer"))
    assert state_bytes / 1e9 == pytest.approx(54, abs=0.2)
    assert state_bytes == 8 * (pure.workload.parameter_bytes / 2)
    assert (does_not_fit(resolve(pure)), does_not_fit(resolve(mixed)) is None) == (None, False)
    # the same kernels; the update moves half of the bytes
    assert pure.workload.forward == mixed.workload.forward
    assert pure.workload.apply_s == pytest.approx(mixed.workload.apply_s / 2)
    recast = of("mixed_bfloat16", "bfloat16")
    assert lone(recast) == parts
    assert resolve(recast).workload.apply_s == pytest.approx(pure.workload.apply_s)


@pytest.mark.parametrize(("optimizer", "values"), [("sgd", 0), ("momentum", 1), ("adagrad", 1), ("rmsprop", 1), ("adam", 2), ("lamb", 2)])
def test_slots_of_an_optimizer(optimizer: str, values: int) -> None:
    parts = lone(scenario(training={"optimizer": optimizer}))
    assert parts["parameters"] == parts["gradients"] == 4 * 64 * 2**20
    assert parts["optimizer"] == values * 4 * 64 * 2**20


def test_adafactor_has_a_value_for_each_row_and_column() -> None:
    values = 64 * 2**20 / 4
    assert lone(scenario(training={"optimizer": "adafactor"}))["optimizer"] == 4 * 4 * (values + 4096 + values / 4096)


def test_an_optimizer_that_is_left_out_is_adam_where_layers_are_known_and_the_result_says_so() -> None:
    assert lone(scenario())["optimizer"] == 2 * 4 * 64 * 2**20
    assert [its.path for its in Asked.of(scenario()).assumed if its.path.startswith("training")] == ["training.optimizer"]
    assert not [its for its in Asked.of(scenario(training={"optimizer": "sgd"})).assumed if its.path.startswith("training")]
    without = scenario({key: value for key, value in workload().items() if key != "layers"})
    assert lone(without)["optimizer"] is None
    assert not [its for its in Asked.of(without).assumed if its.path.startswith("training")]


def test_splitting_sharing_and_stashing() -> None:
    whole = 64 * 2**20
    parts = lone(holding(scenario(), Held(first=0, last=2, tensor=4, versions=3, slot_shards=2, gradient_shards=2)))
    assert parts["parameters"] == 2 * whole / 4 * 3
    assert parts["gradients"] == 2 * whole / 4 / 2
    assert parts["optimizer"] == 2 * 2 * whole / 4 / 2
    # experts that are spread over the devices that would share them are not shared further
    spread = lone(holding(scenario(workload(experts=True)), Held(expert=4, slot_shards=4)))
    assert spread["parameters"] == 4 * whole / 4
    assert spread["optimizer"] == 2 * 4 * whole / 4
    assert lone(holding(scenario(workload(experts=True)), Held(expert=4, slot_shards=8)))["optimizer"] == 2 * 4 * whole / 8


def test_parameters_that_are_shared_out_come_together_layer_by_layer() -> None:
    parts = lone(holding(scenario(), Held(parameter_shards=8, gradient_shards=8, slot_shards=8, fused=0.0)))
    assert parts["gathered"] == 2 * 64 * 2**20
    assert parts["buckets"] == 64 * 2**20


def test_servers_have_the_slots_and_neighbours_are_averaged() -> None:
    worker = scenario(strategy={"kind": "parameter-server", "mode": "async", "workers": 2})
    assert lone(worker)["optimizer"] == 0
    gossip = scenario(strategy={"kind": "gossip", "workers": 4})
    assert lone(gossip)["parameters"] == 3 * 4 * 64 * 2**20


def test_a_bucket_is_copied_where_replicas_reduce() -> None:
    ring = {"kind": "multi-worker-mirrored", "workers": 2}
    assert "buckets" not in lone(scenario())
    assert lone(scenario(strategy=ring))["buckets"] == 4 * 64 * 2**20
    assert lone(scenario(strategy=ring | {"bucket_size": "32 MiB"}))["buckets"] == 64 * 2**20


def test_layers_on_the_host_hold_nothing_of_the_device() -> None:
    parts = lone(holding(scenario(training={"recompute": "full"}), Held(on_host=frozenset({"block 0", "block 1"}))))
    assert parts["parameters"] == 2 * 64 * 2**20
    assert parts["activations"] == 2 * 2**18 * 8  # what the others get


# -- activations ---------------------------------------------------------------------------


@pytest.mark.parametrize(("sequence", "each"), [(False, 0.25 + 0.75 / 4), (True, 1 / 4)])
def test_kept_activations_are_split_as_tensors_are(sequence: bool, each: float) -> None:
    # Korthikanti et al., equations 2 and 4
    parts = lone(holding(scenario(), Held(tensor=4, sequence=sequence, in_flight=(3,))))
    assert parts["activations"] == pytest.approx(4 * 2**21 * 8 * 3 * each)


def test_recomputation() -> None:
    whole, batch = 4 * 2**21, 8
    assert lone(scenario())["activations"] == whole * batch
    selective = lone(scenario(training={"recompute": "selective"}))
    assert selective["activations"] == whole * batch / 2
    assert selective["backward"] == 2**20 * batch
    full = lone(scenario(training={"recompute": "full"}))
    assert full["activations"] == 3 * 2**18 * batch  # the first layer gets the batch, which is there anyway
    assert full["backward"] == 2**21 * batch
    # of what is kept selectively, what each device has whole is as much as before
    split = lone(holding(scenario(training={"recompute": "selective"}), Held(tensor=4)))
    assert split["activations"] == 4 * (2**19 + 2**19 / 4) * batch


def test_micro_batches_are_held_as_many_as_are_in_flight() -> None:
    four = scenario(training={"micro_batches": 4})
    assert lone(four)["activations"] == 4 * 2**21 * 2
    assert lone(holding(four, Held(in_flight=(3,))))["activations"] == 4 * 2**21 * 2 * 3


def test_stages_of_1f1b_hold_fewer_the_later_they_are() -> None:
    strategy = {"kind": "hybrid", "workers": 4, "pipeline": 4, "schedule": "1f1b"}
    devices = memory_of(resolve(scenario(strategy=strategy, training={"micro_batches": 8})))
    assert [device.name for device in devices] == ["stage 0", "stage 1", "stage 2", "stage 3"]
    assert [sizes(device)["activations"] for device in devices] == [2**21 * flying for flying in (4, 3, 2, 1)]
    assert [device.layers for device in devices] == [(f"block {number}",) for number in range(4)]
    gpipe = memory_of(resolve(scenario(strategy=strategy | {"schedule": "gpipe"}, training={"micro_batches": 8})))
    assert [sizes(device)["activations"] for device in gpipe] == [2**21 * 8] * 4


def test_what_was_measured_goes_before_what_is_computed() -> None:
    fit = {"relative_residual": 0.0, "peak_memory_bytes": {"8": 20e9, "16": 30e9}}
    load = workload(fit=fit)
    assert memory_of(resolve(scenario(load)))[0].need_bytes == pytest.approx(20e9 + 1536 * 2**20)
    # and peaks never fall with the batch
    uneven = fit | {"peak_memory_bytes": {"8": 20e9, "16": 19e9, "32": 25e9}}
    assert memory_of(resolve(scenario(workload(fit=uneven, batch_per_replica=16))))[0].need_bytes == pytest.approx(20e9 + 1536 * 2**20)
    # where the model is cut, nothing was measured
    cut = lone(holding(scenario(load), Held(first=0, last=2)))
    assert cut["activations"] == 2 * 2**21 * 8
    # half the batch at a time, as far as peaks were measured
    accumulated = scenario(workload(fit=fit, batch_per_replica=32), training={"micro_batches": 2})
    assert memory_of(resolve(accumulated))[0].need_bytes == pytest.approx(30e9 + 1536 * 2**20)


def test_activations_of_another_precision_have_other_bytes() -> None:
    load = workload(fit={"relative_residual": 0.0, "peak_memory_bytes": {"8": 20e9}})
    training = {"precision": "mixed_float16", "precision_factor": (0.5, 0.6), "precision_source": "a test"}
    mixed = lone(scenario(load, training=training))
    assert mixed["activations"] == 4 * 2**21 * 8 / 2  # those of layers, as peaks were measured in float32
    assert mixed["parameters"] == 2 * 64 * 2**20
    bare = lone(scenario({key: value for key, value in load.items() if key != "layers"}, training=training))
    assert bare["activations"] is None


# -- fitting -------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_before_it_is_simulated() -> None:
    large = scenario(workload(mib=10240.0), strategy={"kind": "hybrid", "workers": 2, "pipeline": 2}, training={"micro_batches": 2})
    with pytest.raises(InputError) as refused:
        simulate(large)
    text = str(refused.value)
    assert text.startswith(
        "stage 0 (block 0 to block 1): a micro-batch of 4 samples needs about 81.6 GiB (79.2 GiB to 84.8 GiB) on a device"
    )
    assert "(optimizer slots 40 GiB: slots of adam (assumed))" in text
    assert "has 74.5 GiB; take strategy.shard, or a larger strategy.pipeline" in text
    assert "a smaller batch" not in text  # which would not help
    many = does_not_fit(resolve(scenario(workload(batch_per_replica=20_000))))
    assert many is not None
    assert many.endswith('take a smaller batch, more training.micro_batches than 1 or training.recompute = "full"')


def test_it_is_simulated_where_that_is_asked_for() -> None:
    run = {"steps": 4, "replications": 2, "start": "together"}
    large = scenario(workload(mib=8192.0), run=run)
    with pytest.raises(InputError, match=r"130 GiB .*; take .*hybrid.*; run.memory = \"ignore\""):
        simulate(large)
    ignored = scenario(workload(mib=8192.0), run=run | {"memory": "ignore"})
    assert ignored.hash == large.hash
    assert simulate(ignored).replicas == 1


def test_known_parts_alone_may_be_too_much() -> None:
    load = {key: value for key, value in workload(mib=16384.0).items() if key != "layers"}
    text = does_not_fit(resolve(scenario(load)))
    assert text is not None
    assert "130 GiB" in text
    assert not_checked(resolve(scenario(load))) == "the workload 'plain' has neither layers nor measured peak memory"


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    found = memory(scenario(training={"micro_batches": 2}))
    most = found.largest_batch
    assert most is not None
    assert most % 2 == 0
    for batch, fits in ((most, True), (most + 2, False)):
        assert (does_not_fit(resolve(scenario(workload(batch_per_replica=batch), training={"micro_batches": 2}))) is None) == fits
    assert largest_batch(resolve(scenario(workload(mib=8192.0)))) == 0
    assert largest_batch(resolve(scenario(cluster={"device": ""}))) is None
    capacity = accelerator_named("A100-SXM4-80GB").memory_bytes
    reserve = 1536 * 2**20
    assert found.free_bytes == pytest.approx(capacity - reserve - 1.04 * (found.tightest.need_bytes - reserve))
    assert found.free_bytes == capacity - found.tightest.interval_bytes[1]


def test_what_fits_only_if_the_prediction_is_right_does_not_fit() -> None:
    need = memory(scenario()).tightest.need_bytes - 1536 * 2**20  # a limited device has no reserve
    tight = scenario(cluster={"device_memory_limit": f"{need * 1.03:.0f} B"})
    assert need < tight.cluster.device_memory_limit_bytes
    assert does_not_fit(resolve(tight)) is not None
    sure = tight.model_copy(update={"practice": {"memory_need": Known(value=1.0, low=1.0, high=1.01)}})
    assert does_not_fit(resolve(sure)) is None


def of_transformer(precision: str = "mixed_bfloat16", device: str = "dgx-a100-80gb", **strategy: object) -> dict[str, float | None]:
    dimensions = {"layers": 2, "hidden": 512, "heads": 8, "sequence": 1024, "vocabulary": 50304}
    load = {"precision": precision, "batch_per_replica": 4, "transformer": dimensions}
    table = {"workload": load, "cluster": {"use": device}, "strategy": {"kind": "hybrid", "workers": 2, **strategy}}
    return lone(scenario_from_table(table, "transformer"))


def test_logits_are_there_twice_while_the_cross_entropy_runs_in_16_bits() -> None:
    logits = 1024 * 4 * 50304
    assert of_transformer()["logits"] == 6 * logits
    assert of_transformer(tensor=2)["logits"] == 6 * logits / 2
    assert of_transformer("float32")["logits"] == 4 * logits


def test_matrix_products_have_work_space_and_more_of_it_from_hopper_on() -> None:
    assert of_transformer()["workspace"] == 85e6
    assert of_transformer(device="nd96isr_h100_v5")["workspace"] == 110e6
    assert "workspace" not in lone(scenario(cluster={"device": ""}))


def test_gradients_of_copies_that_nothing_cuts_lie_in_their_buckets() -> None:
    assert "buckets" not in of_transformer()
    assert of_transformer()["gradients"] == of_transformer(reduce_precision="float32", bucket_size="25 MiB")["gradients"]


def test_tables_are_written_with_units() -> None:
    found = memory(scenario(strategy={"kind": "hybrid", "workers": 2, "pipeline": 2}, training={"micro_batches": 2}))
    assert found.table().to_markdown().count("stage") == 2
    assert format_bytes(found.tightest.need_bytes) in found.table().to_markdown()
    assert [row["name"] for row in found.rows_of([found])] == ["stage 0", "stage 1"]
    assert "framework reserve" in found.parts_table().to_markdown()


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(Exception, match=r"training.optimizer"):
        scenario(training={"optimizer": "magic"})


# -- properties ----------------------------------------------------------------------------

SHARDS = st.sampled_from([1, 2, 4, 8])


@given(batch=st.integers(1, 10_000), more=st.integers(0, 10_000), recompute=st.sampled_from(["none", "selective", "full"]), tensor=SHARDS)
@examples(60)
def test_need_grows_with_the_batch(batch: int, more: int, recompute: str, tensor: int) -> None:
    def need(samples: int) -> float:
        some = scenario(workload(batch_per_replica=3 * samples), training={"recompute": recompute, "micro_batches": 3})
        return memory_of(resolve(holding(some, Held(tensor=tensor))))[0].need_bytes

    assert need(batch) <= need(batch + more)


@given(low=st.tuples(SHARDS, SHARDS, SHARDS, SHARDS), factor=st.tuples(SHARDS, SHARDS, SHARDS, SHARDS), sequence=st.booleans())
@examples(60)
def test_need_of_state_and_activations_falls_with_shards(low: tuple[int, ...], factor: tuple[int, ...], sequence: bool) -> None:
    def parts(degrees: tuple[int, ...]) -> dict[str, float | None]:
        tensor, parameters, gradients, slots = degrees
        return lone(
            holding(
                scenario(),
                Held(tensor=tensor, sequence=sequence, parameter_shards=parameters, gradient_shards=gradients, slot_shards=slots),
            )
        )

    fewer, more = parts(low), parts(tuple(one * times for one, times in zip(low, factor, strict=True)))
    for name in ("parameters", "gradients", "optimizer", "activations"):
        assert (more[name] or 0.0) <= (fewer[name] or 0.0)


@given(batch=st.integers(1, 20_000), mib=st.floats(1.0, 10_000.0))
@examples(40)
def test_more_memory_never_makes_a_batch_infeasible(batch: int, mib: float) -> None:
    # devices of one generation, so that the framework's reserve is the same
    devices = [scenario(workload(mib=mib, batch_per_replica=batch), {"device": name}) for name in ("A100-SXM4-40GB", "A100-SXM4-80GB")]
    fits = [does_not_fit(resolve(its)) is None for its in devices]
    assert fits[1] or not fits[0]
    small, large = (largest_batch(resolve(its)) for its in devices)
    assert small is not None
    assert large is not None
    assert small <= large
    assert fits == [batch <= small, batch <= large]
