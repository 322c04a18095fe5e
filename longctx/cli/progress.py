"""Progress while a command works: a line that moves on a terminal, a plain line elsewhere.

The moving line is redrawn by its own thread, so that it moves also while no event comes, and is
gone without a trace when it stops. Elsewhere a plain line comes at most every five seconds.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from longctx.cli import amounts
from longctx.cli.render import Output
from longctx.documents.sanitize import sanitize_line
from longctx.engines.base import Progress

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

PLAIN_SECONDS = 5.0
REDRAWS_PER_SECOND = 8
BAR_CELLS = 20
_STAGES = {
    "read": "reading files",
    "load": "loading the model",
    "index": "indexing",
    "select": "searching",
    "answer": "reading the evidence",
}


class ProgressView(Protocol):
    """Called with each event, from any thread."""

    def __call__(self, event: Progress) -> None:
        """Show that work got this far."""
        ...

    def stop(self) -> None:
        """Take the line away; a later event brings it back."""
        ...


def progress_view(output: Output) -> ProgressView:
    """The view that suits stderr and `--quiet`."""
    if output.quiet:
        return NoProgress()
    return LiveProgress(output) if output.err.interactive else PlainProgress(output)


@contextlib.contextmanager
def showing(view: ProgressView, begin: str) -> Iterator[ProgressView]:
    """Show `view`, beginning with the stage `begin`, and take it away however the block ends."""
    try:
        view(Progress(begin))
        yield view
    finally:
        view.stop()


class NoProgress:
    """Shows nothing."""

    def __call__(self, event: Progress) -> None:
        """Ignore the event."""

    def stop(self) -> None:
        """Nothing to take away."""


class PlainProgress:
    """A line every five seconds at most, for logs and pipes."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._last = time.monotonic()

    def __call__(self, event: Progress) -> None:
        """Print the event if the last line is old enough."""
        now = time.monotonic()
        if now - self._last >= PLAIN_SECONDS:
            self._last = now
            self._output.note(f"{label(event)}: {', '.join(details(event)) or 'working'}")

    def stop(self) -> None:
        """Lines that were printed stay."""


class LiveProgress:
    """One line on the terminal, with a bar where the end is known."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._event = Progress("load")
        self._since = self._stage_since = time.monotonic()
        self._live: Live | None = None

    def __call__(self, event: Progress) -> None:
        """Remember the event; the next redraw shows it."""
        now = time.monotonic()
        if event.stage != self._event.stage:
            self._stage_since = now
        self._event, self._since = event, now
        if self._live is None:
            self._start()

    def stop(self) -> None:
        """Erase the line and give the cursor back."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.live import Live

        terminal = self._output.err
        console = Console(
            file=sys.stderr,
            force_terminal=True,
            color_system="standard" if terminal.colour else None,
            no_color=not terminal.colour,
            highlight=False,
        )
        sys.stdout.flush()
        self._live = Live(
            get_renderable=self._line,
            console=console,
            refresh_per_second=REDRAWS_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _line(self) -> Text:
        """The line as it is now, cut to the width of the terminal."""
        from rich.text import Text

        terminal, now = self._output.err, time.monotonic()
        frames = "▁▃▅▇▅▃" if terminal.blocks else "|/-\\"
        frame = frames[int(now * REDRAWS_PER_SECOND) % len(frames)]
        line = Text(no_wrap=True, overflow="ellipsis", end="")
        line.append(frame, "cyan").append(f" {label(self._event)}")
        facts = details(self._event, age=now - self._since)
        facts = facts or [amounts.duration(now - self._stage_since)]
        room = terminal.columns - 1 - line.cell_len
        while len(facts) > 1 and _width(facts) > room:
            del facts[0]
        if self._event.total_tokens and room >= _width(facts) + BAR_CELLS + 2:
            full, empty = self._bar(self._event.tokens / self._event.total_tokens)
            line.append("  ").append(full, "cyan").append(empty, "dim")
        return line.append("".join(f"  {fact}" for fact in facts))

    def _bar(self, share: float) -> tuple[str, str]:
        done, left = ("━", "─") if self._output.err.blocks else ("#", "-")
        cells = min(BAR_CELLS, int(BAR_CELLS * share))
        return done * cells, left * (BAR_CELLS - cells)


def label(event: Progress) -> str:
    """What is being done, in words."""
    words = _STAGES.get(event.stage, event.stage)
    return sanitize_line(f"{words}: {event.note}" if event.note else words)


def details(event: Progress, age: float = 0.0) -> list[str]:
    """How far it got: documents, tokens, speed, time left; the least important first.

    `age` is how many seconds ago the event was measured.
    """
    facts = []
    if event.documents or event.total_documents:
        facts.append(_of(event.documents, event.total_documents, "document"))
    if event.tokens or event.total_tokens:
        facts.append(_of(event.tokens, event.total_tokens, "token"))
    speed = amounts.rate(event.tokens, event.seconds)
    if speed is not None:
        facts.append(amounts.per_second(speed))
        if event.total_tokens is not None and event.total_tokens > event.tokens:
            left = (event.total_tokens - event.tokens) / speed - age
            facts.append(f"{amounts.duration(left)} left")
    return facts


def _width(facts: list[str]) -> int:
    return sum(len(fact) + 2 for fact in facts)


def _of(done: int, total: int | None, noun: str) -> str:
    if total is None:
        return amounts.count(done, noun)
    return f"{amounts.count(done)}/{amounts.count(total, noun)}"
