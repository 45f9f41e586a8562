"""What people write into files, as validated specifications: parts of a scenario, devices, prices; and the figures of a result.

The fields of a class are the keys of its TOML table; their descriptions become the reference, the JSON Schema and completion. After
a change of a key run ``python docs/completion_keys.py`` (tests/cli/test_completing.py compares ``paceline/cli/keys.json``).
Scenarios are hashed with their keys, so a new key is left out where it has its default (:class:`~simulator.base.spec.Terse`): hashes then
stay what they were. Rules between tables are in :mod:`simulator.scenario`; what a scenario leaves open is decided in ``simulator.resolve``.
"""
