"""A context without a model: what the command line is tested against.

The question decides what happens, so that each test reads as one line of a shell.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from longctx.documents.document import Skipped
from longctx.engines.base import (
    Answer,
    AskOptions,
    Citation,
    Compute,
    Done,
    Event,
    Evidence,
    EvidencePassage,
    HeatRow,
    Progress,
    Token,
    Usage,
)
from longctx.errors import ModelError, UsageError

PASSAGES = (
    EvidencePassage(
        1, "contracts/msa.txt", 12, 15, None, None, 0.91, "Either party may leave\non 90 days"
    ),
    EvidencePassage(2, "contracts/fee.pdf", 40, 44, 3, None, 0.55, "The fee is 1,200"),
)
CITATIONS = (
    Citation(1, "Either party may\nleave", "contracts/msa.txt", 12, 13, None, None, True),
    Citation(2, "The fee is 1,200", "contracts/fee.pdf", 40, 40, 3, None, True),
    Citation(3, "Nobody said this", "calls/q3.vtt", 7, 9, None, "00:12:31", False),
)
HEAT = (
    HeatRow("contracts/msa.txt", 900, (0.0, 0.2, 1.0, 0.1)),
    HeatRow("contracts/fee.pdf", 300, (0.0, 0.5)),
)
USAGE = Usage(
    context_tokens=152_340,
    indexed_tokens=150_000,
    reused_tokens=2_340,
    read_tokens=3_120,
    answer_tokens=7,
    seconds={"load": 1.25, "index": 50.0, "select": 0.3, "first_token": 53.1, "total": 54.0},
)
COMPUTE = Compute(12_300_000_000_000, 210_000_000_000_000, 48_000_000_000_000)


def answered(question: str, **changes: Any) -> Answer:
    fields: dict[str, Any] = {
        "answer": f"Ninety days [1]. You asked: {question}",
        "found": True,
        "model": "fake",
        "evidence": PASSAGES,
        "citations": CITATIONS,
        "skipped": ({"path": "logo.png", "reason": "binary"},),
        "usage": USAGE,
        "compute": COMPUTE,
        "heat": HEAT,
        "warnings": ("the first use of this model: calibrated quickly",),
    }
    return Answer(**{**fields, **changes})


def events_of(question: str, options: AskOptions) -> Iterator[Event]:
    """The events of one answer; a word in the question makes it fail, be slow, find nothing..."""
    yield Progress("select", tokens=100, total_tokens=152_340)
    if "fails" in question:
        raise ModelError("the model broke; fetch it again")
    if "crashes" in question:
        raise ValueError("an \x1b[31munforeseen\x1b[0m case")
    if "explodes" in question:
        raise MemoryError
    if "breaks off" in question:
        return
    yield Evidence(PASSAGES, HEAT, 3_120)
    answer = answered(question)
    if "absent" in question:
        answer = answered(question, answer="Not found.", found=False, citations=())
    if "hostile" in question:
        answer = answered(question, answer="a\x1b[2Jb\u202ec\x9b5nd")
        yield Token("a\x1b[2")
        yield Token("Jb\u202ec\x9b5nd")
    elif "broken" in question:
        yield Token("half")
        raise ModelError("the model broke; fetch it again")
    elif "slow" in question:
        for number in range(60):
            yield Token(f" word{number}")
            time.sleep(0.1)
    elif "options" in question:
        answer = answered(question, answer=repr(options))
    else:
        for word in answer.answer.split(" "):
            yield Token(f" {word}")
    yield Done(answer)


@dataclass(frozen=True)
class FakeDocument:
    path: str
    tokens: int


@dataclass
class FakeContext:
    skipped: list[Skipped] = field(default_factory=lambda: [Skipped("logo.png", "binary")])
    warnings: list[str] = field(default_factory=lambda: ["msa.txt: read as windows-1252"])
    documents: list[FakeDocument] = field(
        default_factory=lambda: [FakeDocument("contracts/msa.txt", 900)]
    )
    model_name: str = "fake"
    context_tokens: int = 152_340
    asked: list[str] = field(default_factory=list)
    closed: bool = False

    def stream(self, question: str, options: AskOptions) -> Iterator[Event]:
        self.asked.append(question)
        yield from events_of(question, options)

    def chat(self) -> FakeContext:
        return self

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeIndex:
    """Takes the place of `longctx.index` and remembers how it was called."""

    context: FakeContext = field(default_factory=FakeContext)
    seconds: float = 0.0
    paths: list[Path] = field(default_factory=list)
    listed: bytes = b""
    settings: dict[str, Any] = field(default_factory=dict)
    marker: Path | None = None

    def __call__(
        self,
        paths: Sequence[Path],
        *,
        on_progress: Callable[[Progress], None],
        stdin_paths: BinaryIO | None = None,
        **settings: Any,
    ) -> FakeContext:
        self.paths, self.settings = list(paths), settings
        self.listed = stdin_paths.read() if stdin_paths else b""
        for path in paths:
            if not path.exists():
                raise UsageError(f"no such file or folder: {path}")
        on_progress(
            Progress("load", note="loading fake", tokens=50_000_000, total_tokens=90_000_000)
        )
        on_progress(Progress("index", 2, 8, 50_000, 200_000, 10.0))
        if self.marker is not None:
            self.marker.touch()
        time.sleep(self.seconds)
        return self.context


if __name__ == "__main__":
    # A process of its own with the fake inside: fake_context.py SECONDS_TO_INDEX ARGUMENTS...
    # The file named by FAKE_MARKER appears when indexing begins.
    import os

    import longctx

    named = os.environ.get("FAKE_MARKER")
    longctx.__dict__["index"] = FakeIndex(
        seconds=float(sys.argv.pop(1)), marker=Path(named) if named else None
    )
    from longctx.cli.app import main

    main()
