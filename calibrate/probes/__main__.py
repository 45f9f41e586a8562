"""Starts a probe, in a child process of the user's own Python, which need not have Paceline.

``calibrate.probing`` calls it: ``python FOLDER PROBE ARGUMENTS``.

PROBE is the name of one in this folder (``step``, ``testbed.run``), or the path of one elsewhere; its ``main`` returns the exit status.
Modules of this folder are imported as ``_paceline_probes.NAME``, by probes elsewhere and by tests too, and modules next to a probe
elsewhere as ``_paceline_probes_elsewhere.NAME``, so that a user's own module can have the name of a probe. Standard library only, Python
3.9 or newer.
"""

from __future__ import annotations

import importlib
import os
import sys
import types

PACKAGE, ELSEWHERE = "_paceline_probes", "_paceline_probes_elsewhere"
HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    """Run it, and end as it does."""
    # a file of this folder must not hide a module of the user's
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    probe = sys.argv.pop(1)
    name = _package(PACKAGE, HERE) + "." + probe
    if probe.endswith(".py"):
        folder, file = os.path.split(os.path.abspath(probe))
        name = _package(ELSEWHERE, folder) + "." + file[: -len(".py")]
    sys.argv[0] = name.rpartition(".")[2] + ".py"  # for messages
    sys.exit(importlib.import_module(name).main())


def _package(name: str, folder: str) -> str:
    """Make the modules of a folder importable as those of a package; returns its name."""
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [folder]
    return name


if __name__ == "__main__":
    main()
