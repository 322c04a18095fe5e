"""How long a prompt takes layer by layer through a model, from its config and a machine's rates.

Bytes and operations are closed formulas of the config; the rates are `rates.py`'s, measured. No
tensors here; `python -m longctx.accounting.forecast` prints it for GLM-5.2-FP8 on this machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from longctx.accounting import native
from longctx.models.weights import native_names as names_of

MILLION = 1 << 20
WIDE_CHUNK = 8192  # gives an expert of GLM-5.2 256 rows
_FLOAT32 = (names_of.SCALE_SUFFIX, "e_score_correction_bias")


@dataclass(frozen=True)
class Rates:
    """What a machine does a second. `experts` are products of as few rows as an expert gets."""

    read: float  # bytes from the disk, not cached
    write: float  # bytes to the disk
    products: float  # FLOP
    experts: float  # FLOP
    scores: float  # FLOP of index scores, the choice of the best included
    core: float  # FLOP of attention over chosen latents, gathering included
    widen: float  # bytes of FP8 weights to bf16


@dataclass(frozen=True)
class Part:
    """`amount` of `unit` at `rate` of them a second."""

    label: str
    amount: float
    unit: str
    rate: float

    @property
    def seconds(self) -> float:
        return self.amount / self.rate


@dataclass(frozen=True)
class Forecast:
    """A prompt of `tokens` in chunks of `chunk_tokens` through a model, a layer at a time.

    `widen_once` is that of `stream_prefill`: more memory, and FP8 widened once instead of in every
    chunk.
    """

    sizes: native.Sizes
    tokens: int
    chunk_tokens: int
    fp8: bool
    widen_once: bool = False

    @property
    def chunks(self) -> int:
        return -(-self.tokens // self.chunk_tokens)

    @property
    def weight_bytes(self) -> int:
        """Every tensor of the layers, the embedding and the head; layers of MTP are not read."""
        return _bytes(names_of.tensor_shapes(self.sizes, fp8=self.fp8), self.fp8)

    @property
    def layer_bytes(self) -> int:
        """The largest layer: what is in memory at a time, its widened weights included."""
        layers = range(self.sizes.layers)
        return max(self._held(names_of.layer_shapes(self.sizes, i, fp8=self.fp8)) for i in layers)

    def _held(self, shapes: dict[str, names_of.Shape]) -> int:
        widened = 2 * _bytes(self._quantised(shapes), self.fp8) if self.widen_once else 0
        return _bytes(shapes, self.fp8) + widened

    @property
    def fp8_bytes(self) -> int:
        """FP8 weights alone, which a CPU widens."""
        return _bytes(self._quantised(names_of.tensor_shapes(self.sizes, fp8=self.fp8)), self.fp8)

    def _quantised(self, shapes: dict[str, names_of.Shape]) -> dict[str, names_of.Shape]:
        return {n: s for n, s in shapes.items() if self.fp8 and names_of.quantised(n)}

    @property
    def spill_bytes(self) -> int:
        """On disk at a time: a bf16 row a token, and where layers share, the tokens it chose."""
        return self.tokens * (self._row_bytes + self._choice_bytes)

    @property
    def spill_written(self) -> int:
        """The embedded rows, what every layer but the last makes of them, and choices."""
        after = zip(self.sizes.full, self.sizes.full[1:], strict=False)
        kept = sum(full and not following for full, following in after)
        return self.tokens * (self.sizes.layers * self._row_bytes + kept * self._choice_bytes)

    @property
    def spill_read(self) -> int:
        """Every layer's rows, and every shared layer's choices: of the last layer, one."""
        shared = self.sizes.full[:-1].count(False)
        last = 0 if self.sizes.full[-1] else self._choice_bytes
        rows = self.sizes.layers * self._row_bytes + shared * self._choice_bytes
        return self.tokens * rows + last

    @property
    def flops(self) -> native.Flops:
        """Of all rows through all layers and the logits of one: attention absorbed."""
        whole = native.prefill(self.sizes, self.tokens, absorbed=True)
        return native.Flops(
            whole.projections, whole.core, whole.indexer, whole.mlp, native.head(self.sizes)
        )

    @property
    def score_flops(self) -> int:
        """Of them, index queries with index keys."""
        pairs = self.tokens * (self.tokens + 1) // 2
        return self.sizes.full.count(True) * native.indexer_per_key(self.sizes) * pairs

    @property
    def expert_flops(self) -> int:
        """Of them, in routed experts."""
        each = 6 * self.sizes.hidden * self.sizes.expert_intermediate
        layers = self.sizes.sparse_mlp.count(True)
        return self.tokens * layers * self.sizes.experts_per_token * each

    def parts(self, rates: Rates) -> list[Part]:
        """What the time is spent on, one after the other."""
        flops = self.flops
        times = 1 if self.widen_once else self.chunks
        others = flops.total - flops.core - self.score_flops - self.expert_flops
        parts = [
            Part("weights read, once", self.weight_bytes, "B", rates.read),
            Part("hidden rows and choices written", self.spill_written, "B", rates.write),
            Part("hidden rows and choices read", self.spill_read, "B", rates.read),
            Part(f"FP8 widened, {times:,} x", times * self.fp8_bytes, "B", rates.widen),
            Part("experts", self.expert_flops, "FLOP", rates.experts),
            Part("other products", others, "FLOP", rates.products),
            Part("index scores", self.score_flops, "FLOP", rates.scores),
            Part("sparse attention", flops.core, "FLOP", rates.core),
        ]
        return [part for part in parts if part.amount]

    def seconds(self, rates: Rates) -> float:
        """All parts; nothing is overlapped."""
        return sum(part.seconds for part in self.parts(rates))

    def reread_seconds(self, rates: Rates) -> float:
        """Reading alone if every chunk went through all layers and memory held only one."""
        return self.chunks * self.weight_bytes / rates.read

    @property
    def _row_bytes(self) -> int:
        return 2 * self.sizes.hidden

    @property
    def _choice_bytes(self) -> int:
        return 0 if all(self.sizes.full) else 4 * min(self.sizes.index_topk, self.tokens)


def _bytes(shapes: dict[str, names_of.Shape], fp8: bool) -> int:
    """Stored bytes of tensors: FP8 or bf16, and what checkpoints keep in float32."""
    total = 0
    for name, shape in shapes.items():
        width = 4 if name.endswith(_FLOAT32) else 1 if fp8 and names_of.quantised(name) else 2
        for size in shape:
            width *= size
        total += width
    return total


def lines(forecast: Forecast, rates: Rates, name: str) -> Iterator[str]:
    """The forecast as text: amount / rate = seconds, part by part."""
    yield (
        f"{name}, {forecast.tokens:,} tokens layer by layer, {forecast.chunks:,} chunks of "
        f"{forecast.chunk_tokens:,}: amount / measured rate"
    )
    for part in forecast.parts(rates):
        amount, rate = scaled(part.amount, part.unit), scaled(part.rate, part.unit)
        yield f"  {part.label:<32} {amount:>11} / {rate:>11}/s = {part.seconds:>14,.1f} s"
    total = forecast.seconds(rates)
    yield f"  {'sum':<32} {'':>29} {total:>14,.1f} s = {_long(total)}"
    reread = forecast.reread_seconds(rates)
    moved = scaled(forecast.chunks * forecast.weight_bytes, "B")
    yield (
        f"  chunk by chunk, with memory for one layer, reading alone: {forecast.chunks:,} x "
        f"{scaled(forecast.weight_bytes, 'B')} = {moved} = {_long(reread)}"
    )
    caches = [
        forecast.tokens
        * (native.latent_bytes(forecast.sizes, kind) + native.index_bytes(forecast.sizes, kind))
        for kind in (True, False)
    ]
    yield (
        f"  memory: largest layer {scaled(forecast.layer_bytes, 'B')}, cache "
        f"{scaled(caches[0], 'B')} in fp8 or {scaled(caches[1], 'B')} in bf16; "
        f"disk: {scaled(forecast.spill_bytes, 'B')} beside the model"
    )


def scaled(amount: float, unit: str) -> str:
    """`amount` with three digits and a decimal prefix."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(amount) < 999.5:
            return f"{amount:.3g} {prefix}{unit}"
        amount /= 1000
    return f"{amount:.3g} E{unit}"


