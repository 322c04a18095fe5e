"""However tokens reach the cache, in chunks, one by one or from disk, the answer is the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from native_samples import LOGITS_TOLERANCE, as_sets, decoder_of, token_ids
from torch import Tensor

from longctx.errors import StoreError
from longctx.models.native import decoder as package
from longctx.models.native.cache import NativeCache
from longctx.models.native.cache_file import load_cache, save_cache
from longctx.models.native.decoder import NativeDecoder

TOKENS = 100
DIGEST = "d1"


def in_pieces(decoder: NativeDecoder, ids: Tensor, size: int, cache: NativeCache) -> Tensor:
    return torch.cat([decoder.forward(ids[i : i + size], cache) for i in range(0, len(ids), size)])


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 33, 64])
@pytest.mark.parametrize("family", ["glm", "deepseek"])
def test_chunks_and_single_tokens(family: str, size: int, request: pytest.FixtureRequest):
    decoder = decoder_of(request.getfixturevalue(family))
    ids = token_ids(TOKENS)
    whole, chosen = decoder.forward(ids, return_indices=True)

    cache = decoder.new_cache(TOKENS)
    logits, found = [], []
    for start in range(0, TOKENS, size):
        part, indices = decoder.forward(ids[start : start + size], cache, return_indices=True)
        logits.append(part)
        found += indices[-1].tolist()

    assert (torch.cat(logits) - whole).abs().max() < LOGITS_TOLERANCE
    assert [[i for i in row if i >= 0] for row in found] == [
        sorted(row) for row in as_sets(chosen[-1])
    ]


def test_chunks_inside_a_pass(glm: Path, monkeypatch: pytest.MonkeyPatch):
    decoder, ids = decoder_of(glm), token_ids(TOKENS)
    whole, chosen = decoder.forward(ids, return_indices=True)

    monkeypatch.setattr(package, "CHUNK_TOKENS", 13)
    logits, indices = decoder.forward(ids, return_indices=True)

    assert (logits - whole).abs().max() < LOGITS_TOLERANCE
    assert all(a.equal(b) for a, b in zip(indices, chosen, strict=True))
    assert (decoder.forward(ids, last_only=True) - whole[-1:]).abs().max() < LOGITS_TOLERANCE


def test_returned_indices(glm: Path):
    decoder = decoder_of(glm)

    _, indices = decoder.forward(token_ids(20), return_indices=True)

    assert [rows.shape for rows in indices] == [(20, 8)] * 8
    assert all(rows.dtype == torch.int32 for rows in indices)
    assert indices[0][2].tolist() == [0, 1, 2, -1, -1, -1, -1, -1]
    assert all((rows[10:].diff(dim=1) > 0).all() for rows in indices)
    assert indices[3].equal(indices[2])
    assert indices[5].equal(indices[2])
    assert not indices[6].equal(indices[2])


def test_hidden_rows_give_the_logits(glm: Path):
    decoder, ids = decoder_of(glm), token_ids(30)

    rows = decoder.hidden(ids)

    assert rows.shape == (30, decoder.config.hidden)
    assert torch.allclose(rows @ decoder.head.T, decoder.forward(ids), atol=1e-5)
    assert torch.allclose(decoder.hidden(ids, last_only=True), rows[-1:], atol=1e-5)


def test_crop_and_another_ending(glm: Path):
    decoder, ids, other = decoder_of(glm), token_ids(60), token_ids(60, seed=9)
    cache = decoder.new_cache(60)
    decoder.forward(ids, cache)

    cache.crop(41)
    found = decoder.forward(other[41:], cache)

    wanted = decoder.forward(torch.cat((ids[:41], other[41:])))[41:]
    assert (found - wanted).abs().max() < LOGITS_TOLERANCE


@pytest.mark.parametrize("kind", ["fp32", "bf16", "fp8"])
def test_a_restored_cache_goes_on_the_same(kind: str, glm: Path, tmp_path: Path):
    decoder, ids = decoder_of(glm), token_ids(60)
    cache = decoder.new_cache(70, kind)
    decoder.forward(ids[:50], cache)
    save_cache(cache, tmp_path / "cache", DIGEST)
    wanted = decoder.forward(ids[50:], cache)

    restored = load_cache(decoder.config, tmp_path / "cache", DIGEST, capacity=64)

    assert (restored.length, restored.capacity, restored.kind) == (50, 64, kind)
    assert decoder.forward(ids[50:], restored).equal(wanted)


@pytest.mark.parametrize("kind", ["bf16", "fp8"])
def test_narrow_caches_are_close(kind: str, deepseek: Path):
    """They round what later rows read, so single choices may differ; most of the sum stays."""
    decoder, ids = decoder_of(deepseek), token_ids(8)  # top 8: nothing can be chosen otherwise
    exact = decoder.forward(ids)

    found = in_pieces(decoder, ids, 1, decoder.new_cache(8, kind))

    limit = {"bf16": 0.02, "fp8": 0.15}[kind]
    assert 0 < (found - exact).norm() / exact.norm() < limit


def test_sizes_of_caches(glm: Path):
    """32 latents and 8 rotary numbers; 24 index numbers on the four full layers alone."""
    decoder = decoder_of(glm)
    config = decoder.config

    exact, packed = decoder.new_cache(5), decoder.new_cache(5, "fp8")

    assert [x.index_keys is not None for x in exact.layers] == list(config.full)
    assert exact.layers[0].entries.shape == (5, 32 + 8)
    assert exact.layers[0].entries.dtype == torch.float32
    assert packed.layers[0].entries.shape == (5, 32 + 4 + 2 * 8)
    keys = packed.layers[0].index_keys
    assert keys is not None
    assert (keys.shape, keys.dtype) == ((5, 24 + 4), torch.uint8)


def test_too_many_tokens(glm: Path):
    decoder = decoder_of(glm)
    cache = decoder.new_cache(10)
    decoder.forward(token_ids(8), cache)

    with pytest.raises(ValueError, match="11 tokens do not fit a cache of 10"):
        decoder.forward(token_ids(3), cache)
    with pytest.raises(ValueError, match="no tokens"):
        decoder.forward([], cache)
    with pytest.raises(ValueError, match="kind 'int4'"):
        decoder.new_cache(10, "int4")


@pytest.fixture
def stored(glm: Path, tmp_path: Path) -> Path:
    decoder = decoder_of(glm)
    cache = decoder.new_cache(20)
    decoder.forward(token_ids(20), cache)
    save_cache(cache, tmp_path / "cache", DIGEST)
    return tmp_path / "cache"


def test_a_cache_of_other_weights_is_refused(glm: Path, stored: Path):
    with pytest.raises(StoreError, match="computed with another model"):
        load_cache(decoder_of(glm).config, stored, "d2")


def test_a_cache_of_other_layers_is_refused(deepseek: Path, stored: Path):
    with pytest.raises(StoreError, match="other layers"):
        load_cache(decoder_of(deepseek).config, stored, DIGEST)


@pytest.mark.parametrize("place", [0.5, 0.999])
def test_a_changed_byte_is_noticed(place: float, glm: Path, stored: Path):
    content = bytearray(stored.read_bytes())
    content[int(len(content) * place)] ^= 1
    stored.write_bytes(content)

    with pytest.raises(StoreError, match=r"layers\.\d\.\w+ is damaged"):
        load_cache(decoder_of(glm).config, stored, DIGEST)


@pytest.mark.parametrize("kept", [0, 4, 200, -1])
def test_a_file_cut_short_is_noticed(kept: int, glm: Path, stored: Path):
    stored.write_bytes(stored.read_bytes()[:kept])

    with pytest.raises(StoreError, match="not a readable cache"):
        load_cache(decoder_of(glm).config, stored, DIGEST)


def test_another_version_and_no_file(glm: Path, stored: Path):
    config = decoder_of(glm).config
    stored.write_bytes(stored.read_bytes().replace(b'"version": "1"', b'"version": "7"'))

    with pytest.raises(StoreError, match="not a cache of this version"):
        load_cache(config, stored, DIGEST)
    with pytest.raises(StoreError, match="not a readable cache"):
        load_cache(config, stored.with_name("none"), DIGEST)


def test_a_restored_cache_needs_room(glm: Path, stored: Path):
    with pytest.raises(ValueError, match="20 saved tokens do not fit a cache of 19"):
        load_cache(decoder_of(glm).config, stored, DIGEST, capacity=19)
