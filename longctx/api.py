"""The Python API: load a model, index paths, ask. The command line uses nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from longctx.atomic import write_file
from longctx.contexts.corpus import Corpus, build_corpus
from longctx.contexts.prefix import PrefixStore
from longctx.contexts.store import SegmentStore
from longctx.documents.document import Document, Skipped
from longctx.documents.read import read_documents
from longctx.documents.reasons import EMPTY, reason_kind
from longctx.documents.sanitize import is_blank
from longctx.engines.base import Answer, AskOptions, Done, Event, OnProgress, Progress
from longctx.engines.local import LocalEngine
from longctx.engines.native import NativeEngine, refuse_words_alone
from longctx.engines.selection import INDEX_KINDS
from longctx.errors import LongctxError, UsageError
from longctx.indexshare.profile import Profile, find_profile, own_profile_path
from longctx.indexshare.recall import Recall
from longctx.models.device import release_memory
from longctx.models.loaded import LoadedModel, load
from longctx.models.native.loaded import NativeModel
from longctx.models.sources import DEFAULT_MODEL
from longctx.paths import ensure

if TYPE_CHECKING:
    from longctx.indexshare.questions import CalibrationQuestion

PROGRESS_SECONDS = 0.2


@dataclass(frozen=True)
class DocumentInfo:
    """A document of a context."""

    path: str
    tokens: int
    kind: str


class Context:
    """Indexed documents and the model that answers over them."""

    def __init__(
        self,
        engine: LocalEngine | NativeEngine,
        corpus: Corpus,
        seconds: dict[str, float],
        warnings: Sequence[str] = (),
    ):
        self._engine, self._corpus, self._warnings = engine, corpus, list(warnings)
        self._seconds = seconds

    @property
    def model_name(self) -> str:
        return self._engine.model.name

    @property
    def context_tokens(self) -> int:
        return self._corpus.tokens

    @property
    def skipped(self) -> list[Skipped]:
        return list(self._corpus.skipped)

    @property
    def documents(self) -> list[DocumentInfo]:
        return [
            DocumentInfo(e.document.path, e.segment.tokens, e.document.kind)
            for e in self._corpus.entries
        ]

    @property
    def warnings(self) -> list[str]:
        """What could not be kept, and what readers had to assume or leave out, one line each."""
        return [*self._warnings, *self._corpus.warnings] + [
            f"{entry.document.path}: {warning}"
            for entry in self._corpus.entries
            for warning in entry.document.warnings
        ]

    def stream(
        self,
        question: str,
        options: AskOptions | None = None,
        history: Sequence[tuple[str, str]] = (),
    ) -> Iterator[Event]:
        """Answer as a stream of events, the last of which is `Done`.

        Raises `UsageError` for an empty question, and for one that needs attention of a context
        whose words alone were indexed.
        """
        options = options or AskOptions()
        if is_blank(question):
            raise UsageError("the question is empty")
        if options.index != "lexical" and not self._corpus.has_keys:
            raise UsageError(
                "the words alone of this context were indexed: ask with index='lexical', "
                "or index it again for attention"
            )
        seconds = self._seconds
        for event in self._engine.ask(question, self._corpus, options, history, seconds):
            if isinstance(event, Done):  # loading and indexing are told once
                self._seconds = {}
                self._corpus.all_reused()
            yield event

    def ask(self, question: str, **options: object) -> Answer:
        """Answer a question; options are those of `AskOptions`."""
        known = {field.name for field in fields(AskOptions)}
        if unknown := set(options) - known:
            raise UsageError(f"unknown option {sorted(unknown)[0]!r}; known: {sorted(known)}")
        for event in self.stream(question, AskOptions(**options)):  # type: ignore[arg-type]
            if isinstance(event, Done):
                return event.answer
        raise LongctxError("the engine ended without an answer")

    def chat(self) -> Chat:
        """A conversation over this context."""
        return Chat(self)

    def close(self) -> None:
        """Release the index and the model."""
        self._corpus.entries.clear()
        if isinstance(self._engine, NativeEngine):
            self._engine.close()


class Chat:
    """Several questions over one context; earlier ones are kept as far as the window allows."""

    def __init__(self, context: Context):
        self.context = context
        self.history: list[tuple[str, str]] = []
        self.last: Answer | None = None

    def stream(self, question: str, options: AskOptions | None = None) -> Iterator[Event]:
        """As `Context.stream`, with the conversation so far."""
        for event in self.context.stream(question, options, tuple(self.history)):
            if isinstance(event, Done):
                self.last = event.answer
                self.history.append((question, event.answer.answer))
            yield event


def load_model(name_or_path: str = DEFAULT_MODEL, *, dtype: str = "auto", device: str = "auto"):
    """Load a model; `.forward(token_ids)` gives logits `[T, vocab]` float32.

    That of a native IndexShare model takes `return_indices=True` and then also gives what each
    layer attended to.
    """
    return load(name_or_path, device=device, dtype=dtype)


def index(
    paths: Sequence[str | Path] | str | Path,
    *,
    model: str | LoadedModel | NativeModel = DEFAULT_MODEL,
    device: str = "auto",
    dtype: str = "auto",
    store: bool = True,
    on_progress: OnProgress | None = None,
    hidden: bool = False,
    follow_symlinks: bool = False,
    stdin_paths: BinaryIO | None = None,
    profile: Profile | None = None,
    index: str = "hybrid",
    thinking: str = "off",
    stream_weights: bool = False,
) -> Context:
    """Read and index everything under `paths`; what the store already holds is not done again.

    `index` says how questions will be asked, as in `AskOptions`: for `lexical` the words alone are
    indexed, and a later call completes what it needs. An index that cannot be kept on disk stays
    in memory, and the context's `warnings` say so.

    A native IndexShare model reads the whole context as its prompt, and what that leaves in its
    caches is kept; `thinking` is how questions will be asked, and `stream_weights` reads each
    layer's weights once for the whole context, for models larger than memory.

    Raises `UsageError` for a missing path or when nothing readable is there, `ModelError` for a
    model that cannot be had, `DoesNotFitError` when memory or a native model's window is too
    small.
    """
    if index not in INDEX_KINDS:
        raise UsageError(f"unknown index {index!r}; choose one of {', '.join(INDEX_KINDS)}")
    show = on_progress or (lambda progress: None)
    named = [paths] if isinstance(paths, str | Path) else list(paths)
    documents, skipped = _read([Path(p) for p in named], show, hidden, follow_symlinks, stdin_paths)
    started = time.perf_counter()
    show(Progress("load", note=f"loading {model if isinstance(model, str) else model.name}"))
    loaded = _load(model, device, dtype, show) if isinstance(model, str) else model
    if isinstance(loaded, NativeModel):
        seconds = {"load": time.perf_counter() - started}
        return _native(
            loaded, documents, skipped, show, store, index, thinking, stream_weights, seconds
        )
    if stream_weights:
        raise UsageError(f"{loaded.name} is no IndexShare model: its weights are not streamed")
    warnings: list[str] = []
    profile = profile or find_profile(loaded.name, loaded.digest)
    profile = profile or _quick_profile(loaded, show, warnings)
    preamble = loaded.tokenizer.encode_text(profile.preamble)[0]
    recall = Recall(loaded.decoder, profile, preamble)
    seconds = {"load": time.perf_counter() - started}
    started = time.perf_counter()
    kept = SegmentStore.default(loaded.digest, profile.index_digest()) if store else None
    kept = kept or SegmentStore(None, loaded.digest, profile.index_digest())
    told = _IndexProgress(documents, show)
    keys = index != "lexical"
    corpus = build_corpus(documents, skipped, recall, loaded.tokenizer, kept, told.hear, keys)
    told.finish(corpus.tokens)
    release_memory()
    seconds["index"] = time.perf_counter() - started
    return Context(LocalEngine(loaded, recall), corpus, seconds, warnings)


def _native(
    model: NativeModel,
    documents: list[Document],
    skipped: list[Skipped],
    show: OnProgress,
    store: bool,
    index: str,
    thinking: str,
    stream_weights: bool,
    seconds: dict[str, float],
) -> Context:
    """A context whose documents are prefilled as the prompt of a model with its own indexer."""
    refuse_words_alone(index)
    started = time.perf_counter()
    kept = PrefixStore.default(model.digest) if store else PrefixStore(None, model.digest)
    engine = NativeEngine(model, kept)
    corpus = engine.lay_out(documents, skipped)
    told = 0.0

    def hear(done: int, total: int) -> None:
        nonlocal told
        now = time.perf_counter()
        if now - told >= PROGRESS_SECONDS or done >= total:
            told = now
            count = len(documents)
            show(Progress("index", count, count, done, total, now - started))

    engine.prepare(corpus, thinking, hear, stream_weights)
    seconds["index"] = time.perf_counter() - started
    return Context(engine, corpus, seconds)


@dataclass(frozen=True)
class CalibrationResult:
    """A measured profile, where it was written, and the table of leader depths."""

    profile: Profile
    path: Path
    table: list[dict[str, str]]


def calibrate(
    model: str | LoadedModel = DEFAULT_MODEL,
    *,
    questions: Sequence[str | Path] = (),
    quick: bool = False,
    out: str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> CalibrationResult:
    """Choose a model's leader depth, heads and weights by measured recall; write its profile.

    `questions` are JSONL files with `passage`, `question` and `answer`, beside the shipped sets.
    Without `out` the profile goes where `index` finds it for this model.
    """
    from longctx.indexshare.questions import read_questions, shipped_questions

    show = on_progress or (lambda progress: None)
    asked = shipped_questions()
    for file in questions:
        asked += read_questions(Path(file))
    loaded = _load(model, device, dtype, show) if isinstance(model, str) else model
    if isinstance(loaded, NativeModel):
        raise UsageError(f"{loaded.name} has indexers of its own: there is nothing to calibrate")
    found = _measure(loaded, asked, quick, seed, show)
    path = Path(out) if out else own_profile_path(loaded.digest)
    _keep_profile(found.profile, path)
    rows: list[dict[str, str]] = []
    for row in found.table:
        line = {"leader": str(row.depth), "layers run": f"{row.cost:.0%}"}
        line["streams"] = " ".join(f"{layer}.{kv}" for layer, kv in row.streams)
        for kind in row.attention:
            line[kind] = f"{row.attention[kind]:.2f} / {row.fused[kind]:.2f}"
        rows.append(line | {"BM25 weight": str(row.lexical_weight)})
    rows.append({"leader": "BM25 alone"} | {kind: f"{v:.2f}" for kind, v in found.lexical.items()})
    return CalibrationResult(found.profile, path, rows)


def _measure(
    loaded: LoadedModel, asked: list[CalibrationQuestion], quick: bool, seed: int, show: OnProgress
):
    from longctx.indexshare.calibrate import calibrate as measure

    started = time.perf_counter()

    def say(stage: str, done: int, total: int) -> None:
        seconds = time.perf_counter() - started
        show(Progress(stage, tokens=done, total_tokens=total, seconds=seconds))

    return measure(
        loaded.name,
        loaded.decoder,
        loaded.tokenizer,
        asked,
        quick=quick,
        seed=seed,
        on_progress=say,
    )


def _keep_profile(profile: Profile, path: Path) -> None:
    ensure(path.parent)
    write_file(path, profile.to_json())


def _quick_profile(loaded: LoadedModel, show: OnProgress, warnings: list[str]) -> Profile:
    """Calibrate a model that has no profile, in a minute or two, and try to keep the result."""
    from longctx.indexshare.questions import shipped_questions

    show(Progress("load", note=f"{loaded.name} has no profile yet: calibrating it once"))
    profile = _measure(loaded, shipped_questions(), True, 0, show).profile
    try:
        _keep_profile(profile, own_profile_path(loaded.digest))
    except (LongctxError, OSError) as error:
        warnings.append(f"the calibration is not kept for the next time: {error}")
    return profile


def _load(model: str, device: str, dtype: str, show: OnProgress) -> LoadedModel | NativeModel:
    def hear(what: str, done: int, total: int) -> None:
        show(Progress("load", tokens=done, total_tokens=total or None, note=what))

    return load(model, device=device, dtype=dtype, progress=hear)


def _read(
    paths: list[Path],
    show: OnProgress,
    hidden: bool,
    follow_symlinks: bool,
    stdin_paths: BinaryIO | None,
) -> tuple[list[Document], list[Skipped]]:
    documents: list[Document] = []
    skipped: list[Skipped] = []
    for item in read_documents(
        paths, hidden=hidden, follow_symlinks=follow_symlinks, stdin_paths=stdin_paths
    ):
        if isinstance(item, Skipped):
            skipped.append(item)
        elif is_blank(item.text):
            skipped.append(Skipped(item.path, EMPTY))
        else:
            documents.append(item)
            show(Progress("read", documents=len(documents)))
    if not documents:
        where = ", ".join(str(path) for path in paths) or "the given list"
        raise UsageError(f"nothing readable in {where}" + _reasons(skipped))
    return documents, skipped


def _reasons(skipped: list[Skipped]) -> str:
    if not skipped:
        return ": no files there"
    kinds = sorted({reason_kind(item.reason) for item in skipped})
    files = "1 file" if len(skipped) == 1 else f"{len(skipped)} files"
    return f": {files} skipped ({', '.join(kinds[:5])})"


class _IndexProgress:
    """Adds up what the indexer reports and passes it on a few times a second.

    The total is estimated from characters until everything is tokenised; `finish` tells the true
    one, which also counts what several files have in common once for each.
    """

    def __init__(self, documents: Sequence[Document], show: OnProgress):
        self._show = show
        self._characters = sum(len(document.text) for document in documents)
        self._total = len(documents)
        self._documents = self._tokens = 0
        self._start = self._last = time.perf_counter()

    def hear(self, tokens: int, documents: int, reused: bool) -> None:
        self._tokens += tokens
        self._documents += documents
        now = time.perf_counter()
        if now - self._last >= PROGRESS_SECONDS:
            self._last = now
            self._tell(max(self._tokens, self._characters // 4), "reused" if reused else "")

    def finish(self, tokens: int) -> None:
        """All is indexed: the context has `tokens`."""
        self._tokens = tokens
        self._tell(tokens)

    def _tell(self, total_tokens: int, note: str = "") -> None:
        self._show(
            Progress(
                "index",
                documents=self._documents,
                total_documents=self._total,
                tokens=self._tokens,
                total_tokens=total_tokens,
                seconds=time.perf_counter() - self._start,
                note=note,
            )
        )
