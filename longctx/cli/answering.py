"""One question through the stream of events to the screen, for `ask` and `chat`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from longctx.cli import amounts
from longctx.cli.citations import citation_lines, evidence_lines
from longctx.cli.outcome import ReaderLeft, Stopped
from longctx.cli.progress import ProgressView, showing
from longctx.cli.render import Output
from longctx.engines.base import Answer, Done, Event, Evidence, Progress, Token
from longctx.errors import LongctxError


@dataclass(frozen=True)
class Answered:
    """An answer that was shown, and the seconds from its first piece to its end."""

    answer: Answer
    writing_seconds: float


def show_answer(
    events: Iterable[Event], output: Output, view: ProgressView, *, show_evidence: bool = False
) -> Answered:
    """Stream the answer to stdout with its citations below; progress is gone when it begins."""
    streamed: list[str] = []
    began = 0.0
    with _whole_lines(output), showing(view, "select"):
        for event in events:
            if isinstance(event, Progress) and not streamed:
                view(event)
            elif isinstance(event, Evidence):
                if show_evidence:
                    view.stop()
                    if streamed:  # a native model's evidence is known once it has answered
                        output.end_answer()
                    output.notes(evidence_lines(event.passages))
                if not streamed:
                    view(reading(event))
            elif isinstance(event, Token):
                text = event.text if streamed else event.text.lstrip()
                if text and not streamed:
                    view.stop()
                    began = time.monotonic()
                if text:
                    streamed.append(text)
                    output.piece(text)
            elif isinstance(event, Done):
                view.stop()
                seconds = time.monotonic() - began if streamed else 0.0
                _finish(event.answer, "".join(streamed), output)
                return Answered(event.answer, seconds)
    raise LongctxError("the answer broke off; ask again")


@contextlib.contextmanager
def _whole_lines(output: Output) -> Iterator[None]:
    """End the line of an answer that breaks off, whatever broke it, before anything is told.

    A Ctrl-C comes out as `Stopped` then: its "^C" stood on the line that is over.
    """
    try:
        yield
    except ReaderLeft:
        raise
    except BaseException as error:
        in_line = output.in_line
        with contextlib.suppress(ReaderLeft, OSError):
            output.end_answer()
        if in_line and type(error) is KeyboardInterrupt:
            raise Stopped from None
        raise


def silent_answer(events: Iterable[Event], view: ProgressView) -> Answer:
    """The finished answer of a question nobody watches being written."""
    with showing(view, "select"):
        for event in events:
            if isinstance(event, Progress):
                view(event)
            elif isinstance(event, Evidence):
                view(reading(event))
            elif isinstance(event, Done):
                return event.answer
    raise LongctxError("the answer broke off; ask again")


def reading(evidence: Evidence) -> Progress:
    """What the model does between the choice of the evidence and its first word."""
    return Progress("answer", note=amounts.count(evidence.read_tokens, "token"))


def _finish(answer: Answer, streamed: str, output: Output) -> None:
    if not streamed:
        output.piece(answer.answer)
    output.end_answer()
    if streamed and not answer.found and _words(answer.answer) not in _words(streamed):
        output.piece(answer.answer)  # what was written is taken back: say so
        output.end_answer()
    if answer.citations:
        output.line()
        output.lines(citation_lines(answer.citations))


def _words(text: str) -> str:
    return " ".join(text.split())
