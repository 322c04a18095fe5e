"""The bench compares what it says: the same weights, exact counts, attention that is attention."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from longctx.jobs import bench_native, native_stream
from longctx.jobs import native_figures as figures
from longctx.jobs import native_variants as variants
from longctx.jobs.native_dense import run_dense_layer
from longctx.jobs.native_variants import DENSE, EVERY, SHARED, Chunk
from longctx.models.native.counters import Counters
from longctx.models.native.decoder import NativeDecoder
from longctx.models.native.layer import load_layer
from longctx.models.weights.native import NativeSource

TOKENS = 600
ONE = ("--threads", "1")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sets this for its own process; here it is put back."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return variants.checkpoint(tmp_path_factory.mktemp("bench"))


def test_the_checkpoint_is_written_once(place: Path):
    written = (place / "config.json").stat().st_mtime_ns

    assert variants.checkpoint(place.parent) == place
    assert (place / "config.json").stat().st_mtime_ns == written


@pytest.mark.parametrize(("name", "full"), [(SHARED, 2), (EVERY, 8)])
def test_counts_are_the_closed_formulas(name: str, full: int, place: Path):
    chunks = list(variants.run(place, name, TOKENS, every=128))

    assert variants.config_of(place, name).full.count(True) == full
    assert [(c.first, c.count) for c in chunks] == [(0, 128), *((n, 128) for n in (128, 256, 384)),
                                                    (512, 88)]  # fmt: skip
    assert [c.formula for c in chunks[:2]] == [None, None]  # no more tokens than are chosen
    assert all(c.flops == c.formula for c in chunks[2:])
    assert all(c.seconds > 0 for c in chunks)


def test_dense_chunks_count_every_pair(place: Path):
    chunks = list(variants.run_dense(place, 256, [256, 1024], every=128))

    assert [c.first for c in chunks] == [0, 128, 896]
    assert all(c.flops == c.formula for c in chunks)


def test_dense_is_choosing_everything(place: Path):
    """Layer by layer, chunk by chunk, with keys and values made anew: the decoder's numbers."""
    config = replace(variants.config_of(place, EVERY), index_topk=4 * TOKENS)
    ids = torch.arange(300)
    wanted = NativeDecoder(config, NativeSource(place, torch.float32)).hidden(ids)

    config = variants.config_of(place, DENSE)
    source = NativeSource(place, torch.float32)
    decoder_norm = source.tensor("model.norm.weight", (config.hidden,))
    x = source.tensor("model.embed_tokens.weight", (config.vocab, config.hidden))[ids]
    cache, counters = variants.NativeCache(config, 300, "fp32"), Counters()
    for index in range(config.layers):
        layer = load_layer(source, config, index)
        parts, past = [], 0
        for part in x.split(110):
            parts.append(run_dense_layer(layer, config, part, past, cache.layers[index], counters))
            past += len(part)
        x = torch.cat(parts)

    found = torch.nn.functional.rms_norm(x, decoder_norm.shape, decoder_norm, config.norm_eps)
    assert (found - wanted).abs().max() < 1e-4


def chunk(first: int, seconds: float, flops: int = 100) -> Chunk:
    return Chunk(first, 10, seconds, flops, flops, 5_000_000)


def test_a_position_takes_the_median_of_the_chunks_before_it():
    chunks = [chunk(first, seconds) for first, seconds in zip(range(0, 60, 10), (9, 1, 1, 50, 2, 3),
                                                              strict=True)]  # fmt: skip

    assert figures.at(chunks, 55) is None
    found = figures.at(chunks, 60)
    assert found is not None
    assert (found.first, found.seconds) == (50, 2.5)


def test_tables_hold_what_was_measured():
    runs = {
        SHARED: [chunk(0, 0.1, 1_000_000_000), chunk(10, 0.1, 1_000_000_000)],
        EVERY: [chunk(0, 0.2, 4_000_000_000), chunk(10, 0.2, 4_000_000_000)],
        DENSE: [chunk(10, 0.4, 16_000_000_000)],
    }

    rows = list(figures.table(runs, (20, 30)))[2:]
    assert rows == [
        "| 20 | 100.0 | 400.0 | 1,600.0 | 10.00 | 20.00 | 40.00 | 4.00x | 2.00x | 16.00x | 4.00x |"
    ]
    assert list(figures.totals(runs, (20, 30)))[2:] == ["| 20 | 0 | 0 | 4.00x | 2.00x |"]
    assert next(figures.checks(runs)) == (
        "IndexShare: counted FLOPs are the formulas' in 2 of 2 chunks; "
        "memory 5 to 5 MB past the first chunk"
    )


def test_a_run_on_record_is_not_repeated(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    pytest.importorskip("matplotlib")
    arguments = ["prefill", "--folder", str(place.parent), "--tokens", "2048"]
    arguments += [*ONE, "--figure", str(tmp_path / "figures" / "plot.png")]

    assert bench_native.main([*arguments, "--variants", "indexshare"]) == 0
    record = place.parent / "prefill-indexshare-2048.json"
    assert len(json.loads(record.read_text())["chunks"]) == 2
    monkeypatch.setattr(variants, "measure", lambda *_: pytest.fail("measured again"))
    assert bench_native.main([*arguments, "--variants", "indexshare"]) == 0

    assert "IndexShare: counted FLOPs are the formulas' in 1 of 1 chunks" in capsys.readouterr().out
    assert 1000 < (tmp_path / "figures" / "plot.png").stat().st_size < 150_000


def test_both_orders_in_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native_stream, "SIZES", {"num_nextn_predict_layers": 0})

    lines = list(native_stream.compared(tmp_path, tokens=100))

    assert lines[-1].strip() == "logits and caches are identical, to the bit"
    assert len({line.split(":")[1].split(" MB")[0] for line in lines[1:3]}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["native-stream-model"]


def test_sharing_needs_the_trained_model(tmp_path: Path, capsys: Any):
    assert (
        bench_native.main(
            ["sharing", *ONE, "--folder", str(tmp_path), "--trained", str(tmp_path / "none")]
        )
        == 0
    )

    assert capsys.readouterr().out == f"sharing: no trained model in {tmp_path}/none; skipped\n"


def test_flops_takes_the_claim_apart(tmp_path: Path, capsys: Any):
    assert bench_native.main(["flops", *ONE, "--folder", str(tmp_path)]) == 0

    assert "exactly 2.90x: 20.00/19.10 full layers" in capsys.readouterr().out
