"""What a wheel holds: every package of the checkout, under the name it is imported by."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_package_is_listed():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {
        ".".join(["longctx", *folder.relative_to(ROOT / "longctx").parts])
        for folder in _packages(ROOT / "longctx")
    } | {
        ".".join(["longctx", "kernels", *folder.relative_to(ROOT / "kernels").parts])
        for folder in _packages(ROOT / "kernels")
    }
    assert sorted(listed) == sorted(found)


def _packages(top: Path) -> list[Path]:
    """Folders with an `__init__.py`; the link to the kernels counts under its own name."""
    files = (file for file in top.rglob("__init__.py") if not _linked(file.parent, top))
    return [file.parent for file in files]


def _linked(folder: Path, top: Path) -> bool:
    return any(part.is_symlink() for part in (folder, *folder.parents) if top in part.parents)
