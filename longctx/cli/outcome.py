"""How a command ends: every exception becomes one line and an exit code, none a traceback.

`EPILOG` is what `longctx --help` says of the codes.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from longctx.errors import (
    EXIT_DOES_NOT_FIT,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    LongctxError,
)

if TYPE_CHECKING:
    from typer import TyperException

EXIT_TERMINATED = 143
DEBUG_VARIABLE = "LONGCTX_DEBUG"
EPILOG = """\b
Exit codes:
  0    done, also when the answer is that nothing was found
       and when the reader of the output has left (`| head`)
  1    failed
  2    wrong usage: empty question, missing path, nothing readable, unknown model
  3    does not fit: window, memory or disk
  4    files were skipped, under --strict
  130  interrupted (143: terminated)
"""
_FULL = (errno.ENOSPC, errno.EDQUOT)


class ReaderLeft(BaseException):
    """Whoever read our output has closed it: there is nobody left to work for."""


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM); as an interruption, with its own exit code."""


class Stopped(KeyboardInterrupt):
    """An interruption of an answer whose broken line was ended: the cursor is at a line's start."""


@dataclass(frozen=True)
class Outcome:
    """The exit code and what to say on stderr; an empty message says nothing."""

    code: int
    message: str = ""


def outcome_of(error: BaseException) -> Outcome:
    """What an exception means to the user."""
    if isinstance(error, LongctxError):
        return Outcome(error.exit_code, str(error))
    if isinstance(error, Terminated):
        return Outcome(EXIT_TERMINATED, "terminated")
    if isinstance(error, KeyboardInterrupt):
        return Outcome(EXIT_INTERRUPTED, "interrupted")
    if isinstance(error, ReaderLeft):
        return Outcome(EXIT_OK)
    if _out_of_memory(error):
        return Outcome(
            EXIT_DOES_NOT_FIT,
            "out of memory; choose a smaller model with --model or name fewer files, "
            "see longctx doctor",
        )
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename is not None else ""
        full = error.errno in _FULL
        advice = "; free some space and run the same command again" if full else ""
        code = EXIT_DOES_NOT_FIT if full else EXIT_FAILURE
        return Outcome(code, f"{place}{error.strerror}{advice}")
    detail = " ".join(str(error).split())
    name = type(error).__name__
    return Outcome(
        EXIT_FAILURE,
        f"internal error: {name}{f': {detail}' if detail else ''} "
        f"(set {DEBUG_VARIABLE}=1 to see where)",
    )


def guarded(action: Callable[[], int | None]) -> int:
    """Run `action`, tell what stopped it in one line on stderr, and return the exit code.

    Both streams are flushed here, so that the interpreter has nothing to complain of at its end.
    """
    try:
        code = action() or EXIT_OK
        sys.stdout.flush()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else EXIT_FAILURE if error.code else 0
    except BaseException as error:
        if isinstance(error, BrokenPipeError) and _output_is_broken():
            error = ReaderLeft()
        code = _tell(error)
    _settle_streams()
    return code


def show_traceback(error: BaseException) -> None:
    """Print where an unexpected error came from, if the user asked for that."""
    if os.environ.get(DEBUG_VARIABLE) and not isinstance(error, LongctxError | KeyboardInterrupt):
        traceback.print_exception(error)


def _tell(error: BaseException) -> int:
    import typer

    from longctx.documents.sanitize import sanitize_line

    try:
        if isinstance(error, typer.Exit):
            return error.exit_code
        if isinstance(error, typer.Abort):
            return EXIT_FAILURE
        if isinstance(error, typer.TyperException):
            _tell_usage(error)
            return error.exit_code
        outcome = outcome_of(error)
        if outcome.message:
            show_traceback(error)
            sys.stdout.flush()
            break_line = type(error) is KeyboardInterrupt and sys.stderr.isatty()  # after a ^C
            sys.stderr.write("\n" * break_line + f"longctx: {sanitize_line(outcome.message)}\n")
        return outcome.code
    except OSError:  # neither stream takes a word any more
        return outcome_of(error).code


def _tell_usage(error: TyperException) -> None:
    """What typer found wrong with the arguments, and where to read how they go."""
    from longctx.documents.sanitize import sanitize_line

    message = " ".join(error.format_message().split()).replace("Value error, ", "")
    shown = sanitize_line(message).rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "longctx"
    sys.stderr.write(f"longctx: {shown[:1].lower()}{shown[1:]}\nTry: {command} --help\n")


def _out_of_memory(error: BaseException) -> bool:
    """Torch has errors of its own for this, and it must not be imported to recognise them."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def _output_is_broken() -> bool:
    """Whether it is one of our own streams that lost its reader, and not some other pipe."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        try:
            poll.register(stream.fileno(), 0)
        except (OSError, ValueError):  # not a descriptor
            continue
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _settle_streams() -> None:
    """Flush both streams; one that takes nothing any more is pointed at the null device."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            try:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)
            except (OSError, ValueError):
                pass  # a stream without a descriptor has no reader to lose
