"""Building an index directory, so that a build which dies can be taken up again."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from georag_jax._errors import require
from georag_jax._types import Encoder
from georag_jax.retrieval import store
from georag_jax.retrieval._lock import locked
from georag_jax.retrieval._rows import unit_rows
from georag_jax.retrieval.dense import faiss_module
from georag_jax.retrieval.lexical import LexicalRetriever, bm25s_module
from georag_jax.retrieval.passages import CorpusScan, scan_corpus
from georag_jax.retrieval.store import Index, open_index, read_json, read_passages, write_json

_log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


def build_index(
    corpus_path: str | Path,
    out_dir: str | Path,
    encoder: Encoder,
    *,
    batch: int = 2048,
    progress: Progress | None = None,
) -> Index:
    """Makes an index directory from a corpus file, or finishes one.

    The whole file is checked before anything is embedded. Passages are embedded ``batch`` at a time and written at
    once; a build that was killed goes on behind the last finished batch when it is started again with the same corpus
    and encoder. With another corpus or encoder an unfinished index is begun afresh, and a finished one is left alone.
    Of two builds in one directory at the same time the second is refused where files can be locked.

    Args:
        corpus_path: JSONL, one {"id", "title"?, "text", ...} a line.
        out_dir: a new or empty directory, or the one of an earlier build.
        encoder: embeds the passages' titles and texts.
        batch: passages handed to the encoder at a time, at least 1.
        progress: called with the numbers of passages embedded and of all passages, at first and after each batch.

    Returns:
        The index, opened.

    Raises:
        ValueError: a malformed line, an id used twice or no passage (see ``scan_corpus``); ``out_dir`` holds a finished
            index of something else, or files that are no index; the encoder gave something else than finite vectors.
        RuntimeError: another build is running in ``out_dir``.
        MissingExtraError: FAISS or bm25s is not installed.
    """
    require(batch >= 1, "batch", "at least 1", batch)
    # What is not installed is found now rather than after the embedding.
    faiss_module()
    bm25s_module()
    out, scan = Path(out_dir), scan_corpus(corpus_path)
    job = {
        "format": store.FORMAT,
        "fingerprint": encoder.fingerprint,
        "passages": len(scan.ids),
        "corpus": {"sha256": scan.sha256, "bytes": scan.bytes},
    }
    if not _finished(out, job):
        _make_room(out)
        with locked(out / store.LOCK):
            if not _finished(out, job):  # another build may have ended before the lock was taken
                done = _take_up(out, job)
                _store_corpus(Path(corpus_path), out, scan)
                _embed(out, job, done, encoder, batch, progress)
                _store_words(out)
                _finish(out, job)
        # Whoever opened this file before it goes, and gets its lock after, finds the index finished.
        (out / store.LOCK).unlink(missing_ok=True)
    return open_index(out, encoder)


def _finished(out: Path, job: dict[str, Any]) -> bool:
    if not (out / store.MANIFEST).exists():
        return False
    if not _same(read_json(out / store.MANIFEST), job):
        raise ValueError(
            f"{out} holds a finished index of another corpus or encoder: remove it or choose another directory"
        )
    _log.info("%s: this index is finished already", out)
    return True


def _same(state: dict[str, Any], job: dict[str, Any]) -> bool:
    return {key: state.get(key) for key in job} == job


def _make_room(out: Path) -> None:
    """Makes the directory, or checks that what lies there is of an index; before anything is written into it."""
    out.mkdir(parents=True, exist_ok=True)
    names = {entry.name for entry in out.iterdir()}
    begun = names & {store.WORK, store.MANIFEST}
    if names - {store.WORK + ".part", store.LOCK} and not begun:
        raise ValueError(f"{out} is not empty and holds no index: choose another directory")


def _take_up(out: Path, job: dict[str, Any]) -> int:
    """Number of passages that an earlier build of the same index has embedded.

    Nothing has to be cleared away for a fresh start: all files but the vectors are written anew in any case, and the
    vectors are where nothing is done yet.
    """
    if (out / store.WORK).exists():
        work = read_json(out / store.WORK)
        if _same(work, job) and (work["done"] == 0 or (out / store.VECTORS).exists()):
            _log.info("%s: going on behind %d of %d passages", out, work["done"], job["passages"])
            return work["done"]
        _log.warning("%s: an unfinished index of another corpus or encoder lies here: starting afresh", out)
    write_json(out / store.WORK, job | {"done": 0})
    return 0


def _store_corpus(corpus: Path, out: Path, scan: CorpusScan) -> None:
    digest = hashlib.sha256()
    with open(corpus, "rb") as source, open(out / store.PASSAGES, "wb") as target:
        while chunk := source.read(2**20):
            digest.update(chunk)
            target.write(chunk)
    if digest.hexdigest() != scan.sha256:
        raise ValueError(f"{corpus} changed while it was read: run georag index again")
    np.save(out / store.SPANS, scan.spans)
    (out / store.IDS).write_text(json.dumps(scan.ids), encoding="utf-8")


def _embed(out: Path, job: dict[str, Any], done: int, encoder: Encoder, batch: int, progress: Progress | None) -> None:
    passages, total = read_passages(out), job["passages"]
    vectors = np.load(out / store.VECTORS, mmap_mode="r+") if done else None
    report = progress or (lambda done, total: None)
    report(done, total)
    while done < total:
        end = min(done + batch, total)
        texts = [passage.full_text for passage in passages[done:end]]
        rows = unit_rows(encoder.encode(texts, "document"), f"vectors of passages {done} to {end - 1}")
        if vectors is None:
            shape = (total, rows.shape[1])
            vectors = np.lib.format.open_memmap(out / store.VECTORS, mode="w+", dtype=np.float32, shape=shape)
        expected = (len(texts), vectors.shape[1])
        require(rows.shape == expected, "encoder", f"vectors of shape {expected}", f"{rows.shape}")
        vectors[done:end] = rows
        vectors.flush()  # before the count says that they are there
        done = end
        write_json(out / store.WORK, job | {"done": done})
        report(done, total)


def _store_words(out: Path) -> None:
    shutil.rmtree(out / store.LEXICAL, ignore_errors=True)
    LexicalRetriever(read_passages(out)).save(out / store.LEXICAL)


def _finish(out: Path, job: dict[str, Any]) -> None:
    files = [out / name for name in (store.PASSAGES, store.SPANS, store.IDS, store.VECTORS)]
    files += sorted((out / store.LEXICAL).iterdir())
    for path in files:
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
    sizes = {path.relative_to(out).as_posix(): path.stat().st_size for path in files}
    write_json(out / store.MANIFEST, job | {"files": sizes})
    (out / store.WORK).unlink()
