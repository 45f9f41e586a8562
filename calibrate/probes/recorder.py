"""Writes measurements line by line, so that a crash keeps what was measured, and tells the parent process of progress.

Kinds, fields and version must be those of calibrate/measurements.py; PROGRESS_PREFIX also stands in calibrate/probing.py, and checksums
are those of simulator/base/files.py (tests/calibrate/test_measurements.py reads back what is written here).
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import Any

SCHEMA_VERSION = 1
PROGRESS_PREFIX = "@probe "


class Recorder:
    """One JSON object a line, flushed at once; the file must not exist yet."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "x", encoding="utf-8")  # noqa: SIM115 - stays open as long as the probe lives

    def write(self, kind: str, **fields: Any) -> None:
        """Append one record; a number that is not finite is the reader's to complain about."""
        self._file.write(_with_checksum(json.dumps({"kind": kind, **fields})) + "\n")
        self._file.flush()

    def header(self, probe: str, arguments: dict[str, Any]) -> None:
        """The first record: what was asked for, and when."""
        self.write("header", schema_version=SCHEMA_VERSION, probe=probe, started=time.strftime("%Y-%m-%dT%H:%M:%S%z"), arguments=arguments)


def _with_checksum(text: str) -> str:
    """As simulator.base.files has it, which the user's Python need not have."""
    before = text[:-1]
    return f'{before},"checksum":"{hashlib.sha256(before.encode()).hexdigest()[:16]}"}}'


def progress(done: int, total: int, what: str) -> None:
    """Tell the parent process how far the probe is."""
    try:
        sys.__stdout__.write(PROGRESS_PREFIX + json.dumps({"done": done, "total": total, "what": what}) + "\n")
        sys.__stdout__.flush()
    except (OSError, ValueError, AttributeError):  # nobody listens any more: the measurement goes on
        pass
