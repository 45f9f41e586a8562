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
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field

from simulator.base.spec import PositiveShare, Spec, Terse
from simulator.spec.computed import DEFAULT_DEVICE, Block, Parameter, Pass, Product, attention_reach, known_device

Count = Annotated[int, Field(ge=1, le=10**7)]
KnownDevice = Annotated[str, AfterValidator(lambda name: known_device(name).name)]
"""A device by any of its names in ``models/devices``; stored under its first name."""
_IN_SEQUENCE = 5
"""Copies of each token sent to experts that are kept where these run one after another (evidence.studies.gpu_runs)."""
_MASK_BYTES = 1
"""Bytes of a value of dropout's mask."""
_LOGIT_BYTES = 4
"""Sums over many values are float32 in any precision."""


class ExpertsOf(Terse, only=("dense_layers", "feed_forward", "shared", "grouped")):
    """Feed-forward blocks as experts, each token being sent to some of them (Fedus et al., "Switch Transformers", JMLR 2022)."""

    count: int = Field(ge=2, le=100_000, description="experts per block")
    used: int = Field(default=2, ge=1, le=1000, description="experts that process each token")
    every: int = Field(default=1, ge=1, le=10_000, description="every how many layers a layer has experts")
    dense_layers: int = Field(default=0, ge=0, le=9_000, description="first layers, which have no experts (first_k_dense_replace)")
    feed_forward: Count | None = Field(
        default=None, description="width of each expert (moe-ffn-hidden-size, moe_intermediate_size); left out: transformer.feed_forward"
    )
    grouped: bool = Field(
        default=True,
        description="one kernel computes all experts of a device (moe-grouped-gemm), in work space of its own; false: one after another",
    )
    shared: Count | None = Field(
        default=None, description="width of all shared experts together, which process every token; left out: none"
    )

    def _broken_rules(self) -> Iterator[str]:
        if self.used > self.count:
            yield f"used ({self.used}) must be at most count ({self.count})"


