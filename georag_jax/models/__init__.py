"""Sentence encoders and language models in JAX, and their weights.

``SentenceEncoder`` turns texts into unit vectors; ``LanguageModel`` answers chats; ``resolve`` finds the files of a
named encoder and verifies them. They are imported on first use, since Flax and the tokeniser take seconds to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from georag_jax.models.encoder import SentenceEncoder
    from georag_jax.models.language_model import LanguageModel
    from georag_jax.models.weights import ModelNotFoundError, resolve

__all__ = ["LanguageModel", "ModelNotFoundError", "SentenceEncoder", "resolve"]

_HOME = {
    "LanguageModel": "language_model",
    "ModelNotFoundError": "weights",
    "SentenceEncoder": "encoder",
    "resolve": "weights",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
