"""The model under samples/native: within its limits, answering rightly, the same in the decoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from native_training_samples import compare_with_decoder, expected_names
from safetensors.torch import load_file

from longctx.jobs.native_training import tasks
from longctx.jobs.native_training.evaluate import held_out, score
from longctx.jobs.native_training.export import load, read_shape
from longctx.models.native.config import parse_native_config
from longctx.models.native.decoder import NativeDecoder
from longctx.models.tokenizer import TextTokenizer
from longctx.models.weights.native import NativeSource

SHIPPED = Path(__file__).parents[3] / "samples" / "native"
TRAINED_TOKENS = 1024


def test_it_is_small_and_of_the_public_layout() -> None:
    stored = load_file(SHIPPED / "model.safetensors")

    assert (SHIPPED / "model.safetensors").stat().st_size <= 20e6
    assert sum(value.numel() for value in stored.values()) <= 10e6
    assert set(stored) == expected_names(read_shape(SHIPPED))


def test_it_shares_indices_and_selects_far_fewer_tokens_than_it_was_trained_on() -> None:
    shape = read_shape(SHIPPED)

    assert shape.schedule == "FFFSSSFS"
    assert shape.topk * 8 <= TRAINED_TOKENS


@pytest.mark.parametrize(("task", "least"), [("recall", 0.9), ("copy", 0.9)])
def test_its_answers_mean_something(task: str, least: float) -> None:
    assert score(load(SHIPPED), task, TRAINED_TOKENS, 2, sparse=True)[0].share >= least


def test_the_decoder_gives_the_trained_models_logits_and_selections() -> None:
    compare_with_decoder(SHIPPED, length=600)


def test_a_question_in_words_is_answered_by_the_decoder() -> None:
    tokenizer = TextTokenizer.from_directory(SHIPPED)
    config = parse_native_config(json.loads((SHIPPED / "config.json").read_text()))
    decoder = NativeDecoder(config, NativeSource(SHIPPED, torch.float32))
    sequence = next(held_out("recall", 400, 1))
    at = int(sequence.answers.nonzero()[0][0])
    words = tasks.words()
    prompt = " ".join(words[token] for token in sequence.tokens[:at])

    ids, _ = tokenizer.encode_text(prompt)
    answer = decoder.forward(ids, last_only=True)[-1].argmax().item()

    assert ids == sequence.tokens[:at].tolist()
    assert tokenizer.decode([int(answer)]) == words[sequence.tokens[at]]
