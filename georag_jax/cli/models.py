"""Say which models are known, fetch one, or say what a directory or file holds.

georag models list: every known name, what it is, where it would come from, its size, licence and digests.
georag models get NAME: fetches it into the cache and verifies it.
georag models check PATH: loads it and says what it is: family, parameters, context, tokenizer, pooling or head.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from georag_jax._errors import require

if TYPE_CHECKING:
    from georag_jax.models.weights import Pinned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|get|check")
    listing = actions.add_parser("list", help="known models")
    get = actions.add_parser("get", help="fetch a known model")
    get.add_argument("name", metavar="NAME")
    check = actions.add_parser("check", help="load a model and say what it is")
    check.add_argument("path", metavar="PATH", help="a directory, a GGUF file, or a known name")
    for each in (listing, get, check):
        each.add_argument("--json", action="store_true", help="report as JSON")


def run(options: argparse.Namespace) -> None:
    """Prints what is known, fetched or found."""
    if options.action == "list":
        report = [_known(name, model, kind) for kind, models in _registry().items() for name, model in models.items()]
        page = "\n\n".join(_block(entry) for entry in report)
    else:
        report = get(options.name) if options.action == "get" else check(options.path)
        page = _block(report)
    print(json.dumps(report) if options.json else page)


def get(name: str) -> dict[str, Any]:
    """Fetches a known model and says where it lies.

    Raises:
        ValueError: there is no such name.
        ModelNotFoundError: no source gave the files.
    """
    from georag_jax.models.weights import resolve, resolve_language_model

    fetchers = {"sentence encoder": resolve, "language model": resolve_language_model}
    for kind, models in _registry().items():
        if name in models:
            path = fetchers[kind](name)
            return {**_known(name, models[name], kind), "path": str(path)}
    known = [name for models in _registry().values() for name in models]
    raise ValueError(f"NAME: expected one of {', '.join(known)}, got {name!r}")


def check(path: str) -> dict[str, Any]:
    """Loads a model and says what it is.

    Raises:
        ValueError: there is nothing of the kind, it has something that is not implemented, or its weights do not fit.
        ModelNotFoundError: a known name could not be fetched.
    """
    home = _place(path)
    if home.suffix == ".gguf" or not (home / "config.json").is_file():
        kind, describe = "language model", _language_model
    elif (home / "modules.json").is_file() and (home / "1_Pooling").is_dir():
        kind, describe = "sentence encoder", _encoder
    elif any("SequenceClassification" in each for each in _config(home).get("architectures") or ()):
        kind, describe = "cross-encoder", _cross_encoder
    else:
        kind, describe = "language model", _language_model
    return {"path": str(home), "kind": kind, **describe(home)}


def _registry() -> "dict[str, dict[str, Pinned]]":
    from georag_jax.models.weights import ENCODERS, LANGUAGE_MODELS

    return {"sentence encoder": ENCODERS, "language model": LANGUAGE_MODELS}


def _known(name: str, model: "Pinned", kind: str) -> dict[str, Any]:
    from georag_jax.models.weights import is_kept

    sources = [f"the model hub, {model.hub}"] if model.hub else []
    return {
        "name": name,
        "kind": kind,
        "in the cache": is_kept(name),
        "from": [*sources, f"the package registry, {model.package}"],
        "megabytes": model.megabytes,
        "licence": model.licence,
        "sha256": dict(model.files),
    }


def _place(path: str) -> Path:
    from georag_jax.models.weights import resolve, resolve_language_model

    if not Path(path).exists():
        for models, fetch in zip(_registry().values(), (resolve, resolve_language_model), strict=True):
            if path in models:
                return fetch(path)
    require(Path(path).exists(), "PATH", "a directory, a GGUF file or a known name", repr(path))
    return Path(path)


def _config(home: Path) -> dict[str, Any]:
    from georag_jax.models.batches import read_json

    return read_json(home / "config.json")


def _language_model(home: Path) -> dict[str, Any]:
    from georag_jax.models.gguf import convert
    from georag_jax.models.language_model import LanguageModel
    from georag_jax.models.weights import resolve_language_model

    path = resolve_language_model(home)
    model = LanguageModel.from_path(path)
    shape = model.config
    return {
        "family": shape.model_type,
        **_tensors(convert(path) if path.suffix == ".gguf" else path),
        **({"file": path.name} if path.suffix == ".gguf" else {}),
        "context": shape.max_position_embeddings,
        "layers": shape.num_hidden_layers,
        "width": shape.hidden_size,
        "tokenizer": f"{model.tokenizer.size} tokens, {'a' if model.tokenizer.template else 'no'} chat template",
        "fingerprint": model.fingerprint,
    }


def _encoder(home: Path) -> dict[str, Any]:
    from georag_jax.models.bert_config import BertConfig
    from georag_jax.models.encoder import SentenceEncoder, read_settings

    encoder, raw = SentenceEncoder.from_directory(home), _config(home)
    settings = read_settings(home, BertConfig.from_mapping(raw))
    prompts = {kind: prompt for kind, prompt in settings.prompts.items() if prompt}
    return {
        "family": raw["model_type"],
        **_tensors(home),
        "context": settings.max_length,
        "width": encoder.dim,
        "tokenizer": f"{raw['vocab_size']} tokens",
        "pooling": settings.pooling,
        "prompts": prompts or "none",
        "fingerprint": encoder.fingerprint,
    }


def _cross_encoder(home: Path) -> dict[str, Any]:
    from georag_jax.models.cross_encoder import CrossEncoder

    model, raw = CrossEncoder.from_directory(home), _config(home)
    return {
        "family": raw["model_type"],
        **_tensors(home),
        "width": raw["hidden_size"],
        "tokenizer": f"{raw['vocab_size']} tokens",
        "head": list(model.labels),
        "fingerprint": model.fingerprint,
    }


def _tensors(home: Path) -> dict[str, Any]:
    """Number of weights and their dtypes, from the headers of the files alone."""
    from safetensors import safe_open

    parameters, dtypes = 0, set()
    for file in sorted(home.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (it is no mapping)
                tensor = tensors.get_slice(name)
                if "F" in tensor.get_dtype():  # counters that older writers stored are no weights
                    parameters += math.prod(tensor.get_shape())
                    dtypes.add(tensor.get_dtype())
    return {"parameters": parameters, "stored as": sorted(dtypes)}


def _block(entry: dict[str, Any]) -> str:
    lines = []
    for key, value in entry.items():
        show: Callable[[Any], list[str]] = _SHOWN.get(type(value), lambda value: [str(value)])
        first, *rest = show(value) or ["none"]
        lines += [f"{key:14}{first}", *(f"{'':14}{line}" for line in rest)]
    return "\n".join(lines)


_SHOWN: dict[type, Callable[[Any], list[str]]] = {
    bool: lambda value: ["yes" if value else "no"],
    int: lambda value: [f"{value:,}"],
    list: lambda value: [str(item) for item in value],
    dict: lambda value: [f"{item}  {name}" for name, item in value.items()],
}
