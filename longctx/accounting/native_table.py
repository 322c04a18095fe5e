"""The text of `python -m longctx.accounting.native`: numbers come from there, only layout here."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from longctx.accounting import native

BOTH = (False, True)


def lines(sizes: native.Sizes | None = None) -> Iterator[str]:
    """The tables line by line, of the published GLM-5.2 where `sizes` is None."""
    if sizes is None:
        from longctx.models.native.synth_presets import Sizes, preset

        sizes = Sizes.of(preset("glm-5.2"))
    full = sizes.full.count(True)
    yield f"{sizes.layers} layers, {full} with an indexer of their own; top {sizes.index_topk:,}"
    yield "GFLOP per token; pairs are with keys and values made (MHA) / with latents (absorbed)"
    yield ""
    yield from _by_position(sizes, full)
    yield ""
    yield "mean over a prefill, MHA:"
    for tokens in native.POSITIONS:
        every = native.prefill(sizes, tokens, every_layer=True).total
        shared = native.prefill(sizes, tokens).total
        means = f"{every / tokens / 1e9:.1f} vs {shared / tokens / 1e9:.1f}"
        yield f"  {tokens:>9,} tokens: {means} ({every / shared:.2f}x)"
    yield ""
    yield from _what_the_claim_needs(sizes, full)
    yield ""
    yield from _bytes(sizes)


def _by_position(sizes: native.Sizes, full: int) -> Iterator[str]:
    columns = "{:>9}  {:>6}  {:>10}  {:>8}  {:>7}  {:>13}  {:>13}  {:>11}  {:>12}"
    yield columns.format(
        "position",
        "base",
        "core",
        f"index x{sizes.layers}",
        f"x{full}",
        "every layer",
        "IndexShare",
        "ratio",
        "dense",
    )
    for position in native.POSITIONS:
        every = [native.per_token(sizes, position, absorbed=a, every_layer=True) for a in BOTH]
        shared = [native.per_token(sizes, position, absorbed=a) for a in BOTH]
        dense = [native.per_token(sizes, position, absorbed=a, dense=True) for a in BOTH]
        ratios = [native.ratio(sizes, position, absorbed=a) for a in BOTH]
        yield columns.format(
            position,
            f"{every[0].base / 1e9:.1f}",
            _pair([f.core / 1e9 for f in every], 1),
            f"{every[0].indexer / 1e9:.1f}",
            f"{shared[0].indexer / 1e9:.1f}",
            _pair([f.total / 1e9 for f in every], 1),
            _pair([f.total / 1e9 for f in shared], 1),
            _pair([float(r) for r in ratios], 2),
            _pair([f.total / 1e9 for f in dense], 0),
        )


def _what_the_claim_needs(sizes: native.Sizes, full: int) -> Iterator[str]:
    position, claimed = native.CLAIMED_POSITION, native.CLAIMED_RATIO
    yield f"what {float(claimed):.2f}x at {position:,} needs, MHA / absorbed:"
    for count in (Fraction(full), Fraction(full - 1), Fraction(sizes.layers, 4)):
        ratios = [float(native.ratio(sizes, position, absorbed=a, full_layers=count)) for a in BOTH]
        yield f"  {float(count):g} full layers: {_pair(ratios, 2)}x"
    needed = [native.full_layers_for(sizes, position, claimed, absorbed=a) for a in BOTH]
    yield f"  exactly {float(claimed):.2f}x: {_pair([float(n) for n in needed], 2)} full layers"
    yield f"  no more than {sizes.layers / full:.2f}x at any position"


def _bytes(sizes: native.Sizes) -> Iterator[str]:
    yield "cache bytes per token, bf16 / FP8, and GB at 1,048,576 tokens:"
    for label, bytes_of in (("latents", native.latent_bytes), ("index keys", native.index_bytes)):
        sizes_of = [bytes_of(sizes, fp8) for fp8 in BOTH]
        gigabytes = [size * native.CLAIMED_POSITION / 1e9 for size in sizes_of]
        numbers = " / ".join(f"{size:,}" for size in sizes_of)
        yield f"  {label}: {numbers} ({_pair(gigabytes, 1)} GB)"


def _pair(values: list[float], digits: int) -> str:
    return "/".join(f"{value:.{digits}f}" for value in values)
