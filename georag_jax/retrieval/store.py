"""The index directory: its layout, and opening a finished one.

passages.jsonl   the corpus file, byte for byte
spans.npy        [n, 2] int64, where each passage's line lies in it
ids.json         the passages' ids, in order
vectors.npy      [n, d] float32, unit rows
lexical/         the BM25 index, as bm25s writes it
work.json        what is being built and how far it is; gone when finished
build.lock       empty; its lock is held by the build that is running; gone when finished
index.json       the manifest, written last: a directory without it is unfinished
"""

import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from georag_jax._types import Encoder
from georag_jax.retrieval.dense import DenseRetriever
from georag_jax.retrieval.hybrid import HybridRetriever
from georag_jax.retrieval.lexical import LexicalRetriever
from georag_jax.retrieval.passages import StoredPassages

FORMAT = 1
PASSAGES, SPANS, IDS, VECTORS, LEXICAL = "passages.jsonl", "spans.npy", "ids.json", "vectors.npy", "lexical"
WORK, LOCK, MANIFEST = "work.json", "build.lock", "index.json"


class Index:
    """A finished index, opened with ``open_index``.

    Everything is memory-mapped and read as it is needed, so that opening does not depend on the corpus' size.

    Attributes:
        directory: where it lies.
        size: number of passages.
        fingerprint: of the encoder that made the vectors.
        documents: the passages, a sequence that reads from disk.
    """

    def __init__(self, directory: Path, manifest: dict[str, Any]):
        self.directory = directory
        self.size: int = manifest["passages"]
        self.fingerprint: str = manifest["fingerprint"]
        self.documents = read_passages(directory)

    @cached_property
    def ids(self) -> list[str]:
        """The passages' ids: ``ids[number]`` is that of corpus number ``number``."""
        return json.loads((self.directory / IDS).read_text(encoding="utf-8"))

    @cached_property
    def dense(self) -> DenseRetriever:
        """Search by cosine."""
        # The ids are handed over as a function: whoever never asks for them does not load them.
        return DenseRetriever(np.load(self.directory / VECTORS, mmap_mode="r"), self.documents, lambda: self.ids)

    @cached_property
    def lexical(self) -> LexicalRetriever:
        """Search by BM25."""
        return LexicalRetriever.load(self.directory / LEXICAL, self.documents)

    @cached_property
    def hybrid(self) -> HybridRetriever:
        """Search by both, with the default weight."""
        return HybridRetriever(self.dense, self.lexical)


def open_index(directory: str | Path, encoder: Encoder | None = None) -> Index:
    """Opens a finished index.

    Args:
        directory: what ``build_index`` or ``georag index`` made.
        encoder: what will encode the queries; it has to be the one that made the index. None skips that check.

    Returns:
        The index; it stays usable as long as the directory is left alone.

    Raises:
        FileNotFoundError: there is no such directory.
        ValueError: the index is unfinished, damaged, of another format, or made with another encoder.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: no such index directory")
    if not (directory / MANIFEST).exists():
        raise ValueError(f"{directory} is unfinished (it has no {MANIFEST}): run georag index again")
    manifest = read_json(directory / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise ValueError(f"{directory}: expected index format {FORMAT}, got {manifest.get('format')}: build it anew")
    if encoder is not None and encoder.fingerprint != manifest["fingerprint"]:
        raise ValueError(
            f"{directory} was made with the encoder {manifest['fingerprint']!r}, not with {encoder.fingerprint!r}: "
            "open it with the former or build another index"
        )
    for name, expected in manifest["files"].items():
        path = directory / name
        found = path.stat().st_size if path.exists() else "no such file"
        if found != expected:
            raise ValueError(
                f"{path} is damaged: expected {expected} bytes, got {found}: remove {directory}, build anew"
            )
    return Index(directory, manifest)


def read_passages(directory: Path) -> StoredPassages:
    """The passages that lie in an index directory, finished or not."""
    return StoredPassages(directory / PASSAGES, np.load(directory / SPANS, mmap_mode="r"))


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object; ValueError naming the file where it holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: expected a JSON object, got {type(content).__name__}")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes a JSON file so that at any moment either the old or the new one is there, whole."""
    part = path.with_name(path.name + ".part")
    with open(part, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
