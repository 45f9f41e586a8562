"""Find named workloads and clusters: ``use = "ethernet-25g"`` in a scenario.

A name that is a path is that file. Any other is looked up in ``./models``, then in the
user's data directory, then among those that Paceline brings along.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from simulator.errors import ScenarioError

__all__ = ["Kind", "builder", "entries", "find", "folders"]

Kind = Literal["workloads", "clusters"]


def _roots() -> tuple[Path, ...]:
    data_home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    package = Path(__file__).parent  # a wheel has the models inside, a checkout beside
    return Path("models"), data_home / "paceline" / "models", package / "models", package.parent / "models"


def folders(kind: Kind) -> Iterator[Path]:
    """The folders that are searched for a kind, first match wins."""
    yield from (root / kind for root in _roots() if (root / kind).is_dir())


def builder(name: str) -> Path:
    """The file of one of the Keras models that Paceline brings along to profile.

    Raises
    ------
    ScenarioError
        There is none of this name.
    """
    for root in _roots():
        file = root / "keras" / f"{name}.py"
        if file.is_file():
            return file
    raise ScenarioError(f"models/keras: there is no model builder named {name!r}")


def entries(kind: Kind) -> dict[str, Path]:
    """Every name of a kind with the file that it stands for."""
    found: dict[str, Path] = {}
    for folder in folders(kind):
        for file in sorted(folder.glob("*.toml")):
            found.setdefault(file.stem, file)
    return dict(sorted(found.items()))


def find(kind: Kind, name: str, where: str, beside: Path | None = None) -> Path:
    """The file of a named workload or cluster.

    Parameters
    ----------
    kind
        ``"workloads"`` or ``"clusters"``.
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
            if path.is_file():
                return path
        raise ScenarioError(f"{where}: no file {name!r}; give a path to a .toml file or a name from `paceline models list`")
    known = entries(kind)
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known) or 'none'}"
    raise ScenarioError(f"{where}: there is no {kind[:-1]} named {name[:60]!r}; {hint} (`paceline models list`)")
