"""Floating-point operations counted while the decoder runs, 2 a multiply-add.

Products are counted from the shapes they ran with, attention and index scores from the numbers of
pairs a row may see or has chosen: what a tile computes above the diagonal and throws away, and
norms, rotations and softmax, are not counted (as in specification 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor


@dataclass
class Counters:
    """Totals since the last `reset`; all are FLOPs but the two numbers of pairs."""

    projections: int = 0
    core: int = 0
    index_projections: int = 0
    index_scores: int = 0
    dense_mlp: int = 0
    router: int = 0
    experts: int = 0
    shared_experts: int = 0
    head: int = 0
    attended_pairs: int = 0
    scored_pairs: int = 0

    @property
    def indexer(self) -> int:
        return self.index_projections + self.index_scores

    @property
    def moe(self) -> int:
        return self.router + self.experts + self.shared_experts

    @property
    def total(self) -> int:
        return self.projections + self.core + self.indexer + self.dense_mlp + self.moe + self.head

    def product(self, kind: str, x: Tensor, y: Tensor) -> Tensor:
        """Count `y = x @ weight.T`, `[..., in]` to `[..., out]`, and hand `y` on."""
        return self.batched(kind, x.numel(), y)

    def batched(self, kind: str, inputs: int, y: Tensor) -> Tensor:
        """Count a product of `inputs` numbers in all by matrices of `y.shape[-1]` columns."""
        setattr(self, kind, getattr(self, kind) + 2 * inputs * y.shape[-1])
        return y

    def attended(self, pairs: int, per_pair: int) -> None:
        """Count attention over `pairs` of a row and an entry, `per_pair` multiply-adds each."""
        self.attended_pairs += pairs
        self.core += 2 * pairs * per_pair

    def scored(self, pairs: int, per_pair: int) -> None:
        """Count index scores of `pairs` of a row and a key, `per_pair` multiply-adds each."""
        self.scored_pairs += pairs
        self.index_scores += 2 * pairs * per_pair

    def reset(self) -> None:
        for field in fields(self):
            setattr(self, field.name, 0)
