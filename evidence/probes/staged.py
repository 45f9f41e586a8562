"""Trains a model whose layers are on two devices, in a testbed of its own: as the testbed does, but in stages."""

from __future__ import annotations

from _paceline_probes.testbed import run
from _paceline_probes.testbed.hub import Task
from _paceline_probes.testbed.supervisor import Child, Supervisor


class Staged(Supervisor):
    """One repeat: a process for each stage, or one for all; the first makes the steps."""

    def roles(self) -> list[tuple[str, int]]:
        """Job and index of each task."""
        return [("worker", index) for index in range(1 if self.setting["one_process"] else self.setting["workers"])]

    def drivers(self) -> list[Child]:
        """The task that reports steps."""
        return self.children[:1]

    def train(self, task: Task) -> None:
        """Work of a task when the network is ready."""
        from . import staged_model  # NumPy, not sooner

        staged_model.train(self.tf, task)


def main() -> int:
    """Measure one setting."""
    return run.main(Staged)
