"""Puts the time of compressing gradients into a workload: into the backward pass and the update.

It is done for each replication, so that engines know nothing of it. How long it takes says the strategy (``encoding_s``).
"""

from __future__ import annotations

import math

from simulator.scenario import Resolved
from simulator.spec.training import Passes


def as_encoded(scenario: Resolved) -> Resolved:
    """The same training with what compression costs a device in the times of its passes.

    Each gradient is compressed on the device as soon as it is ready, so that the backward
    pass takes that much longer, and later ones are ready later; making gradients again
    comes before the update. A scenario in which compression costs nothing is returned as it is.
    """
    before_s, after_s = scenario.strategy.encoding_s(scenario)
    if not before_s and not after_s:
        return scenario
    load = scenario.workload
    passes = load.passes or Passes()
    backward_s = load.backward_s(scenario.batch)
    dense = [0.0 if variable.sparse_bytes_per_sample is not None else float(variable.size_bytes) for variable in load.variables]
    whole, done, variables = math.fsum(dense) or 1.0, 0.0, []
    for variable, its in zip(load.variables, dense, strict=True):
        done += its
        ready_s, pass_s = variable.ready * backward_s + done / whole * before_s, backward_s + before_s
        variables.append(variable.model_copy(update={"ready": min(ready_s / pass_s, 1.0) if pass_s else variable.ready}))
    changes = {
        "passes": passes.model_copy(update={"encoding_s": passes.encoding_s + before_s}),
        "apply_s": load.apply_s + after_s,
        "variables": tuple(variables),
    }
    return scenario.model_copy(update={"workload": load.model_copy(update=changes), "strategy": scenario.strategy.encoded()})
