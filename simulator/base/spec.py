"""Base classes of all specifications (pydantic): frozen, strict about keys, quantities with units.

A dimensional field is named with its SI unit (``latency_s``). A file may give it in two ways: as text under the name without the
unit (``latency = "20 us"``), as a person writes it, or as a plain number under the full name (``latency_s = 2e-5``), for programs.
Anything else, such as a bare number under the short name, is refused.

The hash of a scenario is made of what its specifications write: a new key changes all hashes, unless a :class:`Terse` leaves it out
where it is not set.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, reduce
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from simulator.base.errors import UnitError
from simulator.base.files import KEY as CHECKSUM
from simulator.base.files import with_checksum
from simulator.base.table import Row, flat, frame_of, html_of
from simulator.base.units import Dimension, parse_quantity

if TYPE_CHECKING:
    import pandas as pd

_SUFFIX = re.compile(r"(_bytes_per_s|_bytes|_s|_w)$")
SI_NAME: dict[Dimension, str] = {"time": "seconds", "information": "bytes", "rate": "bytes per second", "power": "watts"}
QUANTITY_EXAMPLE: dict[Dimension, str] = {"time": "20 us", "information": "64 MiB", "rate": "25 Gbit/s", "power": "5 kW"}


class _WithUnit:
    """A value under the short name, which must be text with a unit."""

    def __init__(self, value: object) -> None:
        self.value = value


class _Quantity(NamedTuple):
    """Field metadata: what the field measures."""

    dimension: Dimension


class Usual(NamedTuple):
    """Field metadata: the least and the most that there is, in SI units or US dollars; 0 always is.

    A figure far outside is more likely in another unit, or has another prefix (:func:`simulator.base.validation_errors.implausible`).
    """

    least: float
    most: float


_SMALLEST, _LARGEST = 1e-100, 1e100


def _bearable(value: object, given: object = None) -> object:
    """The value, if products and quotients of a few such numbers neither overflow nor vanish."""
    # what is no number, or not finite, is refused later
    if isinstance(value, (int, float)) and 0 < abs(value) < math.inf and not _SMALLEST <= abs(value) <= _LARGEST:
        size = "large" if abs(value) > 1 else "small"
        rule = f"is too {size}: it must lie between {_SMALLEST:g} and {_LARGEST:g}, or be 0 if allowed"
        raise PydanticCustomError("magnitude", "{rule}", {"rule": rule, "given": value if given is None else given})
    return value


def _reader(dimension: Dimension) -> BeforeValidator:
    def read(value: object) -> object:
        if isinstance(value, _WithUnit):
            given = value.value
            if not isinstance(given, str):
                raise PydanticCustomError(
                    "unit", 'must have a unit, such as "{example}"', {"example": QUANTITY_EXAMPLE[dimension], "given": given}
                )
            try:
                return _bearable(parse_quantity(given, dimension), given)
            except UnitError as error:
                rule = str(error).removeprefix(f"{given!r} ")
                raise PydanticCustomError("unit", "{rule}", {"rule": rule, "given": given}) from error
        if isinstance(value, (str, bool)):
            raise PydanticCustomError(
                "unit",
                "must be a plain number of {unit} under this name; give text with a unit under the name without it",
                {"unit": SI_NAME[dimension]},
            )
        return _bearable(value)

    return BeforeValidator(read)


def _quantity(dimension: Dimension, *marks: object) -> Any:
    return Annotated[float, Field(allow_inf_nan=False), _reader(dimension), _Quantity(dimension), *marks]


_AT_LEAST_0, _ABOVE_0 = Field(ge=0), Field(gt=0)
Time = _quantity("time")
"""A time in seconds, for bounds of one's own."""
Seconds = _quantity("time", _AT_LEAST_0)
"""A time from zero on."""
PositiveSeconds = _quantity("time", _ABOVE_0)
"""A time above zero."""
Bytes = _quantity("information")
"""A size in bytes."""
Rate = _quantity("rate", _ABOVE_0, Usual(1.25e3, 1.25e13))  # 10 kbit/s, 100 Tbit/s: above the memory of any device
"""A bandwidth in bytes per second."""
Power = _quantity("power", _AT_LEAST_0, Usual(1.0, 1e6))
"""A power in watts."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A finite number above zero."""
Moderate = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_bearable)]
"""A finite number that is neither so large nor so small that arithmetic would lose it."""
Share = Annotated[float, Field(ge=0, le=1)]
"""A share from 0 to 1."""
PositiveShare = Annotated[float, Field(gt=0, le=1)]
"""A share above 0."""
Machines = Annotated[int, Field(ge=1, le=10_000_000)]
"""A number of nodes."""
Interval = tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]]
"""The smallest and the largest value that was calibrated."""

