"""Models by their published dimensions: a transformer (``[workload.transformer]``), and a residual network (``[workload.residual]``).

For each layer, per sample: operations, bytes, kernels, variables and kept activations. Transformers by Shoeybi et al.,
"Megatron-LM" (arXiv:1909.08053), Narayanan et al., "Efficient Large-Scale Language Model
Training on GPU Clusters Using Megatron-LM" (SC 2021, arXiv:2104.04473) and Korthikanti et
al., "Reducing Activation Recomputation in Large Transformer Models" (arXiv:2205.05198). Residual networks by He et al., "Deep Residual
Learning for Image Recognition" (CVPR 2016, arXiv:1512.03385), table 1: a first convolution, stages of bottleneck blocks (1x1, 3x3 and
1x1 convolutions), and a head. :mod:`simulator.spec.computed` makes times of them; docs/numbers.md has every formula.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field

from simulator.base.spec import PositiveShare, Spec
from simulator.spec.computed import DEFAULT_DEVICE, Block, Parameter, Pass, Product, attention_reach, known_device

Count = Annotated[int, Field(ge=1, le=10**7)]
KnownDevice = Annotated[str, AfterValidator(lambda name: known_device(name).name)]
"""A device by any of its names in ``models/devices``; stored under its first name."""
_MASK_BYTES = 1
"""Bytes of a value of dropout's mask."""
_LOGIT_BYTES = 4
"""Logits are float32 in any precision, because a sum over a vocabulary needs it."""


class ExpertsOf(Spec):
    """Feed-forward blocks as experts, each token being sent to some of them (Fedus et al., "Switch Transformers", JMLR 2022)."""

    count: int = Field(ge=2, le=100_000, description="experts per block")
    used: int = Field(default=2, ge=1, le=1000, description="experts that process each token")
    every: int = Field(default=1, ge=1, le=10_000, description="every how many layers a layer has experts")

    def _broken_rules(self) -> Iterator[str]:
        if self.used > self.count:
            yield f"used ({self.used}) must be at most count ({self.count})"


class _Part(NamedTuple):
    """Part of a layer: its passes, and whether it stays whole when the layer is split, is recomputed selectively, or belongs to experts
    or to attention.
    """

    forward: Pass
    backward: Pass
    whole: bool = False
    again: bool = False
    of_experts: bool = False
    attends: bool = False


