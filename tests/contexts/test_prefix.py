"""Saved prefixes: the longest common beginning, and files that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from longctx.contexts.prefix import LEAST_TOKENS, MOST_PREFIXES, PrefixStore
from longctx.models.native.cache import NativeCache
from longctx.models.native.config import NativeConfig, parse_native_config
from longctx.models.native.synth import preset

TOKENS = list(range(100, 900))


@pytest.fixture(scope="module")
def config() -> NativeConfig:
    return parse_native_config(preset("glm-5.2", "tiny"))


def filled(config: NativeConfig, count: int, value: float = 1.0) -> NativeCache:
    cache = NativeCache(config, count, "fp32")
    cache.length = count
    for number, rows in enumerate(cache.valid().values()):
        rows.copy_(torch.arange(count)[:, None] + number * value)
    return cache


def test_the_longest_common_beginning_is_taken(config: NativeConfig, tmp_path: Path):
    store = PrefixStore(tmp_path, "model")
    store.keep(TOKENS[:300], filled(config, 300))
    store.keep([*TOKENS[:500], 1, 2, 3], filled(config, 503))

    found = store.take(config, TOKENS, 1000)

    assert found is not None
    assert (found.length, found.capacity) == (500, 1000)
    for name, rows in found.valid().items():
        assert torch.equal(rows, filled(config, 503).valid()[name][:500])


def test_a_prefix_that_only_begins_another_goes(config: NativeConfig, tmp_path: Path):
    store = PrefixStore(tmp_path, "model")
    store.keep(TOKENS[:300], filled(config, 300))
    store.keep(TOKENS, filled(config, len(TOKENS)))
    assert len(list(tmp_path.rglob("*.tokens"))) == len(list(tmp_path.rglob("*.cache"))) == 1


def test_few_tokens_in_common_are_not_worth_it(config: NativeConfig, tmp_path: Path):
    store = PrefixStore(tmp_path, "model")
    store.keep(TOKENS, filled(config, len(TOKENS)))
    assert store.take(config, TOKENS[: LEAST_TOKENS - 1] + [7] * 400, 2000) is None


def test_another_models_prefix_is_not_seen(config: NativeConfig, tmp_path: Path):
    PrefixStore(tmp_path, "model").keep(TOKENS, filled(config, len(TOKENS)))
    assert PrefixStore(tmp_path, "other").take(config, TOKENS, 1000) is None


@pytest.mark.parametrize("damage", ["cut", "gone", "flipped"])
def test_a_damaged_prefix_is_passed_over(config: NativeConfig, tmp_path: Path, damage: str):
    store = PrefixStore(tmp_path, "model")
    store.keep([*TOKENS[:300], 5], filled(config, 301))
    store.keep(TOKENS, filled(config, len(TOKENS)))
    file = max(tmp_path.rglob("*.cache"), key=lambda path: path.stat().st_size)
    data = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(data[: len(data) // 2] if damage == "cut" else data[:-1] + b"\x99")

    found = store.take(config, TOKENS, 1000)

    assert found is not None
    assert found.length == 300
    assert len(store.warnings) == 1
    assert len(list(tmp_path.rglob("*.tokens"))) == 1


def test_only_the_last_used_stay(config: NativeConfig, tmp_path: Path):
    store = PrefixStore(tmp_path, "model")
    for number in range(MOST_PREFIXES + 3):
        store.keep([number, *TOKENS], filled(config, 300))
    assert len(list(tmp_path.rglob("*.cache"))) == MOST_PREFIXES


def test_without_a_folder_nothing_is_kept(config: NativeConfig):
    store = PrefixStore(None, "model")
    store.keep(TOKENS, filled(config, 300))
    assert store.take(config, TOKENS, 1000) is None
