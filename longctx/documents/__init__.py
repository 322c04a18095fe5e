"""Files to text: what to read, what it is, what it says and where each word of it stands.

This floor knows nothing of tokens or models, prints nothing and loses nothing silently: every path
named ends as a `Document`, a `Skipped` with its reason, or a count of what the user had ignored.
"""

from longctx.documents.document import Document, Mark, Place, Skipped
from longctx.documents.read import DEFAULT_MAX_BYTES, read_documents
from longctx.documents.sanitize import Sanitizer, is_blank, sanitize, sanitize_line
from longctx.documents.walk import HIDDEN, Found, find_files

__all__ = [
    "DEFAULT_MAX_BYTES",
    "HIDDEN",
    "Document",
    "Found",
    "Mark",
    "Place",
    "Sanitizer",
    "Skipped",
    "find_files",
    "is_blank",
    "read_documents",
    "sanitize",
    "sanitize_line",
]
