"""WebVTT and SubRip transcripts: a line of text per cue, with its speaker, its time and its place.

Speakers come from voice tags (`<v Ann>`) or stand in the words already ("Ann: …"). Everything a
reader of the file would read is kept, comments included; style sheets, regions, cue numbers and
cue positions are not.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

from longctx.documents.document import Document, Mark
from longctx.documents.encodings import clean, decode
from longctx.documents.readers.source import Source
from longctx.documents.reasons import EMPTY, Unreadable
from longctx.documents.sniff import Kind

_NAMES = {Kind.VTT: "WebVTT", Kind.SRT: "SubRip"}
_CLOCK = r"(?:(\d{1,4}):)?([0-5]?\d):([0-5]?\d)[.,]\d{1,3}"
_TIMING = re.compile(rf"\s*{_CLOCK}\s*-->\s*{_CLOCK}(?:\s.*)?")
_TIMING_LIKE = re.compile(r"\s*\d[\d:.,]*\s*-->")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?\s([^<>]+)>[ \t]*")
_TAG = re.compile(
    r"</?(?:b|c|i|lang|rt|ruby|s|u|v)(?:\.[^\s<>]*)?(?:\s[^<>]*)?>|</?font(?:\s[^<>]*)?>"
    r"|<[\d:.]+>|\{\\(?:an?\d+|pos\([^(){}]*\)|[bius][01])\}",
    re.IGNORECASE,
)


def read_captions(source: Source) -> Document:
    """The transcript as a document; a file without well-formed cues as plain text, with a warning.

    Raises Unreadable when the file has no text.
    """
    decoded = decode(source.read())
    if not decoded.text.strip():
        raise Unreadable(EMPTY)
    transcript = _parse(decoded.text.split("\n"), source.kind)
    if transcript is None:
        warning = f"not a well-formed {_NAMES[source.kind]} file: read as plain text"
        warnings = (*decoded.warnings, warning)
        return Document(source.shown, decoded.text, Kind.TEXT.value, warnings=warnings)
    text = "".join(transcript.pieces)
    if not text.strip():
        raise Unreadable(EMPTY)
    return Document(
        source.shown,
        text,
        source.kind.value,
        marks=tuple(transcript.marks),
        source_lines=tuple(transcript.lines),
        source_starts=tuple(transcript.starts),
        warnings=decoded.warnings,
    )


@dataclass
class _Transcript:
    """Text in the making: pieces, and for each the character and the file's line it starts at."""

    pieces: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    length: int = 0

    def add(self, pieces: list[tuple[int, str]], time: str | None = None) -> None:
        """One line of text, joined by spaces from (line number, words); none when there are no
        words."""
        pieces = [(line, words) for line, words in pieces if words]
        if pieces and time is not None:
            self.marks.append(Mark(self.length, time=time))
        for number, (line, words) in enumerate(pieces, 1):
            piece = words + (" " if number < len(pieces) else "\n")
            self.pieces.append(piece)
            self.starts.append(self.length)
            self.lines.append(line)
            self.length += len(piece)


def _parse(lines: list[str], kind: Kind) -> _Transcript | None:
    """The transcript, or None when a timing is malformed or there is no cue at all."""
    transcript, at, cues = _Transcript(), 0, 0
    if kind == Kind.VTT and lines[0].startswith("WEBVTT"):
        transcript.add([(1, lines[0].removeprefix("WEBVTT").strip(" \t-"))])
        at = 1
    while at < len(lines):
        line = lines[at]
        if timing := _TIMING.fullmatch(line):
            end = _cue_end(lines, at + 1)
            spoken = [(n + 1, _words(lines[n])) for n in range(at + 1, end)]
            transcript.add(spoken, _time(timing))
            cues += 1
            at = end
        elif _TIMING_LIKE.match(line):
            return None
        elif kind == Kind.VTT and line.strip() in ("STYLE", "REGION"):
            at = _block_end(lines, at)
        elif kind == Kind.VTT and re.match(r"NOTE(\s|$)", line):
            end = _block_end(lines, at)
            for n in range(at, end):
                transcript.add([(n + 1, lines[n].strip())])
            at = end
        else:
            if not _is_identifier(lines, at):
                transcript.add([(at + 1, line.strip())])
            at += 1
    return transcript if cues else None


def _block_end(lines: list[str], at: int) -> int:
    while at < len(lines) and lines[at].strip():
        at += 1
    return at


def _cue_end(lines: list[str], at: int) -> int:
    """Where a cue's words end: at a blank line, or where the next cue begins without one."""
    while at < len(lines) and lines[at].strip():
        if _TIMING_LIKE.match(lines[at]):
            break
        if lines[at].strip().isdigit() and _is_identifier(lines, at):
            break
        at += 1
    return at


def _is_identifier(lines: list[str], at: int) -> bool:
    """Whether the line names the cue whose timing follows."""
    return at + 1 < len(lines) and _TIMING.fullmatch(lines[at + 1]) is not None


def _words(line: str) -> str:
    """What is said in a line of a cue, with "Name: " for each voice tag, on one line."""

    def speak(voice: re.Match[str]) -> str:
        name, before, after = voice[1].strip(), line[: voice.start()], line[voice.end() :]
        if not name or after.startswith(f"{name}:"):
            return ""
        return f"{'' if before[-1:].isspace() or not before else ' '}{name}: "

    text, _ = clean(html.unescape(_TAG.sub("", _VOICE.sub(speak, line))))
    return text.replace("\n", " ").strip()


def _time(timing: re.Match[str]) -> str:
    """A cue's start as HH:MM:SS, fractions dropped."""
    hours, minutes, seconds = timing[1] or 0, timing[2], timing[3]
    return f"{int(hours):02}:{int(minutes):02}:{int(seconds):02}"
