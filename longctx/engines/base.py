"""What every engine hands on while it answers: one stream of events, and the finished answer.

Plain data: no tensors, no printing. `longctx.cli` renders the events, `--json` dumps the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from longctx.errors import UsageError


@dataclass(frozen=True)
class Progress:
    """Work under way: `stage` is read, load, index, select, answer or a step of calibration.

    Counts are tokens, but bytes while a model is fetched or converted (stage load). A total is
    None while it is unknown. `seconds` counts from the stage's begin.
    """

    stage: str
    documents: int = 0
    total_documents: int | None = None
    tokens: int = 0
    total_tokens: int | None = None
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class EvidencePassage:
    """A passage the model was given to read. `number` is its label in the prompt, from 1."""

    number: int
    path: str
    start_line: int
    end_line: int
    page: int | None
    time: str | None
    score: float
    text: str


@dataclass(frozen=True)
class HeatRow:
    """Where the index looked in one document: `heat` are shares 0..1 of the strongest block,
    in document order, one per equal slice of the document."""

    path: str
    tokens: int
    heat: tuple[float, ...]


@dataclass(frozen=True)
class Evidence:
    """The index has chosen. `read_tokens` is the length of the prompt."""

    passages: tuple[EvidencePassage, ...]
    heat: tuple[HeatRow, ...]
    read_tokens: int


@dataclass(frozen=True)
class Token:
    """A piece of the answer, as the model wrote it: not yet safe to print."""

    text: str


@dataclass(frozen=True)
class Citation:
    """A quote under the answer, looked up in the ingested text."""

    number: int
    quote: str
    path: str | None
    start_line: int | None
    end_line: int | None
    page: int | None
    time: str | None
    verified: bool


@dataclass(frozen=True)
class Usage:
    """Tokens and seconds, all measured."""

    context_tokens: int = 0
    indexed_tokens: int = 0
    reused_tokens: int = 0
    read_tokens: int = 0
    answer_tokens: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Compute:
    """Floating point operations: done (counted), and what the same question would have cost."""

    flops: int = 0
    dense_flops: int = 0
    every_layer_index_flops: int = 0


@dataclass(frozen=True)
class Answer:
    """The answer with what it stands on; the fields of `--json`, in its order."""

    answer: str
    found: bool
    model: str
    evidence: tuple[EvidencePassage, ...]
    citations: tuple[Citation, ...]
    skipped: tuple[dict[str, str], ...]
    usage: Usage
    compute: Compute
    heat: tuple[HeatRow, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The documented JSON object: stable keys, plain values."""
        full = asdict(self)
        for passage in full["evidence"]:
            del passage["number"]
        for citation in full["citations"]:
            del citation["number"]
        for key in ("heat", "warnings"):
            del full[key]
        return full


@dataclass(frozen=True)
class Done:
    """The last event."""

    answer: Answer


Event = Progress | Evidence | Token | Done
OnProgress = Callable[[Progress], None]


THINKING = ("off", "high", "max")


@dataclass(frozen=True)
class AskOptions:
    """How to answer. `temperature` 0 is greedy; `index` is hybrid, attention or lexical.

    `thinking` (off, high, max) is for models whose chat template knows it: what they reason before
    they answer is not part of the answer, and counts as answered tokens.

    Raises `UsageError` for a number that means nothing.
    """

    max_answer_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0
    index: str = "hybrid"
    thinking: str = "off"

    def __post_init__(self) -> None:
        if self.max_answer_tokens < 1:
            raise UsageError(f"an answer of {self.max_answer_tokens} tokens; ask for 1 or more")
        if not self.temperature >= 0:
            raise UsageError(f"a temperature of {self.temperature}; choose 0 (greedy) or more")
        if self.thinking not in THINKING:
            raise UsageError(f"thinking {self.thinking!r}; choose one of {', '.join(THINKING)}")


class Engine(Protocol):
    """Answers questions over what it was built with."""

    def ask(self, question: str, options: AskOptions) -> Iterator[Event]:
        """Stream the events of one question; the last is `Done`."""
        ...
