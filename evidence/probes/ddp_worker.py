"""One process of a DDP training: a Keras model on PyTorch, wrapped by DistributedDataParallel, whose gradients gloo reduces."""

from __future__ import annotations

import datetime
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as distributed
from _paceline_probes import training
from _paceline_probes.testbed import links
from _paceline_probes.testbed.hub import Task

STORE_PORT = 2301
WARM_UP = 6
"""DDP rebuilds its buckets after the first step, in the order in which gradients became ready."""


def train(task: Task) -> None:
    """Warm up, line up, and make the steps; the first process reports them."""
    setting = task.setting
    torch.set_num_threads(setting["threads"])
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    store = distributed.TCPStore(
        links.address(0), STORE_PORT, setting["workers"], is_master=task.index == 0, timeout=datetime.timedelta(seconds=60)
    )
    distributed.init_process_group("gloo", store=store, rank=task.index, world_size=setting["workers"])
    step = _step(setting)
    for _ in range(WARM_UP):
        step()
    task.line_up()
    times = [time.time()]
    for _ in range(setting["steps"]):
        step()
        times.append(time.time())
    task.end()
    if task.index == 0:
        since = [at - task.began_s for at in times]
        for number, ended in enumerate(since[1:]):
            begun = since[number]
            task.line.say(
                "update", worker=0, start_s=begun, pulled_s=begun, computed_s=begun, applied_s=ended, read_version=number,
                version=number + 1,
            )  # fmt: skip
    task.line.say("reported")
    task.line.wait("finish")
    sys.stdout.flush()
    os._exit(0)  # gloo's threads wait for peers that end as well


def _step(setting: dict[str, Any]) -> Any:
    """A function that makes one step, as calibrate/probes/on_torch.py does it, with the model wrapped."""
    keras = training.keras_of("torch")
    made = training.KerasModel(keras, training.load_function(setting["model"])(), False)
    x, y = made.built_for(setting["batch"])
    options = {} if setting["bucket_cap_mb"] is None else {"bucket_cap_mb": setting["bucket_cap_mb"]}
    wrapped = torch.nn.parallel.DistributedDataParallel(made.model, gradient_as_bucket_view=True, **options)

    def step() -> None:
        outputs = wrapped(x, training=True)
        made.model.zero_grad()
        loss = made.loss_of(y, outputs, made.model.losses)
        loss.backward()
        trained = made.model.trainable_weights
        gradients = [each.value.grad for each in trained]
        with torch.no_grad():
            made.optimizer.apply(gradients, trained)

    return step
