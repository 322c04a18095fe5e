"""`longctx models synth`: a checkpoint from the command line."""

from __future__ import annotations

import json
from pathlib import Path


def test_a_checkpoint_is_written_as_asked(run, tmp_path: Path) -> None:
    folder = tmp_path / "model"

    result = run(
        *("models", "synth", "GLM-5.2", str(folder), "--schedule", "FFSS", "--topk", "4"),
        *("--hidden", "64", "--experts", "4", "--fp8", "--shard-bytes", "200000"),
    )

    assert result.exit_code == 0
    assert result.stdout.startswith(f"{folder}: GLM-5.2, 4 layers, ")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["index_topk"] == 4
    assert config["hidden_size"] == 64
    assert config["n_routed_experts"] == 4
    assert config["indexer_types"] == ["full", "full", "shared", "shared"]
    assert config["quantization_config"]["fmt"] == "e4m3"
    assert len(list(folder.glob("*.safetensors"))) > 1


def test_what_cannot_be_is_one_line(run, tmp_path: Path) -> None:
    result = run("models", "synth", "glm-5.2", str(tmp_path / "m"), "--schedule", "SF")

    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "F first" in result.stderr
    assert not (tmp_path / "m").exists()
