"""Starts a real TensorFlow cluster on this machine, as one setting says, and measures it.

``--setting FILE.json`` says what (calibrate/testbed/setting.py has its keys); records go to
``--out``, one JSON object a line. This process imports TensorFlow once and forks its tasks,
each a host of its own: a worker, a parameter server, the coordinator. They die with it.
``--describe FILE.py:FUNCTION`` only writes the variables of a model.
"""

from __future__ import annotations

import json
import os
import platform
from typing import Any

from .. import machine, recording
from ..recording import Recorder, progress
from . import supervisor
from .hub import is_job

os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def _measure(setting: dict[str, Any], recorder: Any, starter: int, kind: Any) -> None:
    """All repeats of a setting, each with a cluster of its own, which one of ``kind`` supervises."""
    from . import links

    congestion = None
    # before TensorFlow starts its threads: they would stay outside
    if setting["link"] is not None:
        links.check_tools()
        congestion = links.Congestion(setting["link"]["congestion"])
        links.new_namespace()
    else:
        links.isolate()
    supervisor.die_with(starter)  # a new namespace may have cleared it
    tf = recording.framework("tensorflow")
    # replicas of MirroredStrategy share a GPU where there is one; TensorFlow itself is not asked before the tasks are forked
    gpus = machine.gpus_of_machine() if setting["mode"] == "mirrored" else []
    kind_of_device = "GPU" if gpus else "CPU"
    recorder.write(
        "fingerprint", tensorflow=tf.__version__, python=platform.python_version(), device=f"/{kind_of_device}:0",
        device_kind=kind_of_device, device_name=gpus[0] if gpus else machine.cpu_model(), cores=len(machine.cores_of_process()),
        os=platform.platform(), load=os.getloadavg()[0],
    )  # fmt: skip
    if setting["compute"]["kind"] == "emulated":
        recorder.write("note", compute="emulated", why="the setting requires it")
    for repeat in range(setting["repeats"]):
        of_testbed = supervisor.Enduring if is_job(setting) else supervisor.Supervisor
        (kind or of_testbed)(tf, setting, recorder, congestion, repeat).run()
        progress(repeat + 1, setting["repeats"], setting["mode"])


def main(kind: Any = None) -> int:
    """Measure one setting, or describe one model; the exit status tells the parent who is at fault. ``kind`` is another Supervisor."""
    arguments = recording.asked(__doc__, setting=None, describe=None, batch=32, parent=0)
    recording.heed_sigterm()
    parent = arguments.parent or os.getppid()  # which this process must not outlive
    supervisor.die_with(parent)

    if arguments.describe:
        asked = {"describe": arguments.describe, "batch": arguments.batch}
    else:
        with open(arguments.setting, encoding="utf-8") as file:
            asked = json.load(file)

    def measure(recorder: Recorder) -> None:
        if arguments.describe:
            from . import real

            real.describe(recording.framework("tensorflow"), recorder, arguments.describe, arguments.batch)
        else:
            _measure(asked, recorder, parent, kind)

    return recording.run("testbed", arguments, measure, header=asked)
