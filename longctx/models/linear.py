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
