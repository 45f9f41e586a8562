"""Runs a probe in the user's own Python, which need not have Paceline: ``python FOLDER PROBE ARGUMENTS``.

PROBE is the name of one in this folder (``step``, ``testbed.run``), or the path of a script elsewhere. Both import what stands
here as modules of a package of a name that no user's module has, and ``main`` of a probe in this folder returns the exit status.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import types

PACKAGE = "_paceline_probes"
HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    """Run it, and end as it does."""
    # a file of this folder must not hide a module of the user's
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [HERE]
    sys.modules[PACKAGE] = package
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    probe = sys.argv.pop(1)
    if probe.endswith(".py"):
        sys.argv[0] = probe
        runpy.run_path(probe, run_name="__main__")
    else:
        sys.argv[0] = os.path.join(HERE, *probe.split(".")) + ".py"
        sys.exit(importlib.import_module(PACKAGE + "." + probe).main())


if __name__ == "__main__":
    main()
