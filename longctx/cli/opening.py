"""From paths to a context that can be asked, with its progress shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from longctx.cli.inputs import STDIN, checked_model, checked_paths
from longctx.cli.options import ContextSettings
from longctx.cli.progress import ProgressView, showing

if TYPE_CHECKING:
    from longctx import Context


def open_context(named: Sequence[str], settings: ContextSettings, view: ProgressView) -> Context:
    """Index the paths named, and those listed on stdin where `-` is among them."""
    paths, model = checked_paths(named), checked_model(settings.model)
    with showing(view, "load"):
        import longctx

        return longctx.index(
            paths,
            model=model,
            device=settings.device,
            store=settings.store,
            on_progress=view,
            hidden=settings.hidden,
            follow_symlinks=settings.follow_symlinks,
            index=settings.index,
            thinking=settings.thinking,
            stream_weights=settings.stream_weights,
            stdin_paths=sys.stdin.buffer if STDIN in named else None,
        )