class Transformer(Spec):
    """Dimensions of a transformer trained on sequences of one length."""

    architecture: Literal["decoder", "encoder"] = Field(
        default="decoder",
        description="decoder: predicts each next token (GPT, Llama); encoder: predicts masked ones, with BERT's pooler and heads",
    )
    layers: int = Field(ge=1, le=9_000, description="blocks of attention and feed-forward")
    hidden: Count = Field(description="width of the model")
    heads: Count = Field(description="attention heads")
    key_value_heads: Count | None = Field(
        default=None, description="key and value heads (grouped-query attention); left out: as many as heads"
    )
    sequence: Count = Field(description="tokens per sample")
    vocabulary: Count = Field(description="vocabulary size: rows of the embedding")
    feed_forward: Count | None = Field(default=None, description="width of the feed-forward blocks; left out: 4 x hidden")
    gated: bool = Field(default=False, description="gated feed-forward blocks, with three matrices instead of two (SwiGLU)")
    tied: bool = Field(default=True, description="the output head shares the embedding matrix")
    bias: bool = Field(default=True, description="matrix products and norms have biases")
    dropout: bool = Field(default=True, description="dropout is used and its masks are stored")
    positions: int | None = Field(
        default=None, ge=0, le=10**7, description="trained position vectors; 0: rotary, not trained; left out: one per token"
    )
    attention: Literal["standard", "fused"] = Field(
        default="standard",
        description="standard: sequence x sequence scores are stored in memory; fused: they are never stored but recomputed in the "
        "backward pass (FlashAttention)",
    )
    kernels: Literal["fused", "separate"] = Field(
        default="fused",
        description="fused: operations after a matrix product form one kernel (bias with activation, scale with mask and softmax, "
        "dropout with sum), as in XLA (jit_compile) or Megatron-LM; separate: each is its own kernel, as in plain PyTorch or "
        "TensorFlow",
    )
    predicted: PositiveShare | None = Field(
        default=None, description="share of tokens that the head predicts; left out: 1 for a decoder, 0.15 for an encoder"
    )
    experts: ExpertsOf | None = Field(default=None, description="mixture of experts in place of feed-forward blocks; left out: none")
    device: KnownDevice = Field(
        default=DEFAULT_DEVICE, description="device for which times are computed if the cluster names none (models/devices)"
    )

    def _broken_rules(self) -> Iterator[str]:
        if self.hidden % self.heads:
            yield f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})"
        if self.heads % self.groups:
            yield f"heads ({self.heads}) must be a multiple of key_value_heads ({self.groups})"
        if self.experts is not None and self.experts.every > self.layers:
            yield f"experts.every ({self.experts.every}) must be at most layers ({self.layers})"

    @property
    def constants(self) -> tuple[str, str, str, str]:
        """Constants that decide its times: shares of the peak, of the bandwidth, of the peak in fused attention, a kernel's start."""
        products = "decoder_matrix_share" if self.architecture == "decoder" else "matrix_share"
        fused = "fused_attention_share" if self.attention == "fused" else products
        moving = "fused_elementwise_share" if self.kernels == "fused" else "elementwise_share"
        return products, moving, fused, "kernel_start_s"

    @property
    def input_bytes_per_sample(self) -> float:
        """Bytes of its tokens, as int32."""
        return 4.0 * self.sequence

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.key_value_heads or self.heads

    @property
    def width(self) -> int:
        """Width of keys, and of values: ``hidden`` where each head has its own."""
        return self.hidden // self.heads * self.groups

    @property
    def inner(self) -> int:
        """Width of the feed-forward blocks."""
        return self.feed_forward or 4 * self.hidden

    @property
    def share_predicted(self) -> float:
        """Share of tokens that the head predicts."""
        return self.predicted if self.predicted is not None else 0.15 if self.architecture == "encoder" else 1.0

    @property
    def parameters_per_token(self) -> float:
        """Parameters of all matrices that a token is multiplied with, the N of 6 N D (docs/metrics.md).

        Experts count where a token is sent to them, the head for the tokens that it predicts; tables that are only looked up do not.
        """
        h, dense = self.hidden, (3 if self.gated else 2) * self.hidden * self.inner
        of_layers = self.layers * (2.0 * h * (h + self.width) + dense)
        if self.experts is not None:
            of_layers += self.layers // self.experts.every * ((self.experts.used - 1) * dense + h * self.experts.count)
        return of_layers + self.share_predicted * (self.vocabulary * h + h * h * (self.architecture == "encoder"))

    @property
    def attention_flops_per_token(self) -> float:
        """Operations of attention scores in forward and backward pass, 12 L H Q T, without regard to a causal mask (PaLM, appendix B)."""
        return 12.0 * self.layers * self.hidden * self.sequence

    def blocks(self, value_bytes: int) -> tuple[Block, ...]:
        """Embedding, layers and head."""
        return self._embedding(value_bytes), *(self._layer(number, value_bytes) for number in range(self.layers)), self._head(value_bytes)

    def _norm(self, name: str) -> Iterator[Parameter]:
        yield Parameter(f"{name}/scale", (self.hidden,))
        if self.bias:
            yield Parameter(f"{name}/bias", (self.hidden,))

    def _product(self, name: str, rows: int, columns: int) -> Iterator[Parameter]:
        yield Parameter(f"{name}/kernel", (rows, columns))
        if self.bias:
            yield Parameter(f"{name}/bias", (columns,))

    def _embedding(self, size: int) -> Block:
        """Rows of a table, positions added; BERT adds segments and normalises.

        Split over devices by its vocabulary, with one all-reduce forward (Megatron-LM,
        section 3). Keeps dropout's mask and what is normalised.
        """
        s, h, encoder = self.sequence, self.hidden, self.architecture == "encoder"
        positions = s if self.positions is None else self.positions
        has = [Parameter("tokens", (self.vocabulary, h))]
        if positions:
            has.append(Parameter("positions", (positions, h)))
        if encoder:
            has += [Parameter("segments", (2, h)), *self._norm("norm")]
        masks = s * h * _MASK_BYTES if self.dropout else 0.0
        values = 2 + (2 if positions else 0) + (4 if encoder else 0) + (2 if self.dropout else 0)
        return Block(
            "embedding", tuple(has), Pass((), values * s * h * size + masks, 2 + 2 * encoder + self.dropout),
            Pass((), (values + encoder) * s * h * size + masks, 2 + encoder + self.dropout),
            output_bytes=s * h * size, kept_bytes=masks + (s * h * size if encoder else 0.0), whole=Pass(),
            kept_whole_bytes=masks + (s * h * size if encoder else 0.0), all_reduces=((s * h * size,), ()),
        )  # fmt: skip

    def _layer(self, number: int, size: int) -> Block:
        """Attention and a feed-forward block, each with its norm, its dropout and its sum with what came in.

        Products: 2 x rows x columns operations a token (Narayanan et al., appendix: 24 s h^2 +
        4 s^2 h forward of a standard layer), twice as many backward. Kept: what goes into
        products, norms, activations and dropout (Korthikanti et al., equations 1 to 6: of a
        standard layer s h (34 + 5 a s / h) bytes in two bytes a value, of which 10 s h whole where
        it is split). All-reduces of s h values: two forward, two backward (Megatron-LM, section 3).
        A fused attention does half of a decoder's scores, which the mask leaves, once more in the
        backward pass (Dao, "FlashAttention-2", arXiv:2307.08691, section 4.1).
        """
        s, h, f, kv = self.sequence, self.hidden, self.inner, self.width
        experts = self.experts if self.experts is not None and (number + 1) % self.experts.every == 0 else None
        used, copies = (experts.used, experts.count) if experts is not None else (1, 1)
        fused, drops, biased, rotated = self.attention == "fused", int(self.dropout), int(self.bias), int(self.positions == 0)
        matrices = 3 if self.gated else 2
        # softmax reads and writes its scores once, dropout too; backward softmax reads two and writes one
        scores = 0 if fused else self.heads * s * s
        causal = self.architecture == "decoder"
        core = 4.0 * s * s * h * (0.5 if fused and causal else 1.0)
        dropped = drops * (2 * size + _MASK_BYTES)
        head = h // self.heads
        parts = [*self._apart(s, size, scores, used)]
        # query, key and value at once, and what comes of them
        projecting, projecting_back = _products(s, size, (h, h + 2 * kv), (h, h))
        parts.append(_Part(Pass(projecting, 0.0, 4), Pass(projecting_back, 0.0, 8)))
        if fused:
            there, back = (attention_reach(s, head, causal=causal, backward=backward) for backward in (False, True))
            moved = s * size * (2 * h + 2 * kv)
            parts.append(_Part(Pass((), moved, 1, core, core / there), Pass((), 2 * moved, 1, 2.5 * core, 2.5 * core / back), attends=True))
        else:
            products = tuple(Product(core / 2, size * (s * (h + kv) + scores), inner) for inner in (head, s))
            attending = Pass(products, scores * (2 * size + dropped), 3 + drops)
            parts.append(_Part(attending, Pass(products * 2, scores * (3 * size + dropped), 5 + drops), again=True, attends=True))
        if experts is not None:
            routing = Pass((Product(2.0 * s * h * experts.count, s * size * (h + experts.count), h),), 4.0 * used * s * h * size, 4)
            parts.append(_Part(routing, routing + routing, whole=True))
        feeding, feeding_back = _products(used * s, size, *((h, f),) * (matrices - 1), (f, h))
        inside = used * s * f * size
        parts.append(
            _Part(
                Pass(feeding, inside * matrices, matrices * copies + 1),
                Pass(feeding_back, inside * (2 * matrices - 1), 2 * matrices * copies + 1),
                of_experts=experts is not None,
            )
        )
        # two norms, and two sums with what came in, behind dropout; a device of a split layer does all of these
        turned = rotated * 2 * s * (h + kv) * size
        around = Pass((), s * h * 2 * (2 * size + 3 * size + drops * _MASK_BYTES) + turned, 4 + rotated)
        parts.append(_Part(around, Pass((), s * h * 2 * (3 * size + 3 * size + dropped) + turned, 4 + rotated + 2 * drops), whole=True))
        parts.append(_Part(Pass(), Pass((), biased * s * size * (3 * h + 2 * kv + f), 6 * biased)))  # gradients of biases
        kept_whole = s * h * (4 * size + 2 * drops * _MASK_BYTES)
        kept_split = s * size * (2 * h + 2 * kv) + used * s * size * (f * (4 if self.gated else 2) + (h if experts is not None else 0))
        kept_scores = scores * (2 * size + _MASK_BYTES if drops else size) + fused * self.heads * s * _LOGIT_BYTES
        return Block(
            f"layer_{number}",
            tuple(self._parameters(experts)),
            forward=sum((part.forward for part in parts), Pass()),
            backward=sum((part.backward for part in parts), Pass()),
            output_bytes=s * h * size,
            kept_bytes=kept_whole + kept_split + kept_scores,
            kept_selectively_bytes=None if fused else kept_whole + kept_split,
            kept_whole_bytes=kept_whole,
            whole=sum((part.forward for part in parts if part.whole), Pass()),
            again=sum((part.forward for part in parts if part.again), Pass()),
            by_experts=sum((part.forward for part in parts if part.of_experts), Pass()),
            all_reduces=((s * h * size,) * 2, (s * h * size,) * 2),
            attention=(sum((part.forward for part in parts if part.attends), Pass()), 2.0 * s * kv * size),
            experts=(experts.count, experts.used, s * h * size) if experts is not None else None,
        )

    def _apart(self, s: int, size: int, scores: int, used: int) -> Iterator[_Part]:
        """Yield what separate kernels read and write besides, where what follows a product is not fused with it.

        Biases are added to what products gave; heads of query, key, value and result are copied
        apart and together again, backward too; scores are scaled and masked, and backward
        scaled; a gate is multiplied apart from its activation; dropout writes what the sum then
        reads. Fusing most of these saves a fifth to a quarter of a layer's bytes, as Ivanov et al.
        found of BERT ("Data movement is all you need", MLSys 2021, arXiv:2007.00072); Megatron-LM
        does (Narayanan et al., SC 2021, section 4.2).
        """
        if self.kernels == "fused":
            return
        h, f, kv, biased, drops = self.hidden, self.inner, self.width, int(self.bias), int(self.dropout)
        copied = 2 * s * size * (2 * h + 2 * kv) if scores else 0
        added = biased * 2 * s * size * (h + 2 * kv + f)
        gated = int(self.gated) * used * s * f * size
        yield _Part(
            Pass((), copied + added + 2 * gated, 4 * bool(scores) + 4 * biased + self.gated),
            Pass((), copied + 3 * gated, 4 * bool(scores) + self.gated),
        )
        yield _Part(Pass((), 4 * size * scores, 2 * bool(scores)), Pass((), 2 * size * scores, bool(scores)), again=True)
        yield _Part(Pass((), 2 * s * h * 2 * size * (drops + biased), 2 * (drops + biased)), Pass(), whole=True)

    def _parameters(self, experts: ExpertsOf | None) -> Iterator[Parameter]:
        """Yield variables in the order in which a forward pass meets them; experts' of a kind as one."""
        h, f = self.hidden, self.inner
        yield from self._norm("attention_norm")
        for name, rows, columns in ("query", h, h), ("key", h, self.width), ("value", h, self.width), ("output", h, h):
            yield from self._product(name, rows, columns)
        yield from self._norm("feed_forward_norm")
        if experts is not None:
            yield Parameter("router/kernel", (h, experts.count))
        for name, rows, columns in (("gate", h, f),) * self.gated + (("up", h, f), ("down", f, h)):
            if experts is None:
                yield from self._product(name, rows, columns)
            else:
                for each in self._product(name, rows, columns):
                    yield Parameter(f"experts/{each.name}", (experts.count, *each.shape), of_experts=True)

    def _head(self, size: int) -> Block:
        """Last norm, product with the vocabulary and cross-entropy; of BERT a product before, its pooler and next-sentence head.

        2 s h V operations forward (Narayanan et al.). Keeps what goes into norm and product, and
        float32 logits (Korthikanti et al., section 4.3: 4 s h + 4 s V bytes in two bytes a
        value). In 16 bits the product's own logits are there too while the cross-entropy runs (``vocab_parallel_logits.float()`` of
        Megatron-LM). Split over devices by its vocabulary, with three values a token to sum forward
        and its input's gradient backward (Megatron-LM, section 3). Tied, it multiplies with the
        embedding's matrix.
        """
        h, v, encoder = self.hidden, self.vocabulary, self.architecture == "encoder"
        s = self.sequence * self.share_predicted
        has = [*self._norm("norm")]
        if encoder:
            has = [*self._product("pooler", h, h), *self._product("next_sentence", h, 2), *self._product("transform", h, h), *has]
            has.append(Parameter("bias", (v,)))
        if not self.tied:
            has.append(Parameter("kernel", (h, v)))
        products, products_back = _products(s, size, (h, v), *((h, h),) * encoder)
        if encoder:
            of_pooler = Product(2.0 * h * h, size * 2 * h, h)
            products, products_back = (*products, of_pooler), (*products_back, of_pooler, of_pooler)
        norm = s * h * size
        kept = s * h * size * (4 if encoder else 2) + s * v * _LOGIT_BYTES
        return Block(
            "head", tuple(has),
            Pass(products, (4 if encoder else 2) * norm + s * v * 2 * _LOGIT_BYTES, 5 + 5 * encoder),
            Pass(products_back, (6 if encoder else 3) * norm + s * v * _LOGIT_BYTES, 5 + 8 * encoder),
            output_bytes=0.0, kept_bytes=kept, whole=Pass((), (4 if encoder else 2) * norm, 0), kept_whole_bytes=s * h * size * 2,
            temporary_bytes=s * v * size if size < _LOGIT_BYTES else 0.0,
            all_reduces=((3.0 * s * _LOGIT_BYTES,), (s * h * size,)), tied=("embedding/tokens",) if self.tied else (),
        )  # fmt: skip


