"""How many seeded faults `make test` catches: ``python benchmarks/faults.py``.

Each fault of ``faults.toml`` is made in a copy of the last commit. The test files that it names as near run first. Whatever these
miss is made all at once, and the whole suite runs; each test that fails there then runs with each of those faults alone, which says
whose it is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAULTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["fault"]
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.+?)?)(?: - |$)", re.MULTILINE)


@contextmanager
def made(copy: Path, fault: dict[str, str]) -> Iterable[None]:
    """The copy has the fault."""
    path = copy / fault["file"]
    text = path.read_text()
    assert text.count(fault["before"]) == 1, f"{fault['file']} has {fault['before']!r} {text.count(fault['before'])} times"
    path.write_text(text.replace(fault["before"], fault["after"]))
    try:
        yield
    finally:
        path.write_text(text)


def failing(copy: Path, tests: Sequence[str], *options: str) -> list[str]:
    """The tests that fail in the copy."""
    words = [sys.executable, "-B", "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider", "--tb=no", *options, *tests]
    done = subprocess.run(words, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2), done.stdout + done.stderr
    return _FAILED.findall(done.stdout) or (["collection"] if done.returncode else [])


def main() -> None:
    """Print a line for each fault, and the count."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(copy)], check=True)
        missed = []
        for number, fault in enumerate(FAULTS, 1):
            near = [f"tests/{name}" for name in fault["near"] if (copy / "tests" / name).exists()]
            with made(copy, fault):
                found = failing(copy, near, "-x")
            print(f"{number} {fault['file']}: {found[0] if found else 'not by near tests'}", flush=True)
            missed += [] if found else [fault]
        with ExitStack() as stack:
            for fault in missed:
                stack.enter_context(made(copy, fault))
            suspects = failing(copy, [], "-n", "3", "--dist", "worksteal") if missed else []
        unsound = failing(copy, suspects) if suspects else []
        suspects = [name for name in suspects if name not in unsound]
        for fault in list(missed):
            with made(copy, fault):
                found = failing(copy, suspects, "-x") if suspects else []
            print(f"{fault['file']}, {fault['before']!r}: {found[0] if found else 'MISSED'}", flush=True)
            missed = [each for each in missed if each is not fault] if found else missed
    print(f"{len(FAULTS) - len(missed)} of {len(FAULTS)} faults are caught")


if __name__ == "__main__":
    main()
