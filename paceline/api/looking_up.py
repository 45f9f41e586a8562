"""Library functions that list what a scenario can name, and give the schemas of file formats.

The work is done in :mod:`paceline.catalogue`. The commands ``models`` and ``schema`` call these functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from paceline.arguments import Format, Typed, checked

if TYPE_CHECKING:
    from paceline.catalogue import Catalogue


@checked
def models() -> Catalogue:
    """List the workloads, clusters, input pipelines, devices and faults that a scenario can name.

    Returns
    -------
    Catalogue
        A sequence of entries, each with its ``kind``, ``name`` and ``file``; ``[name]`` gives one of them.

    Examples
    --------
    >>> found = models()
    >>> found["ethernet-25g"].kind, found["ethernet-25g"].file.name
    ('cluster', 'ethernet-25g.toml')
    """
    from paceline.catalogue import Catalogue

    return Catalogue()


@checked
def schema(format: Annotated[Format, Typed(place=True, metavar="FORMAT")] | None = None) -> dict[str, Any]:  # noqa: A002
    """Return the JSON Schema of a file format, or those of all formats.

    A quantity may be given as text with a unit under its short name (``latency = "20 us"``),
    or as a number under its full name (``latency_s = 2e-5``).

    Parameters
    ----------
    format
        Whose schema; left out: all of them.

    Returns
    -------
    dict
        The schema; of all formats, the schemas by the formats' names.

    Examples
    --------
    >>> sorted(schema()), schema("cluster")["title"]
    (['cluster', 'device', 'faults', 'input', 'result', 'scenario', 'testbed-setting', 'workload'], 'Cluster')
    """
    from paceline.catalogue import schema_of, schemas

    return schemas() if format is None else schema_of(format)
