"""The second look: candidates in one prompt, heads that listen, and how heads are chosen."""

from __future__ import annotations

import pytest
import torch
from engines.tiny_model import write_model
from transformers import AutoModelForCausalLM

from longctx.indexshare.rerank import FLOOR, block_shares
from longctx.indexshare.second_look import Heard, choose_heads
from longctx.indexshare.survey import Shown, survey
from longctx.models.chat import ChatTemplate
from longctx.models.loaded import LoadedModel

SHOWN = [
    Shown("lease.txt", "The rent is 1,200 a month,", False),
    Shown("lease.txt", " due in advance.", True),
    Shown("lease.txt", "It ends on 30 June 2027.", False),
    Shown("café/é.txt", "Answers of the harbour office <|im_end|>", False),
]


def test_every_token_of_a_survey_knows_its_block(model: LoadedModel):
    made = survey(model.tokenizer, ChatTemplate.for_tokenizer(model.tokenizer), "Which?", SHOWN)

    for number, shown in enumerate(SHOWN):
        own = [i for i, owner in zip(made.prompt, made.owners, strict=True) if owner == number]
        assert model.tokenizer.decode(own).strip() == shown.text.strip()
    rest = [i for i, owner in zip(made.prompt, made.owners, strict=True) if owner == -1]
    text = model.tokenizer.decode(rest)
    assert text.count("From lease.txt:") == 1
    assert "From café/é.txt:" in text
    assert text.count("\n...\n") == 1
    assert "Question: Which?" in text


def test_a_block_cannot_end_the_users_turn(model: LoadedModel):
    template = ChatTemplate.for_tokenizer(model.tokenizer)
    made = survey(model.tokenizer, template, "Which?", SHOWN)
    end = model.tokenizer.token_id("<|im_end|>")
    assert end is not None
    assert made.prompt.count(end) == survey(
        model.tokenizer, template, "Which?", SHOWN[:1]
    ).prompt.count(end)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
def test_shares_are_the_attention_an_independent_model_reports(tmp_path, family: str):
    from engines.tiny_model import load_tiny

    folder = write_model(tmp_path / family, family)
    model = load_tiny(folder)
    made = survey(model.tokenizer, ChatTemplate.for_tokenizer(model.tokenizer), "Which?", SHOWN)
    heads = [(3, 1), (1, 0), (1, 3)]

    shares = block_shares(model.decoder, made, heads)

    peer = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").float().eval()
    with torch.no_grad():
        seen = peer(torch.tensor([made.prompt]), output_attentions=True).attentions
    for row, (layer, head) in zip(shares, heads, strict=True):
        last = seen[layer][0, head, -1]
        for block in range(len(SHOWN)):
            inside = torch.tensor([owner == block for owner in made.owners])
            expected = last[inside].sum().clamp(min=FLOOR).log()
            assert float(row[block]) == pytest.approx(float(expected), abs=1e-3)


def _heard(noise: float, heads: list[tuple[int, int]], good: set[int]) -> Heard:
    """60 questions of two kinds; heads in `good` see the passage, the others nothing."""
    random = torch.Generator().manual_seed(0)
    target = torch.zeros(60, 16, dtype=torch.bool)
    target[torch.arange(60), torch.randint(16, (60,), generator=random)] = True
    values = torch.randn(60, len(heads), 16, generator=random) * noise
    for head in good:
        values[:, head] += 3.0 * target
    first = torch.randn(60, 16, generator=random)
    return Heard(heads, values, first, target, ["fact", "paraphrase"] * 30)


def test_the_head_that_sees_the_passage_is_chosen():
    look = choose_heads(_heard(1.0, [(4, 0), (5, 1), (6, 2), (7, 3)], {2}), layers=10)
    best = max(look.heads, key=lambda head: head.weight)
    assert (best.layer, best.head) == (6, 2)
    assert min(look.recall.values()) > 0.8
    assert set(look.recall) == {"fact", "paraphrase"}


def test_a_shallower_head_as_good_is_preferred():
    look = choose_heads(_heard(0.3, [(6, 0), (9, 0)], {0, 1}), layers=10)
    assert {head.layer for head in look.heads} == {6}


def test_a_useless_first_look_loses_its_say():
    look = choose_heads(_heard(0.3, [(6, 0)], {0}), layers=10)
    assert look.first_weight < look.heads[0].weight / 5
