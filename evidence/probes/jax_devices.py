"""Times steps of a Keras model under ``keras.distribution.DataParallel`` on several CPU devices of JAX, and all-reduces without a model.

The devices are those that ``--xla_force_host_platform_device_count`` makes of this machine's processor; batches are those of one device.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from typing import Any, Iterator

from _paceline_probes import machine, recording, training
from _paceline_probes.on_jax import Jax
from _paceline_probes.recording import Recorder
from _paceline_probes.step import Timing

CHAINS = 1, 5
"""All-reduces in a row: what a call costs once cancels."""


class OnAll(Jax):
    """JAX on all devices: where arrays lie is said by the distribution."""

    @contextlib.contextmanager
    def on_device(self) -> Iterator[None]:
        """Nothing is to be said."""
        yield


class Sharded(training.KerasModel):
    """A model whose batches are cut over the devices."""

    devices = 1

    def batch_of(self, batch: int) -> tuple[Any, Any]:
        """Inputs and targets of all devices together, each device's part on it."""
        import jax

        mesh = jax.sharding.Mesh(jax.devices(), ("batch",))
        place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
        x, y = super().batch_of(batch * self.devices)
        return jax.device_put(x, place), jax.device_put(y, place)


def all_reduces(devices: int, sizes: list[int], rounds: int, recorder: Any) -> None:
    """Time sums over all devices of one array on each."""
    import jax
    import jax.numpy as jnp

    mesh = jax.sharding.Mesh(jax.devices(), ("all",))
    cut = jax.sharding.PartitionSpec("all")

    def reducing(count: int) -> Any:
        def each(value: Any) -> Any:
            for _ in range(count):  # each waits for the one before
                value = jax.lax.psum(value, "all") * 0.5
                value = jax.lax.pcast(value, "all", to="varying")
            return value

        return jax.jit(jax.shard_map(each, mesh=mesh, in_specs=cut, out_specs=cut))

    calls = {count: reducing(count) for count in CHAINS}
    for size in sizes:
        value = jax.device_put(jnp.ones([devices, size // 4]), jax.sharding.NamedSharding(mesh, cut))
        for turn in range(-2, rounds):
            for count, call in calls.items():
                begun = time.perf_counter()
                jax.block_until_ready(call(value))
                if turn >= 0:
                    seconds = time.perf_counter() - begun
                    recorder.write("transfer", path=f"all-reduce-{devices}", size_bytes=size, round=turn, hops=count, seconds=seconds)


def main() -> int:
    """Measure one model, or all-reduces."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--model")
    parser.add_argument("--batches", default="16,32")
    parser.add_argument("--sizes", default="")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={arguments.devices}"
    header = vars(arguments) | {"backend": "jax", "logical_devices": arguments.devices}

    def measure(recorder: Recorder) -> None:
        keras = training.keras_of("jax")
        on = OnAll("CPU")
        recorder.write("fingerprint", **on.fingerprint(), keras=keras.__version__)
        if not arguments.model:
            all_reduces(arguments.devices, [int(part) for part in arguments.sizes.split(",")], arguments.rounds, recorder)
            return
        watch = machine.Watch()
        keras.distribution.set_distribution(keras.distribution.DataParallel())
        Sharded.devices = arguments.devices
        made = Sharded(keras, training.load_function(arguments.model)(), False)
        timing = Timing(arguments, recorder, on)
        steps = {batch: on.step_of(made, batch) for batch in timing.batches}
        recorder.write("load", stage="before", gpu_percent=None, why="", **watch.end())
        for batch, step in steps.items():
            timing.warm_up(batch, step)
        timing.time_plain(steps, len(steps) * arguments.steps)

    return recording.run("step" if arguments.model else "links", arguments, measure, arguments.model or "", header)
