"""Layer by layer is chunk by chunk to the bit, reads every weight once and leaves nothing behind.

Checkpoints have more tokens than their indexers choose, shared layers, and experts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from longctx.errors import DoesNotFitError
from longctx.models.native import decoder as ordinary
from longctx.models.native import spill, streaming
from longctx.models.native.cache import NativeCache
from longctx.models.native.config import NativeConfig, parse_native_config
from longctx.models.native.counters import Counters
from longctx.models.native.decoder import NativeDecoder
from longctx.models.native.spill import SpilledRows
from longctx.models.native.streaming import spilled_size, stream_prefill
from longctx.models.native.synth import preset, write_checkpoint
from longctx.models.weights.native import NativeLinear, NativeSource
from longctx.models.weights.native_names import tensor_shapes

TOKENS = 75
SCHEDULE = "FFFSSSFS"
KINDS = ["bf16", "fp8"]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Eight tiny layers, four of them shared, in both stored forms and several shards."""
    folder = tmp_path_factory.mktemp("streamed")
    for kind in KINDS:
        config = preset("glm-5.2", "tiny", schedule=SCHEDULE)
        write_checkpoint(config, folder / kind, fp8=kind == "fp8", shard_bytes=400_000)
    return {kind: folder / kind for kind in KINDS}


def config_of(folder: Path) -> NativeConfig:
    return parse_native_config(json.loads((folder / "config.json").read_text()))


def token_ids(count: int, seed: int = 1) -> Tensor:
    return torch.randint(0, 512, (count,), generator=torch.Generator().manual_seed(seed))


def opened(folder: Path) -> tuple[NativeConfig, NativeSource]:
    return config_of(folder), NativeSource(folder, torch.bfloat16)


def same_caches(one: NativeCache, other: NativeCache) -> bool:
    mine, theirs = one.valid(), other.valid()
    return mine.keys() == theirs.keys() and all(mine[name].equal(theirs[name]) for name in mine)


