"""Finds the files of named workloads, clusters, input pipelines, faults (``use = "ethernet-25g"`` in a scenario), devices and scenarios.

A name that is a path is that file. Any other is looked up in ``./models``, then in the user's data directory, then among those that
Paceline brings along. Files that can name code to run (matrices of testbed settings, models to profile) are looked up only among the last:
code of a working folder runs only if its path is given. The files are read elsewhere, mostly in ``simulator.catalogue.loading``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import Literal

from simulator.base.errors import ScenarioError

Kind = Literal["workloads", "clusters", "devices", "inputs", "faults", "scenarios", "matrices"]
_FEW = 12
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


def _brought_along() -> tuple[Path, ...]:
    package = Path(__file__).parents[1]  # a wheel has the models inside, a checkout beside
    return package / "models", package.parent / "models"


def _roots(kind: Kind) -> tuple[Path, ...]:
    """List where a kind is looked up; the first match wins."""
    if kind == "matrices":
        return _brought_along()
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    data_home = named if named.is_absolute() else Path.home() / ".local" / "share"  # as the XDG Base Directory Specification has it
    return Path("models"), data_home / "paceline" / "models", *_brought_along()


def builder(name: str, kind: Literal["keras", "problems"] = "keras") -> Path:
    """The file of a model that Paceline brings along, to profile or with data to learn: code, so never one of a working folder.

    Raises
    ------
    ScenarioError
        There is none of this name.
    """
    for root in _brought_along():
        file = root / kind / f"{name}.py"
        if file.is_file():
            return file
    raise ScenarioError(f"models/{kind}: there is no model builder named {name!r}")


def is_own(file: Path) -> bool:
    """Return whether a file is the user's, not one that Paceline brings along."""
    return not any(file.resolve().is_relative_to(root.resolve()) for root in _brought_along())


def own_file(name: str) -> Path:
    """A file of ``models`` that Paceline brings along and nobody replaces, such as ``evidence.toml``."""
    return next(file for root in _brought_along() if (file := root / name).is_file())


def entries(kind: Kind) -> dict[str, Path]:
    """Map each name of a kind to its file."""
    files: dict[str, Path] = {}
    for root in _roots(kind):
        for name, file in _files(root / kind, _names_in(root / kind)):
            files.setdefault(name, file)
    return dict(sorted(files.items()))


def _names_in(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(name for name in os.listdir(folder) if name.endswith(".toml")))
    except OSError:  # it is not there, or nobody may look into it
        return ()


@lru_cache(maxsize=64)
def _files(folder: Path, names: tuple[str, ...]) -> tuple[tuple[str, Path], ...]:
    """Files of a folder by catalogue name, cached because look-ups are frequent and making paths is slow."""
    return tuple((file.stem, file) for name in names if (file := folder / name))


def find(kind: Kind, name: str, where: str, beside: Path | None = None) -> Path:
    """The file of a named workload, cluster, device, input pipeline, list of faults or matrix of testbed settings.

    Parameters
    ----------
    kind
        ``"workloads"``, ``"clusters"``, ``"devices"``, ``"inputs"``, ``"faults"`` or ``"matrices"``.
    name
        A name of the catalogue, or a path that ends in ``.toml``.
    where
        File and dotted path that asks, for the message.
    beside
        A folder that relative paths are also looked up in.

    Raises
    ------
    ScenarioError
        There is no such file; names the nearest ones.
    """
    if name.endswith(".toml"):
        for path in (Path(name), *([beside / name] if beside else [])):
            # os.path answers False where a path is too long or may not be looked at
            if os.path.isfile(path):
                return path
        shown = name if len(name) <= 200 else f"{name[:60]}...{name[-60:]}"
        names = "one of the names " + ", ".join(entries(kind)) if kind == "matrices" else "a name from `paceline models list`"
        raise ScenarioError(f"{where}: no file {shown!r}; give a path to a .toml file or {names}")
    return _named(name, entries(kind), "matrix" if kind == "matrices" else kind[:-1], where)


def scenario_file(path: str | Path) -> Path:
    """The file of a scenario: a path, or where there is nothing of that name, one of those that Paceline brings along.

    Raises
    ------
    ScenarioError
        It is a name that none of them has.
    """
    name = str(path)
    if not _NAME.fullmatch(name) or os.path.exists(name):
        return Path(path)
    known = entries("scenarios")
    if name not in known:
        if said := _of_another_kind(name):
            raise ScenarioError(f"{name}: {said}")
        file = Path(f"{name}.toml")
        hint = f"did you mean {file}?" if file.is_file() else _hint(name, [*known, *(other.name for other in Path().glob("*.toml"))])
        raise ScenarioError(f"{name}: no file and no scenario has this name; {hint}")
    return known[name]


def find_any(name: str, where: str) -> Path:
    """The file of a workload, cluster, device, input pipeline or faults, as :func:`find`; a cluster where others have the name too."""
    if name.endswith(".toml"):
        return find("workloads", name, where)
    known = entries("faults") | entries("inputs") | entries("devices") | entries("workloads") | entries("clusters")
    return _named(name, known, "workload, cluster, device, input or fault", where)


def _named(name: str, known: dict[str, Path], kind: str, where: str) -> Path:
    if name in known:
        return known[name]
    from simulator.base.files import mistaken  # names are completed without it

    if os.path.isfile(name) and (said := mistaken(name)):
        raise ScenarioError(f"{where}: {name} {said}")
    if said := _of_another_kind(name):
        raise ScenarioError(f"{where}: {name[:60]!r} {said}")
    listed = "" if kind == "matrix" else " (`paceline models list`)"
    raise ScenarioError(f"{where}: there is no {kind} named {name[:60]!r}; {_hint(name, known)}{listed}")


def _of_another_kind(name: str) -> str | None:
    """Say what a name of the catalogue is, with the command that takes it; None where there is no such name."""
    from simulator.base.files import mistaken_table, read_toml

    kinds: tuple[Kind, ...] = ("workloads", "clusters", "devices", "inputs", "faults", "scenarios", "matrices")
    file = next((files[name] for kind in kinds if name in (files := entries(kind))), None)
    return None if file is None else mistaken_table(read_toml(file), name, None)


def _hint(name: str, known: Collection[str]) -> str:
    """Names that are near, or some of those that there are."""
    from simulator.base.text import did_you_mean

    more = len(known) - _FEW
    return did_you_mean(name, known, f"known are {', '.join(list(known)[:_FEW]) or 'none'}{f' and {more} more' if more > 0 else ''}")