def _long(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def main(arguments: Sequence[str] | None = None) -> int:
    from longctx.accounting.rates import measure
    from longctx.models.native.synth_presets import FAMILIES, Sizes, preset

    parser = argparse.ArgumentParser(
        prog="python -m longctx.accounting.forecast", description=__doc__
    )
    parser.add_argument("--family", choices=FAMILIES, default="glm-5.2")
    parser.add_argument("--bf16", action="store_true", help="the checkpoint that is not FP8")
    parser.add_argument("--tokens", type=int, default=MILLION)
    parser.add_argument("--chunk", type=int, default=WIDE_CHUNK, help="tokens of a chunk")
    parser.add_argument("--widen-once", action="store_true", help="hold a layer's FP8 as bf16")
    parser.add_argument("--folder", type=Path, default=Path(), help="a folder of the disk to time")
    options = parser.parse_args(arguments)
    forecast = Forecast(
        Sizes.of(preset(options.family)),
        options.tokens,
        options.chunk,
        fp8=not options.bf16,
        widen_once=options.widen_once,
    )
    rates = measure(forecast.sizes, options.folder, chunk_tokens=options.chunk)
    name = f"{options.family}{'' if options.bf16 else ' FP8'}"
    print("\n".join(lines(forecast, rates, name)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