DAY_S, YEAR_S = 86_400.0, 365.25 * 86_400.0
Latency = _quantity("time", _AT_LEAST_0, Usual(1e-9, 1.0))  # light goes 30 cm; round the earth and back it takes a fifth of a second
"""Usual range of latencies of a message."""
DELAY = Usual(1e-9, 60.0)
Delay = _quantity("time", _AT_LEAST_0, DELAY)
"""In a queue, of storage, or of who hands out steps."""
WorkTime = _quantity("time", _AT_LEAST_0, Usual(1e-12, 3600.0))
"""Usual range of times of a step or a part of it."""
Overhead = _quantity("time", _AT_LEAST_0, Usual(1e-6, 7 * DAY_S))
"""Usual range of times outside steps."""
MeanLife = _quantity("time", _ABOVE_0, Usual(1.0, 300 * YEAR_S))
"""Until something fails."""
EACH_BYTE = Usual(1e-15, 1e-3)
PerByte = Annotated[Moderate, Field(ge=0), EACH_BYTE]
"""Seconds for a byte."""
MessageBytes = _quantity("information", _ABOVE_0, Usual(1.0, 2.0**40))
"""A size of what is sent at once."""
MEMORY, SAMPLE_BYTES, STEP_FLOPS = Usual(2.0**20, 2.0**53), Usual(1e-3, 2.0**43), Usual(1.0, 1e20)


