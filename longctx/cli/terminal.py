"""What a stream can show: colour, a line that moves, how wide, which characters.

Decided once for each stream from the stream itself and the environment; it prints nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

DEFAULT_COLUMNS = 80
_MIN_COLUMNS = 20


@dataclass(frozen=True)
class Terminal:
    """`interactive`: a terminal that obeys control codes. `colour`: styles are welcome.

    `columns` is its width; `blocks` whether its encoding has ▁ to █.
    """

    interactive: bool = False
    colour: bool = False
    columns: int = DEFAULT_COLUMNS
    blocks: bool = True


def look_at(stream: TextIO, environment: Mapping[str, str] = os.environ) -> Terminal:
    """Read what `stream` can show.

    `NO_COLOR` (set to anything) turns colours off and wins over `FORCE_COLOR`, which turns them on
    where there is no terminal; neither changes whether lines may move.
    """
    interactive = _is_terminal(stream) and environment.get("TERM") != "dumb"
    forced = environment.get("FORCE_COLOR", "") not in ("", "0")
    colour = (interactive or forced) and not environment.get("NO_COLOR")
    return Terminal(interactive, colour, _columns(stream, environment), _has_blocks(stream))


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _columns(stream: TextIO, environment: Mapping[str, str]) -> int:
    given = environment.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return max(_MIN_COLUMNS, int(given))
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = shutil.get_terminal_size().columns if _is_terminal(stream) else 0
    return max(_MIN_COLUMNS, columns or DEFAULT_COLUMNS)


def _has_blocks(stream: TextIO) -> bool:
    try:
        "▁█".encode(stream.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True
