"""Scripts that use modules of the probes, as ``from _paceline_probes import counting``, run as a probe is."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from calibrate.probing import PROBES


def probe_module(name: str) -> ModuleType:
    """A module of the probes that needs no TensorFlow, in this process."""
    if "_paceline_probes" not in sys.modules:
        sys.modules["_paceline_probes"] = package = ModuleType("_paceline_probes")
        package.__path__ = [str(PROBES)]
    return import_module(f"_paceline_probes.{name}")


def run_script(text: str, *arguments: str, python: tuple[str, ...] = (), **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a script with these arguments in a Python, this one or that of ``warm_probes``; options are those of :func:`subprocess.run`."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(text + "\n\ndef main() -> int:\n    return 0\n", encoding="utf-8")
        return subprocess.run(
            [*(python or (sys.executable,)), "-B", str(PROBES), str(script), *arguments], capture_output=True, text=True, **options
        )
