"""Paceline: what happens to TensorFlow training on more workers, and how sure is that.

>>> import paceline
>>> scenario = paceline.load("ring", {"strategy.workers": 4, "run.steps": 10, "run.replications": 3})
>>> result = paceline.simulate(scenario)
>>> result.replicas, result.bottleneck.name
(4, 'compute')

Everything is imported when first used, so that ``import paceline`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibrate.validation.against_points import Refitted
    from calibrate.validation.matrix import Matrix
    from calibrate.validation.validation import Validation
    from paceline.api import (
        calibrate,
        calibrate_link,
        calibrate_profile,
        compare,
        load,
        plan,
        read_matrix,
        read_profiles,
        read_tf_config,
        refit,
        report,
        scenario_of_tf_config,
        serve_link,
        simulate,
        sweep,
        testbed,
        testbed_fit,
        testbed_predict,
        testbed_read,
        validate,
        validate_matrix,
        validate_published,
    )
    from paceline.comparing import Comparison
    from paceline.planning.answer import Plan
    from paceline.reporting.report import Report
    from paceline.sweeping import Sweep, read_results
    from simulator import Result, Scenario
    from simulator.workload import Workload

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Matrix",
    "Plan",
    "Refitted",
    "Report",
    "Result",
    "Scenario",
    "Sweep",
    "Validation",
    "Workload",
    "calibrate",
    "calibrate_link",
    "calibrate_profile",
    "compare",
    "load",
    "models",
    "observe",
    "plan",
    "preview",
    "read_matrix",
    "read_profiles",
    "read_results",
    "read_tf_config",
    "refit",
    "report",
    "scenario_of_tf_config",
    "schema",
    "serve_link",
    "simulate",
    "sweep",
    "testbed",
    "testbed_fit",
    "testbed_predict",
    "testbed_read",
    "validate",
    "validate_matrix",
    "validate_published",
]  # fmt: skip

_HOME = {
    **dict.fromkeys(
        (
            "calibrate",
            "calibrate_link",
            "calibrate_profile",
            "compare",
            "load",
            "plan",
            "read_matrix",
            "read_profiles",
            "read_tf_config",
            "refit",
            "report",
            "scenario_of_tf_config",
            "serve_link",
            "simulate",
            "sweep",
            "testbed",
            "testbed_fit",
            "testbed_predict",
            "testbed_read",
            "validate",
            "validate_matrix",
            "validate_published",
        ),
        "paceline.api",
    ),
    **dict.fromkeys(("Result", "Scenario"), "simulator"),
    "Comparison": "paceline.comparing",
    "Matrix": "calibrate.validation.matrix",
    "Plan": "paceline.planning.answer",
    "Refitted": "calibrate.validation.against_points",
    "Report": "paceline.reporting.report",
    "Sweep": "paceline.sweeping",
    "Validation": "calibrate.validation.validation",
    "Workload": "simulator.workload",
    "read_results": "paceline.sweeping",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
