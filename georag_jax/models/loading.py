"""Strict loading: every tensor of a checkpoint has a place, every place a tensor, or one error names them all."""

import re
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from georag_jax._errors import MissingExtraError

try:
    from flax import nnx
    from safetensors.numpy import load_file
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


def load_state(path: Path, abstract: nnx.State, table: NameTable) -> nnx.State:
    """Fills a state with the tensors of one safetensors file.

    Args:
        path: the file.
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
    found, problems = _place(load_file(path), table)
    problems += [
        f"unexpected tensor {name} (no place {place})" for place, (name, _) in found.items() if place not in wanted
    ]
    problems += [f"missing tensor for {place}" for place in wanted if place not in found]
    problems += [
        f"misshapen tensor {name}: expected {wanted[place].shape} at {place}, got {tensor.shape}"
        for place, (name, tensor) in found.items()
        if place in wanted and tensor.shape != wanted[place].shape
    ]
    if problems:
        raise CheckpointError(f"{path.name} does not fit the network: " + "; ".join(problems))
    return nnx.from_flat_state(
        [(path, leaf.replace(jnp.asarray(found[place][1], leaf.dtype))) for place, path, leaf in places]
    )


def _place(tensors: dict[str, np.ndarray], table: NameTable) -> tuple[dict[str, tuple[str, np.ndarray]], list[str]]:
    """Place -> (name, tensor as the network holds it), and what could not be placed."""
    found: dict[str, tuple[str, np.ndarray]] = {}
    problems = []
    for name, tensor in tensors.items():
        if any(re.fullmatch(pattern, name) for pattern in table.ignored):
            continue
        place, transpose = _look_up(name, table)
        if place is None:
            problems.append(f"unexpected tensor {name} (no rule)")
        elif place in found:
            problems.append(f"tensors {found[place][0]} and {name} both go to {place}")
        else:
            found[place] = name, tensor.T if transpose else tensor
    return found, problems


def _look_up(name: str, table: NameTable) -> tuple[str | None, bool]:
    for rule in table.rules:
        if match := re.fullmatch(rule.pattern, name):
            return match.expand(rule.path), rule.transpose
    return None, False
