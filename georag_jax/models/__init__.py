"""Sentence encoders, cross-encoders and language models in JAX, and their weights.

``SentenceEncoder`` and ``LastTokenEncoder`` turn texts into unit vectors; ``CrossEncoder`` scores pairs of texts,
``NLI`` judges whether one follows from the other, and ``YesNoReranker`` has a language model score them;
``LanguageModel`` answers chats; ``resolve`` finds the files of a named encoder and verifies them. They are imported on
first use, since Flax and the tokeniser take seconds to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from georag_jax.models.cross_encoder import NLI, CrossEncoder
    from georag_jax.models.decoder_encoder import LastTokenEncoder
    from georag_jax.models.encoder import SentenceEncoder
    from georag_jax.models.language_model import LanguageModel
    from georag_jax.models.reranking import YesNoReranker
    from georag_jax.models.weights import ModelNotFoundError, resolve

__all__ = [
    "NLI",
    "CrossEncoder",
    "LanguageModel",
    "LastTokenEncoder",
    "ModelNotFoundError",
    "SentenceEncoder",
    "YesNoReranker",
    "resolve",
]

_HOME = {
    "CrossEncoder": "cross_encoder",
    "LanguageModel": "language_model",
    "LastTokenEncoder": "decoder_encoder",
    "ModelNotFoundError": "weights",
    "NLI": "cross_encoder",
    "SentenceEncoder": "encoder",
    "YesNoReranker": "reranking",
    "resolve": "weights",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
