"""The plan of a report: read from its file, and which of its results are drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from paceline.planning.answer import Plan
from simulator.base.checksums import CHANGED, checksum_holds
from simulator.base.errors import ResultsError
from simulator.base.file_kinds import is_json_of, mistaken
from simulator.base.outputs import OutputKind
from simulator.base.validation_errors import rule_of
from simulator.results.results import Result

__all__ = ["PLAN", "plan_file_of", "read_plan", "without_what_ifs"]

PLAN = OutputKind("is no answer of a plan", lambda path: is_json_of(path, "plan"))
"""Files that a later plan may replace."""
_VERSION = 1


def plan_file_of(results: Path) -> Path:
    """Where the answer of a plan lies whose results are in a file."""
    return results.with_suffix(".plan.json")


def read_plan(path: Path) -> Plan:
    """Read the answer of a plan, as `paceline plan` writes it beside its results.

    Raises
    ------
    ResultsError
        The file is missing, not readable, no plan, of a newer schema, or not as it was written.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ResultsError(
            f"{path}: there is no such file; check the path; `paceline plan --out FILE.ndjson` writes FILE.plan.json"
        ) from None
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from None
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        raise ResultsError(f"{path}: {mistaken(path, 'plan') or 'must be JSON, as `paceline plan` writes it beside its results'}") from None
    if not isinstance(data, dict):
        raise ResultsError(f"{path}: must hold an object in braces, as `paceline plan` writes it beside its results")
    if checksum_holds(content) is False:
        raise ResultsError(f"{path}: {CHANGED}; plan again, which goes on with the results that are there")
    version = data.get("schema_version")
    if isinstance(version, int) and version > _VERSION:
        raise ResultsError(
            f"{path}: schema_version {version} is newer than {_VERSION}, the newest that this Paceline reads; "
            "update Paceline, or plan again with this one"
        )
    try:
        return Plan.model_validate_json(content)
    except ValidationError as error:
        if said := mistaken(path, "plan"):
            raise ResultsError(f"{path}: {said}") from None
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ResultsError(f"{path}: {where} {rule_of(first)}: this is no answer of `paceline plan`") from None


def without_what_ifs(results: Sequence[Result], labels: Sequence[str] | None, plan: Plan) -> tuple[list[Result], list[str] | None]:
    """Of a plan's results those on machines that can be had: what it simulated for its improvements stands in their table.

    Parameters
    ----------
    results, labels
        As :func:`paceline.reporting.write_report` takes them.
    plan
        What was answered.

    Returns
    -------
    results, labels
        Those with the workload and the cluster of a candidate, whatever their numbers of workers, servers and nodes.
    """

    def had(result: Result) -> str:
        scenario = result.scenario
        return (
            scenario.workload.model_dump_json() + scenario.cluster.model_copy(update={"nodes": None, "available": None}).model_dump_json()
        )

    real = {had(its.result) for its in (plan.chosen, *plan.runners_up, *plan.candidates)}
    kept = [index for index, result in enumerate(results) if had(result) in real]
    if not kept:
        return list(results), list(labels) if labels is not None else None
    return [results[index] for index in kept], [labels[index] for index in kept] if labels is not None else None
