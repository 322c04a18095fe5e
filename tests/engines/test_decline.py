"""When the words that decline are close enough to the likeliest beginning, the answer declines."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from contexts.samples import document

from engines.tiny_model import PROFILE
from longctx.contexts.corpus import Corpus, build_corpus
from longctx.contexts.store import SegmentStore
from longctx.engines.base import Answer, AskOptions, Done, Token
from longctx.engines.local import LocalEngine
from longctx.engines.prompt import NOT_FOUND
from longctx.indexshare.recall import Recall
from longctx.models.loaded import LoadedModel

QUESTION = "When does the lease end?"


def answer(model: LoadedModel, margin: float) -> tuple[Answer, str]:
    profile = replace(PROFILE, decline_margin=margin)
    recall = Recall(model.decoder, profile, model.tokenizer.encode_text(profile.preamble)[0])
    store = SegmentStore(None, model.digest, profile.index_digest())
    made = [document("The lease of the quay ends in June.\n", "lease.txt")]
    corpus: Corpus = build_corpus(made, [], recall, model.tokenizer, store)
    events = list(LocalEngine(model, recall).ask(QUESTION, corpus, AskOptions(max_answer_tokens=6)))
    said = "".join(event.text for event in events if isinstance(event, Token))
    done = events[-1]
    assert isinstance(done, Done)
    return done.answer, said


def test_within_the_margin_nothing_is_invented(model: LoadedModel):
    found, said = answer(model, -1e9)

    assert said == found.answer == NOT_FOUND
    assert not found.found
    assert found.citations == ()
    assert found.usage.answer_tokens == 0


@pytest.mark.parametrize("margin", [1e9])
def test_beyond_it_the_model_speaks(model: LoadedModel, margin: float):
    found, said = answer(model, margin)

    assert found.usage.answer_tokens == 6
    assert NOT_FOUND not in said


@pytest.mark.parametrize(("threshold", "declined"), [(0.25, False), (0.15, True)])
def test_a_wish_to_decline_below_the_margin_is_passed_over(
    model: LoadedModel, threshold: float, declined: bool
):
    profile = replace(PROFILE, decline_margin=threshold)
    recall = Recall(model.decoder, profile, model.tokenizer.encode_text(profile.preamble)[0])
    engine = LocalEngine(model, recall)
    logits = torch.full((model.config.vocab,), -5.0)
    logits[engine._decline], logits[40] = 2.2, 2.0
    cache = model.decoder.new_cache(8)

    pieces = list(engine._answer(cache, logits, AskOptions(max_answer_tokens=1)))

    said = "".join(text for _, text in pieces)
    assert (said == NOT_FOUND) is declined
    assert declined or said == model.tokenizer.decode([40])
