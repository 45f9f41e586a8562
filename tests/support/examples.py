"""How many random examples a property is tried on."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

__all__ = ["examples"]

settings.register_profile("thorough", max_examples=1000)


def examples(count: int) -> settings:
    """So many examples, the same in every run; ten times as many with ``pytest --hypothesis-profile=thorough``."""
    share = settings.default.max_examples / 100 if settings.default is not None else 1.0
    return settings(max_examples=round(count * share), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
