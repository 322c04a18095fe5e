"""The second look: heads of deeper layers choose among the first look's best blocks.

The first look scores a whole context with heads that never saw question and passage together. Here
the best few dozen blocks stand in one prompt with the question behind them, the model runs up to
the deepest head of the profile, and the share of attention that the last position (where the answer
would begin) gives to each block says which of them answer it. The idea is in-context re-ranking
(arXiv 2410.02642) with chosen heads (arXiv 2506.09944); here heads and weights are calibrated.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from longctx.indexshare.survey import Survey
from longctx.models import layers as L
from longctx.models.decoder import Decoder, attend
from longctx.models.rope import rotate

FLOOR = 1e-5  # attention below this counts as none: its logarithm would be noise


@torch.inference_mode()
def block_shares(decoder: Decoder, survey: Survey, heads: Sequence[tuple[int, int]]) -> Tensor:
    """Log-share of the last position's attention that falls on each block, `[heads, blocks]`.

    `heads` are `(layer, head)` pairs. Float32; shares below `FLOOR` are lifted to it.
    """
    config = decoder.config
    last = max(layer for layer, _ in heads)
    owner = torch.tensor(survey.owners, device=decoder.device)
    owner = torch.where(owner < 0, survey.blocks, owner)
    shares: dict[tuple[int, int], Tensor] = {}
    x = decoder.embed(survey.prompt)
    cos, sin = decoder.rope.tables(len(x))
    cos, sin = cos[:, None], sin[:, None]
    for index in range(last + 1):
        layer = decoder.layers[index]
        normed = L.rms_norm(x, layer.input_norm, config.norm_eps)
        k = rotate(L.keys(layer, config, normed), cos, sin).transpose(0, 1)
        asked = [head for at, head in heads if at == index]
        if asked:
            query = rotate(L.queries(layer, config, normed[-1:]), cos[-1:], sin[-1:])[0]
            grouped = query.unflatten(0, (config.kv_heads, -1)).float()
            scores = (grouped @ k.float().transpose(1, 2)).flatten(0, 1)[asked]
            share = (scores * config.head_dim**-0.5).softmax(dim=-1)
            mass = share.new_zeros(len(asked), survey.blocks + 1).index_add_(1, owner, share)
            logs = mass[:, :-1].clamp_(min=FLOOR).log_().cpu()
            shares |= {(index, head): row for head, row in zip(asked, logs, strict=True)}
        if index == last:
            break
        q = rotate(L.queries(layer, config, normed), cos, sin).transpose(0, 1)
        v = L.values(layer, config, normed).transpose(0, 1)
        x = L.finish(layer, config, x, attend(q, k, v, config.window(index)))
    return torch.stack([shares[head] for head in heads])
