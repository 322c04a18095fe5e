"""From paths to a context that can be asked, with its progress shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longctx.cli import amounts
from longctx.cli.options import ContextSettings
from longctx.cli.progress import ProgressView, showing
from longctx.documents.document import Skipped
from longctx.documents.reasons import reason_kind
from longctx.errors import UsageError

if TYPE_CHECKING:
    from longctx.contexts.context import Context

_MOST_PATHS_NAMED = 3


def open_context(paths: Sequence[Path], settings: ContextSettings, view: ProgressView) -> Context:
    """Index `paths`, or raise `UsageError` when nothing in them can be read."""
    import longctx

    with showing(view, "load"):
        context = longctx.index(
            paths,
            model=settings.model,
            device=settings.device,
            store=settings.store,
            on_progress=view,
            hidden=settings.hidden,
            follow_symlinks=settings.follow_symlinks,
        )
    if not context.documents:
        context.close()
        raise UsageError(nothing_readable(paths, context.skipped))
    return context


def nothing_readable(paths: Sequence[Path], skipped: Sequence[Skipped]) -> str:
    """Why `paths` give no context, in one line."""
    names = [path.as_posix() for path in paths[:_MOST_PATHS_NAMED]]
    if len(paths) > _MOST_PATHS_NAMED:
        names.append(f"{len(paths) - _MOST_PATHS_NAMED} more")
    where = ", ".join(names)
    if not skipped:
        return f"nothing readable in {where}: no files but hidden or ignored ones; see --hidden"
    kinds = [kind for kind, _ in Counter(reason_kind(file.reason) for file in skipped).most_common()]
    count = amounts.count(len(skipped), "file")
    return f"nothing readable in {where}: {count} skipped ({', '.join(kinds)})"
