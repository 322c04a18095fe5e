"""The batched leader pass against a naive one, and that documents never touch each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache

import pytest
import torch
from engines.tiny_model import load_tiny, token_ids, write_model
from torch import Tensor

from indexshare.naive_leader import Layers, naive_leader
from longctx.indexshare.leader import Captured, Chunk, LeaderPass, batches
from longctx.models.decoder import Decoder

WINDOW, LAST = 64, 3
ALL = frozenset(range(LAST + 1))
LENGTHS = (50, 200, 64, 1, 300, 128)
TOLERANCE = 2e-4
PREAMBLE = token_ids(20, seed=99)


@cache
def document(length: int) -> tuple[int, ...]:
    return tuple(token_ids(length, seed=length))


def run(
    decoder: Decoder, documents: Sequence[Sequence[int]], rows: int, preamble: Sequence[int]
) -> dict[int, Layers]:
    """Queries and keys per document and layer."""
    leader = LeaderPass(decoder, LAST, preamble, WINDOW)
    held: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)

    def keep(captured: Captured) -> None:
        assert captured.queries is not None
        assert captured.keys is not None
        at = 0
        for chunk in captured.chunks:
            part = slice(at, at := at + len(chunk.tokens))
            held[chunk.document, captured.layer].append(
                (captured.queries[part], captured.keys[part])
            )

    for batch in batches(documents, WINDOW, rows):
        leader.run(batch, keep, query_layers=ALL, key_layers=ALL)
    found: dict[int, Layers] = {}
    for number, layer in sorted(held):
        queries, keys = zip(*held[number, layer], strict=True)
        found.setdefault(number, []).append((torch.cat(queries), torch.cat(keys)))
    return found


def furthest(found: Layers, wanted: Layers) -> float:
    assert len(found) == len(wanted)
    return max(
        float((a - b).abs().nan_to_num(torch.inf).max())
        for pair, other in zip(found, wanted, strict=True)
        for a, b in zip(pair, other, strict=True)
    )


@pytest.fixture(scope="module", params=["qwen2", "qwen3", "llama"])
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return load_tiny(write_model(tmp_path_factory.mktemp(request.param))).decoder


@pytest.mark.parametrize("preamble", [PREAMBLE, []], ids=["preamble", "no preamble"])
def test_it_is_the_naive_pass(decoder: Decoder, preamble: list[int]):
    documents = [document(length) for length in LENGTHS]

    whole = run(decoder, documents, 2048, preamble)
    split = run(decoder, documents, 130, preamble)

    assert list(whole) == list(split) == list(range(len(LENGTHS)))
    for number, length in enumerate(LENGTHS):
        wanted = naive_leader(decoder, preamble, document(length), WINDOW, LAST)
        assert len(whole[number][0][0]) == length
        assert furthest(whole[number], wanted) < TOLERANCE, f"document of {length} tokens"
        assert furthest(split[number], wanted) < TOLERANCE, f"document of {length}, split"


def test_the_naive_pass_is_sensitive_to_the_window(decoder: Decoder):
    """What the tolerance above is worth: one wrong window moves far more."""
    right = naive_leader(decoder, PREAMBLE, document(200), WINDOW, LAST)
    wrong = naive_leader(decoder, PREAMBLE, document(200), WINDOW - 1, LAST)

    assert furthest(right, wrong) > 1000 * TOLERANCE


def test_neighbours_and_batch_size_change_nothing(decoder: Decoder):
    alone = run(decoder, [document(200)], 2048, PREAMBLE)[0]
    others = [document(300), document(200), document(64)]

    for rows in (64, 100, 130, 257, 2048):
        assert furthest(run(decoder, others, rows, PREAMBLE)[1], alone) < TOLERANCE
    for place, order in enumerate(((200, 1, 50), (50, 200, 300), (64, 128, 200))):
        found = run(decoder, [document(length) for length in order], 130, PREAMBLE)
        assert furthest(found[place], alone) < TOLERANCE


def test_a_neighbour_of_extreme_tokens_leaks_nothing(decoder: Decoder):
    ones = [1] * 300

    alone = run(decoder, [document(50)], 2048, PREAMBLE)[0]
    after = run(decoder, [ones, document(50), ones], 2048, PREAMBLE)[1]

    assert furthest(after, alone) < TOLERANCE


def test_empty_documents_give_no_rows(decoder: Decoder):
    found = run(decoder, [[], document(50), [], [], document(64), []], 2048, PREAMBLE)

    assert list(found) == [1, 4]
    assert furthest(found[1], run(decoder, [document(50)], 2048, PREAMBLE)[0]) < TOLERANCE


def test_only_what_is_wanted_is_captured(decoder: Decoder):
    seen: list[tuple[int, bool, bool]] = []
    leader = LeaderPass(decoder, 2, PREAMBLE, WINDOW)

    def keep(captured: Captured) -> None:
        seen.append((captured.layer, captured.queries is not None, captured.keys is not None))

    for batch in batches([document(50)], WINDOW):
        leader.run(batch, keep, query_layers=frozenset({0, 2}), key_layers=frozenset({1, 2}))

    assert seen == [(0, True, False), (1, False, True), (2, True, True)]


def test_chunks_are_windows_of_one_document_in_order():
    found = list(batches([[1] * 130, [], [2] * 3], 64, rows=100))

    assert found == [
        [Chunk(0, 0, [1] * 64)],
        [Chunk(0, 64, [1] * 64), Chunk(0, 128, [1] * 2), Chunk(2, 0, [2] * 3)],
    ]
    assert [chunk.follows for chunk in found[1]] == [True, True, False]


def test_no_documents_are_no_batches():
    assert list(batches([], 64)) == []
    assert list(batches([[], []], 64)) == []


def test_a_chunk_larger_than_a_batch_runs_alone():
    sizes = [[len(c.tokens) for c in batch] for batch in batches([[1] * 150, [2] * 5], 64, rows=10)]

    assert sizes == [[64], [64], [22], [5]]
