"""Rotary position embedding: pairs of a head's entries are turned by angles that grow with the position.

Reference: Su, Ahmed, Lu, Pan, Bo, Liu, "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021). The
scaling of Llama 3.1 for longer texts: Grattafiori et al., "The Llama 3 Herd of Models" (2024).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Llama3(NamedTuple):
    """Slow frequencies are divided by ``factor``, fast ones kept, those between blended.

    Attributes:
        factor: > 0.
        low: up to this many turns within the original length a frequency is slow.
        high: from this many turns on it is fast; > low.
        length: the original length in tokens.
    """

    factor: float
    low: float
    high: float
    length: int


class Rope(NamedTuple):
    """Base and scaling.

    Attributes:
        theta: base of the frequencies.
        llama3: the scaling of Llama 3.1, or None.
    """

    theta: float
    llama3: Llama3 | None = None

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> tuple["Rope", list[str]]:
        """Reads a parsed ``config.json``, old (``rope_theta`` and ``rope_scaling``) or new (``rope_parameters``).

        Returns:
            The embedding, and in words what of the file is not implemented; if there is anything, the first means
            nothing.
        """
        given = dict(raw.get("rope_parameters") or raw.get("rope_scaling") or {})
        theta = float(given.pop("rope_theta", None) or raw.get("rope_theta") or 10000.0)
        kind = given.pop("rope_type", None) or given.pop("type", None) or "default"
        given.pop("type", None)
        if kind not in ("default", "llama3"):
            return cls(theta), [f"rope_type={kind!r} is not implemented (only 'default' and 'llama3' are)"]
        names = ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
        needed = names if kind == "llama3" else []
        problems = [f"{name} of the rope scaling is missing" for name in needed if name not in given]
        problems += [
            f"{name}={given[name]!r} of the rope scaling is not known" for name in sorted(set(given) - set(needed))
        ]
        if problems or not needed:
            return cls(theta), problems
        return cls(theta, Llama3(*(given[name] for name in names))), []

    def frequencies(self, width: int) -> np.ndarray:
        """Turns by position, in radians: [width / 2] float32 for a head of this width."""
        base = 1.0 / np.float32(self.theta) ** (np.arange(0, width, 2, dtype=np.float32) / np.float32(width))
        return base if self.llama3 is None else base / self.llama3_divisors(width)

    def llama3_divisors(self, width: int) -> np.ndarray:
        """What the scaling divides each frequency by: [width / 2] float32; ones without scaling.

        >>> Rope(10000.0, Llama3(8.0, 1.0, 4.0, 8192)).llama3_divisors(128)[[0, -1]].tolist()
        [1.0, 8.0]
        """
        if self.llama3 is None:
            return np.ones(width // 2, np.float32)
        factor, low, high, length = self.llama3
        turns = length * Rope(self.theta).frequencies(width) / np.float32(2 * math.pi)
        kept = np.clip((turns - low) / (high - low), 0.0, 1.0)  # 1 where the frequency is fast
        return (1.0 / ((1.0 - kept) / factor + kept)).astype(np.float32)


def angles(rope: Rope, positions: jax.Array, width: int) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines [..., 1, width / 2] float32 of positions [...] int32, for ``turn``."""
    angle = positions[..., None, None].astype(jnp.float32) * rope.frequencies(width)
    return jnp.cos(angle), jnp.sin(angle)


def turn(heads: jax.Array, cosine: jax.Array, sine: jax.Array) -> jax.Array:
    """Turns heads [..., heads, width] float32; entry i is paired with entry i + width / 2."""
    first, second = jnp.split(heads, 2, axis=-1)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
