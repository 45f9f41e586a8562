"""Plain steps of a Keras model under MirroredStrategy, on logical devices of one; runs in the user's Python.

``python -B calibrate/probes evidence/probes/mirrored.py --model FILE.py:FUNCTION --replicas 4 --out FILE.ndjson``. Batches are those of a
replica. evidence/studies/virtual_devices.py compares the output with steps on one device.
"""

from __future__ import annotations

from typing import Any, Callable

from _paceline_probes import machine, recording, training
from _paceline_probes.on_tensorflow import TensorFlow
from _paceline_probes.recording import Recorder
from _paceline_probes.step import Timing
from _paceline_probes.training import ModelSteps, Step


def split_device(tf: Any, count: int) -> None:
    """Make logical devices of the first GPU, each with an equal part of its memory, or of the CPU; before TensorFlow starts."""
    gpus = tf.config.list_physical_devices("GPU")
    logical = tf.config.LogicalDeviceConfiguration
    if not gpus:
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [logical()] * count)
        return
    tf.config.set_visible_devices(gpus[:1], "GPU")
    # less what TensorFlow leaves to CUDA and its libraries
    free_mb = max(int(float(machine.asked_of_gpus("-i", "0", "--query-gpu=memory.free")[0])) - 1800, 256)
    tf.config.set_logical_device_configuration(gpus[0], [logical(memory_limit=free_mb // count) for _ in range(count)])


def mirrored_steps(tf: Any, builder: Callable[[], Any], mixed: bool, kind: str, count: int, batches: list[int]) -> dict[int, Step]:
    """A callable for each batch of a replica: one step of all replicas, each on a batch that lies on its device."""
    strategy = tf.distribute.MirroredStrategy([f"/{kind}:{index}" for index in range(count)])
    with strategy.scope():
        made = ModelSteps(tf, builder(), mixed)
        made.built_for(batches[0])

    def replica(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = made.model(x, training=True)
            # of all replicas together the mean, as Keras divides it
            loss = made.loss_of(y, outputs, made.model.losses) / count
            target = made.optimizer.scale_loss(loss) if mixed else loss
        gradients = tape.gradient(target, made.model.trainable_variables)
        made.optimizer.apply_gradients(zip(gradients, made.model.trainable_variables))
        return loss

    steps = {}
    for batch in batches:
        on_devices = strategy.experimental_distribute_values_from_function(lambda _, batch=batch: tuple(made.batch_of(batch)))
        run = tf.function(lambda pair: strategy.experimental_local_results(strategy.run(replica, args=pair)))
        steps[batch] = lambda run=run, pair=on_devices: run(pair)
    return steps


def main() -> int:
    """Measure one model with some replicas."""
    arguments = recording.asked(
        __doc__, model=None, replicas=2, batches="16,32,64", steps=50, rounds=10, repeats=5, device=None, precision="float32"
    )
    watch = machine.Watch()

    def measure(recorder: Recorder) -> None:
        split_device(recording.framework("tensorflow"), arguments.replicas)
        on = TensorFlow(arguments)
        recorder.write("fingerprint", **on.fingerprint())
        recorder.write("load", **machine.before_steps(on.kind, on.index, watch))
        training.keras_of("tensorflow").mixed_precision.set_global_policy(arguments.precision)
        timing, mixed = Timing(arguments, recorder, on), arguments.precision == "mixed_float16"
        builder = training.load_function(arguments.model)
        steps = mirrored_steps(on.tf, builder, mixed, on.kind, arguments.replicas, timing.batches)
        for batch, step in steps.items():
            timing.warm_up(batch, step)
        timing.time_plain(steps, len(steps) * arguments.steps)

    return recording.run("step", arguments, measure, arguments.model)
