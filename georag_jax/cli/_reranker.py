"""The option that names a reranker."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from georag_jax._types import Reranker


def add_reranker(parser: argparse.ArgumentParser) -> None:
    """The option that names a reranker."""
    parser.add_argument(
        "--reranker",
        metavar="DIR|NAME",
        help="directory of a cross-encoder with one label, which scores the pool in place of the cosine; or a language "
        "model as for --llm, whose Yes against No stands in. For settings that read scores: --preset paper, --set "
        "objective=cosine (or mmr, dpp), or --set alpha=1 --set demand_points=candidates",
    )


def load_reranker(name: str) -> "Reranker":
    """The reranker in this directory, or a language model as a stand-in, with a message that says so.

    Raises:
        ValueError: neither is there, or the cross-encoder has something that is not implemented or several labels.
        ModelNotFoundError: the files of a known language model could not be fetched.
    """
    from georag_jax._errors import require
    from georag_jax.models.cross_encoder import CrossEncoder
    from georag_jax.models.language_model import LanguageModel
    from georag_jax.models.reranking import YesNoReranker

    if _is_encoder(Path(name).expanduser()):
        reranker = CrossEncoder.from_directory(Path(name).expanduser())
        require(len(reranker.labels) == 1, "--reranker", "a cross-encoder with one label", list(reranker.labels))
        return reranker
    try:
        model = LanguageModel.from_path(name)
    except ValueError as error:
        raise ValueError(f"--reranker: {error}") from error
    print(f"georag: --reranker {name}: a language model's Yes against No stands in for a reranker", file=sys.stderr)
    return YesNoReranker(model)


def _is_encoder(home: Path) -> bool:
    from georag_jax.models.bert_config import FAMILIES

    path = home / "config.json"
    return path.is_file() and json.loads(path.read_text(encoding="utf-8")).get("model_type") in FAMILIES
