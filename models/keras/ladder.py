"""The ladder: stacks of dense layers without biases, 1 to 64 MB of float32. Needs no download.

``ladder_4mb`` has four matrices of 4 MB in all; ``ladder_4mb_16`` has sixteen. Every
matrix is rows x 256: a layer's input is the output of the one before, repeated until it
is wide enough.
"""

import re
from functools import partial

import keras

WIDTH = 256
LAYERS = 4
_NAME = re.compile(r"ladder_(1|4|16|64)mb(?:_(\d{1,3}))?")


class Widen(keras.layers.Layer):
    """Repeats its input along the last axis, up to a width."""

    def __init__(self, width, **options):
        super().__init__(**options)
        self.width = width

    def call(self, inputs):
        """Repeat, and cut what is too much."""
        times = -(-self.width // inputs.shape[-1])
        return keras.ops.tile(inputs, (1, times))[:, : self.width]


def build(megabytes, count=LAYERS):
    """Return (model, loss, input specification) of so many megabytes in so many matrices."""
    rows = megabytes * 2**20 // (4 * WIDTH * count)
    hidden = inputs = keras.Input((WIDTH,))
    for index in range(count):
        last = index == count - 1
        wide = Widen(rows, name=f"widen_{index}")(hidden)
        hidden = keras.layers.Dense(WIDTH, activation=None if last else "relu", use_bias=False, name=f"layer_{index}")(wide)
    model = keras.Model(inputs, hidden, name=f"ladder_{megabytes}mb")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, loss, (keras.InputSpec(shape=(WIDTH,), dtype="float32"), keras.InputSpec(shape=(), dtype="int32"))


def __getattr__(name):
    """Every model of the ladder is a function of this file: ``ladder_1mb`` to ``ladder_64mb``, or with a count behind."""
    found = _NAME.fullmatch(name)
    if found is None or found[2] == "0":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(build, int(found[1]), int(found[2] or LAYERS))