def _products(rows: float, value_bytes: int, *matrices: tuple[int, int]) -> tuple[tuple[Product, ...], tuple[Product, ...]]:
    """Forward and backward products of rows of activations with matrices of variables, each by its rows and columns.

    Backward the gradient of what came in sums over the matrix's columns, and that of the matrix over the
    batch's rows, which are taken as endless.
    """
    there: list[Product] = []
    back: list[Product] = []
    for inner, columns in matrices:
        product = Product(2.0 * rows * inner * columns, rows * value_bytes * (inner + columns), inner)
        there.append(product)
        back += [product._replace(inner=columns), product._replace(inner=math.inf)]
    return tuple(there), tuple(back)


Channels = Annotated[int, Field(ge=1, le=10**6)]
_EXPANSION = 4
_FIRST = 64


class Residual(Spec):
    """Dimensions of a residual network of bottleneck blocks."""

    stages: Annotated[tuple[Annotated[int, Field(ge=1, le=1000)], ...], Field(min_length=1, max_length=8)] = Field(
        description="blocks per stage; each stage has twice the channels of the previous one at half the resolution"
    )
    image: Annotated[int, Field(ge=32, le=100_000)] = Field(default=224, description="height and width of an image")
    classes: Channels = Field(default=1000, description="number of classes, the outputs of the last layer")
    stride: Literal["first", "middle"] = Field(
        default="middle",
        description="which convolution of a stage's first block halves the resolution: first, the 1x1 (v1, Keras); middle, the 3x3 (v1.5)",
    )
    bias: bool = Field(default=False, description="convolutions have biases, as in Keras")
    device: KnownDevice = Field(
        default=DEFAULT_DEVICE, description="device for which times are computed if the cluster names none (models/devices)"
    )

    @property
    def constants(self) -> tuple[str, str, str, str]:
        """Constants that decide its times: shares of the peak, of the bandwidth, of the peak once more, and a kernel's start."""
        return "matrix_share", "normalisation_share", "matrix_share", "kernel_start_s"

    @property
    def input_bytes_per_sample(self) -> float:
        """Bytes of an image of three channels, as float32."""
        return 4.0 * 3 * self.image**2

    def blocks(self, value_bytes: int) -> tuple[Block, ...]:
        """First convolution with its pooling, blocks, and head."""
        size, blocks = value_bytes, []
        side = _halved(self.image)
        first = _Convolution("convolution", 7, 3, _FIRST, self.image, side, self.bias)
        pooled = _halved(side) ** 2 * _FIRST * size
        blocks.append(
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
                blocks.append(self._block(f"stage_{number + 1}/block_{block + 1}", channels, width, side, halves, block == 0, size))
                side, channels = _halved(side) if halves else side, _EXPANSION * width
        values = channels * side**2 * size
        head = Product(2.0 * channels * self.classes, (channels + self.classes) * size, channels)
        kernel = Parameter("kernel", (channels, self.classes)), Parameter("bias", (self.classes,))
        blocks.append(
            Block("head", kernel, Pass((head,), values, 4), Pass((head, head), values, 4), output_bytes=0.0,
                  kept_bytes=channels * size + self.classes * _LOGIT_BYTES)
        )  # fmt: skip
        return tuple(blocks)

    def _block(self, name: str, channels: int, width: int, side: int, halves: bool, projected: bool, size: int) -> Block:
        """1x1, 3x3 and 1x1 convolution with batch normalisation, and the sum with what came in, or its 1x1 projection."""
        ends = _halved(side) if halves else side
        between = ends if self.stride == "first" else side
        convolutions = [
            _Convolution("reduce", 1, channels, width, side, between, self.bias),
            _Convolution("middle", 3, width, width, between, ends, self.bias),
            _Convolution("expand", 1, width, _EXPANSION * width, ends, ends, self.bias),
        ]
        if projected:
            convolutions.append(_Convolution("project", 1, channels, _EXPANSION * width, side, ends, self.bias))
        out = convolutions[2].bytes_out(size)
        forward, backward = Pass((), 3 * out, 1), Pass((), 2 * out, 1)
        for each in convolutions:
            forward, backward = forward + each.forward(size), backward + each.backward(size)
        return Block(
            name, tuple(Parameter(f"{part.name}/{each.name}", each.shape) for part in convolutions for each in part.parameters),
            forward, backward, output_bytes=out, kept_bytes=math.fsum(each.kept(size) for each in convolutions) + out,
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
        """Bytes that come in."""
        return float(self.channels * self.side**2 * size)

    def bytes_out(self, size: int) -> float:
        """Bytes of its result."""
        return float(self.filters * self.ends**2 * size)

    def product(self, size: int) -> Product:
        """Input is read, result is written."""
        return Product(self.flops, self.bytes_in(size) + self.bytes_out(size), self.kernel**2 * self.channels)

    def forward(self, size: int) -> Pass:
        """Return the forward pass: its result is read for its mean and variance, read again and written normalised."""
        return Pass((self.product(size),), 3 * self.bytes_out(size), 2)

    def backward(self, size: int, *, of_input: bool = True) -> Pass:
        """Normalisation reads gradient and value twice and writes one; two products read that and the input, and write its gradient."""
        both = 2 if of_input else 1
        return Pass((self.product(size),) * both, 5 * self.bytes_out(size), 1 + both)

    def kept(self, size: int) -> float:
        """Return the bytes that go into it, and into its normalisation."""
        return self.bytes_in(size) + self.bytes_out(size)
