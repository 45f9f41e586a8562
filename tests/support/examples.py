"""How many random examples a property is tried on."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

ALL = "all"


def examples(count: int, few: int | None = None) -> settings:
    """So many examples, drawn anew in each run, with ``pytest --hypothesis-profile=all``; else a ``few``, a quarter, always the same."""
    everything = settings.get_current_profile_name() == ALL
    return settings(
        max_examples=count if everything else few or -(-count // 4),
        derandomize=not everything,
        print_blob=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
