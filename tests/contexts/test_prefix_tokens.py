"""The list of a saved prefix's tokens is believed only as long as it is the one that was saved."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from longctx.contexts.prefix import PrefixStore
from longctx.models.native.cache import NativeCache
from longctx.models.native.config import NativeConfig, parse_native_config
from longctx.models.native.synth import preset

TOKENS = list(range(100, 500))


@pytest.fixture(scope="module")
def config() -> NativeConfig:
    return parse_native_config(preset("glm-5.2", "tiny"))


def kept(config: NativeConfig, root: Path) -> PrefixStore:
    store, cache = PrefixStore(root, "model"), NativeCache(config, len(TOKENS), "fp32")
    cache.length = len(TOKENS)
    for rows in cache.valid().values():
        rows.copy_(torch.ones_like(rows))
    store.keep(TOKENS, cache)
    return store


def test_tokens_that_were_changed_are_not_taken_for_the_saved_ones(
    config: NativeConfig, tmp_path: Path
):
    store = kept(config, tmp_path)
    (file,) = tmp_path.rglob("*.tokens")
    others = [7, *TOKENS[1:]]
    file.write_bytes(np.asarray(others, dtype=np.int32).tobytes())

    assert store.take(config, others, 500) is None
    assert [file.name in warning for warning in store.warnings] == [True]
    assert not list(tmp_path.rglob("*.cache"))


def test_what_a_crash_left_goes_and_what_is_being_written_stays(
    config: NativeConfig, tmp_path: Path
):
    store = kept(config, tmp_path)
    (folder,) = tmp_path.iterdir()
    old, new = folder / "old.cache", folder / "new.cache"
    for file, age in ((old, 7200), (new, 0)):
        file.write_bytes(b"half")
        time = file.stat().st_mtime - age
        os.utime(file, (time, time))

    kept(config, tmp_path)

    assert (old.exists(), new.exists()) == (False, True)
    assert store.take(config, TOKENS, 500) is not None
