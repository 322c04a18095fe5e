"""The published figures of GLM-5.2, to the digits they are printed in, and counts by hand."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest

from longctx.accounting import native
from longctx.models.native.config import parse_native_config
from longctx.models.native.synth_presets import Sizes, preset

GLM = Sizes.of(preset("glm-5.2"))
TINY = Sizes.of(preset("glm-5.2", "tiny"))
MILLION = 1_048_576


def billions(flops: int, digits: int = 1) -> str:
    return f"{flops / 1e9:.{digits}f}"


def pair(values, digits: int) -> str:
    return "/".join(f"{float(value):.{digits}f}" for value in values)


def test_parts_of_a_layer():
    assert native.projections(GLM) == 2 * 165_019_648
    assert native.core_per_key(GLM) == 65_536
    assert native.core_per_key(GLM, absorbed=True) == 139_264
    assert native.indexer_per_key(GLM) == 8_192
    assert f"{native.indexer_fixed(GLM) / 1e6:.2f}" == "18.74"
    assert billions(native.head(GLM), 3) == "1.903"
    sparse, dense = 682.6e6, 453.0e6
    assert native.mlp(GLM) == pytest.approx(75 * sparse + 3 * dense, rel=1e-4)
    assert billions(native.per_token(GLM, 1).base) == "80.2"


@pytest.mark.parametrize(
    ("position", "every", "shared", "indexers", "ratio", "dense"),
    [
        (131_072, "175.9/187.7", "113.6/125.4", "85.2 22.9", "1.55/1.50", "750/1504"),
        (204_800, "223.0/234.8", "126.3/138.1", "132.3 35.6", "1.77/1.70", "1127/2305"),
        (MILLION, "762.1/773.9", "271.5/283.2", "671.5 180.8", "2.81/2.73", "5440/11470"),
    ],
)
def test_a_token_at_a_long_position(position, every, shared, indexers, ratio, dense):
    forms = (False, True)
    all_layers = [native.per_token(GLM, position, absorbed=a, every_layer=True) for a in forms]
    own = [native.per_token(GLM, position, absorbed=a) for a in forms]
    full = [native.per_token(GLM, position, absorbed=a, dense=True) for a in forms]

    assert pair([f.total / 1e9 for f in all_layers], 1) == every
    assert pair([f.total / 1e9 for f in own], 1) == shared
    assert f"{billions(all_layers[0].indexer)} {billions(own[0].indexer)}" == indexers
    assert pair([native.ratio(GLM, position, absorbed=a) for a in forms], 2) == ratio
    assert pair([f.total / 1e9 for f in full], 0) == dense
    assert pair([f.core / 1e9 for f in own], 1) == "10.5/22.2"


@pytest.mark.parametrize(
    ("tokens", "means"),
    [(131_072, "133.9 102.3 1.31"), (204_800, "157.5 108.6 1.45"), (MILLION, "427.1 181.2 2.36")],
)
def test_the_mean_over_a_prefill(tokens, means):
    every = native.prefill(GLM, tokens, every_layer=True).total
    shared = native.prefill(GLM, tokens).total

    found = f"{every / tokens / 1e9:.1f} {shared / tokens / 1e9:.1f} {every / shared:.2f}"
    assert found == means


def test_what_the_published_ratio_needs():
    def ratios(layers: Fraction) -> str:
        found = [native.ratio(GLM, MILLION, absorbed=a, full_layers=layers) for a in (False, True)]
        return pair(found, 2)

    assert ratios(Fraction(20)) == "2.90/2.82"
    assert ratios(Fraction(78, 4)) == "2.95/2.86"
    needed = native.full_layers_for(GLM, MILLION, native.CLAIMED_RATIO)
    assert native.ratio(GLM, MILLION, full_layers=needed) == native.CLAIMED_RATIO
    assert f"{float(needed):.1f}" == "20.0"


@pytest.mark.parametrize(
    "options", [{}, {"absorbed": True}, {"every_layer": True}, {"dense": True}]
)
@pytest.mark.parametrize("tokens", [1, 7, 8, 9, 50])
def test_a_prefill_is_the_sum_of_its_tokens_exactly(tokens, options):
    each = [native.per_token(TINY, position, **options) for position in range(1, tokens + 1)]

    found = native.prefill(TINY, tokens, **options)

    assert tokens <= 9 or TINY.index_topk < tokens
    for part in ("projections", "core", "indexer", "mlp", "head"):
        assert getattr(found, part) == sum(getattr(flops, part) for flops in each)


def test_below_the_number_selected_sparse_attention_reads_everything():
    at = TINY.index_topk

    assert native.per_token(TINY, at).core == native.per_token(TINY, at, dense=True).core
    assert native.per_token(TINY, at + 1).core < native.per_token(TINY, at + 1, dense=True).core


def test_cache_bytes_of_a_token():
    assert native.latent_bytes(GLM) == 89_856
    assert native.latent_bytes(GLM, fp8=True) == 51_168 == 78 * 656
    assert native.index_bytes(GLM) == 5_376
    assert native.index_bytes(GLM, fp8=True) == 2_772 == 21 * 132
    wasted = native.index_bytes(GLM, fp8=True, every_layer=True) - native.index_bytes(GLM, fp8=True)
    held = native.latent_bytes(GLM, fp8=True) + native.index_bytes(GLM, fp8=True, every_layer=True)
    assert 0.11 < wasted / held < 0.13


def test_without_shared_layers_nothing_is_saved():
    glm_5_1 = Sizes.of(preset("glm-5.1"))

    assert native.ratio(glm_5_1, MILLION) == 1


def test_a_parsed_config_counts_the_same():
    config = parse_native_config(preset("glm-5.2"))

    assert native.per_token(config, 9999) == native.per_token(GLM, 9999)


def test_the_table_prints_the_claim_and_what_it_needs():
    done = subprocess.run(
        [sys.executable, "-m", "longctx.accounting.native"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == native.table() + "\n"
    assert "2.81/2.73" in done.stdout
    assert "20 full layers: 2.90/2.82x" in done.stdout
    assert not done.stderr
