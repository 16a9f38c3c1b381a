"""The sentence encoder against sentence-transformers on torch, in seconds: ``python -m benchmarks.encoder_speed``.

Both encode the same 32 texts of 100 words with the same weights, each in a process of its own, turn by turn, after a
first call that compiles and is not counted. The other side may live in another environment: name its Python with
--upstream. Prints JSON: the seconds of every round, medians, the ratio of speeds and how far the vectors are apart.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TEXTS, WORDS, ROUNDS = 32, 100, 15
PAUSE = 0.5  # seconds between turns, in which the threads of the other side stop waiting for work
VOCABULARY = ["the", "of", "in", "was", "river", "bridge", "treaty", "signed", "king", "film", "born", "north", "city"]


def texts() -> list[str]:
    """32 texts of 100 words."""
    random = np.random.default_rng(0)
    return [" ".join(random.choice(VOCABULARY, WORDS)) for _ in range(TEXTS)]


def work(side: str, model: str, vectors: str) -> None:
    """Encodes once, saves the vectors, and then encodes and prints the seconds for every line that comes in."""
    if side == "ours":
        from georag_jax.models import SentenceEncoder

        encode = SentenceEncoder.from_directory(model).encode
    else:
        from sentence_transformers import SentenceTransformer

        upstream = SentenceTransformer(model, device="cpu")
        encode = lambda batch: upstream.encode(batch, batch_size=TEXTS)
    batch = texts()
    np.save(vectors, encode(batch))
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        encode(batch)
        print(time.perf_counter() - start, flush=True)


class Side:
    """One of the two, in a process of its own."""

    def __init__(self, side: str, python: str, model: str, vectors: Path):
        command = [python, __file__, "--worker", side, "--model", model, "--vectors", str(vectors)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, text=True, **pipes)
        self.seconds: list[float] = []
        if self._line() != "ready":
            raise SystemExit(f"{side}: {' '.join(command)} failed; run it to see why")

    def turn(self) -> None:
        """One round."""
        time.sleep(PAUSE)
        print("go", file=self.process.stdin, flush=True)
        self.seconds.append(float(self._line()))

    def _line(self) -> str:
        return self.process.stdout.readline().strip()


def measure(model: str, upstream: str) -> dict:
    """All rounds of both sides, ready for JSON."""
    from benchmarks.environment import environment

    check = "import torch, sentence_transformers as s; print(torch.__version__, torch.get_num_threads(), s.__version__)"
    found = subprocess.run([upstream, "-c", check], capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(f"{upstream} has no torch with sentence-transformers to compare with: name one by --upstream")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "ours.npy", Path(folder) / "upstream.npy"]
        sides = [Side("ours", sys.executable, model, files[0]), Side("upstream", upstream, model, files[1])]
        for _ in range(ROUNDS):
            for side in sides:
                side.turn()
        for side in sides:
            side.process.communicate()
        apart = float(np.abs(np.load(files[0]) - np.load(files[1])).max())
    ours, theirs = (statistics.median(side.seconds) for side in sides)
    return {
        "environment": environment() | dict(zip(("torch", "threads", "upstream"), found.stdout.split(), strict=True)),
        "seconds": {"ours": sides[0].seconds, "upstream": sides[1].seconds},
        "texts_a_second": {"ours": TEXTS / ours, "upstream": TEXTS / theirs},
        "speed_ratio": theirs / ours,
        "largest_difference": apart,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", metavar="DIR", help="all-MiniLM-L6-v2; by default from the cache or fetched")
    parser.add_argument("--upstream", default=sys.executable, metavar="PYTHON", help="a Python with torch")
    parser.add_argument("--worker", choices=("ours", "upstream"), help=argparse.SUPPRESS)
    parser.add_argument("--vectors", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options.worker, options.model, options.vectors)
    else:
        from georag_jax.models import resolve

        print(json.dumps(measure(options.model or str(resolve("minilm")), options.upstream), indent=1))
