"""Indexing to int8 keys and scoring them: what is kept, how exact it is, and what it finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from engines.tiny_model import HEAD_DIM, HEADS, KV_HEADS, PROFILE, token_ids
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from longctx.indexshare.leader import Captured, LeaderPass, batches
from longctx.indexshare.recall import IndexKeys, Recall, block_starts, quantise
from longctx.kernels.block_scores import reference
from longctx.models.loaded import LoadedModel

QUESTION = token_ids(9, seed=5)
GROUP = HEADS // KV_HEADS
# int8 keys and bf16 products against float32 throughout, in nats of a log-softmax
TOLERANCE = 0.25


def plain(recall: Recall, ids: list[int]) -> dict[int, tuple[Tensor, Tensor]]:
    """Float32 queries and keys of each leader layer, biases included, as the model has them."""
    layers = frozenset(head.layer for head in recall.profile.heads)
    found: dict[int, list[tuple[Tensor, Tensor]]] = {layer: [] for layer in layers}
    profile = recall.profile
    leader = LeaderPass(recall.decoder, profile.leader, recall._preamble, profile.window)

    def keep(captured: Captured) -> None:
        assert captured.queries is not None
        assert captured.keys is not None
        found[captured.layer].append((captured.queries, captured.keys))

    for batch in batches([ids], profile.window):
        leader.run(batch, keep, query_layers=layers, key_layers=layers)
    return {
        layer: (torch.cat([q for q, _ in rows]), torch.cat([k for _, k in rows]))
        for layer, rows in found.items()
    }


def exact_scores(recall: Recall, question: list[int], documents: list[list[int]]) -> Tensor:
    """The weighted log-softmax of `recall.md`, in float32 and one head at a time."""
    asked = plain(recall, question)
    held = [plain(recall, ids) for ids in documents]
    total = torch.zeros(())
    for head in recall.profile.heads:
        rows = asked[head.layer][0][:, head.head]
        best = torch.cat(
            [
                reference(rows, d[head.layer][1][:, head.head // GROUP], None, recall.profile.block)
                for d in held
            ],
            dim=1,
        )
        total = total + head.weight * best.log_softmax(dim=-1).amax(dim=0)
    return total


def indexed(recall: Recall, documents: list[list[int]]) -> list[IndexKeys]:
    return [keys for _, keys in recall.index(documents)]


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=4, max_size=4), st.integers(-6, 2))
def test_a_quantised_row_is_within_half_a_step(values: list[float], power: int):
    row = torch.tensor([values]) * 10.0**power

    whole, scale = quantise(row)

    step = float(row.abs().max()) / 127
    # half a step, the rounding of the scale to float16, and the smallest scale there is
    bound = step / 2 + 127 * (step * 2**-11 + 2**-24) + 1e-7
    assert whole.dtype == torch.int8
    assert scale.dtype == torch.float16
    assert (whole.float() * scale.float()[:, None] - row).abs().max() <= bound


def test_a_row_beyond_float16_is_cut_never_infinite():
    whole, scale = quantise(torch.tensor([[1e9, -1e9, 1.0]]))

    assert whole.tolist() == [[127, -127, 0]]
    assert scale.isfinite().all()


def test_rows_are_quantised_each_on_its_own():
    rows = torch.tensor([[1.0, -0.5], [1000.0, 250.0], [0.0, 0.0]])

    whole, scale = quantise(rows)

    assert whole.tolist() == [[127, -64], [127, 32], [0, 0]]
    largest = torch.tensor([1.0, 1000.0, 0.0])
    assert torch.allclose(scale.float() * 127, largest, rtol=1e-3, atol=1e-4)


def test_what_is_kept_of_a_document(recall: Recall):
    (keys,) = indexed(recall, [token_ids(70)])

    assert recall.streams == ((1, 0), (2, 1)), "heads 0 and 1 share a key head, 3 has the other"
    assert keys.tokens == 70
    for stream in recall.streams:
        assert keys.keys[stream].dtype == torch.int8
        assert keys.keys[stream].shape == (70, HEAD_DIM)
        assert keys.scales[stream].dtype == torch.float16
        assert keys.scales[stream].shape == (70,)


@pytest.mark.parametrize("rows", [64, 130, 1000])
def test_every_document_comes_once_and_in_order(
    recall: Recall, rows: int, monkeypatch: pytest.MonkeyPatch
):
    documents = [token_ids(n, seed=n) for n in (5, 0, 300, 64, 1, 0, 129, 3)]
    wanted = {n: indexed(recall, [ids])[0] for n, ids in enumerate(documents) if ids}
    monkeypatch.setattr(batches, "__defaults__", (rows,))

    found = list(recall.index(documents))

    assert [position for position, _ in found] == [0, 2, 3, 4, 6, 7]
    for position, keys in found:
        assert keys.tokens == len(documents[position])
        for stream in recall.streams:
            value = keys.keys[stream].float() * keys.scales[stream].float()[:, None]
            other = wanted[position].keys[stream].float()
            other = other * wanted[position].scales[stream].float()[:, None]
            step = float(keys.scales[stream].max())
            assert (value - other).abs().max() <= 1.01 * step + 1e-4, "at most one int8 step apart"


def test_progress_adds_up_to_the_tokens(recall: Recall):
    heard: list[int] = []

    list(recall.index([token_ids(300), token_ids(2500, seed=1), []], heard.append))

    assert sum(heard) == 2800
    assert min(heard) > 0
    assert len(heard) > 3, "progress moves within a batch"


def test_the_same_tokens_have_the_same_keys_wherever_they_stand(recall: Recall):
    ids = token_ids(100)

    first, _, again = indexed(recall, [ids, token_ids(200, seed=1), ids])

    for stream in recall.streams:
        value = first.keys[stream].float() - again.keys[stream].float()
        assert value.abs().max() <= 1


def test_scores_are_those_of_float_keys_with_their_bias(recall: Recall):
    """The key bias adds the same to every score of a query: a softmax over blocks forgets it."""
    documents = [token_ids(n, seed=n) for n in (300, 40, 200, 31)]
    bias = recall.decoder.layers[1].k.bias
    assert bias is not None
    assert bias.abs().max() > 1, "the model's bias would show"

    total, heads = recall.score(QUESTION, indexed(recall, documents))

    wanted = exact_scores(recall, QUESTION, documents)
    assert total.shape == wanted.shape == (10 + 2 + 7 + 1,)
    assert (total - wanted).abs().max() < TOLERANCE
    assert set(heads) == {(1, 0), (1, 1), (2, 3)}
    weighted = sum(heads[h.layer, h.head] * h.weight for h in recall.profile.heads)
    assert torch.allclose(torch.as_tensor(weighted), total, atol=1e-5)


def test_without_the_bias_keys_need_less_room(recall: Recall):
    """What taking it off is for: the int8 steps are finer."""
    ids = token_ids(200)
    (kept,) = indexed(recall, [ids])

    with_bias = plain(recall, ids)[1][1][:, 0]

    assert kept.scales[1, 0].float().mean() < 0.95 * quantise(with_bias)[1].float().mean()


def test_int8_chooses_what_float32_chooses(recall: Recall):
    documents = [token_ids(n, seed=n) for n in (600, 900, 333)]
    total = recall.score(QUESTION, indexed(recall, documents))[0]
    exact = exact_scores(recall, QUESTION, documents)

    best, wanted = (set(scores.topk(8).indices.tolist()) for scores in (total, exact))

    assert len(best & wanted) >= 7
    missed = [exact[block] for block in best - wanted]
    assert all(score > exact.topk(8).values[-1] - TOLERANCE for score in missed), "a near tie"


def test_a_planted_key_is_found(recall: Recall):
    """A key that points where the question's query points wins, wherever it is."""
    head = recall.profile.heads[0]
    query = plain(recall, QUESTION)[head.layer][0][-1, head.head]
    documents = indexed(recall, [token_ids(n, seed=n) for n in (100, 200, 65)])
    key, scale = quantise(20 * query[None])
    documents[1].keys[head.layer, 0][130] = key[0]
    documents[1].scales[head.layer, 0][130] = scale[0]

    total, heads = recall.score(QUESTION, documents)

    block = 4 + 130 // PROFILE.block  # the first document has four blocks
    assert int(heads[head.layer, head.head].argmax()) == block
    assert float(heads[head.layer, head.head][block]) > -1e-3, "nearly all of the softmax"
    assert int(total.argmax()) == block


