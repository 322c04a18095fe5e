"""Rotary position embedding tables for the llama and qwen families, scaling types included.

Formulas: RoPE (arXiv 2104.09864), half-split ("neox") pairing as in Hugging Face checkpoints;
linear interpolation (2306.15595), dynamic NTK and YaRN (2309.00071), Llama 3's frequency bands
(Llama 3.1 release), LongRoPE (2402.13753).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from longctx.errors import ModelError
from longctx.models.config import RopeConfig

_LONG = 1 << 24  # longer than any original context


class Rope:
    """cos/sin tables for positions 0..n-1, grown on demand.

    `tables(n)` gives two float32 tensors `[n, head_dim]`, both halves equal, so that
    `x * cos + rotate_half(x) * sin` rotates; `attention_factor` is already multiplied in.
    Raises `ModelError` when the config lacks a value that its kind of scaling needs.

    Dynamic NTK and LongRoPE give a sequence longer than the original context other frequencies
    than its beginning had alone; keys cached before that keep theirs, as in the reference code.
    """

    def __init__(self, config: RopeConfig, head_dim: int, device: torch.device | str = "cpu"):
        self.config = config
        self.head_dim = head_dim
        self.device = torch.device(device)
        self._cache: tuple[float, Tensor, Tensor] | None = None
        try:
            for length in (1, _LONG):  # both sets of LongRoPE's factors
                inverse_frequencies(config, head_dim, length)
        except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
            raise ModelError(
                f"the model's {config.kind} rope scaling lacks or misstates {error}; fetch it again"
            ) from None

    def tables(self, length: int) -> tuple[Tensor, Tensor]:
        """cos and sin for positions 0..length-1 of a sequence of `length` tokens."""
        frequencies, factor, key = inverse_frequencies(self.config, self.head_dim, length)
        if self._cache is None or self._cache[0] != key or len(self._cache[1]) < length:
            size = max(1024, 1 << (length - 1).bit_length())  # so decoding rarely rebuilds it
            angles = torch.outer(torch.arange(size, dtype=torch.float32), frequencies)
            angles = torch.cat((angles, angles), dim=-1)
            cos, sin = (angles.cos() * factor), (angles.sin() * factor)
            self._cache = (key, cos.to(self.device), sin.to(self.device))
        _, cos, sin = self._cache
        return cos[:length], sin[:length]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate `x` `[..., T, head_dim]` by tables `[T, head_dim]` (broadcast); keeps x's dtype."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return torch.addcmul(x * cos.to(x.dtype), turned, sin.to(x.dtype))


def inverse_frequencies(
    config: RopeConfig, head_dim: int, length: int
) -> tuple[Tensor, float, float]:
    """Inverse frequencies `[head_dim/2]` (float32), the attention factor, and a cache key.

    The key changes when the same config gives other frequencies for another `length`
    (dynamic NTK, LongRoPE).
    """
    steps = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    base = 1.0 / (config.theta**steps)
    values = config.scaling
    if config.kind == "default":
        return base, 1.0, 0.0
    if config.kind == "linear":
        return base / float(values["factor"]), 1.0, 0.0
    if config.kind == "factors":
        return base / torch.tensor(values["factors"], dtype=torch.float32), 1.0, 0.0
    if config.kind == "llama3":
        return _llama3(base, values), 1.0, 0.0
    if config.kind == "yarn":
        return (*_yarn(config, head_dim, base), 0.0)
    if config.kind == "dynamic":
        return _dynamic(config, head_dim, length)
    if config.kind == "longrope":
        return _longrope(config, steps, length)
    raise ModelError(f"rope scaling {config.kind!r} is not supported")


def _llama3(base: Tensor, values: Mapping[str, Any]) -> Tensor:
    factor = float(values["factor"])
    low, high = float(values["low_freq_factor"]), float(values["high_freq_factor"])
    original = float(values["original_max_position_embeddings"])
    wavelength = 2 * math.pi / base
    blend = ((original / wavelength) - low) / (high - low)
    smooth = (1 - blend) * base / factor + blend * base
    result = torch.where(wavelength > original / low, base / factor, base)
    middle = (wavelength <= original / low) & (wavelength >= original / high)
    return torch.where(middle, smooth, result)


def _yarn(config: RopeConfig, head_dim: int, base: Tensor) -> tuple[Tensor, float]:
    values = config.scaling
    factor = float(values["factor"])
    original = float(values["original_max_position_embeddings"])
    fast, slow = float(values.get("beta_fast") or 32), float(values.get("beta_slow") or 1)

    def dimension(rotations: float) -> float:
        turns = original / (rotations * 2 * math.pi)
        return head_dim * math.log(turns) / (2 * math.log(config.theta))

    low, high = dimension(fast), dimension(slow)
    if values.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    span = max(high - low, 0.001)
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / span).clamp(0, 1)
    frequencies = base / factor * ramp + base * (1 - ramp)
    attention = values.get("attention_factor")
    if attention is None:
        scale, scale_all = values.get("mscale"), values.get("mscale_all_dim")
        if scale and scale_all:
            attention = _mscale(factor, float(scale)) / _mscale(factor, float(scale_all))
        else:
            attention = _mscale(factor, 1.0)
    return frequencies, float(attention)


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _dynamic(config: RopeConfig, head_dim: int, length: int) -> tuple[Tensor, float, float]:
    values = config.scaling
    original = int(values["max_position_embeddings"])
    length = max(length, original)
    factor = float(values["factor"])
    stretch = (factor * length / original - (factor - 1)) ** (head_dim / (head_dim - 2))
    theta = config.theta * stretch
    steps = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    return 1.0 / (theta**steps), 1.0, float(length)


def _longrope(config: RopeConfig, steps: Tensor, length: int) -> tuple[Tensor, float, float]:
    values = config.scaling
    longest = float(values["max_position_embeddings"])
    original = float(values["original_max_position_embeddings"])
    wide = length > original
    extension = torch.tensor(values["long_factor" if wide else "short_factor"], dtype=torch.float32)
    frequencies = 1.0 / (extension * config.theta**steps)
    factor = float(values.get("factor") or longest / original)
    attention = values.get("attention_factor")
    if attention is None:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return frequencies, float(attention), float(wide)
