"""What trains a Keras 3 model under TensorFlow's strategies, by real runs of two local workers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.strategies.catalogue import SHORT_NAMES, kind_of

pytestmark = [pytest.mark.long, pytest.mark.slow]

SCRIPT = """
import json, os, sys
import keras, numpy, tensorflow as tf
name, by_fit = sys.argv[1], sys.argv[2] == "fit"
task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
if name == "ps" and task["type"] != "chief":
    cluster = tf.train.ClusterSpec(json.loads(os.environ["TF_CONFIG"])["cluster"])
    tf.distribute.Server(cluster, job_name=task["type"], task_index=task["index"]).join()
if name == "mirrored":
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
elif name == "ring":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
x = numpy.random.default_rng(0).normal(size=(256, 8)).astype("float32")
y = x.sum(1, keepdims=True)
data = lambda: tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(32)
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, "mse")
def step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(batch[0], training=True) - batch[1])) / strategy.num_replicas_in_sync
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
@tf.function
def steps(batches):
    return strategy.reduce("SUM", strategy.run(step, args=(next(batches),)), axis=None)
if by_fit:
    losses = model.fit(data(), epochs=3, steps_per_epoch=8, verbose=0).history["loss"]
elif name == "ps":
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    batches = iter(coordinator.create_per_worker_dataset(data))
    scheduled = [coordinator.schedule(steps, args=(batches,)) for _ in range(24)]
    coordinator.join()
    losses = [float(loss.fetch()) for loss in scheduled]
else:
    batches = iter(strategy.experimental_distribute_dataset(data()))
    losses = [float(steps(batches)) for _ in range(24)]
print("LOSSES", json.dumps([losses[0], losses[-1]]))
"""


def trained(name: str, how: str, folder: Path) -> tuple[int, str]:
    """Exit status and output of the process that trains, with two workers where the strategy has workers."""
    (folder / "train.py").write_text(SCRIPT)
    tasks = {"mirrored": [], "ring": ["worker", "worker"], "ps": ["chief", "worker", "worker", "ps"]}[name]
    sockets = [socket.create_server(("localhost", 0)) for _ in tasks]
    cluster: dict[str, list[str]] = {}
    places = []
    for task, bound in zip(tasks, sockets, strict=True):
        cluster.setdefault(task, []).append(f"localhost:{bound.getsockname()[1]}")
        places.append({"type": task, "index": len(cluster[task]) - 1})
    for bound in sockets:
        bound.close()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow"}
    configs = [{"TF_CONFIG": json.dumps({"cluster": cluster, "task": place})} for place in places] or [{}]
    command = [sys.executable, str(folder / "train.py"), name, how]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    others = [subprocess.Popen(command, env={**environment, **config}, **quiet) for config in configs[1:]]  # type: ignore[call-overload]
    try:
        ended = subprocess.run(command, env={**environment, **configs[0]}, capture_output=True, text=True, timeout=300)
    finally:
        for child in others:
            child.kill()
            child.wait()
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", ["mirrored", "ring", "ps"])
@pytest.mark.parametrize("how", ["fit", "loop"])
def test_fit_of_keras_3_stays_on_one_machine_and_a_loop_does_not(name: str, how: str, tmp_path: Path) -> None:
    keys = SHORT_NAMES[{"ps": "async-ps"}.get(name, name)]
    software = kind_of(keys).model_validate(keys).software
    status, output = trained(name, how, tmp_path)
    if ("keras" if how == "fit" else "tensorflow") in software:
        first, last = json.loads(output.partition("LOSSES ")[2].splitlines()[0])
        assert status == 0
        assert last < first
    else:
        assert status != 0
        assert "PerReplica" in output or "create_per_worker_dataset" in output
