"""Chooses which retrieved chunks reach the language model, by coverage of the question's information demand.

Public names are loaded on first use: importing the package starts no JAX backend and reads no environment.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from georag_jax._errors import MissingExtraError as MissingExtraError
    from georag_jax._errors import Status as Status
    from georag_jax._errors import StopReason as StopReason
    from georag_jax._errors import describe as describe
    from georag_jax._types import Encoder as Encoder
    from georag_jax._types import Hits as Hits
    from georag_jax._types import Reranker as Reranker
    from georag_jax._types import Retriever as Retriever
    from georag_jax._types import SubQuerySource as SubQuerySource
    from georag_jax.config import SelectConfig as SelectConfig
    from georag_jax.documents import Document as Document
    from georag_jax.documents import Question as Question
    from georag_jax.documents import Selection as Selection
    from georag_jax.pipeline import GeoRAG as GeoRAG
    from georag_jax.selection import gather_selections as gather_selections
    from georag_jax.selection import process_share as process_share
    from georag_jax.selection import reverse_validation as reverse_validation
    from georag_jax.selection import select as select

__version__ = version("georag-jax")

_HOMES = {
    "Encoder": "_types",
    "Hits": "_types",
    "Reranker": "_types",
    "Retriever": "_types",
    "SubQuerySource": "_types",
    "MissingExtraError": "_errors",
    "Status": "_errors",
    "StopReason": "_errors",
    "describe": "_errors",
    "SelectConfig": "config",
    "Document": "documents",
    "Question": "documents",
    "Selection": "documents",
    "GeoRAG": "pipeline",
    "gather_selections": "selection",
    "process_share": "selection",
    "reverse_validation": "selection",
    "select": "selection",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
