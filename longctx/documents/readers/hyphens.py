"""Mending what typesetting did to words: ligatures and the hyphens at line ends.

A word broken over two lines is joined only when its second half is in lower case, and keeps its
hyphen when the rest of the document suggests that the hyphen is its own. Lines stay as many as they
were: the second half moves up, what follows it stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LIGATURES = {
    ord("ﬀ"): "ff",
    ord("ﬁ"): "fi",
    ord("ﬂ"): "fl",
    ord("ﬃ"): "ffi",
    ord("ﬄ"): "ffl",
    ord("ﬅ"): "st",
    ord("ﬆ"): "st",
}
_BREAK = re.compile(r"(?<![\w-])([^\W\d_]{2,})[-\u2010]\n[ \t]*([^\W\d_]{2,})(?![\w-])([^\s\w]*) ?")
_SOFT_BREAK = re.compile(r"\u00ad\n[ \t]*(\S+) ?")
_WORD = re.compile(r"\w+(?:[-\u2010]\w+)*")

# First halves that keep their hyphen when the document itself does not tell.
_COMPOUNDING = re.compile(
    "all|anti|co|cross|ex|first|five|four|full|half|high|inter|low|long|mid|multi|non|on|one|part"
    "|post|pre|pro|quasi|re|second|self|semi|short|six|sub|ten|third|three|two|well|year"
)


def mend(pages: Sequence[str]) -> list[str]:
    """The pages with ligatures spelled out and broken words joined; as many lines in each."""
    pages = [page.translate(_LIGATURES) for page in pages]
    known: set[str] = set()
    for page in pages:
        known.update(_WORD.findall(_BREAK.sub("\n", page).lower()))

    def join(broken: re.Match[str]) -> str:
        head, tail, closing = broken.groups()
        if not (head[1:].islower() and tail.islower()):
            return broken[0]
        return f"{head}{_between(head, tail, known)}{tail}{closing}\n"

    return [
        _BREAK.sub(join, _SOFT_BREAK.sub(r"\1\n", page)).replace("\u00ad", "") for page in pages
    ]


def _between(head: str, tail: str, known: set[str]) -> str:
    head = head.lower()
    if head + tail in known:
        return ""
    if f"{head}-{tail}" in known or _COMPOUNDING.fullmatch(head):
        return "-"
    return "-" if head in known and tail in known else ""
