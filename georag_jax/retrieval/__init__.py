"""Retrieval on the host: exact dense search, BM25, their mixture, rank fusion and the index on disk.

NumPy, FAISS and bm25s only. FAISS and bm25s are imported when they are first needed.
"""

from georag_jax.retrieval.dense import DenseRetriever
from georag_jax.retrieval.hybrid import HybridRetriever
from georag_jax.retrieval.indexing import build_index
from georag_jax.retrieval.lexical import LexicalRetriever
from georag_jax.retrieval.passages import scan_corpus
from georag_jax.retrieval.pool import fuse
from georag_jax.retrieval.store import Index, open_index

__all__ = [
    "DenseRetriever",
    "HybridRetriever",
    "Index",
    "LexicalRetriever",
    "build_index",
    "fuse",
    "open_index",
    "scan_corpus",
]
