"""The tiny model, one thread, and an empty home for every test."""

from __future__ import annotations

from engines.tiny_fixtures import home, model, model_folder, one_thread, recall

__all__ = ["home", "model", "model_folder", "one_thread", "recall"]
