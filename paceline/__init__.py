"""Paceline: what happens to TensorFlow training on more workers, and how sure is that.

>>> import paceline
>>> scenario = paceline.load("ring", {"strategy.workers": 4, "run.steps": 10, "run.replications": 3})
>>> result = paceline.simulate(scenario)
>>> result.replicas, result.bottleneck.name
(4, 'compute')

Everything is imported when first used, so that ``import paceline`` costs nothing.
"""

from __future__ import annotations

from paceline.version import __version__ as __version__

TYPE_CHECKING = False  # typing takes longer to import than all else here
if TYPE_CHECKING:
    from typing import Any

    from calibrate.validation.against_points import Refitted
    from calibrate.validation.matrix import Matrix
    from calibrate.validation.validation import Validation
    from paceline.api import (
        advise,
        calibrate,
        calibrate_input,
        calibrate_link,
        calibrate_profile,
        calibrate_server,
        calibrate_traced_links,
        compare,
        learn,
        load,
        memory,
        models,
        new_scenario,
        observe,
        plan,
        plan_to_target,
        preview,
        read_matrix,
        read_profiles,
        read_tf_config,
        refit,
        report,
        scenario_of_tf_config,
        schema,
        serve,
        serve_link,
        simulate,
        sweep,
        testbed,
        testbed_fit,
        testbed_predict,
        testbed_read,
        unmet,
        validate,
        validate_matrix,
        watch,
        why,
    )
    from paceline.catalogue import Catalogue
    from paceline.comparing import Comparison
    from paceline.diagnosing import Diagnosis
    from paceline.learning.learned import Learned
    from paceline.learning.planning import TargetPlan
    from paceline.lengthy import Lengthy
    from paceline.observing import Observation
    from paceline.planning.advice import Advice
    from paceline.planning.answer import Plan
    from paceline.reporting.report import Report, StoppedReport
    from paceline.sweeping import Sweep, read_results
    from paceline.watching import Watched
    from simulator import Result, Scenario
    from simulator.memory import Memory
    from simulator.spec.workload import Workload

__all__ = [
    "Advice", "Catalogue", "Comparison", "Diagnosis", "Learned", "Lengthy", "Matrix", "Memory", "Observation", "Plan", "Refitted", "Report",
    "Result", "Scenario", "StoppedReport", "Sweep", "TargetPlan", "Validation", "Watched", "Workload", "advise", "calibrate",
    "calibrate_input", "calibrate_link", "calibrate_profile", "calibrate_server", "calibrate_traced_links", "compare", "learn", "load",
    "memory", "models", "new_scenario", "observe", "plan", "plan_to_target", "preview", "read_matrix", "read_profiles", "read_results",
    "read_tf_config", "refit", "report", "scenario_of_tf_config", "schema", "serve", "serve_link", "simulate", "sweep", "testbed",
    "testbed_fit", "testbed_predict", "testbed_read", "unmet", "validate", "validate_matrix", "watch", "why",
]  # fmt: skip

_HOME = {
    "Advice": "paceline.planning.advice",
    "Catalogue": "paceline.catalogue",
    "Comparison": "paceline.comparing",
    "Diagnosis": "paceline.diagnosing",
    "Learned": "paceline.learning.learned",
    "Lengthy": "paceline.lengthy",
    "Matrix": "calibrate.validation.matrix",
    "Memory": "simulator.memory",
    "Observation": "paceline.observing",
    "Plan": "paceline.planning.answer",
    "Refitted": "calibrate.validation.against_points",
    "Report": "paceline.reporting.report",
    "Result": "simulator",
    "Scenario": "simulator",
    "StoppedReport": "paceline.reporting.report",
    "Sweep": "paceline.sweeping",
    "TargetPlan": "paceline.learning.planning",
    "Validation": "calibrate.validation.validation",
    "Watched": "paceline.watching",
    "Workload": "simulator.spec.workload",
    "read_results": "paceline.sweeping",
}
"""Modules of public names that are not functions of :mod:`paceline.api`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    from importlib import import_module  # signals are not heard yet while `import paceline` goes on

    return getattr(import_module(_HOME.get(name, "paceline.api")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
