"""Fixtures of the tiny model, for the `conftest.py` of every folder that wants them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engines.tiny_model import PROFILE, load_tiny, write_model
from longctx.indexshare.recall import Recall
from longctx.models.loaded import LoadedModel


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products gain nothing from threads and wait for them on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def model(model_folder: Path) -> LoadedModel:
    return load_tiny(model_folder)


@pytest.fixture
def recall(model: LoadedModel) -> Recall:
    return Recall(model.decoder, PROFILE, model.tokenizer.encode_text(PROFILE.preamble)[0])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where longctx keeps its files: an empty folder for each test."""
    folder = tmp_path / "home"
    monkeypatch.setenv("LONGCTX_HOME", str(folder))
    return folder
