"""Why a file was not read: every reason a `Skipped` can carry, spelled in one place.

A reason is a short phrase, or a phrase, a colon and a detail; `reason_kind` gives the phrase alone,
which is what programs compare and what summaries count.
"""

from __future__ import annotations

from longctx.errors import LongctxError

BINARY = "binary"
DAMAGED_PDF = "damaged PDF"
EMPTY = "empty"
ENCODING = "encoding"
ENCRYPTED = "encrypted"
NO_TEXT_LAYER = "no text layer"
READER_FAILED = "reader failed"
SPECIAL = "special file"
SYMLINK = "symlink"
TIMED_OUT = "timed out"
TOO_LARGE = "too large"
UNREADABLE = "unreadable"
UNSUPPORTED = "unsupported format"


class Unreadable(LongctxError):
    """A file that cannot become a document; `str(error)` is the reason to report."""


def because(reason: str, detail: object) -> str:
    """`reason` with a detail on the same line: "unreadable: Permission denied"."""
    return f"{reason}: {' '.join(str(detail).split())}"


def reason_kind(reason: str) -> str:
    """The constant a reason was built from: "too large: 2.0 GB, the limit is …" -> "too large"."""
    return reason.split(":", 1)[0]


def os_reason(error: OSError) -> str:
    """The system's words for a file that cannot be opened or a folder that cannot be listed."""
    return because(UNREADABLE, error.strerror or type(error).__name__)


def failure(error: BaseException) -> str:
    """A reader's own exception, named, so that the report of it can be acted on."""
    detail = " ".join(str(error).split())[:200]
    name = type(error).__name__
    return because(READER_FAILED, f"{name}: {detail}" if detail else name)


def too_large(size_bytes: int, limit_bytes: int) -> str:
    """Sizes in decimal megabytes, as file managers show them."""
    return because(
        TOO_LARGE, f"{size_bytes / 1e6:,.1f} MB, the limit is {limit_bytes / 1e6:,.1f} MB"
    )
