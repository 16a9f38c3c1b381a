"""Strict loading: every tensor of a checkpoint has a place, every place a tensor, or one error names them all."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from georag_jax._errors import MissingExtraError

try:
    from flax import nnx
    from safetensors import safe_open
except ModuleNotFoundError as error:
    raise MissingExtraError((error.name or "flax").partition(".")[0], "models") from error


class CheckpointError(ValueError):
    """A checkpoint does not fit the network; the message names every tensor at fault."""


class Rule(NamedTuple):
    """Where tensors of one kind go.

    Attributes:
        pattern: regular expression that the tensor's whole name must match.
        path: place in the NNX state, parts joined by "/", with back-references to the pattern's groups.
        transpose: whether the two axes are swapped: linear layers are stored [out, in] and used [in, out].
    """

    pattern: str
    path: str
    transpose: bool = False


class NameTable(NamedTuple):
    """The name rules of one family.

    Attributes:
        rules: tried in order; the first match counts.
        ignored: patterns of tensors that are known not to be needed, each of them harmless to leave out.
    """

    rules: tuple[Rule, ...]
    ignored: tuple[str, ...]


def linear_rules(pattern: str, path: str) -> tuple[Rule, Rule]:
    """The rules of a linear layer's weight and bias."""
    return Rule(pattern + r"\.weight", path + "/kernel", transpose=True), Rule(pattern + r"\.bias", path + "/bias")


def norm_rules(pattern: str, path: str) -> tuple[Rule, Rule]:
    """The rules of a layer norm's weight and bias."""
    return Rule(pattern + r"\.weight", path + "/scale"), Rule(pattern + r"\.bias", path + "/bias")


class _Tensor(NamedTuple):
    """One tensor of a checkpoint: its name, the file it is in, and its shape as the network holds it."""

    name: str
    file: Path
    shape: tuple[int, ...]
    transpose: bool


def load_state(path: Path, abstract: nnx.State, table: NameTable) -> nnx.State:
    """Fills a state with the tensors of a checkpoint.

    Args:
        path: a safetensors file, or a directory with ``model.safetensors`` or with shards and their index,
            ``model.safetensors.index.json``.
        abstract: the wanted shapes and dtypes, as ``nnx.split`` of an abstract module gives them.
        table: the family's name rules.

    Returns:
        A state like ``abstract`` with arrays on the default device, cast to the wanted dtypes.

    Raises:
        CheckpointError: tensors without a place, places without a tensor, places with two, or wrong shapes; one message
            names them all.
        FileNotFoundError: there is no such file.
    """
    places = [("/".join(map(str, path)), path, leaf) for path, leaf in nnx.to_flat_state(abstract)]
    wanted = {place: leaf for place, _, leaf in places}
    found, problems = _place(weight_files(path), table)
    problems += [
        f"unexpected tensor {tensor.name} (no place {place})" for place, tensor in found.items() if place not in wanted
    ]
    problems += [f"missing tensor for {place}" for place in wanted if place not in found]
    problems += [
        f"misshapen tensor {tensor.name}: expected {wanted[place].shape} at {place}, got {tensor.shape}"
        for place, tensor in found.items()
        if place in wanted and tensor.shape != wanted[place].shape
    ]
    if problems:
        raise CheckpointError(f"{path.name} does not fit the network: " + "; ".join(problems))
    arrays = _read({place: (found[place], leaf.dtype) for place, leaf in wanted.items()})
    return nnx.from_flat_state([(path, leaf.replace(arrays[place])) for place, path, leaf in places])


def weight_files(path: Path) -> list[Path]:
    """The safetensors files of a checkpoint, in a fixed order.

    Args:
        path: one file, or a directory as ``load_state`` takes it.

    Returns:
        The file itself, the directory's only one, or its shards. A single file is preferred, as upstream does.

    Raises:
        FileNotFoundError: there is none, or the index names one that is not there.
    """
    single, index = path / "model.safetensors", path / "model.safetensors.index.json"
    if not path.is_dir():
        return [path]
    if single.exists() or not index.exists():
        return [single]
    shards = sorted({path / name for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    if missing := [shard.name for shard in shards if not shard.exists()]:
        raise FileNotFoundError(f"{path} lacks {', '.join(missing)}, which {index.name} names")
    return shards


def _place(files: list[Path], table: NameTable) -> tuple[dict[str, _Tensor], list[str]]:
    """Place -> tensor, of which nothing but the shape is read, and what could not be placed."""
    found: dict[str, _Tensor] = {}
    problems = []
    for file in files:
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (not a mapping)
                if any(re.fullmatch(pattern, name) for pattern in table.ignored):
                    continue
                place, transpose = _look_up(name, table)
                shape = tuple(tensors.get_slice(name).get_shape())
                if place is None:
                    problems.append(f"unexpected tensor {name} (no rule)")
                elif place in found:
                    problems.append(f"tensors {found[place].name} and {name} both go to {place}")
                else:
                    found[place] = _Tensor(name, file, shape[::-1] if transpose else shape, transpose)
    return found, problems


def _read(tensors: dict[str, tuple[_Tensor, DTypeLike]]) -> dict[str, jax.Array]:
    """Place -> array; one tensor at a time is held twice."""
    arrays = {}
    for file in {tensor.file for tensor, _ in tensors.values()}:
        with safe_open(file, framework="numpy") as opened:
            for place, (tensor, dtype) in tensors.items():
                if tensor.file == file:
                    array = opened.get_tensor(tensor.name)
                    arrays[place] = jnp.asarray(array.T if tensor.transpose else array, dtype)
    return arrays


def _look_up(name: str, table: NameTable) -> tuple[str | None, bool]:
    for rule in table.rules:
        if match := re.fullmatch(rule.pattern, name):
            return match.expand(rule.path), rule.transpose
    return None, False
