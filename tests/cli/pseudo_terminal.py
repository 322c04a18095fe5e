"""A process on a terminal of its own, and what a person would see there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

FAKE = Path(__file__).with_name("fake_context.py")
_CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class PseudoTerminal:
    """`longctx` with the fake context on a terminal 80 columns wide."""

    def __init__(
        self, *arguments: str, index_seconds: float = 0.0, columns: int = 80, **variables: str
    ):
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
        self.process = subprocess.Popen(
            [sys.executable, str(FAKE), str(index_seconds), *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm", "PYTHONUTF8": "1", **variables},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.output = ""

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def type(self, text: str) -> None:
        """Press keys; "\\x03" is Ctrl-C."""
        os.write(self._ours, text.encode())

    def read_until(self, text: str, seconds: float = 10.0) -> str:
        """Everything shown so far, once `text` was."""
        end = time.monotonic() + seconds
        while text not in self.output:
            assert time.monotonic() < end, f"{text!r} did not come: {self.output!r}"
            self._read(0.1)
        return self.output

    def read_for(self, seconds: float) -> str:
        """What comes within this time."""
        before, end = len(self.output), time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._read(left)
        return self.output[before:]

    def finish(self, seconds: float = 10.0) -> int:
        """Read to the end and return the exit code."""
        end = time.monotonic() + seconds
        while self._read(0.1):
            assert time.monotonic() < end, f"no end: {self.output!r}"
        return self.process.wait(seconds)

    def _read(self, seconds: float) -> bool:
        """Read what is there; False at the end."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the other side is closed
            return False
        self.output += data.decode("utf-8", "replace")
        return bool(data)


def screen(output: str) -> list[str]:
    """The lines that remain visible of what a terminal was sent."""
    lines, row, column = [""], 0, 0
    position = 0
    while position < len(output):
        if control := _CONTROL.match(output, position):
            position = control.end()
            count, kind = control[1], control[2]
            if kind == "A":
                row = max(0, row - int(count or 1))
            elif kind == "K":
                lines[row] = "" if count == "2" else lines[row][:column]
            continue
        char = output[position]
        position += 1
        if char == "\r":
            column = 0
        elif char == "\n":
            row += 1
            lines.extend([""] * (row + 1 - len(lines)))
        else:
            lines[row] = lines[row][:column].ljust(column) + char + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]
