"""The local engine: index, select, read, answer, on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from longctx.accounting import flops
from longctx.contexts.cite import cite
from longctx.contexts.corpus import Corpus
from longctx.contexts.passages import Passage
from longctx.engines.base import (
    Answer,
    AskOptions,
    Compute,
    Done,
    Event,
    Evidence,
    Progress,
    Token,
    Usage,
)
from longctx.engines.clock import Clock
from longctx.engines.generate import generate
from longctx.engines.opening import Opening
from longctx.engines.prompt import NOT_FOUND, declines, messages
from longctx.engines.selection import Selected, Selector
from longctx.engines.shown import citation, cut_warning, heat_rows, passage
from longctx.errors import DoesNotFitError, ModelError, UsageError
from longctx.indexshare.recall import Recall
from longctx.models.chat import ChatTemplate, encode_chat
from longctx.models.decoder import KVCache
from longctx.models.loaded import LoadedModel
from longctx.models.token_stream import Streamer


class LocalEngine:
    """One model with its indexer; answers questions over a `Corpus`."""

    def __init__(self, model: LoadedModel, recall: Recall):
        self.model, self.recall = model, recall
        self.template = ChatTemplate.for_tokenizer(model.tokenizer)
        self.selector = Selector(model, recall, self.template)
        self.stop = frozenset(model.tokenizer.eos_ids) | frozenset(model.config.eos_ids)
        self._opening = Opening(model.decoder, self._always())
        self._decline = model.tokenizer.encode_text(NOT_FOUND)[0][0]

    def _always(self) -> list[int]:
        """Token ids every reading prompt begins with, none where the template allows no such."""
        try:
            return encode_chat(self.model.tokenizer, self.template, messages("", ())[:-1], False)
        except ModelError:
            return []

    def select(self, question: str, corpus: Corpus, kind: str = "hybrid") -> Selected:
        """Choose what to read; see `Selector.select`."""
        return self.selector.select(question, corpus, kind)

    def ask(
        self,
        question: str,
        corpus: Corpus,
        options: AskOptions,
        history: Sequence[tuple[str, str]] = (),
        seconds: dict[str, float] | None = None,
    ) -> Iterator[Event]:
        """Answer one question; `seconds` holds what loading and indexing took before."""
        if not question.strip():
            raise UsageError("the question is empty")
        clock = Clock(seconds or {})
        yield Progress("select", tokens=0, total_tokens=corpus.tokens)
        # A follow-up ("and who signed it?") is understood with the question before it.
        wanted = f"{history[-1][0]} {question}" if history else question
        selected = self.select(wanted, corpus, options.index)
        clock.mark("select")
        yield from self.read(question, selected, corpus, options, history, clock)

    def read(
        self,
        question: str,
        selected: Selected,
        corpus: Corpus,
        options: AskOptions,
        history: Sequence[tuple[str, str]] = (),
        clock: Clock | None = None,
    ) -> Iterator[Event]:
        """Read what was selected, stream the answer, and cite it."""
        clock = clock or Clock({})
        read, prompt = self._fit(question, selected.passages, history, options)
        evidence = tuple(passage(n, p) for n, p in enumerate(read, 1))
        rows = heat_rows(corpus, selected.scores)
        yield Evidence(evidence, rows, len(prompt))
        decoder = self.model.decoder
        cache = decoder.new_cache(len(prompt) + options.max_answer_tokens)
        held, known = self._opening.fill(cache, prompt)
        logits = decoder.forward(prompt[held:], cache, last_only=True)[0]
        clock.mark("first_token")
        text, count = "", 0
        for token, piece in self._answer(cache, logits, options):
            count += token
            text += piece
            if piece:
                yield Token(piece)
        clock.mark("answer")
        found = bool(text.strip()) and not declines(text)
        cited = cite(question, text, read, corpus) if found else []
        usage = Usage(
            context_tokens=corpus.tokens,
            indexed_tokens=corpus.indexed_tokens,
            reused_tokens=corpus.reused_tokens,
            read_tokens=len(prompt),
            answer_tokens=count,
            seconds=clock.report(),
        )
        yield Done(
            Answer(
                answer=text.strip(),
                found=found,
                model=self.model.name,
                evidence=evidence,
                citations=tuple(citation(c) for c in cited),
                skipped=tuple({"path": s.path, "reason": s.reason} for s in corpus.skipped),
                usage=usage,
                compute=self.compute(corpus, selected, usage, known),
                heat=rows,
                warnings=cut_warning(count, options.max_answer_tokens),
            )
        )

    def _answer(
        self, cache: KVCache, logits: Tensor, options: AskOptions
    ) -> Iterator[tuple[int, str]]:
        """Yield `(tokens, text)` pieces of the answer after a prompt that gave `logits` `[vocab]`.

        Whether to answer is the profile's to say, not the first word's: with other excerpts around
        the same passage a small model's wish to decline comes and goes.
        """
        margin = self._decline_margin(logits)
        if margin > self.recall.profile.decline_margin:
            yield 0, NOT_FOUND
            return
        if margin > 0:
            logits = logits.clone()
            logits[self._decline] = float("-inf")
        streamer = Streamer(self.model.tokenizer)
        settings = (options.max_answer_tokens, options.temperature, options.seed)
        for token, _ in generate(self.model.decoder, cache, logits, self.stop, *settings):
            yield 1, streamer.feed(token)
        yield 0, streamer.flush()

    def _decline_margin(self, logits: Tensor) -> float:
        """Log-odds of beginning with the words that decline against the best other beginning."""
        others = logits.clone()
        others[self._decline] = float("-inf")
        return float(logits[self._decline] - others.max())

    def _fit(
        self,
        question: str,
        read: list[Passage],
        history: Sequence[tuple[str, str]],
        options: AskOptions,
    ) -> tuple[list[Passage], list[int]]:
        """Drop the oldest history, then the weakest passages, until the prompt fits the window.

        Returns the passages left and the prompt's token ids.
        """
        room = self.model.config.max_positions - options.max_answer_tokens
        while True:
            prompt = encode_chat(
                self.model.tokenizer, self.template, messages(question, read, history)
            )
            if len(prompt) <= room:
                return read, prompt
            if history:
                history = history[1:]
            elif read:
                weakest = min(read, key=lambda passage: passage.score)
                read = [passage for passage in read if passage is not weakest]
            else:
                raise DoesNotFitError(
                    f"the question and an answer of {options.max_answer_tokens} tokens do not fit "
                    f"the model's window of {self.model.config.max_positions}; "
                    "ask for a shorter answer or choose another model"
                )

    def compute(self, corpus: Corpus, selected: Selected, usage: Usage, known: int = 0) -> Compute:
        """Operations of this question, and of two other ways to ask it of the same context.

        `known` tokens of the prompt were computed for a question before.

        Dense: the whole context through every layer with causal attention. Every-layer index: as
        recall does it, but each layer indexes for itself, so the context passes through them all.
        """
        config, profile = self.model.config, self.recall.profile
        sinks, question_tokens = self.recall.sinks, selected.question_tokens
        context, answered = corpus.tokens, usage.answer_tokens
        reading = flops.dense(config, usage.read_tokens - known, known) + flops.dense(
            config, answered, usage.read_tokens
        )
        reading += flops.head(config, answered + 1)
        scoring = flops.scoring(config.head_dim, len(profile.heads), question_tokens, context)

        def index(depth: int, tokens: int) -> int:
            return flops.leader(config, depth, tokens, profile.window, sinks)

        if selected.surveyed_tokens:
            depth = max(head.layer for head in profile.rerank_heads)
            reading += flops.survey(config, depth, selected.surveyed_tokens)
        done = reading
        if selected.attended:
            done += index(profile.leader, corpus.indexed_tokens + question_tokens) + scoring
        whole = context + question_tokens
        dense = flops.dense(config, whole) + flops.dense(config, answered, whole)
        every = index(config.layers - 1, whole) + scoring * config.layers + reading
        return Compute(done, dense + flops.head(config, answered + 1), every)
