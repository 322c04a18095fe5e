"""The loop of `longctx chat`: read a line, do what it says, until there are no more.

An interruption stops the answer being written; a second one before anything else is typed ends
the conversation.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterator
from typing import Protocol

from longctx.cli.answering import show_answer
from longctx.cli.citations import citation_lines, evidence_lines
from longctx.cli.inputs import checked_question
from longctx.cli.outcome import Stopped, Terminated, outcome_of, show_traceback
from longctx.cli.progress import ProgressView
from longctx.cli.render import Output
from longctx.cli.report import summary_line, warning_lines
from longctx.engines.base import Answer, AskOptions, Event
from longctx.errors import EXIT_FAILURE, EXIT_OK

PROMPT = "> "
_HELP = (
    "/sources  the citations and passages of the last answer",
    "/help     this list",
    "/quit     leave; so does the end of input (Ctrl-D)",
    "Ctrl-C    stops an answer; twice leaves",
)


class Chat(Protocol):
    """What a context's `chat()` gives: questions that remember the ones before."""

    def stream(self, question: str, options: AskOptions) -> Iterator[Event]:
        """The events of one answer."""
        ...


class Conversation:
    """A chat between a user at stdin and a context."""

    def __init__(
        self,
        chat: Chat,
        how: AskOptions,
        output: Output,
        view: ProgressView,
        *,
        show_evidence: bool = False,
    ) -> None:
        self._chat = chat
        self._how = how
        self._output = output
        self._view = view
        self._show_evidence = show_evidence
        self._last: Answer | None = None
        self._failed = False
        self._at_terminal = sys.stdin.isatty()
        if self._at_terminal:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  gives input() its line editing

    def run(self) -> int:
        """Talk until the end; the exit code is that of a script when questions come from a pipe."""
        interrupted = False
        while True:
            try:
                line = self._read_line()
                interrupted = False
                if line is None or line == "/quit":
                    break
                self._do(line)
            except KeyboardInterrupt as interruption:
                if interrupted or isinstance(interruption, Terminated) or not self._at_terminal:
                    raise
                interrupted = True
                if not isinstance(interruption, Stopped):
                    self._output.error_line()  # the terminal showed ^C on this line
                self._output.error_line("stopped; Ctrl-C again or /quit leaves")
        return EXIT_FAILURE if self._failed and not self._at_terminal else EXIT_OK

    def _read_line(self) -> str | None:
        """The next line without blanks around it; None at the end of input."""
        try:
            if self._at_terminal and sys.stdout.isatty():
                return input(PROMPT).strip()
            if self._at_terminal:
                self._output.prompt(PROMPT)
            line = sys.stdin.readline()
        except EOFError:
            line = ""
        if not line and self._at_terminal:
            self._output.error_line()  # the prompt's line ends here
        return line.strip() if line else None

    def _do(self, line: str) -> None:
        if not line:
            return
        if line == "/help":
            self._output.lines((text,) for text in _HELP)
        elif line == "/sources":
            self._sources()
        elif line.startswith("/") and " " not in line and "/" not in line[1:]:
            self._output.error_line(f"longctx: no command {line}; /help lists them")
        else:
            self._answer(line)

    def _sources(self) -> None:
        if self._last is None:
            self._output.error_line("longctx: nothing was answered yet")
            return
        self._output.lines(citation_lines(self._last.citations))
        self._output.line()
        self._output.lines(evidence_lines(self._last.evidence))

    def _answer(self, question: str) -> None:
        """Answer, or say in a line why not; the conversation goes on either way."""
        try:
            with contextlib.closing(self._events(question)) as events:
                shown = show_answer(
                    events, self._output, self._view, show_evidence=self._show_evidence
                )
        except Exception as error:
            show_traceback(error)
            self._output.error_line(f"longctx: {outcome_of(error).message}")
            self._failed = True
            return
        self._last = shown.answer
        self._output.line()
        self._output.note(summary_line(shown.answer.usage, shown.writing_seconds))
        self._output.notes(warning_lines(shown.answer.warnings))

    def _events(self, question: str) -> Generator[Event, None, None]:
        """The chat's events as a generator, which can be closed half-way."""
        yield from self._chat.stream(checked_question(question), self._how)
