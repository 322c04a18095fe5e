"""The engine of native IndexShare models: the whole context is the prompt.

Documents are prefilled once, saved as latents and index keys, and every question continues from
there. What an answer stands on is what the model's own indexers choose at the answer's tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from longctx.accounting import native as formulas
from longctx.contexts.cite import cite
from longctx.contexts.corpus import Corpus
from longctx.contexts.laid_out import LaidOut, lay_out, locate
from longctx.contexts.passages import passages
from longctx.contexts.prefix import PrefixStore
from longctx.documents.document import Document, Skipped
from longctx.engines import shown
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
from longctx.engines.prompt import OPENING, declines
from longctx.engines.thinking import Thoughts
from longctx.errors import DoesNotFitError, ModelError, UsageError
from longctx.indexshare.select import choose
from longctx.models.chat import ChatTemplate, CutChat, cut_chat
from longctx.models.loaded import memory_total
from longctx.models.native.cache import NativeCache, row_widths
from longctx.models.native.choices import index_choices
from longctx.models.native.loaded import NativeModel
from longctx.models.native.streaming import stream_prefill
from longctx.models.token_stream import Streamer
from longctx.paths import cache_dir, ensure

QUESTION_ROOM = 16_384  # tokens kept for question, history and answer, as far as the window goes
PREFILL_TOKENS = 512  # between two reports of progress
EVIDENCE_TOKENS = 64  # an indexer's best positions that count, a token of the answer
EVIDENCE_BLOCKS, NEIGHBOURS = 8, 1
WORTH_KEEPING = 2048  # tokens of an interrupted prefill that are saved

OnTokens = Callable[[int, int], None]


class NativeEngine:
    """One model and one context laid out before it; `prepare` comes first.

    Of the ways of thinking, whose prompts begin differently, the caches of one are held at a time.
    """

    def __init__(self, model: NativeModel, store: PrefixStore):
        self.model, self._store = model, store
        self._template = ChatTemplate.for_tokenizer(model.tokenizer)
        self._caches: dict[str, tuple[CutChat, NativeCache]] = {}
        self._laid_out: CutChat | None = None
        self._prepared_flops = 0

    def lay_out(self, documents: Sequence[Document], skipped: Sequence[Skipped]) -> LaidOut:
        """The documents as a prompt. Raises `DoesNotFitError` beyond the window or the memory."""
        corpus = lay_out(OPENING, documents, skipped)
        cut = self._cut(corpus, "", (), "off")
        self._check_room(len(cut.head), 0, 0)
        locate(corpus, cut.begins)
        self._laid_out = cut
        return corpus

    def prepare(
        self,
        corpus: LaidOut,
        thinking: str,
        on_tokens: OnTokens,
        stream_weights: bool = False,
    ) -> None:
        """Prefill the documents, from the longest saved prefix on, and save what is new.

        `on_tokens(done, total)` hears prompt tokens. With `stream_weights` each layer's weights
        are read once for the whole prompt, and one layer is held at a time.
        """
        cut = self._cut(corpus, "", (), thinking, self._laid_out)
        self._check_room(len(cut.head), 0, 0)
        head, config = cut.head, self.model.config
        capacity = min(config.max_positions, len(head) + QUESTION_ROOM)
        self.close()
        self._check_memory(capacity)
        locate(corpus, cut.begins)
        counters = self.model.decoder.counters
        counters.reset()
        device = str(self.model.decoder.device)
        cache = self._store.take(config, head, capacity, device)
        reused = 0 if cache is None else min(cache.length, len(head))
        if cache is None:
            cache = self.model.decoder.new_cache(capacity)
        on_tokens(reused, len(head))
        if reused < len(head):
            try:
                self._prefill(head, reused, cache, on_tokens, stream_weights)
            finally:  # an interrupted prefill leaves whole chunks behind
                if cache.length == len(head) or cache.length - reused >= WORTH_KEEPING:
                    self._store.keep(head, cache)
        self._caches[thinking] = (cut, cache)
        self._prepared_flops = counters.total
        corpus.reused_tokens = corpus.tokens_before(reused)
        corpus.indexed_tokens = corpus.tokens - corpus.reused_tokens
        corpus.warnings = [*self.model.warnings, *self._store.warnings]

    def close(self) -> None:
        """Give back the memory of the caches; `prepare` makes them again."""
        self._caches.clear()

    def _prefill(
        self,
        head: Sequence[int],
        done: int,
        cache: NativeCache,
        on_tokens: OnTokens,
        stream_weights: bool,
    ) -> None:
        if stream_weights:
            with TemporaryDirectory(prefix="longctx-spill-", dir=_spill_root()) as folder:
                stream_prefill(
                    self.model.config,
                    self.model.source,
                    head[done:],
                    cache,
                    spill_dir=Path(folder),
                    counters=self.model.decoder.counters,
                    on_progress=lambda rows, total: on_tokens(
                        done + (len(head) - done) * rows // max(total, 1), len(head)
                    ),
                )
            return
        for start in range(done, len(head), PREFILL_TOKENS):
            part = head[start : start + PREFILL_TOKENS]
            self.model.decoder.hidden(part, cache, last_only=True)
            on_tokens(start + len(part), len(head))

    def ask(
        self,
        question: str,
        corpus: Corpus,
        options: AskOptions,
        history: Sequence[tuple[str, str]] = (),
        seconds: dict[str, float] | None = None,
    ) -> Iterator[Event]:
        """Answer one question over a context of `prepare`; `seconds` as in `LocalEngine.ask`."""
        assert isinstance(corpus, LaidOut), "a context this engine has not laid out"
        if not corpus.entries:
            raise UsageError("there are no documents to ask: the context is empty or closed")
        if not question.strip():
            raise UsageError("the question is empty")
        refuse_words_alone(options.index)
        clock = Clock(seconds or {})
        if options.thinking not in self._caches:
            yield Progress("select", note="reading the documents for another way of thinking")
            self.prepare(corpus, options.thinking, lambda done, total: None)
        known, cache = self._caches[options.thinking]
        cut = self._fit(question, corpus, history, options, known, cache.capacity)
        cache.crop(len(cut.head))
        clock.mark("select")
        yield Progress("answer", note=f"{len(cut.tail)} tokens")
        counters = self.model.decoder.counters
        counters.reset()
        logits = self.model.decoder.forward(cut.tail, cache, last_only=True)[0]
        clock.mark("first_token")
        thoughts = Thoughts(self.model.tokenizer, cut.tail)
        streamer = Streamer(self.model.tokenizer)
        sampling = self.model.generation
        written, said, text = [], [], ""
        for token, _ in generate(
            self.model.decoder,
            cache,
            logits,
            sampling.stop_ids,
            options.max_answer_tokens,
            options.temperature,
            options.seed,
            sampling.top_p,
        ):
            written.append(token)
            if thoughts.answers(token):
                said.append(len(written) - 1)
                piece = streamer.feed(token)
                text += piece
                if piece:
                    yield Token(piece)
        if rest := streamer.flush():
            text += rest
            yield Token(rest)
        clock.mark("answer")
        made = counters.total + self._prepared_flops  # a long prefill is part of its first question
        self._prepared_flops = 0
        counts = self._looked_at(corpus, cut, written, said, cache)
        scores = np.log(counts / max(counts.sum(), 1.0) + 1e-6).astype(np.float32)
        chosen = int(np.count_nonzero(counts))  # a block nobody chose is no evidence
        most = min(EVIDENCE_BLOCKS, chosen)
        read = passages(corpus, choose(scores, corpus.first_blocks, most, NEIGHBOURS))
        evidence = tuple(shown.passage(n, p) for n, p in enumerate(read, 1))
        heat = shown.heat_rows(corpus, scores) if most else ()
        yield Evidence(evidence, heat, len(cut.tail))
        found = bool(text.strip()) and not declines(text)
        usage = Usage(
            context_tokens=corpus.tokens,
            indexed_tokens=corpus.indexed_tokens,
            reused_tokens=corpus.reused_tokens,
            read_tokens=len(cut.tail),
            answer_tokens=len(written),
            seconds=clock.report(),
        )
        compute = self._compute(made, len(cut.head) + len(cut.tail), len(written))
        yield Done(
            Answer(
                answer=text.strip(),
                found=found,
                model=self.model.name,
                evidence=evidence,
                citations=tuple(
                    shown.citation(c) for c in (cite(question, text, read, corpus) if found else [])
                ),
                skipped=tuple({"path": s.path, "reason": s.reason} for s in corpus.skipped),
                usage=usage,
                compute=compute,
                heat=heat,
                warnings=shown.cut_warning(
                    len(written), options.max_answer_tokens, thoughts.under_way
                ),
            )
        )

    def _fit(
        self,
        question: str,
        corpus: LaidOut,
        history: Sequence[tuple[str, str]],
        options: AskOptions,
        known: CutChat,
        capacity: int,
    ) -> CutChat:
        """The chat behind the `known` documents, without its oldest questions if all do not fit."""
        while True:
            cut = self._cut(corpus, question, history, options.thinking, known)
            if cut.lead != known.lead:
                raise ModelError(
                    "the model's chat template begins otherwise for every question; "
                    "choose another model"
                )
            needed = len(cut.tail) + options.max_answer_tokens
            if len(cut.head) + needed <= capacity:
                return cut
            if not history:
                self._check_room(len(cut.head), len(cut.tail), options.max_answer_tokens)
                raise DoesNotFitError(
                    f"question and answer need {needed:,} tokens, {capacity - len(cut.head):,} are "
                    "free; ask for a shorter answer"
                )
            history = history[1:]

    def _cut(
        self,
        corpus: LaidOut,
        question: str,
        history: Sequence[tuple[str, str]],
        thinking: str,
        known: CutChat | None = None,
    ) -> CutChat:
        """The chat as token ids, cut behind the documents."""
        asked = [*(q for q, _ in history), question]
        chat = [{"role": "user", "content": f"{corpus.text}Question: {asked[0]}"}]
        for (_, answered), following in zip(history, asked[1:], strict=True):
            chat.append({"role": "assistant", "content": answered})
            chat.append({"role": "user", "content": f"Question: {following}"})
        thinks = thinking != "off"
        return cut_chat(
            self.model.tokenizer,
            self._template,
            chat,
            corpus.text,
            known,
            enable_thinking=thinks,
            thinking=thinks,  # what DeepSeek's template calls it
            reasoning_effort=thinking if thinks else "",
        )

    def _looked_at(
        self,
        corpus: LaidOut,
        cut: CutChat,
        written: Sequence[int],
        said: Sequence[int],
        cache: NativeCache,
    ) -> np.ndarray:
        """How many of the indexers' choices at the answer's tokens fall on each block, float64.

        The token before the answer counts with it: what it chose decided the first word. The last
        token written was never run.
        """
        past = len(cut.head) + len(cut.tail)
        rows = [*cut.tail[-1:], *written][: cache.length - past + 1]
        wanted = [0, *(number + 1 for number in said if number + 1 < len(rows))]
        counts = np.zeros(corpus.first_blocks[-1], dtype=np.float64)
        for chosen in index_choices(self.model.decoder, rows, past - 1, cache, EVIDENCE_TOKENS):
            blocks = corpus.blocks_at(chosen[wanted].flatten().cpu().numpy())
            counts += np.bincount(blocks, minlength=len(counts))
        return counts

    def _compute(self, done: int, prompt: int, answered: int) -> Compute:
        """Operations counted since the last answer, and those of two other ways to ask."""
        sizes = self.model.config
        whole = prompt + answered

        def total(**way: bool) -> int:
            every = formulas.prefill(sizes, whole, absorbed=True, **way)
            return every.total - every.head + formulas.head(sizes) * (answered + 1)

        return Compute(done, total(dense=True), total(every_layer=True))

    def _check_room(self, head: int, tail: int, answer: int) -> None:
        window = self.model.config.max_positions
        if head + tail + answer > window:
            raise DoesNotFitError(
                f"the documents take {head:,} tokens, question and answer {tail + answer:,}; the "
                f"model's window is {window:,}. Name fewer files, or ask another model, for which "
                "the window is no limit"
            )

    def _check_memory(self, capacity: int) -> None:
        config = self.model.config
        entry, key = row_widths(config, "bf16")
        numbers = config.layers * entry + config.full.count(True) * key
        needed = numbers * capacity * self.model.decoder.dtype.itemsize
        total = memory_total(self.model.decoder.device.type)
        if total and needed > 0.9 * total:
            raise DoesNotFitError(
                f"the cache of {capacity:,} tokens takes {needed / 1e9:.1f} GB, the memory is "
                f"{total / 1e9:.1f} GB; name fewer files"
            )


def refuse_words_alone(index: str) -> None:
    """Raise `UsageError` for the one kind of index a model with its own indexer cannot have."""
    if index == "lexical":
        raise UsageError("a model with its own indexer cannot search by words; drop --index")


def _spill_root() -> Path:
    return ensure(cache_dir() / "spill")
