"""The one exception family of longctx.

Every error carries a message a user can act on (what, where, what to do next) and the exit code
the command line ends with. It knows nothing of commands or of printing.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_DOES_NOT_FIT = 3
EXIT_SKIPPED = 4
EXIT_INTERRUPTED = 130


class LongctxError(Exception):
    """Something failed that the user can do something about; `str(error)` is one line."""

    exit_code = EXIT_FAILURE


class UsageError(LongctxError):
    """The request itself is wrong: an empty question, a missing path, an unknown option value."""

    exit_code = EXIT_USAGE


class DoesNotFitError(LongctxError):
    """The request is too large for the model's window, the memory or the disk."""

    exit_code = EXIT_DOES_NOT_FIT


class ModelError(LongctxError):
    """A model cannot be found, fetched, verified or loaded."""


class UnknownModelError(ModelError):
    """No model of that name exists anywhere: the request is wrong, not the model."""

    exit_code = EXIT_USAGE


class StoreError(LongctxError):
    """An index or cache file on disk is damaged or of another version."""
