"""A model's variables: their sizes, which a profile does not tell, and when the gradient of each is ready.

Sizes come from the model or a checkpoint, which ``calibrate/probes/xplane.py`` reads in a child process, or from a list;
readiness from the names of operations. A profile knows operations, not variables, and both carry the names of the layers that
they belong to: the gradient of ``net/dense/kernel`` is computed by ``gradient_tape/net_1/dense_1/MatMul/MatMul_1``, the ``_1`` being
added to a scope that is entered a second time.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from calibrate.probing import run_reader
from calibrate.profiling import check_target
from calibrate.traces.steps import MeasuredStep
from simulator.base.errors import InputError
from simulator.base.files import bytes_of
from simulator.base.validation_errors import fault_of

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_SCOPE = re.compile(r".*?(?:gradient_tape|gradients(?:_\d+)?)/")
_PRODUCT = re.compile(r"(?i)matmul|einsum")
_BIAS = re.compile(r"(^|_)(bias|beta|offset|b)(_\d+)?$")
_SCALE = re.compile(r"(^|_)(gamma|scale)(_\d+)?$")


class ModelVariable(BaseModel):
    """One trainable variable: its name, shape and type."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(min_length=1)
    shape: tuple[Annotated[int, Field(ge=1)], ...]
    dtype: str = "float32"
    size_bytes: float | None = Field(default=None, gt=0)

    @property
    def bytes(self) -> float:
        """Bytes of the variable."""
        return self.size_bytes if self.size_bytes is not None else float(math.prod(self.shape) * _BYTES[self.dtype])


@dataclass(frozen=True)
class ModelVariables:
    """The trainable variables of a model.

    Attributes
    ----------
    variables
        In the order in which the model created them, as far as the source tells.
    source
        Where they were read.
    order
        ``creation``; or ``object graph`` or ``alphabetical``, where only that was to be had.
    """

    variables: tuple[ModelVariable, ...]
    source: str
    order: str


_LIST: TypeAdapter[list[ModelVariable]] = TypeAdapter(list[ModelVariable])


def variables_of(
    model: str | None = None,
    checkpoint: Path | None = None,
    listed: Path | None = None,
    python: str | None = None,
    timeout_s: float | None = None,
) -> ModelVariables | None:
    """The variables of a model from the one source that is given; None if none is.

    Parameters
    ----------
    model
        ``FILE.py:FUNCTION`` that returns a Keras model, or a tuple that begins with one.
    checkpoint
        A checkpoint (prefix or folder), a SavedModel's folder, or a ``.keras`` file.
    listed
        A JSON file: ``[{"name": "dense/kernel", "shape": [784, 10], "dtype": "float32"}, ...]`` in
        the order of creation.

    Raises
    ------
    InputError
        More than one is given, or the one given cannot be used.
    CalibrationError
        The user's code failed.
    """
    sources = [option for option, value in (("`model`", model), ("`checkpoint`", checkpoint), ("`variables`", listed)) if value]
    if len(sources) > 1:
        raise InputError(f"{' and '.join(sources)}: give one source of the sizes of variables")
    if listed is not None:
        return ModelVariables(_read_list(listed), str(listed), "creation")
    if model is not None:
        check_target(model, "`model`")
        return _read(["--model", model], python, timeout_s)
    if checkpoint is not None:
        return _read(["--checkpoint", str(checkpoint)], python, timeout_s)
    return None


@dataclass(frozen=True)
class GradientOp:
    """One operation of the backward pass.

    Attributes
    ----------
    path
        Its name behind ``gradient_tape/``.
    kind
        Its type.
    ready
        Median over the steps of the share of the backward pass after which it ended.
    """

    path: str
    kind: str
    ready: float


def gradient_ops(steps: Iterable[MeasuredStep]) -> list[GradientOp]:
    """The operations of the backward pass in the order in which they end."""
    seen: dict[tuple[str, str], list[float]] = defaultdict(list)
    for step in steps:
        ops = [op for op in step.ops if op.role == "gradient"]
        if not ops:
            continue
        begun, ended = min(op.start_s for op in ops), max(op.end_s for op in ops)
        last: dict[tuple[str, str], float] = {}
        for op in ops:
            key = _SCOPE.sub("", op.path, count=1), op.kind
            last[key] = max(last.get(key, 0.0), op.end_s)
        for key, end_s in last.items():
            seen[key].append((end_s - begun) / (ended - begun) if ended > begun else 1.0)
    return sorted((GradientOp(path, kind, median(shares)) for (path, kind), shares in seen.items()), key=lambda op: (op.ready, op.path))


