"""Sliding windows hide what `transformers` hides, layer by layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from decoder_samples import (
    TOLERANCE,
    decoder_of,
    difference,
    logits_of,
    reference,
    saved,
    token_ids,
)

from longctx.models.decoder import attend

KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
QWEN = {"use_sliding_window": True, "sliding_window": 6, "num_hidden_layers": 3}
WINDOWED: dict[str, tuple[str, dict[str, Any], tuple[int | None, ...]]] = {
    "mistral": ("mistral", {"sliding_window": 7}, (7, 7)),
    "mistral, one token": ("mistral", {"sliding_window": 1}, (1, 1)),
    "qwen2, last layers": ("qwen2", QWEN | {"max_window_layers": 1}, (None, 6, 6)),
    "qwen2, all layers": ("qwen2", QWEN | {"max_window_layers": 0}, (6, 6, 6)),
    "qwen2, listed": ("qwen2", QWEN | {"layer_types": KINDS}, (6, None, 6)),
    "qwen3, last layers": ("qwen3", QWEN | {"max_window_layers": 2}, (None, None, 6)),
    "qwen3, listed": ("qwen3", QWEN | {"layer_types": KINDS}, (6, None, 6)),
}
UNWINDOWED: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral without": ("mistral", {"sliding_window": None}),
    "qwen2 not using its own": ("qwen2", QWEN | {"use_sliding_window": False}),
    "qwen2 with few layers": ("qwen2", QWEN | {"max_window_layers": 3}),
}


@pytest.mark.parametrize("name", WINDOWED)
def test_a_sequence_longer_than_the_window(name: str, tmp_path: Path):
    family, settings, windows = WINDOWED[name]
    model = reference(family, **settings)
    ids = token_ids(40)
    expected = logits_of(model, ids)

    decoder = decoder_of(saved(model, tmp_path))

    assert tuple(decoder.config.window(i) for i in range(decoder.config.layers)) == windows
    assert difference(decoder.forward(ids), expected) < TOLERANCE
    open_model = reference(family, **settings | {"sliding_window": 1000})
    assert difference(logits_of(open_model, ids), expected) > 0.1  # the window matters


@pytest.mark.parametrize("name", WINDOWED)
def test_windows_hold_across_chunks_and_single_steps(name: str, tmp_path: Path):
    family, settings, _ = WINDOWED[name]
    decoder = decoder_of(saved(reference(family, **settings), tmp_path))
    ids = token_ids(30)
    cache = decoder.new_cache(30)

    parts = [decoder.forward(chunk, cache) for chunk in (ids[:3], ids[3:20])]
    parts += [decoder.forward([token], cache) for token in ids[20:]]

    assert difference(torch.cat(parts), decoder.forward(ids)) < TOLERANCE


@pytest.mark.parametrize("name", UNWINDOWED)
def test_a_window_that_is_not_used(name: str, tmp_path: Path):
    family, settings = UNWINDOWED[name]
    model = reference(family, **settings)
    ids = token_ids(40)

    decoder = decoder_of(saved(model, tmp_path))

    assert not any(decoder.config.windows)
    assert difference(decoder.forward(ids), logits_of(model, ids)) < TOLERANCE


def test_windows_by_layer_number_as_older_checkpoints_spell_them(tmp_path: Path):
    model = reference("qwen2", **QWEN | {"max_window_layers": 1})
    folder = saved(model, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    del config["layer_types"]
    (folder / "config.json").write_text(json.dumps(config))
    ids = token_ids(40)

    decoder = decoder_of(folder)

    assert decoder.config.windows == (None, 6, 6)
    assert difference(decoder.forward(ids), logits_of(model, ids)) < TOLERANCE


@pytest.mark.parametrize("rows", [1, 2, 9])
@pytest.mark.parametrize("window", [None, 1, 4, 9, 50])
@pytest.mark.parametrize("groups", [1, 3])
def test_attention_is_the_softmax_it_says(rows: int, window: int | None, groups: int):
    total, size = 9, 4
    draw = torch.Generator().manual_seed(3)
    q = torch.randn(2 * groups, rows, size, generator=draw)
    k, v = (torch.randn(2, total, size, generator=draw) for _ in range(2))

    out = attend(q, k, v, window)

    for head in range(2 * groups):
        for row in range(rows):
            end = total - rows + row + 1
            seen = slice(max(0, end - (window or total)), end)
            scores = q[head, row] @ k[head // groups, seen].T / size**0.5
            expected = scores.softmax(-1) @ v[head // groups, seen]
            found = out[row, head * size : (head + 1) * size]
            torch.testing.assert_close(found, expected)
