"""The ladder: small models from 1 to 64 MB that the testbed knows without building anything.

Each is a stack of square-ish dense layers without biases; ``models/keras/ladder.py``
builds the same as a Keras model, for real compute.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["LADDER", "variables_of"]

LADDER = ("ladder-1mb", "ladder-4mb", "ladder-16mb", "ladder-64mb")
"""Names; ``ladder-4mb/16`` is the same with 16 variables in place of 4."""

_NAME = re.compile(r"ladder-(1|4|16|64)mb(?:/(\d{1,3}))?")
_WIDTH = 256
_LAYERS = 4


def variables_of(model: str) -> list[dict[str, Any]] | None:
    """Variables of a model of the ladder, in the order of creation; None of any other.

    Layers are alike, so gradients become ready evenly over the backward pass, the last
    layer's first.
    """
    found = _NAME.fullmatch(model)
    if found is None:
        return None
    count = int(found[2] or _LAYERS)
    if count < 1:
        return None
    rows = int(found[1]) * 2**20 // (4 * _WIDTH * count)
    return [{"name": f"layer_{index}", "shape": (rows, _WIDTH), "ready": 1.0 - index / count} for index in range(count)]
