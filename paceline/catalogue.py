"""The catalogue of everything that a scenario can name with ``use``, and of example scenarios; and the JSON Schema of each file format.

``_FORMATS`` lists the formats; ``Format`` of :mod:`paceline.arguments` repeats their names. :mod:`simulator.base.catalog` finds files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args, overload

from calibrate.testbed.setting import TestbedSetting
from paceline.arguments import Format
from simulator.base import catalog
from simulator.base.errors import PacelineError, ScenarioError
from simulator.base.files import bytes_of, kind_of_table, mistaken_table, read_toml, text_of
from simulator.base.table import Table
from simulator.base.text import Short, counted, listed
from simulator.catalogue.loading import NAMED, load_cluster, load_faults, load_input, load_scenario, load_workload
from simulator.results.results import Result
from simulator.scenario import Scenario
from simulator.spec.accelerator import Accelerator, load_accelerator
from simulator.spec.cluster import Cluster
from simulator.spec.input_pipeline import InputPipeline
from simulator.spec.job import Faults
from simulator.spec.workload import Workload

if TYPE_CHECKING:
    import pandas as pd
    from pydantic import BaseModel

Kind: TypeAlias = Literal["workload", "cluster", "device", "input", "fault", "scenario"]

_KINDS = {kind: cast(catalog.Kind, f"{kind}s") for kind in get_args(Kind)}
_FORMATS: dict[Format, type[BaseModel]] = {
    "scenario": Scenario,
    "workload": Workload,
    "cluster": Cluster,
    "device": Accelerator,
    "input": InputPipeline,
    "faults": Faults,
    "result": Result,
    "testbed-setting": TestbedSetting,
}


@dataclass(frozen=True)
class Entry:
    """A workload, cluster, device, input pipeline or file of faults that a scenario can name, or a scenario.

    Attributes
    ----------
    kind
        One of the six kinds.
    name
        Its name in scenarios; the path for a file outside the catalogue.
    file
        Its file.
    """

    kind: Kind
    name: str
    file: Path

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own, not built in."""
        return catalog.is_own(self.file)

    @property
    def spec(self) -> Workload | Cluster | Accelerator | InputPipeline | Faults | Scenario:
        """The specification, with every default filled in.

        Raises
        ------
        ScenarioError
            The file breaks a rule.
        """
        loaders: Mapping[Kind, Callable[[Path], Workload | Cluster | Accelerator | InputPipeline | Faults | Scenario]] = {
            "workload": load_workload, "cluster": load_cluster, "device": load_accelerator, "input": load_input, "fault": load_faults,
            "scenario": load_scenario,
        }  # fmt: skip
        return loaders[self.kind](self.file)

    @property
    def text(self) -> str:
        """The text of the file.

        Raises
        ------
        ScenarioError
            The file cannot be read.
        """
        return text_of(bytes_of(self.file, ScenarioError), self.file, ScenarioError)

    def summary(self) -> dict[str, Any]:
        """Its figures for a list, in SI units; for an invalid file the rule that it breaks."""
        row: dict[str, Any] = {"kind": self.kind, "name": self.name, "file": str(self.file)}
        try:
            spec = self.spec
        except PacelineError as error:
            return {**row, "description": f"cannot be used: {error}"}
        if isinstance(spec, Scenario):
            about = {"workload": spec.workload.name, "cluster": spec.cluster.name, "strategy": spec.strategy.title()}
            return {**row, "description": self._first_comment(), **about, "job": spec.job is not None}
        return {**row, "description": spec.description, **_particulars(spec)}

    def _first_comment(self) -> str:
        """Return the first comment of a scenario's file, without commands."""
        lines = itertools.takewhile(lambda line: line.startswith("#") and not line.startswith("#  "), self.text.splitlines())
        return " ".join(line.lstrip("# ").rstrip() for line in lines)


