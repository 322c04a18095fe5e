"""The trainable model selects as it says, and its indexer's loss teaches the indexer alone."""

from __future__ import annotations

import pytest
import torch
from native_training_samples import TINY

from longctx.errors import UsageError
from longctx.jobs.native_training import tasks
from longctx.jobs.native_training.layers import MoE, rotate, select
from longctx.jobs.native_training.model import NativeModel


def batch(length: int, size: int = 2) -> torch.Tensor:
    return torch.from_numpy(tasks.batch(length, size, 0, 0)[0])


@pytest.fixture
def model() -> NativeModel:
    torch.manual_seed(0)
    return NativeModel(TINY)


def test_equal_scores_are_taken_by_lower_index() -> None:
    scores = torch.tensor([[0.0, 2.0, 0.0, 0.0, -1.0, -torch.inf]])

    assert select(scores, 3).tolist() == [[True, True, True, False, False, False]]


def test_what_is_not_allowed_is_never_selected() -> None:
    scores = torch.tensor([[1.0, -torch.inf, -torch.inf], [-3.0, -2.0, -torch.inf]])

    assert select(scores, 2).tolist() == [[True, False, False], [True, True, False]]


def test_sparse_equals_dense_up_to_topk_tokens(model: NativeModel) -> None:
    tokens = batch(16)
    model.topk = 16

    torch.testing.assert_close(
        model.logits(tokens, sparse=True), model.logits(tokens, sparse=False)
    )


def test_sparse_differs_from_dense_beyond_topk_tokens(model: NativeModel) -> None:
    tokens = batch(40)
    sparse, dense = (model.logits(tokens, sparse=choice) for choice in (True, False))

    torch.testing.assert_close(sparse[:, : TINY.topk], dense[:, : TINY.topk])
    assert (sparse[:, -1] - dense[:, -1]).abs().max() > 1e-4


def test_shared_layers_reuse_the_selection_before_them(model: NativeModel) -> None:
    chosen = model(batch(40), sparse=True).selected

    assert not torch.equal(chosen[0], chosen[1])
    assert torch.equal(chosen[1], chosen[2])
    assert torch.equal(chosen[1], chosen[3])
    assert chosen[3].sum(-1).tolist() == [[min(t + 1, TINY.topk) for t in range(40)]] * 2


@pytest.mark.parametrize("sparse", [False, True])
def test_the_index_loss_reaches_indexers_only(model: NativeModel, sparse: bool) -> None:
    loss = model(batch(40), sparse=sparse, distil=True).index_loss
    assert loss is not None
    loss.backward()

    reached = {name for name, p in model.named_parameters() if p.grad is not None}
    assert reached == {name for name, _ in model.named_parameters() if ".indexer." in name}


def test_positions_matter_by_their_distances_alone(model: NativeModel) -> None:
    tokens = batch(24)
    near = torch.arange(24).expand(2, -1)
    spread = near + 500 * (near >= 12)
    plain, moved, apart = (
        model(tokens, sparse=False, positions=places).hidden
        for places in (near, near + 300, spread)
    )

    torch.testing.assert_close(plain, moved, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(plain[:, :12], apart[:, :12])
    assert (plain[:, -1] - apart[:, -1]).abs().max() > 1e-3


def test_writing_attention_out_changes_no_result(model: NativeModel) -> None:
    tokens = batch(40)
    plain, recorded = (model(tokens, sparse=True, distil=choice).hidden for choice in (False, True))

    torch.testing.assert_close(plain, recorded)


def test_the_index_loss_is_the_mean_divergence_of_the_layers_served(model: NativeModel) -> None:
    # A model whose attention is uniform and whose indexer scores nothing agrees with it exactly.
    with torch.no_grad():
        for layer in model.model.blocks():
            layer.self_attn.q_b_proj.weight.zero_()
            if layer.self_attn.indexer is not None:
                layer.self_attn.indexer.weights_proj.weight.zero_()
    loss = model(batch(40), sparse=False, distil=True).index_loss

    assert loss is not None
    assert loss.item() == pytest.approx(0.0, abs=1e-5)


def test_rotated_products_depend_on_the_distance_alone() -> None:
    from longctx.jobs.native_training.layers import angles

    q, k = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(0))
    cos, sin = angles(torch.tensor([3, 7, 103, 107]), 8, 1000.0)
    turned = [(rotate(q, cos[i], sin[i]), rotate(k, cos[i], sin[i])) for i in range(4)]

    near, far = (turned[1][0] * turned[0][1]).sum(), (turned[3][0] * turned[2][1]).sum()
    torch.testing.assert_close(near, far)


def test_the_router_moves_towards_unused_experts() -> None:
    torch.manual_seed(0)
    moe = MoE(TINY, 1.0).train()
    with torch.no_grad():
        moe.gate.weight.zero_()
        moe.gate.weight[0], moe.gate.weight[1] = 1.0, 0.5
    moe(torch.ones(5, TINY.hidden))
    moe.gate.balance(0.01)

    bias = moe.gate.e_score_correction_bias.tolist()
    assert bias == pytest.approx([-0.01, -0.01, 0.01, 0.01])
    assert not moe.gate.load.any()


def test_a_schedule_must_fit_and_begin_full() -> None:
    with pytest.raises(UsageError, match="4 letters"):
        TINY.with_schedule("FFS")
    with pytest.raises(UsageError, match="layer 0"):
        TINY.with_schedule("SFFF")
