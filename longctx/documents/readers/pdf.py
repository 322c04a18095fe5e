"""PDF: the text layer, page by page, read in a child process that may hang or die.

One child serves all PDFs of a run; when a file makes it hang or die the pages read so far are kept,
the rest is named in the warnings, and the next file gets a new child.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from longctx.documents.document import Document, Mark
from longctx.documents.encodings import clean
from longctx.documents.readers.hyphens import mend
from longctx.documents.readers.source import Source
from longctx.documents.reasons import (
    DAMAGED_PDF,
    NO_TEXT_LAYER,
    TIMED_OUT,
    TOO_LARGE,
    Unreadable,
    because,
    reason_kind,
)

_WORKER = Path(__file__).with_name("pdf_worker.py")


@dataclass(frozen=True)
class PdfLimits:
    """What one PDF may cost. `page_seconds` is also how long opening the file may take."""

    page_seconds: int = 30
    document_seconds: int = 600
    memory_bytes: int = 2_000_000_000
    characters: int = 50_000_000


@dataclass
class _Pages:
    """What came of a file: the text of each page read, and what became of the others."""

    count: int = 0
    texts: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    stopped: str | None = None  # the reason for which the reading ended early


class PdfReader:
    """Reads PDFs as long as it is open; use it in a `with` statement."""

    def __init__(self, limits: PdfLimits | None = None) -> None:
        self._limits = limits or PdfLimits()
        self._child: _Child | None = None

    def __enter__(self) -> PdfReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_child()

    def __call__(self, source: Source) -> Document:
        """The document of a PDF, with a mark for each page that has text.

        Raises Unreadable: `encrypted`, `no text layer`, `damaged PDF: …`, `timed out: …`,
        `too large: …`.
        """
        pages = self._read(source.path)
        if not any(pages.texts.values()):
            if pages.stopped:
                raise Unreadable(pages.stopped)
            if pages.errors:
                raise Unreadable(because(DAMAGED_PDF, next(iter(pages.errors.values()))))
            raise Unreadable(NO_TEXT_LAYER)
        numbers = [number for number, text in pages.texts.items() if text]
        texts = mend([pages.texts[number] for number in numbers])
        marks, start = [], 0
        for number, text in zip(numbers, texts, strict=True):
            marks.append(Mark(start, page=number))
            start += len(text)
        return Document(
            source.shown,
            "".join(texts),
            source.kind.value,
            marks=tuple(marks),
            warnings=tuple(_warnings(pages)),
        )

    def _read(self, path: Path) -> _Pages:
        if self._child is None or self._child.has_ended:
            self._end_child()
            self._child = _Child(self._limits)
        pages, characters = _Pages(), 0
        try:
            for answer in self._child.ask(path):
                if "pages" in answer:
                    pages.count = answer["pages"]
                elif "reason" in answer:
                    pages.stopped = answer["reason"]
                elif "error" in answer:
                    pages.errors[answer["page"]] = answer["error"]
                elif "page" in answer:
                    text = _tidy(answer["text"])
                    pages.texts[answer["page"]] = text
                    characters += len(text)
                if characters > self._limits.characters:
                    self._end_child()
                    limit = f"over {self._limits.characters:,} characters of text"
                    raise Unreadable(because(TOO_LARGE, limit))
        except _Lost as lost:
            pages.stopped = str(lost)
            self._end_child()
        if pages.stopped and reason_kind(pages.stopped) == TOO_LARGE:
            self._end_child()  # what memory it has left is not worth keeping
        return pages

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


class _Lost(Exception):
    """The child hung, died or had to be stopped; `str(error)` is the reason to report."""


class _Child:
    def __init__(self, limits: PdfLimits) -> None:
        self._limits = limits
        command = [sys.executable, "-P", str(_WORKER)]
        self._process = subprocess.Popen(
            [*command, str(limits.memory_bytes), str(limits.page_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._answers.put(json.loads(line))
        self._answers.put(None)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def ask(self, path: Path) -> Iterator[dict[str, Any]]:
        """The child's answers about one file. Raises _Lost when it falls silent."""
        assert self._process.stdin is not None
        request = json.dumps({"path": os.fsencode(path).decode("latin-1")}) + "\n"
        try:
            self._process.stdin.write(request.encode("ascii"))
            self._process.stdin.flush()
        except OSError:
            raise _Lost(because(DAMAGED_PDF, "its reader ended")) from None
        end = time.monotonic() + self._limits.document_seconds
        while True:
            patience = min(self._limits.page_seconds, end - time.monotonic())
            try:
                answer = self._answers.get(timeout=max(0.0, patience))
            except queue.Empty:
                raise _Lost(because(TIMED_OUT, self._waited(end))) from None
            if answer is None:
                raise _Lost(because(DAMAGED_PDF, f"its reader ended ({self._process.wait()})"))
            yield answer
            if "done" in answer or "reason" in answer:
                return

    def _waited(self, end: float) -> str:
        if time.monotonic() >= end:
            return f"{self._limits.document_seconds} s for the whole file"
        return f"no page in {self._limits.page_seconds} s"

    def end(self) -> None:
        self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def _tidy(text: str) -> str:
    """A page's text, ending in one newline, or empty when there is nothing but blanks."""
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text, _ = clean(text)
    lines = [line.rstrip() for line in text.strip("\n").split("\n")]
    return "\n".join(lines) + "\n" if any(lines) else ""


def _warnings(pages: _Pages) -> Iterator[str]:
    blank = [number for number, text in pages.texts.items() if not text]
    if blank:
        yield f"{_listed(blank)} {'has' if len(blank) == 1 else 'have'} no text layer"
    for number, error in pages.errors.items():
        yield f"page {number} could not be read: {error}"
    if pages.stopped:
        known = pages.texts.keys() | pages.errors.keys()
        rest = [number for number in range(1, pages.count + 1) if number not in known]
        yield f"{_listed(rest)} not read: {pages.stopped}" if rest else pages.stopped


def _listed(numbers: Iterable[int]) -> str:
    """[3, 7, 8, 9] -> "pages 3, 7-9"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    spelled = ", ".join("-".join(map(str, run)) for run in runs)
    many = len(runs) > 1 or len(runs[0]) > 1
    return f"page{'s' if many else ''} {spelled}"
