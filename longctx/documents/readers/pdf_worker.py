"""The child process in which PDFs are parsed: a script, not a module of the package.

It reads requests from its standard input and answers on its standard output, one JSON object a
line: `{"path"}` in; `{"pages": n}`, then per page `{"page", "text"}` or `{"page", "error"}`, then
`{"done"}` out, or `{"reason"}` when there is nothing to read. It imports pypdf and nothing of
longctx, so that it starts in a fifth of a second and a hostile file finds nothing here.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import TextIO


def main() -> None:
    memory_bytes, page_seconds = int(sys.argv[1]), int(sys.argv[2])
    _limit_memory(memory_bytes)
    answers = os.fdopen(os.dup(1), "w", encoding="ascii", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever else prints, prints to nobody
    for line in sys.stdin:
        path = json.loads(line)["path"].encode("latin-1")
        answer: dict[str, object]
        try:
            answer = _read(path, answers, page_seconds)
        except Exception as error:
            answer = {"reason": _reason(error)}
        _alarm(0)
        _say(answers, answer)


def _read(path: bytes, answers: TextIO, page_seconds: int) -> dict[str, object]:
    from pypdf import PdfReader

    _alarm(page_seconds)
    with open(path, "rb") as file:
        reader = PdfReader(file, strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            return {"reason": "encrypted"}
        count = len(reader.pages)
        if count == 0:
            return {"reason": "damaged PDF: it has no pages"}
        _say(answers, {"pages": count})
        for number in range(1, count + 1):
            _alarm(page_seconds)
            try:
                answer = {"page": number, "text": reader.pages[number - 1].extract_text()}
            except Exception as error:  # one bad page must not cost the others
                answer = {"page": number, "error": _name(error)}
            _say(answers, answer)
    return {"done": True}


def _reason(error: Exception) -> str:
    name = type(error).__name__
    if name == "DependencyError":  # AES, for which pypdf needs another package
        return f"encrypted: {error}"
    if name in ("FileNotDecryptedError", "WrongPasswordError"):
        return "encrypted"
    if isinstance(error, MemoryError):
        return "too large: it takes more memory than a PDF may"
    if isinstance(error, OSError) and error.strerror:
        return f"unreadable: {error.strerror}"
    return f"damaged PDF: {_name(error)}"


def _name(error: Exception) -> str:
    words = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _say(answers: TextIO, answer: dict[str, object]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _alarm(seconds: int) -> None:
    """End this process when a page hangs and no parent is left to notice."""
    if hasattr(signal, "alarm"):
        signal.alarm(2 * seconds)


def _limit_memory(memory_bytes: int) -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):  # not every system has the limit
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            memory_bytes = min(memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, hard))


if __name__ == "__main__":
    main()
