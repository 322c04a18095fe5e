"""The heat strip: one line a document that shows where in it the index looked.

Pure text out of `HeatRow`s. Beyond `MOST_ROWS` documents, folders take their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from longctx.cli import amounts
from longctx.cli.render import Line, Styled
from longctx.cli.terminal import Terminal
from longctx.documents.sanitize import sanitize_line
from longctx.engines.base import HeatRow

MOST_ROWS = 20
_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = ".:-=+*#@"
_MOST_NAME_CELLS = 40


def heat_strip(rows: Sequence[HeatRow], terminal: Terminal) -> list[Line]:
    """Lines as wide as the terminal: a name, then one character a slice, left to right."""
    shown = list(rows) if len(rows) <= MOST_ROWS else _by_folder(rows)
    cooler = len(shown) - MOST_ROWS
    if cooler > 0:
        by_heat = sorted(range(len(shown)), key=lambda at: -max(shown[at].heat, default=0.0))
        shown = [shown[at] for at in sorted(by_heat[:MOST_ROWS])]
    names = [sanitize_line(row.path) for row in shown]
    name_cells = min(max(map(_cells, names), default=0), _MOST_NAME_CELLS, terminal.columns // 2)
    strip_cells = max(1, terminal.columns - name_cells - 3)
    lines: list[Line] = [
        (_fitted(name, name_cells), "  ", Styled(_strip(row.heat, strip_cells, terminal), "cyan"))
        for name, row in zip(names, shown, strict=True)
    ]
    if cooler > 0:
        lines.append((Styled(f"and {amounts.count(cooler, 'cooler folder')}", "dim"),))
    return lines


def _strip(heat: Sequence[float], cells: int, terminal: Terminal) -> str:
    """Eight levels; the last one is a slice as hot as the hottest block of the context."""
    characters = _BLOCKS if terminal.blocks else _ASCII
    top = len(characters) - 1
    shares = (min(1.0, max(0.0, share)) for share in _resampled(heat or (0.0,), cells))
    return "".join(characters[round(share * top)] for share in shares)


def _resampled(heat: Sequence[float], cells: int) -> list[float]:
    """`heat` in `cells` slices; one that covers several takes the hottest, so no peak is lost."""
    ends = (-(-(cell + 1) * len(heat) // cells) for cell in range(cells))
    return [max(heat[cell * len(heat) // cells : end]) for cell, end in enumerate(ends)]


def _by_folder(rows: Sequence[HeatRow]) -> list[HeatRow]:
    """One row a folder, as deep as keeps them at `MOST_ROWS`; at the top if none does."""
    deepest = max(len(PurePosixPath(row.path).parts) for row in rows)
    for depth in range(deepest - 1, 0, -1):
        groups = _grouped(rows, depth)
        if len(groups) <= MOST_ROWS:
            break
    else:
        groups = _grouped(rows, 1)
    return [_joined(folder, members) for folder, members in groups.items()]


def _grouped(rows: Sequence[HeatRow], depth: int) -> dict[str, list[HeatRow]]:
    groups: dict[str, list[HeatRow]] = {}
    for row in rows:
        parts = PurePosixPath(row.path).parts[:-1][:depth]
        groups.setdefault(PurePosixPath(*parts).as_posix(), []).append(row)
    return groups


def _joined(folder: str, rows: Sequence[HeatRow]) -> HeatRow:
    """The strips of a folder's documents end to end, each as long as its share of the tokens."""
    tokens = sum(row.tokens for row in rows)
    slices = 4 * max(len(rows), *(len(row.heat) for row in rows))
    heat: list[float] = []
    for row in rows:
        cells = max(1, round(slices * row.tokens / tokens)) if tokens else 1
        heat.extend(_resampled(row.heat or (0.0,), cells))
    return HeatRow(f"{folder}/ ({len(rows)})", tokens, tuple(heat))


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _fitted(text: str, cells: int) -> str:
    """`text` filled or cut to `cells` columns; the end of a path says more than its beginning."""
    from rich.cells import set_cell_size

    if _cells(text) > cells:
        while text and _cells(text) > cells - 2:
            text = text[1:]
        text = f"..{text}"
    return set_cell_size(text, cells)
