"""Plans as files: what a plan answered, read again for a report."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from paceline.planning.answer import Plan
from simulator.errors import ResultsError

__all__ = ["read_plan"]

_VERSION = 1


def read_plan(path: Path) -> Plan:
    """Read the answer of a plan, as `paceline plan` writes it beside its results.

    Raises
    ------
    ResultsError
        The file is missing, not readable, no plan, or of a newer schema.
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
        raise ResultsError(f"{path}: must be JSON, as `paceline plan` writes it beside its results") from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > _VERSION:
        raise ResultsError(
            f"{path}: schema_version {version} is newer than {_VERSION}, the newest that this Paceline reads; "
            "update Paceline, or plan again with this one"
        )
    try:
        return Plan.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ResultsError(f"{path}: {where}: {' '.join(str(first['msg']).split())}, so this is no answer of `paceline plan`") from None
