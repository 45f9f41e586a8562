"""When each variable's gradient was ready, from the names of the operations that computed it.

A profile knows operations, not variables. Both carry the names of the layers that they
belong to: the gradient of ``net/dense/kernel`` is computed by
``gradient_tape/net_1/dense_1/MatMul/MatMul_1``, the ``_1`` being added to a scope that is
entered a second time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from calibrate.xplane.phases import MeasuredStep

__all__ = ["GradientOp", "gradient_ops", "readiness"]

_SCOPE = re.compile(r".*?(?:gradient_tape|gradients(?:_\d+)?)/")
_PRODUCT = re.compile(r"(?i)matmul|einsum")
_BIAS = re.compile(r"(^|_)(bias|beta|offset|b)(_\d+)?$")
_SCALE = re.compile(r"(^|_)(gamma|scale)(_\d+)?$")


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
    """Share of the backward pass after which each variable's gradient is ready.

    A scope matches a layer if it has the layer's name, or that name with a number added.
    Which of the two a model's scopes do is decided for the whole model: the reading that
    finds the most layers wins, for where there are layers ``norm`` and ``norm_1``, a scope
    ``norm_1`` could be of either.

    Parameters
    ----------
    variables
        Names such as ``net/dense/kernel``.
    ops
        Of the backward pass.

    Returns
    -------
    dict
        By name; a variable for which no operation was found is left out.
    """
    layers: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in variables:
        *layer, _ = name.split(":")[0].split("/")
        if layer:
            layers[tuple(layer)].append(name)
    best = max((_owners(layers, ops, alike) for alike in (_equal, _numbered, _either)), key=_found, default={})
    return {name: _ready(name.rpartition("/")[2], its) for layer, its in best.items() for name in layers[layer]}


def _equal(scope: str, layer: str) -> bool:
    return scope == layer


def _numbered(scope: str, layer: str) -> bool:
    return scope.startswith(layer) and re.fullmatch(r"_\d+", scope[len(layer) :]) is not None


def _either(scope: str, layer: str) -> bool:
    return _equal(scope, layer) or _numbered(scope, layer)


def _owners(
    layers: Iterable[tuple[str, ...]], ops: Sequence[GradientOp], alike: Callable[[str, str], bool]
) -> dict[tuple[str, ...], list[GradientOp]]:
    """Operations of each layer under one reading of the names; those that two layers claim go to the one with the longer name."""
    found: dict[tuple[str, ...], list[GradientOp]] = defaultdict(list)
    ordered = sorted(layers, key=lambda layer: (-len(layer), layer))
    for op in ops:
        scopes = op.path.split("/")
        for layer in ordered:
            if _matches(scopes, layer, alike):
                found[layer].append(op)
                break
    return dict(found)


def _matches(scopes: Sequence[str], layer: tuple[str, ...], alike: Callable[[str, str], bool]) -> bool:
    """The layer's own name is among the scopes, and those around it before that, of which the model's own may be missing."""
    *around, own = layer
    for place, scope in enumerate(scopes):
        if alike(scope, own):
            before = iter(scopes[:place])
            outer = around[1:] if around and not any(_either(one, around[0]) for one in scopes[:place]) else around
            return all(any(_either(one, name) for one in before) for name in outer)
    return False


def _found(owners: dict[tuple[str, ...], list[GradientOp]]) -> int:
    return len(owners)


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