class LatentAttention(Spec):
    """Multi-head latent attention: queries, keys and values come from compressed ones (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""

    key_value_rank: Count = Field(default=512, description="width of the compressed keys and values (kv-lora-rank)")
    query_rank: Count | None = Field(default=None, description="width of the compressed queries (q-lora-rank); left out: not compressed")
    rotary_width: Count = Field(default=64, description="values of a query and a key that carry its position (qk-pos-emb-head-dim)")
    value_width: Count | None = Field(default=None, description="width of a head's values (v-head-dim); left out: transformer.head_width")


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


class Transformer(Terse, only=("head_width", "latent", "query_key_norm", "flash_attention", "float8", "adapter_rank", "further_tokens")):
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
    head_width: Count | None = Field(
        default=None, description="width of a head (kv-channels, head_dim; qk-head-dim with latent attention); left out: hidden / heads"
    )
    latent: LatentAttention | None = Field(default=None, description="multi-head latent attention (MLA); left out: none")
    query_key_norm: bool = Field(default=False, description="queries and keys are normalised (Qwen3, qk-layernorm)")
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
    flash_attention: Literal[2, 3] | None = Field(
        default=None, description="version of FlashAttention, with attention = fused; left out: unknown, between the first and the second"
    )
    kernels: Literal["fused", "separate"] = Field(
        default="fused",
        description="fused: operations after a matrix product form one kernel (bias with activation, scale with mask and softmax, "
        "dropout with sum), as in XLA (jit_compile) or Megatron-LM; separate: each is its own kernel, as in plain PyTorch or "
        "TensorFlow",
    )
    float8: bool = Field(
        default=False,
        description="matrix products of the layers in 8 bits (Transformer Engine, fp8-format); all else stays as it is",
    )
    adapter_rank: Count | None = Field(
        default=None,
        description="LoRA: only adapters of this rank are trained, two thin matrices at each matrix of the layers; left out: everything is",
    )
    predicted: PositiveShare | None = Field(
        default=None, description="share of tokens that the head predicts; left out: 1 for a decoder, 0.15 for an encoder"
    )
    experts: ExpertsOf | None = Field(default=None, description="mixture of experts in place of feed-forward blocks; left out: none")
    further_tokens: int = Field(
        default=0, ge=0, le=100, description="further tokens predicted, each by a layer and the head once more (mtp-num-layers)"
    )
    device: KnownDevice = Field(
        default=DEFAULT_DEVICE, description="device for which times are computed if the cluster names none (models/devices)"
    )

    def _broken_rules(self) -> Iterator[str]:
        if self.head_width is None and self.hidden % self.heads:
            yield f"hidden ({self.hidden}) must be a multiple of heads ({self.heads}), or give head_width"
        if self.heads % self.groups:
            yield f"heads ({self.heads}) must be a multiple of key_value_heads ({self.groups})"
        if self.experts is not None and self.experts.every > self.layers:
            yield f"experts.every ({self.experts.every}) must be at most layers ({self.layers})"
        if self.experts is not None and self.experts.dense_layers >= self.layers:
            yield f"experts.dense_layers ({self.experts.dense_layers}) must be less than layers ({self.layers})"
        if self.latent is not None and self.key_value_heads is not None:
            yield "key_value_heads has no meaning with latent attention, where each head has its own: leave it out"

    @property
    def constants(self) -> tuple[str, str, str, str]:
        """Constants that decide its times: shares of the peak, of the bandwidth, of the peak in fused attention, a kernel's start."""
        products = "decoder_matrix_share" if self.architecture == "decoder" else "matrix_share"
        version = "fused_attention_share" if self.flash_attention is None else f"flash_attention_{self.flash_attention}_share"
        fused = version if self.attention == "fused" else products
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
    def widths(self) -> tuple[int, int, int, int]:
        """Widths of all queries, keys, values and results of an attention."""
        head = self.head_width or self.hidden // self.heads
        if self.latent is not None:
            values = self.heads * (self.latent.value_width or head)
            return self.heads * (head + self.latent.rotary_width), self.heads * (head + self.latent.rotary_width), values, values
        return self.heads * head, self.groups * head, self.groups * head, self.heads * head

    @property
    def projections(self) -> tuple[tuple[str, int, int], ...]:
        """Matrices of an attention: name, rows, columns."""
        h, (query, key, value, result) = self.hidden, self.widths
        if self.latent is None:
            return ("query", h, query), ("key", h, key), ("value", h, value), ("output", result, h)
        rank, rotary = self.latent.key_value_rank, self.latent.rotary_width
        wide = query + value - self.heads * rotary  # of keys the part without a position, and values
        compressed = self.latent.query_rank
        queries = (("query", h, query),) if compressed is None else (("query_down", h, compressed), ("query_up", compressed, query))
        return *queries, ("key_value_down", h, rank + rotary), ("key_value_up", rank, wide), ("output", result, h)

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
        h = self.hidden
        attention = sum(rows * columns for _, rows, columns in self.projections)
        of_layers = float(self.layers * attention)
        for number in range(self.layers):
            experts = self._experts_of(number)
            wide = self.inner if experts is None else experts.used * (experts.feed_forward or self.inner) + (experts.shared or 0)
            of_layers += (3 if self.gated else 2) * h * wide + (h * experts.count if experts is not None else 0)
        return of_layers + self.share_predicted * (self.vocabulary * h + h * h * (self.architecture == "encoder"))

    @property
    def attention_flops_per_token(self) -> float:
        """Operations of attention scores in forward and backward pass, 12 L H Q T, without regard to a causal mask (PaLM, appendix B)."""
        query, _, _, result = self.widths
        return 6.0 * self.layers * (query + result) * self.sequence

    def _experts_of(self, number: int) -> ExpertsOf | None:
        """Experts of a layer; None if it has none."""
        behind = number - self.experts.dense_layers if self.experts is not None else -1
        return self.experts if self.experts is not None and behind >= 0 and (behind + 1) % self.experts.every == 0 else None

    def blocks(self, value_bytes: int) -> tuple[Block, ...]:
        """Embedding, layers, those that predict further tokens, and head."""
        layers = (self._layer(number, value_bytes) for number in range(self.layers))
        return (
            self._embedding(value_bytes),
            *layers,
            *(self._further(value_bytes) for _ in range(self.further_tokens)),
            self._head(value_bytes),
        )

    def _frozen(self, parameters: Iterable[Parameter]) -> Iterator[Parameter]:
        """Yield variables outside the layers, which have no adapters."""
        return (each._replace(frozen=self.adapter_rank is not None) for each in parameters)

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
            "embedding", tuple(self._frozen(has)), Pass((), values * s * h * size + masks, 2 + 2 * encoder + self.dropout),
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
        s, h, (query, key, value, result) = self.sequence, self.hidden, self.widths
        experts = self._experts_of(number)
        used, copies = (experts.used, experts.count) if experts is not None else (1, 1)
        f = self.inner if experts is None else experts.feed_forward or self.inner
        fused, drops, biased, rotated = self.attention == "fused", int(self.dropout), int(self.bias), int(self.positions == 0)
        matrices = 3 if self.gated else 2
        # softmax reads and writes its scores once, dropout too; backward softmax reads two and writes one
        scores = 0 if fused else self.heads * s * s
        causal = self.architecture == "decoder"
        seen = 0.5 if fused and causal else 1.0
        dropped = drops * (2 * size + _MASK_BYTES)
        parts = [*self._apart(s, size, scores, used * f)]
        # query, key and value at once, and what comes of them
        into_heads = [(h, query + key + value)]
        if self.latent is not None or self.adapter_rank is not None:
            into_heads = [(rows, columns) for _, rows, columns in self.projections[:-1]]
        projecting, projecting_back = _products(s, size, *into_heads, (result, h), float8=self.float8, adapters=self.adapter_rank)
        parts.append(_Part(Pass(projecting, 0.0, 3 + len(into_heads)), Pass(projecting_back, 0.0, 6 + 2 * len(into_heads))))
        if fused:
            core = 2.0 * s * s * (query + result) * seen
            there, back = (attention_reach(s, query // self.heads, causal=causal, backward=backward) for backward in (False, True))
            moved = s * size * (query + key + value + result)
            parts.append(_Part(Pass((), moved, 1, core, core / there), Pass((), 2 * moved, 1, 2.5 * core, 2.5 * core / back), attends=True))
        else:
            products = (
                Product(2.0 * s * s * query, size * (s * (query + key) + scores), query // self.heads),
                Product(2.0 * s * s * result, size * (s * (result + value) + scores), s),
            )
            attending = Pass(products, scores * (2 * size + dropped), 3 + drops)
            parts.append(_Part(attending, Pass(products * 2, scores * (3 * size + dropped), 5 + drops), again=True, attends=True))
        # casts of what goes into products; norms of compressed values, and parts of heads with and without positions, put together
        small = 2 * (len(into_heads) + 1 + matrices) * self.float8 + 10 * (self.latent is not None)
        parts.append(_Part(Pass((), 0.0, small), Pass((), 0.0, 2 * small)))
        if experts is not None:
            routing = Pass((Product(2.0 * s * h * experts.count, s * size * (h + experts.count), h),), 4.0 * used * s * h * size, 4)
            parts.append(_Part(routing, routing + routing, whole=True))
        kernels = copies if experts is not None and not experts.grouped else 1
        parts.append(self._feeding(used * s, f, kernels, size, of_experts=experts is not None))
        if experts is not None and experts.shared is not None:
            parts.append(self._feeding(s, experts.shared, 1, size))
        # two norms, and two sums with what came in, behind dropout; a device of a split layer does all of these
        turned = (rotated + self.query_key_norm) * 2 * s * (query + key) * size
        around = Pass((), s * h * 2 * (2 * size + 3 * size + drops * _MASK_BYTES) + turned, 4 + rotated + 2 * self.query_key_norm)
        around_back = s * h * 2 * (3 * size + 3 * size + dropped) + turned
        parts.append(_Part(around, Pass((), around_back, 4 + rotated + 2 * drops + 2 * self.query_key_norm), whole=True))
        parts.append(_Part(Pass(), Pass((), biased * s * size * (query + key + value + 2 * h + f), 6 * biased)))  # gradients of biases
        into = 1 if self.float8 else size  # what goes into a product
        kept_whole = s * h * (2 * size + 2 * into + 2 * drops * _MASK_BYTES)
        wide = s * h * _LOGIT_BYTES if self.kernels == "separate" and size < _LOGIT_BYTES else 0  # values in 32 bits
        kept_whole += 2 * 2 * wide  # what each norm got, and what it normalised
        if self.latent is not None:
            compressed = self.latent.key_value_rank + (self.latent.query_rank or 0)
            kept_whole += s * ((size + into) * compressed + size * self.latent.rotary_width)
        kept_split = s * (size * (query + key + value + result) + self.float8 * result + self.query_key_norm * size * (query + key))
        inside = (self.kept_by_activation - 1) * size + into
        # tokens as sent to experts; if these run one after another also as gathered, and what each made of them
        copies_kept = 0 if experts is None else 1 if experts.grouped else _IN_SEQUENCE
        routed = used * (s * h * (into + (copies_kept - 1) * size) + 2 * wide) if experts is not None else 0
        # what grouped experts made is also kept before it was multiplied with the router's probability
        kept_split += used * s * f * (inside + size * (experts is not None and experts.grouped)) + routed
        if experts is not None and experts.shared is not None:
            kept_split += s * experts.shared * inside
        kept_scores = scores * (2 * size + _MASK_BYTES if drops else size) + fused * self.heads * s * _LOGIT_BYTES
        return Block(
            f"layer_{number}",
            tuple(self._adapted(self._parameters(experts))),
            forward=sum((part.forward for part in parts), Pass()),
            backward=sum((part.backward for part in parts), Pass()),
            output_bytes=s * h * size,
            kept_bytes=kept_whole + kept_split + kept_scores,
            kept_selectively_bytes=None if fused else kept_whole + kept_split,
            kept_whole_bytes=kept_whole,
            temporary_bytes=s * size * (matrices * (used * f + (experts.shared or 0 if experts is not None else 0)) + 2 * h)
            + (2 * used * wide if experts is not None else 0),
            whole=sum((part.forward for part in parts if part.whole), Pass()),
            again=sum((part.forward for part in parts if part.again), Pass()),
            by_experts=sum((part.forward for part in parts if part.of_experts), Pass()),
            all_reduces=((s * h * size,) * 2, (s * h * size,) * 2),
            attention=(sum((part.forward for part in parts if part.attends), Pass()), s * size * float(key + value)),
            experts=(experts.count, experts.used, s * h * size, routed, experts.grouped) if experts is not None else None,
        )

    def _adapted(self, parameters: Iterable[Parameter]) -> Iterator[Parameter]:
        """Yield variables as they are, or frozen, each matrix with its adapter (Hu et al., "LoRA", ICLR 2022)."""
        for each in parameters:
            yield each if self.adapter_rank is None else each._replace(frozen=True)
            if self.adapter_rank is not None and each.name.endswith("kernel") and not each.name.startswith("router"):
                *copies, rows, columns = each.shape
                yield Parameter(f"{each.name}/adapter", (*copies, rows + columns, self.adapter_rank), each.of_experts)

    @property
    def kept_by_activation(self) -> int:
        """Widths that a feed-forward block keeps: into and out of its activation.

        A fused gate keeps both halves of what it got and its result (SwiGLU of Megatron-LM and Transformer Engine), a separate one
        the activated half besides. A squared ReLU keeps what ReLU made, not what it got.
        """
        return (3 if self.kernels == "fused" else 4) if self.gated else 2

    def _feeding(self, rows: int, wide: int, copies: int, size: int, *, of_experts: bool = False) -> _Part:
        """A feed-forward block on some rows."""
        matrices, inside = 3 if self.gated else 2, rows * wide * size
        shapes = *((self.hidden, wide),) * (matrices - 1), (wide, self.hidden)
        there, back = _products(rows, size, *shapes, float8=self.float8, adapters=self.adapter_rank)
        return _Part(
            Pass(there, inside * matrices, matrices * copies + 1),
            Pass(back, inside * (2 * matrices - 1), 2 * matrices * copies + 1),
            of_experts=of_experts,
        )

    def _further(self, size: int) -> Block:
        """A layer like the last one, of its result and the next token's embedding, and the head once more (DeepSeek-V3, section 2.2)."""
        s, h = self.sequence, self.hidden
        layer, head = self._layer(self.layers - 1, size), self._head(size)
        there, back = _products(s, size, (2 * h, h), float8=self.float8, adapters=self.adapter_rank)
        has = self._adapted([*self._product("projection", 2 * h, h), *self._norm("hidden_norm"), *self._norm("token_norm")])
        return layer._replace(
            name="further",
            parameters=(*layer.parameters, *has),
            forward=layer.forward + head.forward + Pass(there, 6.0 * s * h * size, 4),
            backward=layer.backward + head.backward + Pass(back, 8.0 * s * h * size, 6),
            kept_bytes=layer.kept_bytes + head.kept_bytes + 4 * s * h * size,
            kept_selectively_bytes=None if layer.kept_selectively_bytes is None else layer.kept_selectively_bytes + 4 * s * h * size,
            logits=head.logits,
            all_reduces=(layer.all_reduces[0] + head.all_reduces[0], layer.all_reduces[1] + head.all_reduces[1]),
            tied=("embedding/tokens" if self.tied else "head/kernel",),
        )

    def _apart(self, s: int, size: int, scores: int, inner: int) -> Iterator[_Part]:
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
        h, biased, drops = self.hidden, int(self.bias), int(self.dropout)
        query, key, value, result = self.widths
        copied = 2 * s * size * (query + key + value + result) if scores else 0
        added = biased * 2 * s * size * (query + key + value + inner)
        gated = int(self.gated) * s * inner * size
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
        for name, rows, columns in self.projections:
            yield from self._product(name, rows, columns)
        if self.query_key_norm:
            width = self.widths[0] // self.heads
            yield from (Parameter(f"{name}_norm/scale", (width,)) for name in ("query", "key"))
        if self.latent is not None:
            ranks = ("query", self.latent.query_rank), ("key_value", self.latent.key_value_rank)
            yield from (Parameter(f"{name}_down_norm/scale", (rank,)) for name, rank in ranks if rank is not None)
        yield from self._norm("feed_forward_norm")
        named = [*(("gate", "up") if self.gated else ("up",))]
        if experts is not None:
            yield Parameter("router/kernel", (h, experts.count))
            f = experts.feed_forward or f
            for name, rows, columns in *((name, h, f) for name in named), ("down", f, h):
                for each in self._product(name, rows, columns):
                    yield Parameter(f"experts/{each.name}", (experts.count, *each.shape), of_experts=True)
        wide = f if experts is None else experts.shared
        if wide is not None:
            where = "" if experts is None else "shared/"
            for name, rows, columns in *((name, h, wide) for name in named), ("down", wide, h):
                yield from self._product(where + name, rows, columns)

    def _head(self, size: int) -> Block:
        """Last norm, product with the vocabulary and cross-entropy; of BERT a product before, its pooler and next-sentence head.

        2 s h V operations forward (Narayanan et al.). Keeps what goes into norm and product
        (Korthikanti et al., section 4.3: 4 s h + 4 s V bytes in two bytes a value), and logits, whose bytes depend on the software
        (:data:`~simulator.spec.training.HEADS`). Split over devices by its vocabulary, with three values a token to sum forward
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
        products, products_back = _products(s, size, (h, v), *((h, h),) * encoder, adapters=None if self.adapter_rank is None else 0)
        if encoder:
            of_pooler = Product(2.0 * h * h, size * 2 * h, h)
            products, products_back = (*products, of_pooler), (*products_back, of_pooler, of_pooler)
        norm = s * h * size
        kept = s * h * size * (4 if encoder else 2)
        return Block(
            "head", tuple(self._frozen(has)),
            Pass(products, (4 if encoder else 2) * norm + s * v * 2 * _LOGIT_BYTES, 5 + 5 * encoder),
            Pass(products_back, (6 if encoder else 3) * norm + s * v * _LOGIT_BYTES, 5 + 8 * encoder),
            output_bytes=0.0, kept_bytes=kept, whole=Pass((), (4 if encoder else 2) * norm, 0), kept_whole_bytes=s * h * size * 2,
            logits=s * v,
            all_reduces=((3.0 * s * _LOGIT_BYTES,), (s * h * size,)), tied=("embedding/tokens",) if self.tied else (),
        )  # fmt: skip


def _products(
    rows: float, value_bytes: int, *matrices: tuple[int, int], float8: bool = False, adapters: int | None = None
) -> tuple[tuple[Product, ...], tuple[Product, ...]]:
    """Forward and backward products of rows of activations with matrices of variables, each by its rows and columns.

    Backward the gradient of what came in sums over the matrix's columns, and that of the matrix over the
    batch's rows, which are taken as endless. Matrices with adapters of a rank are frozen and have no gradient; adapters have.
    """
    there: list[Product] = []
    back: list[Product] = []
    for inner, columns in matrices:
        product = Product(2.0 * rows * inner * columns, rows * value_bytes * (inner + columns), inner, float8)
        there.append(product)
        back += [product._replace(inner=columns), *([product._replace(inner=math.inf)] if adapters is None else [])]
        if adapters:
            thin = Product(2.0 * rows * adapters * (inner + columns), rows * value_bytes * (inner + columns + 2 * adapters), inner)
            there.append(thin)
            back += [thin, thin]
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
