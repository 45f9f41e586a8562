"""Training steps of a Keras model under MirroredStrategy, on logical devices of one physical device.

This is ``--replicas`` of step.py; MirroredStrategy in a testbed is in testbed/ring.py.
"""

from __future__ import annotations

import subprocess
from typing import Any, Callable

from . import training


def split(tf: Any, count: int) -> None:
    """Make logical devices of the first GPU, each with an equal part of its memory, or of the CPU; before TensorFlow starts."""
    gpus = tf.config.list_physical_devices("GPU")
    logical = tf.config.LogicalDeviceConfiguration
    if not gpus:
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [logical()] * count)
        return
    tf.config.set_visible_devices(gpus[:1], "GPU")
    limit_mb = _memory_mb() // count
    tf.config.set_logical_device_configuration(gpus[0], [logical(memory_limit=limit_mb) for _ in range(count)])


def _memory_mb() -> int:
    """Free memory of the first GPU, in MB, less what TensorFlow leaves to CUDA and its libraries."""
    query = ["nvidia-smi", "-i", "0", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    return max(int(float(answer.stdout)) - 1800, 256)


def steps(
    tf: Any,
    builder: Callable[[], Any],
    mixed: bool,
    kind: str,
    count: int,
    batches: list[int],
) -> dict[int, Callable[[], Any]]:
    """A callable for each batch of a replica: one step of all replicas, each on a batch that lies on its device."""
    strategy = tf.distribute.MirroredStrategy([f"/{kind}:{index}" for index in range(count)])
    with strategy.scope():
        made = training.ModelSteps(tf, builder(), mixed)
        made.batch_of(batches[0])
        made.optimizer.build(made.model.trainable_variables)

    def replica(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = made.model(x, training=True)
            # of all replicas together the mean, as Keras divides it
            loss = made.loss_of(y, outputs, made.model.losses) / count
            target = made.optimizer.scale_loss(loss) if mixed else loss
        gradients = tape.gradient(target, made.model.trainable_variables)
        made.optimizer.apply_gradients(zip(gradients, made.model.trainable_variables))
        return loss

    found = {}
    for batch in batches:
        on_devices = strategy.experimental_distribute_values_from_function(lambda _, batch=batch: tuple(made.batch_of(batch)))
        run = tf.function(lambda given: strategy.experimental_local_results(strategy.run(replica, args=given)))
        found[batch] = lambda run=run, given=on_devices: run(given)
    return found
