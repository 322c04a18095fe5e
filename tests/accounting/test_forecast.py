"""A forecast's bytes are those a run moves, its operations the counted ones, its sum its parts'."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from longctx.accounting import forecast as package
from longctx.accounting.forecast import Forecast, Rates, lines, scaled
from longctx.accounting.rates import disk, measure
from longctx.models.native import streaming
from longctx.models.native.cache import NativeCache
from longctx.models.native.config import parse_native_config
from longctx.models.native.counters import Counters
from longctx.models.native.spill import SpilledRows
from longctx.models.native.streaming import spilled_size, stream_prefill
from longctx.models.native.synth import preset, write_checkpoint
from longctx.models.native.synth_presets import Sizes
from longctx.models.weights.native import NativeSource

GLM = Forecast(Sizes.of(preset("glm-5.2")), 1 << 20, 8192, fp8=True)
RATES = Rates(read=2e9, write=1e9, products=1e12, experts=5e11, scores=2e11, core=1e11, widen=1e9)


def test_the_published_checkpoint():
    """755,632,050,320 bytes with the layer of MTP, which is not read, and the files' headers."""
    whole = 755_632_050_320
    assert 0.985 * whole < GLM.weight_bytes < 0.99 * whole
    assert 9.8e9 < GLM.layer_bytes < 9.9e9
    assert GLM.chunks == 128
    assert GLM.spill_bytes == (1 << 20) * (2 * 6144 + 4 * 2048)


@pytest.mark.parametrize("schedule", ["FFFSSSFS", "FSSF", "FFF"])
@pytest.mark.parametrize("fp8", [True, False])
def test_what_a_run_moves(
    schedule: str, fp8: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    raw = preset("glm-5.2", "tiny", schedule=schedule)
    write_checkpoint(raw, tmp_path / "model", fp8=fp8)
    config = parse_native_config(raw)
    source, counters = NativeSource(tmp_path / "model", torch.bfloat16), Counters()
    files: list[SpilledRows] = []

    def opened(folder: Path, count: int, width: int, dtype: torch.dtype) -> SpilledRows:
        files.append(SpilledRows(folder, count, width, dtype))
        return files[-1]

    monkeypatch.setattr(streaming, "SpilledRows", opened)
    stream_prefill(
        config,
        source,
        range(70),
        NativeCache(config, 70, "bf16"),
        spill_dir=tmp_path,
        chunk_tokens=16,
        counters=counters,
    )

    wanted = Forecast(Sizes.of(raw), 70, 16, fp8)
    assert source.bytes_read == wanted.weight_bytes
    assert sum(file.bytes_written for file in files) == wanted.spill_written
    assert sum(file.bytes_read for file in files) == wanted.spill_read
    assert spilled_size(config, 70, 0, torch.bfloat16) == wanted.spill_bytes
    # A run leaves rows nobody asks for at the last layer's cache, and early rows unscored.
    assert wanted.flops.total > counters.total > 0.5 * wanted.flops.total


def test_the_parts_are_the_whole():
    parts = GLM.parts(RATES)
    flops = sum(part.amount for part in parts if part.unit == "FLOP")

    assert flops == GLM.flops.total
    assert GLM.seconds(RATES) == pytest.approx(sum(part.amount / part.rate for part in parts))
    assert GLM.seconds(replace(RATES, read=1e9)) - GLM.seconds(RATES) == pytest.approx(
        (GLM.weight_bytes + GLM.spill_read) / 2e9
    )
    assert GLM.reread_seconds(RATES) == 128 * GLM.weight_bytes / 2e9


def test_widening_once_is_paid_in_memory():
    once = replace(GLM, widen_once=True)

    saved = GLM.seconds(RATES) - once.seconds(RATES)
    assert saved == pytest.approx(127 * GLM.fp8_bytes / 1e9)
    assert 2.9 * GLM.layer_bytes < once.layer_bytes < 3 * GLM.layer_bytes
    bf16 = replace(GLM, fp8=False)
    assert not any("widened" in part.label for part in bf16.parts(RATES))
    assert bf16.fp8_bytes == 0


def test_the_text_shows_its_arithmetic():
    text = "\n".join(lines(GLM, RATES, "GLM-5.2-FP8"))

    assert "GLM-5.2-FP8, 1,048,576 tokens layer by layer, 128 chunks of 8,192" in text
    assert "weights read, once                    746 GB /" in text
    assert "746 GB /        2 GB/s =" in text
    assert "128 x 746 GB = 95.4 TB = 13.3 hours" in text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_600, "1 MB"), (7.456e11, "746 GB")],
)
def test_amounts(amount: float, text: str):
    assert scaled(amount, "B") == text


def test_a_machine_is_measured_and_nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("longctx.accounting.rates.TIMED_SECONDS", 0.0)
    monkeypatch.setattr("longctx.accounting.rates._KEYS", 256)

    rates = measure(Sizes.of(preset("glm-5.2", "tiny")), tmp_path, disk_bytes=5_000_000)

    assert all(rate > 0 for rate in vars(rates).values())
    assert not list(tmp_path.iterdir())
    assert all(rate > 0 for rate in disk(tmp_path, 1000))


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr("longctx.accounting.rates.measure", lambda *_, **__: RATES)

    assert package.main(["--tokens", "4096", "--chunk", "512", "--widen-once"]) == 0

    assert "glm-5.2 FP8, 4,096 tokens layer by layer, 8 chunks of 512" in capsys.readouterr().out
