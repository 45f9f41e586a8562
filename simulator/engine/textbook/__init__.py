"""The training as a SimPy person would write it: processes that yield events. Slow, plain, and an independent witness.

Read ``worker`` first, then ``servers`` and ``collectives`` (what a worker meets), ``messages`` and ``links`` (what carries its
messages), ``engine`` (what puts a program together). docs/development.md walks through it.
"""
