"""A residual network of bottleneck blocks by its published dimensions: ``[workload.residual]``.

He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016, arXiv:1512.03385), table 1:
a first convolution, four stages of blocks of 1x1, 3x3 and 1x1 convolutions, and a head.
:mod:`simulator.spec.computed` makes times of them; docs/computed-workloads.md has every formula.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, field_validator

from simulator.base.spec import Spec
from simulator.spec.computed import DEFAULT_DEVICE, Block, Parameter, Pass, Product, known_device

Count = Annotated[int, Field(ge=1, le=10**6)]
_EXPANSION = 4
_FIRST = 64
_LOGIT_BYTES = 4


class Residual(Spec):
    """Dimensions of a residual network of bottleneck blocks."""

    stages: Annotated[tuple[Annotated[int, Field(ge=1, le=1000)], ...], Field(min_length=1, max_length=8)] = Field(
        description="blocks of each; each stage has twice the channels of the one before at half the resolution"
    )
    image: Annotated[int, Field(ge=32, le=100_000)] = Field(default=224, description="height and width of an image")
    classes: Count = Field(default=1000, description="classes: outputs of the last layer")
    stride: Literal["first", "middle"] = Field(
        default="middle",
        description="convolution of a stage's first block that halves the resolution: first, the 1x1 (v1, Keras); middle, the 3x3 (v1.5)",
    )
    bias: bool = Field(default=False, description="convolutions have biases, as in Keras")
    device: str = Field(
        default=DEFAULT_DEVICE, description="device that times are computed for, where the cluster names none (models/devices)"
    )

    @field_validator("device")
    @classmethod
    def _of_models(cls, name: str) -> str:
        return known_device(name).name

    @property
    def constants(self) -> tuple[str, str, str, str]:
        """What decides its times: shares of the peak, of the bandwidth, of the peak once more, and a kernel's start."""
        return "matrix_share", "normalisation_share", "matrix_share", "kernel_start_s"

    @property
    def input_bytes_per_sample(self) -> float:
        """Of an image of three channels, as float32."""
        return 4.0 * 3 * self.image**2

    @property
    def parameters(self) -> int:
        """Trainable numbers in all; averages of batch normalisation are none."""
        return sum(each.size for block in self.blocks(2) for each in block.parameters)

    def blocks(self, value_bytes: int) -> tuple[Block, ...]:
        """First convolution with its pooling, blocks, and head."""
        size, found = value_bytes, []
        side = _halved(self.image)
        first = _Convolution("convolution", 7, 3, _FIRST, self.image, side, self.bias)
        pooled = _halved(side) ** 2 * _FIRST * size
        found.append(
            Block(
                "first", (*first.parameters,), first.forward(size) + Pass((), first.bytes_out(size) + pooled, 1),
                # the gradient of the image itself is not needed
                first.backward(size, of_input=False) + Pass((), 2 * first.bytes_out(size) + pooled, 1),
                output_bytes=pooled, kept_bytes=first.kept(size) + first.bytes_out(size),
            )
        )  # fmt: skip
        side, channels = _halved(side), _FIRST
        for number, count in enumerate(self.stages):
            for block in range(count):
                width, halves = _FIRST << number, number > 0 and block == 0
                found.append(self._block(f"stage_{number + 1}/block_{block + 1}", channels, width, side, halves, block == 0, size))
                side, channels = _halved(side) if halves else side, _EXPANSION * width
        values = channels * side**2 * size
        head = Product(2.0 * channels * self.classes, (channels + self.classes) * size, channels)
        kernel = Parameter("kernel", (channels, self.classes)), Parameter("bias", (self.classes,))
        found.append(
            Block("head", kernel, Pass((head,), values, 4), Pass((head, head), values, 4), output_bytes=0.0,
                  kept_bytes=channels * size + self.classes * _LOGIT_BYTES)
        )  # fmt: skip
        return tuple(found)

    def _block(self, name: str, channels: int, width: int, side: int, halves: bool, projected: bool, size: int) -> Block:
        """1x1, 3x3 and 1x1 convolution with batch normalisation, and the sum with what came in, or its 1x1 projection."""
        ends = _halved(side) if halves else side
        between = ends if self.stride == "first" else side
        its = [
            _Convolution("reduce", 1, channels, width, side, between, self.bias),
            _Convolution("middle", 3, width, width, between, ends, self.bias),
            _Convolution("expand", 1, width, _EXPANSION * width, ends, ends, self.bias),
        ]
        if projected:
            its.append(_Convolution("project", 1, channels, _EXPANSION * width, side, ends, self.bias))
        out = its[2].bytes_out(size)
        forward, backward = Pass((), 3 * out, 1), Pass((), 2 * out, 1)
        for each in its:
            forward, backward = forward + each.forward(size), backward + each.backward(size)
        return Block(
            name, tuple(Parameter(f"{its_own.name}/{each.name}", each.shape) for its_own in its for each in its_own.parameters),
            forward, backward, output_bytes=out, kept_bytes=math.fsum(each.kept(size) for each in its) + out,
        )  # fmt: skip


def _halved(side: int) -> int:
    return -(-side // 2)


class _Convolution(NamedTuple):
    """A square convolution with batch normalisation behind it, and an activation that is fused with that."""

    name: str
    kernel: int
    channels: int
    filters: int
    side: int
    ends: int
    bias: bool

    @property
    def parameters(self) -> Iterator[Parameter]:
        """Kernel, perhaps bias, scale and offset."""
        yield Parameter("kernel", (self.kernel, self.kernel, self.channels, self.filters))
        if self.bias:
            yield Parameter("bias", (self.filters,))
        yield Parameter("scale", (self.filters,))
        yield Parameter("offset", (self.filters,))

    @property
    def flops(self) -> float:
        """Two for each weight and place of the output."""
        return 2.0 * self.kernel**2 * self.channels * self.filters * self.ends**2

    def bytes_in(self, size: int) -> float:
        """Of what comes in."""
        return float(self.channels * self.side**2 * size)

    def bytes_out(self, size: int) -> float:
        """Of its result."""
        return float(self.filters * self.ends**2 * size)

    def product(self, size: int) -> Product:
        """Input is read, result is written."""
        return Product(self.flops, self.bytes_in(size) + self.bytes_out(size), self.kernel**2 * self.channels)

    def forward(self, size: int) -> Pass:
        """Its result is read for its mean and variance, read again and written normalised."""
        return Pass((self.product(size),), 3 * self.bytes_out(size), 2)

    def backward(self, size: int, *, of_input: bool = True) -> Pass:
        """Normalisation reads gradient and value twice and writes one; two products read that and the input, and write its gradient."""
        both = 2 if of_input else 1
        return Pass((self.product(size),) * both, 5 * self.bytes_out(size), 1 + both)

    def kept(self, size: int) -> float:
        """What goes into it, and into its normalisation."""
        return self.bytes_in(size) + self.bytes_out(size)
