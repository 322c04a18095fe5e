"""One tiny checkpoint of each family, written once: tests that change nothing share them."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_samples import saved

SCHEDULE = ["full", "full", "full", "shared", "shared", "shared", "full", "shared"]


@pytest.fixture(scope="session")
def glm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GLM with IndexShare: eight layers, four full, three dense, top 8."""
    folder = tmp_path_factory.mktemp("glm")
    changes = {"num_hidden_layers": 8, "indexer_types": SCHEDULE, "first_k_dense_replace": 3}
    saved(folder, "glm", seed=2, **changes)
    return folder


@pytest.fixture(scope="session")
def deepseek(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DeepSeek-V3.2: four layers, all full, YaRN, groups of experts, top 8."""
    folder = tmp_path_factory.mktemp("deepseek")
    saved(folder, "deepseek", seed=2)
    return folder