def test_documents_score_in_the_order_given(recall: Recall):
    a, b = indexed(recall, [token_ids(100), token_ids(70, seed=1)])

    forwards, backwards = recall.score(QUESTION, [a, b])[0], recall.score(QUESTION, [b, a])[0]

    assert torch.allclose(forwards, torch.cat((backwards[3:], backwards[:3])), atol=1e-5)


def test_a_question_longer_than_the_window(recall: Recall):
    question = token_ids(150, seed=3)
    documents = [token_ids(200, seed=1), token_ids(90, seed=2)]

    total = recall.score(question, indexed(recall, documents))[0]

    assert (total - exact_scores(recall, question, documents)).abs().max() < TOLERANCE


def test_questions_do_not_remember_each_other(recall: Recall):
    documents = indexed(recall, [token_ids(200)])
    first = recall.score(QUESTION, documents)[0]

    recall.score(token_ids(150, seed=3), documents)

    assert torch.allclose(recall.score(QUESTION, documents)[0], first, atol=1e-5)


def test_no_preamble(model: LoadedModel):
    recall = Recall(model.decoder, replace(PROFILE, preamble=""), [])
    documents = [token_ids(130), token_ids(20, seed=1)]

    total = recall.score(QUESTION, indexed(recall, documents))[0]

    assert (total - exact_scores(recall, QUESTION, documents)).abs().max() < TOLERANCE


def test_where_blocks_begin():
    starts = block_starts([0, 3, 4, 4, 7, 9, 12], 3)

    assert starts.tolist() == [0, 4, 12]
    assert starts.dtype == np.int32