def _particulars(spec: Workload | Cluster | Accelerator | InputPipeline | Faults) -> dict[str, Any]:
    if isinstance(spec, Faults):
        life_s, life_90 = (None, None) if spec.preemption is None else (spec.preemption.mtbf_s, spec.preemption.rates_90)
        return {"node_mtbf_s": spec.node_mtbf_s, "job_mtbf_s": spec.job_mtbf_s, "life_s": life_s, "rates_90": spec.rates_90 or life_90}
    if isinstance(spec, InputPipeline):
        settings = {"parallel_calls": spec.parallel_calls, "prefetch": spec.prefetch, "shuffle_buffer": spec.shuffle_buffer}
        return {"device": spec.provenance.get("device", ""), **settings, "cached": spec.cached is not None}
    if isinstance(spec, Workload):
        return {"device": spec.device, "computed": spec.is_computed}
    if isinstance(spec, Cluster):
        price = None if spec.price is None else spec.price.model_dump(mode="json")
        return {"device": spec.device, "devices_per_node": spec.devices_per_node, "price": price}
    kept = {"name", "aliases", "generation", "year", "memory_bytes", "memory_bandwidth_bytes_per_s", "peak_flops_per_s", "cores"}
    figures = spec.model_dump(mode="json", include=kept)
    return {"device": figures.pop("name"), **figures, "float32_flops_per_s": spec.peak("float32")}


class Catalogue(Short, Sequence[Entry]):
    """Everything that a scenario can name, and the example scenarios, indexed by position, name or path."""

    see = "to_frame() lists all, models()['ethernet-25g'] returns one"

    def __init__(self) -> None:
        self._entries = tuple(Entry(kind, name, path) for kind, folder in _KINDS.items() for name, path in catalog.entries(folder).items())

    def _in_short(self) -> Iterator[str]:
        yield listed([counted(sum(entry.kind == kind for entry in self), kind) for kind in _KINDS])

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @overload
    def __getitem__(self, which: int | str) -> Entry: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[Entry]: ...
    def __getitem__(self, which: int | slice | str) -> Entry | Sequence[Entry]:
        """Return an entry by position, name (a cluster where kinds share the name), or path of its file.

        Raises
        ------
        ScenarioError
            No entry has this name (the message has the nearest names), or the file is of another kind.
        """
        if not isinstance(which, str):
            return self._entries[which]
        path = catalog.find_any(which, "models")
        keys = read_toml(path)
        other = kind_of_table(keys)
        kind = next((kind for kind in _KINDS if kind == other != "scenario"), None)
        if kind is None:
            is_other = mistaken_table(keys, path, None) or "is none of them"
            raise ScenarioError(f"{path}: must be a workload, a cluster, a device, an input pipeline or a file of faults, but {is_other}")
        return Entry(kind, which, path)

    def to_frame(self) -> pd.DataFrame:
        """Return a row per entry: kind, name, file and description."""
        columns = "kind", "name", "file", "description"
        return Table.of([{name: row[name] for name in columns} for row in (entry.summary() for entry in self)]).to_frame()

    def _repr_html_(self) -> str:
        rows = [{"kind": entry.kind, "name": entry.name, "description": entry.summary()["description"]} for entry in self]
        return Table.of(rows, "Everything that a scenario can name with use, and example scenarios").to_html()


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of every format, by name."""
    return {name: schema_of(name) for name in get_args(Format)}


def schema_of(name: Format) -> dict[str, Any]:
    """Return the JSON Schema of a format."""
    whole = _FORMATS[name].model_json_schema()
    if name == "scenario":
        # in a file, `use` names a catalogue entry, and the section's own keys overlay it
        for path in NAMED:
            *outer, section = path.split(".")
            keys = (whole["$defs"][outer[0].capitalize()] if outer else whole)["properties"]
            use = {
                "type": "string",
                "description": "a name of the catalogue, or the path of a file; other keys of this table override the file's",
            }
            named = {"type": "object", "required": ["use"], "properties": {"use": use}}
            written = keys[section]
            keys[section] = {"anyOf": [named, written], "description": written.pop("description")}
    return whole
