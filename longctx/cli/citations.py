"""Evidence and citations as lines: where a passage stands, what it says, whether it was found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from longctx.cli.render import Line, Styled
from longctx.engines.base import Citation, EvidencePassage

VERIFIED = "✓ verified"
NOT_FOUND = "✗ not found in the text"


def place(found: Citation | EvidencePassage) -> str:
    """`path:p.N`, `path:HH:MM:SS` or `path:line-line`, whichever the document has."""
    if found.page is not None:
        return f"{found.path}:p.{found.page}"
    if found.time is not None:
        return f"{found.path}:{found.time}"
    if found.start_line is None:
        return f"{found.path}"
    if found.end_line is None or found.end_line == found.start_line:
        return f"{found.path}:{found.start_line}"
    return f"{found.path}:{found.start_line}-{found.end_line}"


def citation_lines(citations: Sequence[Citation]) -> Iterator[Line]:
    """Two lines a citation: its place and whether the text has the quote, then the quote."""
    for citation in citations:
        check = Styled(VERIFIED, "green") if citation.verified else Styled(NOT_FOUND, "red")
        label = Styled(f"[{citation.number}]", "bold")
        where: Line = (f" {place(citation)}",) if citation.path is not None else ()
        yield (label, *where, "  ", check)
        yield (f'    "{_one_line(citation.quote)}"',)


def evidence_lines(passages: Sequence[EvidencePassage]) -> Iterator[Line]:
    """Every passage in full, indented under its label, place and score."""
    for passage in passages:
        label = Styled(f"[{passage.number}]", "bold")
        yield (label, f" {place(passage)}", Styled(f"  score {passage.score:.3f}", "dim"))
        for text in passage.text.strip("\n").split("\n"):
            yield (f"    {text}".rstrip(),)
        yield ()


def _one_line(text: str) -> str:
    return " ".join(text.split())
