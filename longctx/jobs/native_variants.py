"""One small checkpoint run three ways: index choices shared, made in every layer, or none made.

The checkpoint has an indexer in every layer; hiding some from the loader gives the model that
shares, with every other weight the same. Times and memory are taken a chunk at a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from longctx.accounting import native as formulas
from longctx.errors import LongctxError
from longctx.jobs.native_dense import run_dense_layer
from longctx.models.native.cache import NativeCache
from longctx.models.native.config import NativeConfig, parse_native_config
from longctx.models.native.counters import Counters
from longctx.models.native.decoder import CHUNK_TOKENS, NativeDecoder
from longctx.models.native.layer import Layer, load_layer
from longctx.models.native.synth import preset, write_checkpoint
from longctx.models.weights.native import NativeLinear, NativeSource

SHARED, EVERY, DENSE = "IndexShare", "every layer", "dense"
VARIANTS = (SHARED, EVERY, DENSE)
POSITIONS = (10_240, 51_200, 102_400, 204_800)  # what is tabled
DENSE_TOKENS = POSITIONS[0]  # attended to densely from the first one on; later, single chunks
SCHEDULE = "FSSSFSSS"  # one indexer in four layers
# As in GLM-5.2, attention over a key costs 8 times what scoring it costs: 8 heads x (64 + 64)
# against 4 x 32. Everything else is small, so that the indexer counts at 200K as there at 1M.
SIZES = {
    "hidden_size": 256,
    "index_head_dim": 32,
    "index_n_heads": 4,
    "index_topk": 256,
    "intermediate_size": 512,
    "kv_lora_rank": 128,
    "max_position_embeddings": 1 << 18,
    "moe_intermediate_size": 128,
    "n_routed_experts": 8,
    "num_attention_heads": 8,
    "num_experts_per_tok": 2,
    "num_nextn_predict_layers": 0,
    "first_k_dense_replace": 1,
    "q_lora_rank": 128,
    "qk_nope_head_dim": 48,
    "qk_rope_head_dim": 16,
    "v_head_dim": 64,
}


@dataclass(frozen=True)
class Chunk:
    """`count` tokens from position `first` on: what they took, and memory held afterwards."""

    first: int
    count: int
    seconds: float
    flops: int
    formula: int | None  # the closed formula's count, None where it does not hold exactly
    resident_bytes: int

    @property
    def milliseconds(self) -> float:
        """A token."""
        return 1000 * self.seconds / self.count


class WithoutIndexers:
    """A source of weights without the indexers of layers that are not `full`."""

    def __init__(self, source: NativeSource, full: tuple[bool, ...]):
        self.source = source
        shared = [i for i, own in enumerate(full) if not own]
        self._hidden = tuple(f"model.layers.{i}.self_attn.indexer." for i in shared)

    def names(self) -> frozenset[str]:
        return frozenset(n for n in self.source.names() if not n.startswith(self._hidden))

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        return self.source.tensor(name, shape, dtype)

    def linear(self, name: str, out: int, in_: int, /) -> NativeLinear:
        return self.source.linear(name, out, in_)


def checkpoint(folder: Path) -> Path:
    """The checkpoint in `folder`, written if it is not there yet."""
    place = folder / "native-bench-model"
    if not (place / "config.json").exists():
        write_checkpoint(preset("glm-5.2", "small", schedule="F" * len(SCHEDULE), **SIZES), place)
    return place


def config_of(place: Path, variant: str) -> NativeConfig:
    """The checkpoint's config under the variant's schedule; of `DENSE` no layer is full."""
    config = parse_native_config(json.loads((place / "config.json").read_text(encoding="utf-8")))
    full = {SHARED: [c == "F" for c in SCHEDULE], DENSE: [False] * config.layers}
    return replace(config, full=tuple(full.get(variant, config.full)))


def run(
    place: Path, variant: str, tokens: int, seed: int = 0, every: int = CHUNK_TOKENS
) -> Iterator[Chunk]:
    """Take `tokens` random ones through the checkpoint, `every` at a time.

    All rows go through all layers and no logits are computed. The cache is written over before the
    first token, so that memory held does not grow as it fills.
    """
    config = config_of(place, variant)
    ids = torch.randint(0, config.vocab, (tokens,), generator=torch.Generator().manual_seed(seed))
    source = WithoutIndexers(NativeSource(place, torch.bfloat16), config.full)
    decoder = NativeDecoder(config, source)
    cache = filled_cache(config, tokens, seed)
    for first in range(0, tokens, every):
        work = partial(decoder.hidden, ids[first : first + every], cache)
        count = min(every, tokens - first)
        yield _timed(config, first, count, decoder.counters, work)


def run_dense(
    place: Path, tokens: int, later: list[int], seed: int = 0, every: int = CHUNK_TOKENS
) -> Iterator[Chunk]:
    """As `run`, attending to every token: up to `tokens`, then one chunk before each of `later`.

    What stands before a later chunk is random numbers in the cache: they take the same time.
    """
    config = config_of(place, DENSE)
    source, counters = NativeSource(place, torch.bfloat16), Counters()
    layers = [load_layer(source, config, index) for index in range(config.layers)]
    cache = filled_cache(config, max(tokens, *later), seed)
    generator = torch.Generator().manual_seed(seed)
    starts = [*range(0, tokens, every), *(end - every for end in later if end > tokens)]
    for first in starts:
        x = torch.randn(every, config.hidden, generator=generator).bfloat16()
        work = partial(_dense, layers, config, x, first, cache, counters)
        yield _timed(config, first, every, counters, work)


def filled_cache(config: NativeConfig, tokens: int, seed: int = 0) -> NativeCache:
    """Room for `tokens` whose memory is in use from the start; it holds random numbers."""
    cache = NativeCache(config, tokens, "bf16")
    generator = torch.Generator().manual_seed(seed)
    for layer in cache.layers:
        for tensor in (layer.entries, layer.index_keys):
            if tensor is not None:
                tensor.normal_(generator=generator)
    return cache


def _dense(
    layers: list[Layer],
    config: NativeConfig,
    x: Tensor,
    first: int,
    cache: NativeCache,
    counters: Counters,
) -> None:
    for layer, place in zip(layers, cache.layers, strict=True):
        x = run_dense_layer(layer, config, x, first, place, counters)


def _timed(
    config: NativeConfig, first: int, count: int, counters: Counters, work: Callable[[], object]
) -> Chunk:
    counters.reset()
    begin = time.perf_counter()
    work()
    seconds = time.perf_counter() - begin
    return Chunk(
        first, count, seconds, counters.total, expected(config, first, count), resident_bytes()
    )


def expected(config: NativeConfig, first: int, count: int) -> int | None:
    """The closed formulas' FLOPs of rows from `first` on, without logits; None for early rows.

    Rows that see no more tokens than are chosen are run by other means than the formulas count.
    """
    dense = not any(config.full)
    if first < config.index_topk and not dense:
        return None

    def before(tokens: int) -> int:
        found = formulas.prefill(config, tokens, absorbed=not dense, dense=dense)
        return found.total - found.head

    return before(first + count) - before(first)


def resident_bytes() -> int:
    """Memory this process holds; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


