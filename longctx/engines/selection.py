"""What to read for a question: every block scored, the best ones looked at again, a few chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longctx.contexts.corpus import Corpus
from longctx.contexts.passages import Passage, passages
from longctx.errors import DoesNotFitError, UsageError
from longctx.indexshare.lexical import bm25, document_bm25, question_terms
from longctx.indexshare.recall import Recall
from longctx.indexshare.rerank import block_shares
from longctx.indexshare.select import Scores, best, choose, fuse, log_softmax
from longctx.indexshare.survey import listed, survey
from longctx.models.chat import ChatTemplate
from longctx.models.loaded import LoadedModel

INDEX_KINDS = ("hybrid", "attention", "lexical")
SPARE_TOKENS = 8  # a candidate's share of headers and gaps, beside its own block


@dataclass(frozen=True)
class Selected:
    """What the index chose.

    `passages` in context order; `scores` of all blocks, as the first look gave them;
    `question_tokens` asked there, `surveyed_tokens` in the prompt of the second look; not
    `attended` where words alone decided.
    """

    passages: list[Passage]
    scores: Scores
    question_tokens: int
    surveyed_tokens: int = 0
    attended: bool = True


class Selector:
    """The index of one model: `select` says what to read."""

    def __init__(self, model: LoadedModel, recall: Recall, template: ChatTemplate):
        self.model, self.recall, self.template = model, recall, template

    def select(self, question: str, corpus: Corpus, kind: str = "hybrid") -> Selected:
        """Score every block of the context and choose what to read.

        `hybrid` fuses attention and words, the other kinds use one of them alone; words alone
        never run the model. Raises `UsageError`, and `DoesNotFitError` for an endless question.
        """
        if kind not in INDEX_KINDS:
            raise UsageError(f"unknown index {kind!r}; choose one of {', '.join(INDEX_KINDS)}")
        if not corpus.entries:
            raise UsageError("there are no documents to ask: the context is empty or closed")
        profile, first = self.recall.profile, corpus.first_blocks
        segments = [entry.segment for entry in corpus.entries]
        ids = self.model.tokenizer.encode_text(profile.question_format.format(question=question))[0]
        if len(ids) > self.model.config.max_positions // 4:
            raise DoesNotFitError(
                f"the question has {len(ids)} tokens; at most "
                f"{self.model.config.max_positions // 4} fit this model"
            )
        attention = lexical = documents = None
        if kind != "lexical":
            attention = self.recall.score(ids, [s.keys for s in segments])[0].numpy()
        if kind != "attention":
            terms, words = question_terms(question), [s.postings for s in segments]
            lexical, documents = bm25(terms, words), document_bm25(terms, words)
        scores = fuse(
            attention, lexical, profile.lexical_weight, first, documents, profile.document_weight
        )
        if kind == "lexical" or not profile.rerank_heads:
            runs = choose(scores, first, profile.top_blocks, profile.neighbours)
            return Selected(passages(corpus, runs), scores, len(ids), attended=kind != "lexical")
        again, surveyed = self.look_again(question, corpus, scores, len(ids))
        runs = choose(again, first, profile.rerank_blocks, profile.neighbours)
        return Selected(passages(corpus, runs), scores, len(ids), surveyed)

    def look_again(
        self, question: str, corpus: Corpus, scores: Scores, question_tokens: int
    ) -> tuple[Scores, int]:
        """Score the best blocks again, -inf for the others; and the tokens read for it."""
        profile = self.recall.profile
        chosen = self.candidates(scores, question_tokens)

        def read(document: int, block: int) -> tuple[str, str]:
            entry = corpus.entries[document]
            start, end = entry.characters(block, block)
            return entry.document.path, entry.document.text[start:end]

        shown = listed(chosen, corpus.first_blocks, read)
        made = survey(self.model.tokenizer, self.template, question, shown)
        heads = [(head.layer, head.head) for head in profile.rerank_heads]
        shares = block_shares(self.model.decoder, made, heads).numpy()
        weights = np.array([head.weight for head in profile.rerank_heads], dtype=np.float32)
        again = np.full(len(scores), -np.inf, dtype=np.float32)
        total = weights @ shares + np.float32(profile.first_weight) * scores[chosen]
        again[chosen] = log_softmax(total.astype(np.float32))
        return again, len(made.prompt)

    def candidates(self, scores: Scores, question_tokens: int) -> list[int]:
        """The blocks the second look sees, in context order: the best, as far as they fit."""
        profile = self.recall.profile
        room = self.model.config.max_positions - question_tokens - 256
        most = min(profile.candidates, room // (profile.block + SPARE_TOKENS))
        return best(scores, max(1, most))
