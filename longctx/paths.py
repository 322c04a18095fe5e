"""Where longctx keeps things: one folder each for what can be fetched or computed again (cache),
what cannot (data) and settings (config). It creates nothing until asked.
"""

from __future__ import annotations

import os
from pathlib import Path

from longctx.errors import LongctxError

APP = "longctx"
HOME_VARIABLE = "LONGCTX_HOME"


def cache_dir() -> Path:
    """Models and index segments: safe to delete."""
    return _folder("cache")


def data_dir() -> Path:
    """Named contexts and jobs: what a user would miss."""
    return _folder("data")


def config_dir() -> Path:
    """Settings files."""
    return _folder("config")


def models_dir() -> Path:
    """Fetched models, one folder each."""
    return cache_dir() / "models"


def ensure(folder: Path) -> Path:
    """Create a folder with its parents and return it; `LongctxError` where that is not allowed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LongctxError(
            f"{folder}: cannot create this folder ({error.strerror}); "
            f"set {HOME_VARIABLE} to a folder you may write to"
        ) from None
    return folder


def _folder(kind: str) -> Path:
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return Path(home).expanduser().absolute() / kind
    import platformdirs

    return getattr(platformdirs, f"user_{kind}_path")(APP, appauthor=False)