def measure(place: Path, variant: str, tokens: int, record: Path, threads: int) -> None:
    """Run a variant and keep what was measured, in a process of its own: memory is its alone."""
    command = [sys.executable, "-m", "longctx.jobs.native_variants", str(place), variant]
    done = subprocess.run([*command, str(tokens), str(record), str(threads)])
    if done.returncode:
        raise LongctxError(f"the run of {variant} ended with {done.returncode}")


def _measure(place: Path, variant: str, tokens: int, record: Path, threads: int) -> None:
    from longctx.jobs.bench import machine

    torch.set_num_threads(threads)
    if variant == DENSE:
        later = [position for position in POSITIONS if position <= tokens]
        chunks = run_dense(place, min(DENSE_TOKENS, tokens), later)
    else:
        chunks = run(place, variant, tokens)
    found = []
    for chunk in chunks:
        found.append(chunk)
        if sys.stderr.isatty():
            done = f"{chunk.first + chunk.count:,} tokens, {chunk.milliseconds:.2f} ms a token"
            print(f"\r{variant}: {done}  ", end="", file=sys.stderr)
    save(record, found, machine())


def save(path: Path, chunks: list[Chunk], machine: str) -> None:
    """Keep a measured run, to be drawn and tabled later."""
    content = {"machine": machine, "chunks": [asdict(chunk) for chunk in chunks]}
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


def load(path: Path) -> tuple[str, list[Chunk]]:
    """What `save` kept: the machine's line and the chunks."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["machine"], [Chunk(**chunk) for chunk in content["chunks"]]


if __name__ == "__main__":
    _measure(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