def one_or_two(rule: str) -> WrapValidator:
    """Reads a number, or two, and says the rule where a value is neither, or out of bounds."""

    def read(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("rule", "{rule}", {"rule": rule}) from None

    return WrapValidator(read)


@lru_cache(maxsize=4096)
def short_name(field: str) -> str:
    """The name of a dimensional field without its unit: ``latency_s`` -> ``latency``."""
    return _SUFFIX.sub("", field)


def _marks(annotation: Any) -> Iterator[Any]:
    """Metadata of an annotation and of all that it is made of, such as the members of a union."""
    for part in get_args(annotation):
        yield from _marks(part)
    yield from getattr(annotation, "__metadata__", ())


MarkT = TypeVar("MarkT")


def mark_of(field: FieldInfo, kind: type[MarkT]) -> MarkT | None:
    """The last metadata of a kind that a field's type has."""
    return next((mark for mark in (*field.metadata[::-1], *reversed([*_marks(field.annotation)])) if isinstance(mark, kind)), None)


def parts_of(annotation: Any) -> Iterator[type]:
    """The classes that an annotation is made of: ``tuple[float, ...] | None`` -> float, NoneType; of a literal text: str."""
    inner = get_args(annotation)
    if isinstance(annotation, str):
        yield str
    elif not inner and isinstance(annotation, type):
        yield annotation
    for part in inner:
        yield from parts_of(part)


@cache
def _plain(spec: type[Spec], field: str) -> str:
    """Return "number" or "truth" for a field that takes nothing but numbers or a truth value, else ""."""
    if field in spec.quantities() or field not in spec.model_fields:
        return ""
    parts = set(parts_of(spec.model_fields[field].annotation)) - {type(None)}
    if parts and parts <= {int, float}:
        return "number"
    return "truth" if parts == {bool} else ""


class _Unfit:
    """Stands for a value that pydantic would turn into a number or a truth value of itself, so that it does not."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


def _as_given(value: Any, plain: str) -> Any:
    """The value, with what is no number (or no truth value) among it marked."""
    if plain == "truth":
        return value if isinstance(value, bool) else _Unfit(value)
    if isinstance(value, (list, tuple)):
        return [item if type(item) in (float, int) else _as_given(item, plain) for item in value]
    return _Unfit(value) if isinstance(value, (str, bool)) else value


_LIMITS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}


def _name_limits(schema: Any) -> None:
    """Give limits their names in JSON Schema; behind a reader of ours pydantic leaves its own."""
    if isinstance(schema, list):
        for part in schema:
            _name_limits(part)
    elif isinstance(schema, dict):
        for limit in _LIMITS.keys() & schema.keys():
            if isinstance(schema[limit], (int, float)):
                schema[_LIMITS[limit]] = schema.pop(limit)
        for part in schema.values():
            _name_limits(part)


class Spec(BaseModel):
    """Base of every specification: frozen, unknown keys forbidden, units at the border.

    Attributes
    ----------
    goes_with
        Keys that only some values of another key take: the other key, and these values.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
    goes_with: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values of some keys, not validated; what has been worked out of the old ones and kept is left behind."""
        copied = super().model_copy(update=update, deep=deep)
        if update:
            for name in copied.__dict__.keys() - type(copied).model_fields.keys():
                del copied.__dict__[name]
        return copied

    def value_at(self, path: str) -> Any:
        """The value under a dotted key, such as ``inter_node.latency_s``."""
        return reduce(getattr, path.split("."), self)

    def replaced(self, changes: Mapping[str, Any]) -> Self:
        """A copy with other values under some dotted keys, not validated."""
        update: dict[str, Any] = {}
        inner: dict[str, dict[str, Any]] = {}
        for path, value in changes.items():
            head, _, rest = path.partition(".")
            if rest:
                inner.setdefault(head, {})[rest] = value
            else:
                update[head] = value
        return self.model_copy(update=update | {head: getattr(self, head).replaced(below) for head, below in inner.items()})

    def to_json(self) -> str:
        """One line of JSON; quantities under their SI names; floats round-trip exactly."""
        return json.dumps(self.model_dump(mode="json"), separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    def to_frame(self) -> pd.DataFrame:
        """This as a pandas table of one row, under dotted names; of a result :data:`simulator.results.rows.COLUMNS`."""
        return frame_of([self])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a small table, every text escaped."""
        return html_of([self], self._caption())

    @classmethod
    def rows_of(cls, items: Iterable[Any]) -> list[Row]:
        """One row an item: its plain values under dotted names."""
        return [flat(item) for item in items]

    @classmethod
    def shown_columns(cls, rows: Sequence[Row]) -> list[str]:
        """Columns of those rows that a notebook shows: all."""
        return list(dict.fromkeys(name for row in rows for name in row))

    def _caption(self) -> str:
        """Above its table in a notebook."""
        name = getattr(self, "name", "")
        return f"{type(self).__name__} {name}".rstrip()

    @classmethod
    @cache
    def quantities(cls) -> dict[str, Dimension]:
        """Return what each quantity measures, by the name of the field."""
        marks = {name: mark_of(field, _Quantity) for name, field in cls.model_fields.items()}
        return {name: mark.dimension for name, mark in marks.items() if mark is not None}

    @model_validator(mode="before")
    @classmethod
    def _accept_short_names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        # pydantic would read "2" and true as numbers; the JSON Schema does not
        renamed = dict(data)
        for name, value in data.items():
            plain = _plain(cls, name)
            if plain and (plain == "truth" or type(value) is not float):
                renamed[name] = _as_given(value, plain)
        for name in cls.quantities():
            if (short := short_name(name)) in data:
                if name in data:
                    raise PydanticCustomError("twice", "has both {short} and {name}; keep one", {"short": short, "name": name})
                renamed[name] = _WithUnit(renamed.pop(short))
        return renamed

    def _broken_rules(self) -> Iterator[str]:
        """Yield broken rules between values, one sentence each; the first is reported; those of a base class by ``super``."""
        yield from ()

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        for rule in self._broken_rules():
            raise ValueError(rule)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        for name, dimension in cls.quantities().items():
            short = short_name(name)
            properties[short] = {
                "type": "string",
                "title": short,
                "description": f'{name} as text with a unit, such as "{QUANTITY_EXAMPLE[dimension]}"',
            }
            if name in required:
                required.remove(name)
                schema.setdefault("allOf", []).append({"oneOf": [{"required": [name]}, {"required": [short]}]})
        if not required:
            schema.pop("required", None)
        _name_limits(properties)
        return schema


SpecT = TypeVar("SpecT", bound=Spec)


class Itself(Generic[SpecT]):
    """A specification as a key: itself, not one that is equal, since comparing all of a workload's draws takes long."""

    __slots__ = ("spec",)

    def __init__(self, spec: SpecT) -> None:
        self.spec = spec

    def __hash__(self) -> int:
        return id(self.spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and other.spec is self.spec


@lru_cache(maxsize=256)
def canonical(this: Itself[SpecT]) -> str:
    """A specification as JSON with its keys in alphabetical order, as hashes take it; made once of one that many scenarios have."""
    return json.dumps(this.spec.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


class Terse(Spec):
    """A specification that leaves out keys that have their defaults, so that files, and hashes of scenarios, stay what they were
    before there were such keys.

    Parameters
    ----------
    only
        Of the class: the keys that are left out, besides those of its bases; all, where no class says which.
    """

    _only: ClassVar[tuple[str, ...] | None] = None

    def __init_subclass__(cls, *, only: tuple[str, ...] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if only is not None:
            cls._only = (*(cls._only or ()), *only)

    @model_serializer(mode="wrap")
    def _terse(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        del info
        written: dict[str, Any] = handler(self)
        for name, default in self._left_out().items():
            if name in written and getattr(self, name) == default:
                del written[name]
        return written

    @classmethod
    @cache
    def _left_out(cls) -> dict[str, Any]:
        """The keys that are not written, each with the value with which it is not."""
        fields = cls.model_fields
        return {name: fields[name].get_default(call_default_factory=True) for name in (fields if cls._only is None else cls._only)}


class Checksummed(Spec):
    """Base of specifications that are written and read back: their JSON ends with a checksum, which is checked when it is read."""

    def to_json(self) -> str:
        """One line of JSON, as of any specification, with the checksum of all before it as its last key."""
        return with_checksum(super().to_json())

    @model_validator(mode="before")
    @classmethod
    def _without_checksum(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if key != CHECKSUM} if isinstance(data, dict) and CHECKSUM in data else data

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        schema["properties"][CHECKSUM] = {
            "type": "string",
            "pattern": "^[0-9a-f]{16}$",
            "description": "first hexadecimal digits of the SHA-256 of all bytes of the line before this key and its comma",
        }
        return schema


def keys_of(table: type[BaseModel]) -> dict[str, None]:
    """List the keys that a table takes, in order, a quantity's under both of its names."""
    quantities = table.quantities() if issubclass(table, Spec) else {}
    names: dict[str, None] = {}
    for field in table.model_fields:
        if field in quantities:
            names[short_name(field)] = None
        names[field] = None
    return names
