"""The step program: what happens in a step, as data that every engine runs."""

from simulator.program.program import Hosts, Operation, Paths, Ports, Program, Ranks, Routine, Rules

__all__ = ["Hosts", "Operation", "Paths", "Ports", "Program", "Ranks", "Routine", "Rules"]
