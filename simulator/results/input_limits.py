"""Which part of an input pipeline limits a training that waits for its input, and what would help, in words."""

from __future__ import annotations

from simulator.base.text import format_rate, format_seconds
from simulator.scenario import Scenario
from simulator.strategies.pipelines import Part, Pipelines, pipelines

__all__ = ["help_with_input"]


def help_with_input(scenario: Scenario, rest_s: float) -> str:
    """What would shorten the waiting for input, as the end of a sentence.

    Parameters
    ----------
    scenario
        What was simulated.
    rest_s
        Mean seconds of a step without that waiting.
    """
    its, found = scenario.input, pipelines(scenario)
    if its is None or found is None:
        return "prepare batches faster or in parallel"
    batch_s = float(found.fair_s.max())
    if batch_s < rest_s:
        ahead = "none is prepared ahead" if not its.prefetch else f"times vary, and at most {its.prefetch:,} are ready ahead"
        return (
            f"a pipeline needs {format_seconds(batch_s)} for a batch on average, less than the rest of a step, but {ahead}: "
            f"more prefetch (input.prefetch = {max(2 * its.prefetch, 1):,}) would hide it"
        )
    cache = "" if its.cached is not None else ", or a cache of what was prepared (input.cached)"
    return f"a pipeline needs {format_seconds(batch_s)} for a batch, since {_because(scenario, found, found.limit)}{cache} would help"


def _because(scenario: Scenario, found: Pipelines, limit: Part) -> str:
    cluster, storage = scenario.cluster, scenario.cluster.storage
    match limit:
        case "serial part":
            return "its serial part takes that long, which neither more calls nor more prefetch shortens: a cheaper iterator"
        case "parallel part":
            return f"its parallel part takes that long with {found.calls:,} calls at a time: more calls (input.parallel_calls)"
        case "host cores":
            return f"the {cluster.host_cores:,} cores of a node are too few: more cores (cluster.host_cores)"
        case "network":
            return "it is read over the links of nodes, which are too slow: faster links, smaller records"
        case _:
            assert storage is not None
            rate = storage.bandwidth_bytes_per_s if limit == "storage" else storage.node_bandwidth_bytes_per_s
            assert rate is not None
            what = "all pipelines together" if limit == "storage" else "a node"
            return f"storage gives {what} no more than {format_rate(rate)}: faster storage, smaller records"
