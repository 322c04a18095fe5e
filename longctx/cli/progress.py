"""Progress while a command works: a line that moves on a terminal, a plain line elsewhere.

The moving line is redrawn by its own thread, so that it moves also while no event comes, and is
gone without a trace when it stops. Elsewhere a plain line comes at most every five seconds.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from longctx.cli import amounts
from longctx.cli.render import Output
from longctx.cli.status import Meter, Status
from longctx.engines.base import Progress

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

PLAIN_SECONDS = 5.0
REDRAWS_PER_SECOND = 8
BAR_CELLS = 20


class ProgressView:
    """Shows nothing: the view under `--quiet`. Called with each event, from any thread."""

    def __init__(self) -> None:
        self.meter = Meter()

    def __call__(self, event: Progress) -> None:
        """Show that an engine's work got this far."""
        self.show(self.meter.of_event(event))

    def show(self, status: Status) -> None:
        """Show how far the work got."""

    def stop(self) -> None:
        """Take the line away; a later status brings it back."""


class PlainProgress(ProgressView):
    """A line every five seconds at most, for logs and pipes."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output
        self._last = time.monotonic()

    def show(self, status: Status) -> None:
        """Print the status if the last line is old enough."""
        now = time.monotonic()
        if now - self._last >= PLAIN_SECONDS:
            self._last = now
            self._output.note(f"{status.label}: {', '.join(status.told()) or 'working'}")


class LiveProgress(ProgressView):
    """One line on the terminal, with a bar where the end is known."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output
        self._status = Status("")
        self._shown_since = self._label_since = time.monotonic()
        self._live: Live | None = None

    def show(self, status: Status) -> None:
        """Remember the status; the next redraw shows it."""
        now = time.monotonic()
        if status.label != self._status.label:
            self._label_since = now
        self._status, self._shown_since = status, now
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

        colour = self._output.err.colour
        console = Console(
            file=sys.stderr,
            force_terminal=True,
            color_system="standard" if colour else None,
            no_color=not colour,
        )
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

        terminal, now, status = self._output.err, time.monotonic(), self._status
        frames = "▁▃▅▇▅▃" if terminal.blocks else "|/-\\"
        frame = frames[int(now * REDRAWS_PER_SECOND) % len(frames)]
        line = Text(no_wrap=True, overflow="ellipsis", end="")
        line.append(frame, "cyan").append(f" {status.label}")
        facts = status.told(now - self._shown_since)
        facts = facts or [amounts.duration(now - self._label_since)]
        room = terminal.columns - 1 - line.cell_len
        while len(facts) > 1 and _width(facts) > room:
            del facts[0]
        if status.share is not None and room >= _width(facts) + BAR_CELLS + 2:
            full, empty = self._bar(status.share)
            line.append("  ").append(full, "cyan").append(empty, "dim")
        return line.append("".join(f"  {fact}" for fact in facts))

    def _bar(self, share: float) -> tuple[str, str]:
        done, left = ("━", "─") if self._output.err.blocks else ("#", "-")
        cells = int(BAR_CELLS * share)
        return done * cells, left * (BAR_CELLS - cells)


def progress_view(output: Output) -> ProgressView:
    """The view that suits stderr and `--quiet`."""
    if output.quiet:
        return ProgressView()
    return LiveProgress(output) if output.err.interactive else PlainProgress(output)


@contextlib.contextmanager
def showing(view: ProgressView, begin: str) -> Iterator[ProgressView]:
    """Show `view`, beginning with the stage `begin`, and take it away however the block ends."""
    try:
        view(Progress(begin))
        yield view
    finally:
        view.stop()


@contextlib.contextmanager
def showing_bytes(view: ProgressView) -> Iterator[Callable[[str, int, int], None]]:
    """Yield what is called with (what happens, bytes done, bytes in all) to show a transfer."""
    try:
        yield lambda what, done, total: view.show(view.meter.of_bytes(what, done, total))
    finally:
        view.stop()


def _width(facts: list[str]) -> int:
    return sum(len(fact) + 2 for fact in facts)
