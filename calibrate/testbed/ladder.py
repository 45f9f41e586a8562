"""The ladder: small models from 1 to 64 MB that the testbed knows without building anything.

Each is a stack of square-ish dense layers without biases; ``models/keras/ladder.py``
builds the same as a Keras model, for real compute. Beside it models with uneven variables,
for emulated compute alone.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["LADDER", "variables_of"]

LADDER = ("ladder-1mb", "ladder-4mb", "ladder-16mb", "ladder-64mb")
"""Names; ``ladder-4mb/16`` is the same with 16 variables in place of 4."""

_NAME = re.compile(r"(ladder|uneven)-(1|4|16|64)mb(?:/(\d{1,3}))?")
_WIDTH = 256
_LAYERS, _UNEVEN_LAYERS = 4, 6
_MOST_UNEVEN = 10


def variables_of(model: str) -> list[dict[str, Any]] | None:
    """Variables of a model of the ladder, or of an uneven one, in the order of creation; None of any other.

    Layers of ``ladder-4mb/8`` are alike. Of ``uneven-4mb/6`` each has twice the bytes of the
    one before, as the last dense layers of a convolutional network have most of its weights.
    Gradients become ready evenly over the backward pass, the last layer's first.
    """
    found = _NAME.fullmatch(model)
    if found is None:
        return None
    uneven = found[1] == "uneven"
    count = int(found[3] or (_UNEVEN_LAYERS if uneven else _LAYERS))
    if count < 1 or (uneven and count > _MOST_UNEVEN):
        return None
    rows = int(found[2]) * 2**20 // (4 * _WIDTH)
    each = [rows * 2**index // (2**count - 1) for index in range(count)] if uneven else [rows // count] * count
    return [{"name": f"layer_{index}", "shape": (one, _WIDTH), "ready": 1.0 - index / count} for index, one in enumerate(each)]
