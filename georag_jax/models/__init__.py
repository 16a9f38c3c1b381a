"""Sentence encoders in JAX and their weights.

``SentenceEncoder`` turns texts into unit vectors; ``resolve`` finds the files of a named model and verifies them. Both
are imported on first use, since Flax and the tokeniser take seconds to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from georag_jax.models.encoder import SentenceEncoder
    from georag_jax.models.weights import ModelNotFoundError, resolve

__all__ = ["ModelNotFoundError", "SentenceEncoder", "resolve"]

_HOME = {"SentenceEncoder": "encoder", "ModelNotFoundError": "weights", "resolve": "weights"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
