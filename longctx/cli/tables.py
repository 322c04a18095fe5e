"""Tables as plain aligned columns: the same on a terminal, in a pipe and in a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from longctx.cli.render import Line, Styled
from longctx.documents.sanitize import sanitize_line


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Line]:
    """A header and rows; every column as wide as its widest cell, the last one open-ended."""
    from rich.cells import cell_len

    cells = [[sanitize_line(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        filled = (
            text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True)
        )
        line = "  ".join(filled).rstrip()
        yield (Styled(line, "bold"),) if number == 0 else (line,)


def table_of(rows: Sequence[Any]) -> Iterator[Line]:
    """A table of mappings or dataclasses that have the same fields, which name the columns."""
    records = [_record(row) for row in rows]
    if not records:
        return iter(())
    header = list(records[0])
    return table(
        [name.replace("_", " ") for name in header],
        [[_shown(record.get(name)) for name in header] for record in records],
    )


def _record(row: Any) -> Mapping[str, Any]:
    return row if isinstance(row, Mapping) else asdict(row)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
