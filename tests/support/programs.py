"""Programs that tests write."""

from __future__ import annotations

import sys
from pathlib import Path


def program(path: Path, text: str) -> str:
    """Write a program of this Python, which a shell starts, since a path with spaces cannot stand behind ``#!``; returns its path."""
    path.write_text(f"#!/bin/sh\n'''exec' '{sys.executable}' \"$0\" \"$@\"\n' '''\n{text}")
    path.chmod(0o755)
    return str(path)
