"""Matrix products of a decoder layer, fused with what follows where the CPU library can.

On CPUs in bf16, oneDNN applies SiLU, products and sums while the result is still in registers:
torch's own bf16 SiLU alone costs as much as a fifth of the layer (11 ms of 55 ms for 1,024 rows
of 1,536 x 8,960 on 2 AMX cores). Everywhere else the plain operations run.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

FUSED_ROWS = 16  # below this a product is bound by reading the weights; fusion gains nothing
PACKED_ROWS = 4  # 1,536 x 8,960 on 2 cores: 1.5 against 2.7 ms for 4 rows, 2.8 and 2.7 for 8
PACKED_GROUP = 32  # columns that share a scale and a zero
EXACT_WORDS = 128  # best words of a packed head that are scored again in bf16


class Linear:
    """`x @ weight.T + bias` for `x` `[N, in]`; `weight` `[out, in]`, `bias` `[out]` or None."""

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight = weight
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def added_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual + self(x)`."""
        if _fuses(x):
            return torch.ops.mkldnn._linear_pointwise.binary(
                x, residual, self.weight, self.bias, "add"
            )
        return residual + self(x)


class PackedLinear(Linear):
    """A `Linear` for at most `PACKED_ROWS` rows that reads 4-bit weights instead of bf16 ones.

    A weight is `(code - 8) * scale + zero`, or a sum of `planes` such terms. `codes` is uint8
    `[out, planes * in / 2]` in the layout of torch's CPU kernel, `scales` bf16
    `[planes * in / 32, out, 2]` holds each group's scale and zero. `weight` stays the exact one.
    """

    __slots__ = ("codes", "planes", "scales")

    def __init__(self, exact: Linear, codes: Tensor, scales: Tensor):
        super().__init__(exact.weight, exact.bias)
        self.codes, self.scales = codes, scales
        self.planes = len(scales) * PACKED_GROUP // exact.weight.shape[1]

    def __call__(self, x: Tensor) -> Tensor:
        if self.planes > 1:
            x = x.repeat(1, self.planes)
        y = torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.codes, PACKED_GROUP, self.scales)
        return y if self.bias is None else y.add_(self.bias)


class PackedHead(PackedLinear):
    """A packed output head whose `EXACT_WORDS` best words get their exact logits.

    The words that may be chosen are compared exactly; the others, good to 4 bits, held 1.3% of the
    probability over 256 positions of a contract and a program.
    """

    __slots__ = ()

    def __call__(self, x: Tensor) -> Tensor:
        logits = super().__call__(x)
        best = logits.topk(min(EXACT_WORDS, logits.shape[1]), dim=-1, sorted=False).indices
        rows = zip(x, best, strict=True)
        exact = [F.linear(row[None], self.weight[words]) for row, words in rows]
        return logits.scatter_(1, best, torch.cat(exact))


def swiglu(x: Tensor, gate: Linear, up: Linear) -> Tensor:
    """`silu(gate(x)) * up(x)` (arXiv 2002.05202), `[N, intermediate]`."""
    if _fuses(x):
        ops = torch.ops.mkldnn
        gated = ops._linear_pointwise(x, gate.weight, gate.bias, "swish", [1.0], "")
        return ops._linear_pointwise.binary(x, gated, up.weight, up.bias, "mul")
    return F.silu(gate(x)).mul_(up(x))


def _fuses(x: Tensor) -> bool:
    return (
        x.dtype == torch.bfloat16
        and x.device.type == "cpu"
        and len(x) >= FUSED_ROWS
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
