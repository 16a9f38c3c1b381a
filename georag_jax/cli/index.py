"""Embed a corpus and index it for retrieval.

CORPUS.jsonl holds one {"id", "title"?, "text"} a line. A build that was stopped goes on when it is started again.
"""

import argparse
import json
import time

from georag_jax.cli._shared import add_encoder, load_encoder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("corpus", metavar="CORPUS.jsonl")
    parser.add_argument("--out", required=True, metavar="DIR", help="new directory for the index")
    add_encoder(parser)
    parser.add_argument("--json", action="store_true", help="report as JSON")


def run(options: argparse.Namespace) -> None:
    """Builds the index and says what it holds."""
    from tqdm import tqdm

    from georag_jax.retrieval import build_index, scan_corpus

    # build_index scans again, seconds for a million passages: a malformed line has to be found before the encoder,
    # which build_index takes, is fetched and loaded.
    scan_corpus(options.corpus)
    encoder = load_encoder(options.encoder)
    start = time.perf_counter()
    with tqdm(unit=" passages", disable=None) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        index = build_index(options.corpus, options.out, encoder, batch=512, progress=progress)
    report = {
        "index": str(options.out),
        "passages": index.size,
        "encoder": index.fingerprint,
        "seconds": round(time.perf_counter() - start, 1),
    }
    if options.json:
        print(json.dumps(report))
    else:
        print(f"{report['index']}: {index.size} passages, encoder {index.fingerprint}, {report['seconds']} s")
