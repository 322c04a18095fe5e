"""A prompt a layer at a time, each layer loaded, run over all chunks and dropped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from native_samples import LOGITS_TOLERANCE, config_of, decoder_of, token_ids
from torch import Tensor

from longctx.errors import ModelError
from longctx.models.native.layer import load_layer, run_layer
from longctx.models.weights.native import NativeSource


def test_layer_by_layer_is_chunk_by_chunk(glm: Path):
    decoder, ids = decoder_of(glm), token_ids(70)
    config, source = decoder.config, NativeSource(glm, torch.float32)
    cache = decoder.new_cache(71)
    chunks, indices = list(decoder.embed(ids).split(16)), list[Tensor | None]([None] * 5)

    for index in range(config.layers):
        layer, past = load_layer(source, config, index), 0
        for number, x in enumerate(chunks):
            chunks[number], indices[number] = run_layer(
                layer, config, x, past, cache.layers[index], indices[number]
            )
            past += len(x)
    cache.length = 70

    norm = torch.nn.functional.rms_norm
    rows = norm(torch.cat(chunks), decoder.norm.shape, decoder.norm, config.norm_eps)
    assert torch.allclose(rows, decoder.hidden(ids), atol=LOGITS_TOLERANCE)
    following = decoder.forward([5], cache)
    wanted = decoder.forward(torch.cat((ids, torch.tensor([5]))), last_only=True)
    assert torch.allclose(following, wanted, atol=LOGITS_TOLERANCE)


def test_only_the_last_rows_are_computed(glm: Path):
    decoder = decoder_of(glm)
    x = decoder.embed(token_ids(30))
    layer, places = decoder.layers[0], [decoder.new_cache(30).layers[0] for _ in range(3)]
    whole, indices = run_layer(layer, decoder.config, x, 0, places[0])
    assert indices is not None

    last, chosen = run_layer(layer, decoder.config, x, 0, places[1], keep=4)
    none, _ = run_layer(layer, decoder.config, x, 0, places[2], keep=0)

    assert torch.allclose(last, whole[-4:], atol=1e-5)
    assert chosen is not None
    assert chosen.equal(indices[-4:])
    assert len(none) == 0
    for place in places[1:]:
        assert place.entries.equal(places[0].entries)


def test_a_shared_layer_needs_a_choice_for_its_rows(glm: Path):
    decoder = decoder_of(glm)
    x, cache = decoder.embed(token_ids(30)), decoder.new_cache(30)
    _, indices = run_layer(decoder.layers[2], decoder.config, x, 0, cache.layers[2])
    assert indices is not None

    for wrong in (None, indices[:-1]):
        with pytest.raises(ValueError, match="the same 30 rows"):
            run_layer(decoder.layers[3], decoder.config, x, 0, cache.layers[3], wrong)


def test_weights_that_overflow_are_reported(glm: Path):
    decoder = decoder_of(glm)
    attention = decoder.layers[0].attention
    assert attention.indexer is not None
    broken = replace(attention.indexer, weights=attention.indexer.weights * float("inf"))
    decoder.layers[0] = replace(decoder.layers[0], attention=replace(attention, indexer=broken))

    with pytest.raises(ModelError, match="index scores are no numbers near token 8"):
        decoder.forward(token_ids(20))


def test_bf16_stays_near_fp32(glm: Path):
    """bf16 rounds every step; with nothing dropped the answers still agree."""
    ids = token_ids(8)
    wanted = decoder_of(glm).forward(ids)

    found = decoder_of(glm, torch.bfloat16).forward(ids)

    assert found.dtype == torch.float32
    assert (found - wanted).norm() / wanted.norm() < 0.1


def test_indexer_tensors_and_schedule_must_agree(glm: Path):
    config = config_of(glm)
    names = NativeSource(glm, torch.float32).names()
    config.check_schedule(names)
    mark = "self_attn.indexer.wk.weight"

    with pytest.raises(ModelError, match="layer 6 is full by the config but has no indexer"):
        config.check_schedule({name for name in names if not name.startswith("model.layers.6.")})
    with pytest.raises(ModelError, match="layer 3 is shared by the config but has indexer"):
        config.check_schedule(names | {f"model.layers.3.{mark}"})
    config.check_schedule(names | {f"model.layers.8.{mark}"})  # of multi-token prediction