@pytest.mark.parametrize("chunk", [1, 7, 8, 33, TOKENS, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_caches_are_the_ordinary_orders(
    kind: str,
    chunk: int,
    checkpoints: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    config, source = opened(checkpoints[kind])
    monkeypatch.setattr(ordinary, "CHUNK_TOKENS", chunk)
    decoder = NativeDecoder(config, NativeSource(checkpoints[kind], torch.bfloat16))
    caches = [decoder.new_cache(TOKENS) for _ in range(2)]
    wanted = decoder.forward(token_ids(TOKENS), caches[0], last_only=True)

    counters = Counters()
    logits = stream_prefill(
        config,
        source,
        token_ids(TOKENS),
        caches[1],
        spill_dir=tmp_path,
        chunk_tokens=chunk,
        counters=counters,
    )

    assert logits.equal(wanted)
    assert caches[1].length == TOKENS
    assert same_caches(*caches)
    assert counters == decoder.counters


def test_weights_widened_once_give_the_same_bits(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config, source = opened(checkpoints["fp8"])
    caches = [NativeCache(config, TOKENS, "bf16") for _ in range(2)]
    widened: list[str] = []
    dense = NativeLinear.dense

    def counted(product: NativeLinear) -> Tensor:
        widened.append(product.name)
        return dense(product)

    wanted = stream_prefill(
        config, source, token_ids(TOKENS), caches[0], spill_dir=tmp_path, chunk_tokens=9
    )
    monkeypatch.setattr(NativeLinear, "dense", counted)
    logits = stream_prefill(
        config,
        source,
        token_ids(TOKENS),
        caches[1],
        spill_dir=tmp_path,
        chunk_tokens=9,
        widen_once=True,
    )

    assert logits.equal(wanted)
    assert same_caches(*caches)
    assert len(widened) == len(set(widened)) > 8 * 10  # products of every layer, each once


def test_the_last_rows_and_a_second_prompt(checkpoints: dict[str, Path], tmp_path: Path):
    """What follows a cache is streamed like what filled it; every row may be asked for."""
    config, source = opened(checkpoints["bf16"])
    decoder = NativeDecoder(config, source)
    caches = [decoder.new_cache(TOKENS + 20, "fp8") for _ in range(2)]
    parts = token_ids(TOKENS), token_ids(20, seed=2)
    for part in parts:
        wanted = decoder.forward(part, caches[0])
        logits = stream_prefill(config, source, part, caches[1], spill_dir=tmp_path, last=len(part))
        assert logits.equal(wanted)
    assert same_caches(*caches)

    caches[1].crop(TOKENS)
    few = stream_prefill(
        config, source, parts[1], caches[1], spill_dir=tmp_path, last=9, chunk_tokens=7
    )
    assert (few - wanted[-9:]).abs().max() < 0.1  # bf16 rounds otherwise in chunks of 7


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_is_read_once(
    kind: str, tied: bool, checkpoints: dict[str, Path], tmp_path: Path
):
    config, source = opened(checkpoints[kind])
    config = replace(config, tied=tied)
    wanted = sum(
        source._where[name].entries[name].size for name in tensor_shapes(config, fp8=kind == "fp8")
    )
    handed: list[str] = []
    view = source._view
    source._view = lambda name: handed.append(name) or view(name)
    cache = NativeCache(config, TOKENS, "bf16")

    stream_prefill(config, source, token_ids(TOKENS), cache, spill_dir=tmp_path, chunk_tokens=10)

    assert source.bytes_read == wanted
    assert sorted(handed) == sorted(tensor_shapes(config, fp8=kind == "fp8"))
    assert not any(name.startswith(f"model.layers.{config.layers}.") for name in handed)  # MTP


def test_one_layer_at_a_time(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A layer is gone, and its pages given back, before the next one is loaded."""
    config, source = opened(checkpoints["fp8"])
    live: list[weakref.ref[Any]] = []
    events: list[str] = []
    load, release = streaming.load_layer, source.release

    def loaded(source: Any, config: NativeConfig, index: int) -> Any:
        assert not any(layer() for layer in live)
        layer = load(source, config, index)
        live.append(weakref.ref(layer))
        events.append(f"load {index}")
        return layer

    monkeypatch.setattr(streaming, "load_layer", loaded)
    source.release = lambda prefix: events.append(prefix) or release(prefix)
    cache = NativeCache(config, TOKENS, "bf16")
    stream_prefill(config, source, token_ids(TOKENS), cache, spill_dir=tmp_path)

    layers = [e for i in range(config.layers) for e in (f"load {i}", f"model.layers.{i}.")]
    assert events == ["model.embed_tokens.weight", *layers, "lm_head.weight"]


CHILD = """
import json, sys
from pathlib import Path
import torch
from longctx.models.native.cache import NativeCache
from longctx.models.native.config import parse_native_config
from longctx.models.native.decoder import NativeDecoder
from longctx.models.native.streaming import stream_prefill
from longctx.models.weights.native import NativeSource

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

folder, spill, order = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
config = parse_native_config(json.loads((folder / "config.json").read_text()))
source = NativeSource(folder, torch.bfloat16)
cache = NativeCache(config, 64, "bf16")
for width in (64, 1024):  # what a first product leaves in memory is no weight
    torch.nn.functional.linear(*(torch.ones(n, width).bfloat16() for n in (64, 4096)))
before = peak()
if order == "streamed":
    stream_prefill(config, source, range(64), cache, spill_dir=spill)
else:
    NativeDecoder(config, source).forward(range(64), cache, last_only=True)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_peak_memory_is_one_layers(tmp_path: Path):
    config = preset(
        "glm-5.2",
        "tiny",
        schedule="FSFSFSFS",
        hidden_size=512,
        intermediate_size=8192,
        first_k_dense_replace=8,
        num_nextn_predict_layers=0,
    )
    total = write_checkpoint(config, tmp_path / "model")
    layer = total / 8

    def growth(order: str) -> int:
        arguments = [sys.executable, "-c", CHILD, str(tmp_path / "model"), str(tmp_path), order]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert layer > 20e6
    assert growth("ordinary") > 7 * layer  # or the measure would not see weights at all
    assert growth("streamed") < 1.7 * layer  # one, and what its products need


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("named", [False, True])
def test_nothing_is_left_after_a_failure(
    failure: type[BaseException],
    named: bool,
    checkpoints: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Neither a file nor an open one, nor a cache that claims tokens it has not.

    `named` is what systems do that have no files without a name.
    """
    if named:
        monkeypatch.setattr(spill.tempfile, "TemporaryFile", spill.tempfile.NamedTemporaryFile)
    config, source = opened(checkpoints["bf16"])
    cache = NativeCache(config, TOKENS, "bf16")
    during: list[int] = []
    stopped = 0

    def stop(done: int, total: int) -> None:
        during.append(sum(1 for path in tmp_path.iterdir()))
        if done > total // 2:
            raise failure

    for _ in range(2):
        with pytest.raises(failure):
            stream_prefill(
                config, source, token_ids(TOKENS), cache, spill_dir=tmp_path, on_progress=stop
            )
        stopped += 1
        assert cache.length == 0
        assert not list(tmp_path.iterdir())

    assert stopped == 2
    assert set(during) == ({2} if named else {0})
    stream_prefill(config, source, token_ids(TOKENS), cache, spill_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_progress_counts_every_row_of_every_layer(checkpoints: dict[str, Path], tmp_path: Path):
    config, source = opened(checkpoints["bf16"])
    seen: list[tuple[int, int]] = []

    stream_prefill(
        config,
        source,
        token_ids(20),
        NativeCache(config, 20, "bf16"),
        spill_dir=tmp_path / "made",
        chunk_tokens=8,
        on_progress=lambda done, total: seen.append((done, total)),
    )

    assert seen == [(i * 20 + n, 160) for i in range(8) for n in (8, 16, 20)]


def test_what_does_not_fit_is_refused(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config, source = opened(checkpoints["bf16"])
    cache = NativeCache(config, 10, "bf16")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tokens": token_ids(11)}, "11 tokens do not fit a cache of 10"),
        ({"tokens": token_ids(4), "last": 5}, "last 5 of 4"),
        ({"tokens": []}, "last 1 of 0"),
        ({"tokens": token_ids(4), "chunk_tokens": 0}, "chunks of 0"),
    ]
    for arguments, words in cases:
        with pytest.raises(ValueError, match=words):
            stream_prefill(config, source, cache=cache, spill_dir=tmp_path, **arguments)

    needed = spilled_size(config, 10, 0, torch.bfloat16)
    assert needed == 10 * (128 * 2 + 8 * 4)
    usage = SimpleNamespace(free=needed - 1)
    monkeypatch.setattr("longctx.atomic.shutil.disk_usage", lambda _: usage)
    with pytest.raises(DoesNotFitError, match="the hidden states"):
        stream_prefill(config, source, token_ids(10), cache, spill_dir=tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int32])
def test_rows_come_back_as_they_were_written(dtype: torch.dtype, tmp_path: Path):
    rows = torch.arange(50).view(10, 5).to(dtype)
    with SpilledRows(tmp_path, 10, 5, dtype) as spilled:
        spilled.write(4, rows[4:])
        spilled.write(0, rows[:4])
        spilled.write(3, rows[7:8])

        assert spilled.read(0, 10).equal(torch.cat((rows[:3], rows[7:8], rows[4:])))
        assert (spilled.bytes_written, spilled.bytes_read) == (
            11 * 5 * dtype.itemsize,
            spilled.nbytes,
        )
        with pytest.raises(ValueError, match="rows 8 to 11 of 10"):
            spilled.read(8, 3)


def test_rows_never_written_are_no_rows(tmp_path: Path):
    with SpilledRows(tmp_path, 10, 5, torch.float32) as spilled:
        spilled.write(0, torch.ones(2, 5))
        with pytest.raises(ValueError, match="never written"):
            spilled.read(1, 2)
        with pytest.raises(ValueError, match="columns"):
            spilled.write(0, torch.ones(2, 4))
