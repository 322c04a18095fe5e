"""longctx: ask questions of whole folders, a million tokens at a time, on the machine you have.

`index(paths)` gives a `Context` to `ask`; `load_model(name_or_path)` gives the model alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# libgomp's spinning barriers slow single-token layers 14-53 times on a busy machine; the variable
# is read when torch is first imported, which nothing above this line does.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"
__all__ = ["Answer", "AskOptions", "Context", "calibrate", "index", "load_model"]

if TYPE_CHECKING:
    from longctx.api import Context, calibrate, index, load_model
    from longctx.engines.base import Answer, AskOptions

_BASE = ("Answer", "AskOptions")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'longctx' has no attribute {name!r}")
    if name in _BASE:
        from longctx.engines import base

        return getattr(base, name)
    from longctx import api

    return getattr(api, name)