def readiness(variables: Sequence[str], ops: Sequence[GradientOp]) -> dict[str, float]:
    """Share of the backward pass after which each variable's gradient is ready; variables for which no operation was found are left out.

    A scope matches a layer if it has the layer's name, or that name with a number added.
    Which of the two a model's scopes do is decided for the whole model: the reading that
    finds the most layers wins, for where there are layers ``norm`` and ``norm_1``, a scope
    ``norm_1`` could be of either.
    """
    layers: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in variables:
        *layer, _ = name.split(":")[0].split("/")
        if layer:
            layers[tuple(layer)].append(name)
    best = max((_owners(layers, ops, alike) for alike in (operator.eq, _numbered, _either)), key=len)
    return {name: _ready(name.split(":")[0].rpartition("/")[2], own) for layer, own in best.items() for name in layers[layer]}


def _read(arguments: list[str], python: str | None, timeout_s: float | None) -> ModelVariables:
    read = json.loads(run_reader("xplane", arguments, python, timeout_s))
    return ModelVariables(tuple(_LIST.validate_python(read["variables"])), read["source"], read["order"])


def _read_list(path: Path) -> tuple[ModelVariable, ...]:
    example = '[{"name": "dense/kernel", "shape": [784, 10], "dtype": "float32"}]'
    option = f"`variables={str(path)!r}`"
    content = bytes_of(path, named=option)
    try:
        rows = _LIST.validate_python(json.loads(content))
    except ValidationError as error:
        raise InputError(f"{option}: {fault_of(error)}; give a list such as {example}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{option}: is not JSON: give a list such as {example}") from None
    if not rows:
        raise InputError(f"{option}: lists no variable: give a list such as {example}")
    for row in rows:
        if row.size_bytes is None and row.dtype not in _BYTES:
            raise InputError(f"{option}: {row.name}: dtype {row.dtype!r} must be one of {', '.join(_BYTES)}, or give size_bytes")
    names = [row.name for row in rows]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise InputError(f"{option}: {double!r} is listed twice: give each variable once")
    return tuple(rows)


def _numbered(scope: str, layer: str) -> bool:
    return scope.startswith(layer) and re.fullmatch(r"_\d+", scope[len(layer) :]) is not None


def _either(scope: str, layer: str) -> bool:
    return scope == layer or _numbered(scope, layer)


def _owners(
    layers: Iterable[tuple[str, ...]], ops: Sequence[GradientOp], alike: Callable[[str, str], bool]
) -> dict[tuple[str, ...], list[GradientOp]]:
    """Operations of each layer under one reading of the names; those that two layers claim go to the one with the longer name."""
    owners: dict[tuple[str, ...], list[GradientOp]] = defaultdict(list)
    ordered = sorted(layers, key=lambda layer: (-len(layer), layer))
    for op in ops:
        scopes = op.path.split("/")
        owner = next((layer for layer in ordered if _matches(scopes, layer, alike)), None)
        if owner is not None:
            owners[owner].append(op)
    return owners


def _matches(scopes: Sequence[str], layer: tuple[str, ...], alike: Callable[[str, str], bool]) -> bool:
    """Return whether an operation is of a layer: its scopes hold the layer's name and, before it and in order, the names around it.

    The first of these, the model's own, may be missing.
    """
    *around, own = layer
    for place in (place for place, scope in enumerate(scopes) if alike(scope, own)):
        remaining = iter(scopes[:place])
        outer = around[1:] if around and not any(_either(before, around[0]) for before in scopes[:place]) else around
        if all(any(_either(before, name) for before in remaining) for name in outer):
            return True
    return False


def _ready(leaf: str, ops: Sequence[GradientOp]) -> float:
    """When the gradient of one of a layer's variables is ready: its own operation's end, else the layer's last."""
    if _BIAS.search(leaf):
        own = [op for op in ops if "BiasAddGrad" in op.kind or "NormGrad" in op.kind]
        # where a bias is added by a plain addition, its gradient is a sum
        own = own or [op for op in ops if op.kind == "Sum" and "/add/" in op.path.lower()]
    elif _SCALE.search(leaf):
        own = [op for op in ops if "NormGrad" in op.kind]
    else:
        # of a product's two gradients the one for the second factor, the weights, is named last
        products = sorted((op for op in ops if _PRODUCT.search(op.kind)), key=lambda op: (len(op.path), op.path))
        own = [op for op in ops if "BackpropFilter" in op.kind] or products[-1:]
    return max(op.ready for op in own or ops)
