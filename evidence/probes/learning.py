"""Trains a model really, with parameter servers, in a testbed of its own: which replays of predicted schedules are compared with."""

from __future__ import annotations

from _paceline_probes.testbed import run, servers
from _paceline_probes.testbed.hub import Task
from _paceline_probes.testbed.supervisor import Supervisor


class Learning(Supervisor):
    """One repeat: workers with a session each, whose gradients are real and are applied."""

    def train(self, task: Task) -> None:
        """Work of a task when the network is ready."""
        if task.job == "ps":
            servers.serve(self.tf, task)
            return
        from . import learning_worker  # NumPy, not sooner

        learning_worker.train(self.tf, task)


def main() -> int:
    """Measure one setting."""
    return run.main(Learning)
