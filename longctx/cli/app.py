"""The entry point: sets the process up, runs the command line and ends with its exit code.

Light on purpose, so that an interruption finds its handler from the first moment on.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from longctx.cli.outcome import DEBUG_VARIABLE, Terminated, guarded
from longctx.errors import EXIT_INTERRUPTED


def main() -> None:
    """Run `longctx` with the process's arguments; never returns."""
    # Waiting OpenMP threads must not take the cores of those that work; read when torch loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    prepare_streams()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        code = guarded(_run)
    except KeyboardInterrupt:  # another one, while the first was being told
        code = EXIT_INTERRUPTED
    for number in (signal.SIGINT, signal.SIGTERM):  # nothing is left to tidy up
        signal.signal(number, signal.SIG_DFL)
    sys.exit(code)


def prepare_streams() -> None:
    """Make stdout UTF-8 whatever the locale, and see that the three standard streams exist.

    A descriptor that came closed is opened on the null device, before a model file can get its
    number and be written to as if it were the output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    sys.stdin = sys.stdin or open(0, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115
    _reconfigure(sys.stdin, errors="replace")
    _reconfigure(sys.stdout, encoding="utf-8", errors="replace")
    _reconfigure(sys.stderr, errors="backslashreplace")


def _reconfigure(stream: Any, **settings: str) -> None:
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(**settings)


def _run() -> int | None:
    _quiet_libraries()
    from longctx.cli.commands import app

    return app()


def _quiet_libraries() -> None:
    """Keep warnings and log lines of libraries off the screen: they may quote hostile text."""
    if os.environ.get(DEBUG_VARIABLE):
        return
    import logging
    import warnings

    logging.getLogger().addHandler(logging.NullHandler())
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


def _terminate(number: int, frame: object) -> None:
    raise Terminated


if __name__ == "__main__":
    main()
