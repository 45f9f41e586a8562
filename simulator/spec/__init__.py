"""Validated specifications of the files that people write (scenarios, devices, prices), and the figures of a result.

The fields of a class are the keys of its TOML table; their descriptions become the reference, the JSON Schema and completion. After
a change of a key run ``python docs/completion_keys.py`` (tests/cli/test_completing.py compares ``paceline/cli/keys.json``).
Scenarios are hashed with their keys, so a new key is left out if it has its default (:class:`~simulator.base.spec.Terse`): hashes then
stay what they were. Rules between tables are in :mod:`simulator.scenario`; ``simulator.resolve`` fills in what a scenario leaves open.
"""
