"""Trains by PyTorch's DistributedDataParallel over gloo on hosts with shaped links, or measures such a link as a user would.

``--setting FILE.json``: the keys that the testbed's supervisor reads, and ``task``: ``train`` (``model``, ``batch``, ``steps``,
``threads``, ``bucket_cap_mb`` or null) or ``link`` (``sizes``, ``rounds``), whose own measurement file is ``link_out``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from typing import Any

from _paceline_probes import machine, recording
from _paceline_probes.recording import Recorder, progress
from _paceline_probes.testbed import links, supervisor
from _paceline_probes.testbed.hub import Task
from _paceline_probes.testbed.supervisor import Child, Supervisor

PORT = 2300


class Hosts(Supervisor):
    """One repeat: a process for each host, the first of which reports steps."""

    def roles(self) -> list[tuple[str, int]]:
        """Job and index of each task."""
        return [("worker", index) for index in range(self.setting["workers"])]

    def drivers(self) -> list[Child]:
        """The task that reports steps."""
        return self.children[:1]

    def train(self, task: Task) -> None:
        """Work of a task when the network is ready."""
        if self.setting["task"] == "link":
            measure_link(task)
            return
        os.environ["OMP_NUM_THREADS"] = str(self.setting["threads"])  # as torchrun sets it, before PyTorch starts its threads
        from . import ddp_worker

        ddp_worker.train(task)


def measure_link(task: Task) -> None:
    """The probe of ``paceline calibrate-link --carrier gloo``: host 1 measures with host 0, which serves."""
    setting = task.setting
    address = f"{links.address(0)}:{PORT}"
    probes = os.path.dirname(os.path.abspath(machine.__file__))
    command = [sys.executable, "-B", probes, "links", "--carrier", "gloo"]
    if task.index == 0:
        child = subprocess.Popen([*command, "serve", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        while not child.stdout.readline().startswith("@serving"):
            if child.poll() is not None:
                raise RuntimeError("the serving half of the link's measurement ended")
    task.line_up()
    if task.index == 1:
        sizes = ["--sizes", ",".join(map(str, setting["sizes"])), "--rounds", str(setting["rounds"])]
        subprocess.run([*command, "links", *sizes, "--peer", address, "--out", setting["link_out"]], check=True)
        task.line.say("note", measured=True)
        with open(setting["link_out"] + ".done", "w", encoding="ascii"):
            pass
    while not os.path.exists(setting["link_out"] + ".done"):
        time.sleep(0.05)
    task.end()
    task.line.say("reported")
    task.line.wait("finish")
    if task.index == 0:
        child.kill()
        child.wait()


def main() -> int:
    """Measure one setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", required=True)
    parser.add_argument("--parent", type=int, required=True, help="process that this one must not outlive")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    recording.heed_sigterm()
    supervisor.die_with(arguments.parent)
    with open(arguments.setting, encoding="utf-8") as file:
        setting: dict[str, Any] = json.load(file)

    def measure(recorder: Recorder) -> None:
        links.check_tools()
        congestion = links.Congestion(setting["link"]["congestion"])
        links.new_namespace()
        supervisor.die_with(arguments.parent)  # a new namespace may have cleared it
        recorder.write(
            "fingerprint",
            backend="torch",
            torch=setting["torch"],
            python=platform.python_version(),
            device="/CPU:0",
            device_kind="CPU",
            device_name=machine.cpu_model(),
            cores=len(machine.cores_of_process()),
            os=platform.platform(),
        )
        for repeat in range(setting["repeats"]):
            Hosts(None, setting, recorder, congestion, repeat).run()
            progress(repeat + 1, setting["repeats"], setting["task"])

    return recording.run("testbed", arguments, measure, header={"setting": setting})
