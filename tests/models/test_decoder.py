import dataclasses
import json
import shutil
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from georag_jax.models.decoder import DECODER, Cache, abstract_decoder, assemble
from georag_jax.models.decoder_config import DecoderConfig
from georag_jax.models.loading import CheckpointError, load_state
from georag_jax.models.rope import Llama3, Rope

DATA = Path(__file__).parent / "data" / "decoders"
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
PARITY = {"rtol": 0, "atol": 1e-5}


def raw_config(name):
    return json.loads((DATA / name / "config.json").read_text())


def load(name, dtype=jnp.float32, **changes):
    """Configuration and weights of a family's tiny checkpoint."""
    config = DecoderConfig.from_mapping(raw_config(name))
    state = load_state(DATA / name, abstract_decoder(config, jnp.dtype(dtype))[1], DECODER)
    return dataclasses.replace(config, **changes), jax.tree.leaves(state)


def golden(name):
    with np.load(DATA / f"{name}.npz") as arrays:
        return dict(arrays)


# Most of the time would go into optimising programs that run once.
@partial(jax.jit, static_argnames="config", compiler_options={"xla_backend_optimization_level": 0})
def compute(config, leaves, ids, starts, past, own):
    decoder = assemble(config, leaves)
    hidden, cache = decoder(ids, starts, past, own)
    return hidden, decoder.logits(hidden), cache


def run(config, leaves, ids, past=(), own=None, starts=None):
    return compute(config, leaves, ids, np.array(starts or [0] * len(ids), np.int32), past, own)


def used(want):
    return np.arange(want["ids"].shape[1]) < want["lengths"][:, None]


@pytest.mark.parametrize("name", FAMILIES)
def test_hidden_states_and_logits_are_upstreams(name):
    want = golden(name)
    hidden, logits, _ = run(*load(name), want["ids"])
    tokens = used(want)
    np.testing.assert_allclose(np.asarray(hidden)[tokens], want["hidden"][tokens], **PARITY)
    np.testing.assert_allclose(np.asarray(logits)[tokens], want["logits"][tokens], **PARITY)


@pytest.mark.parametrize(
    "name, changes",
    [
        ("llama", {"hidden_act": "silu"}),
        ("llama", {"rms_norm_eps": 1e-6}),
        ("llama", {"rope": Rope(300.0)}),
        ("llama", {"rope": Rope(10000.0, Llama3(4.0, 0.7, 5.0, 64))}),
        ("llama", {"rope": Rope(300.0, Llama3(8.0, 0.7, 5.0, 64))}),
        ("llama", {"rope": Rope(300.0, Llama3(4.0, 1.0, 5.0, 64))}),
        ("llama", {"rope": Rope(300.0, Llama3(4.0, 0.7, 4.0, 64))}),
        ("llama", {"rope": Rope(300.0, Llama3(4.0, 0.7, 5.0, 8192))}),
        ("mistral", {"rope": Rope(10000.0)}),
    ],
)
def test_the_golden_logits_depend_on_every_field_that_shapes_do_not_fix(name, changes):
    want = golden(name)
    _, logits, _ = run(*load(name, **changes), want["ids"])
    assert np.abs(np.asarray(logits) - want["logits"])[used(want)].max() > 1e-4


@pytest.mark.parametrize("name", FAMILIES)
def test_reading_in_parts_is_reading_at_once(name):
    """A shared beginning, the rest of each prompt, and tokens one by one into room of their own."""
    config, leaves = load(name)
    ids = np.array(golden(name)["ids"])
    ids[:, :11] = ids[0, :11]
    _, want, _ = run(config, leaves, ids)
    _, first, shared = run(config, leaves, ids[:1, :11])
    _, middle, rest = run(config, leaves, ids[:, 11:30], (shared,), starts=[11] * 3)
    room = (config.num_key_value_heads, 3, 16, config.head_dim)
    empty = tuple(jnp.zeros(room) for _ in range(config.num_hidden_layers))
    own, parts = Cache(empty, empty, jnp.zeros(3, jnp.int32)), [np.tile(first, (3, 1, 1)), middle]
    for at in range(30, 37):
        _, logits, own = run(config, leaves, ids[:, at : at + 1], (shared, rest), own, [at] * 3)
        parts.append(logits)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), want, **PARITY)


def test_slots_behind_a_length_are_not_seen():
    config, leaves = load("qwen3")
    ids = golden("qwen3")["ids"]
    _, _, cache = run(config, leaves, ids[:1, :12])
    _, want, _ = run(config, leaves, ids[:1, 12:14], (cache,), starts=[12])
    _, _, longer = run(config, leaves, ids[:1, :20])
    cut = longer._replace(lengths=jnp.array([12], jnp.int32))
    _, got, _ = run(config, leaves, ids[:1, 12:14], (cut,), starts=[12])
    np.testing.assert_allclose(got, want, **PARITY)


def test_a_part_of_which_nothing_is_seen_counts_for_nothing():
    config, leaves = load("qwen3")
    ids = golden("qwen3")["ids"]
    _, want, cache = run(config, leaves, ids[:1])
    _, got, _ = run(config, leaves, ids[:1], (cache._replace(lengths=jnp.zeros(1, jnp.int32)),))
    np.testing.assert_allclose(got, want, **PARITY)


def test_rows_of_a_group_share_its_entry():
    config, leaves = load("llama")
    ids = golden("llama")["ids"]
    _, _, cache = run(config, leaves, ids[:2, :9])
    repeat = lambda arrays: tuple(jnp.repeat(x, 3, axis=1) for x in arrays)
    copied = Cache(repeat(cache.keys), repeat(cache.values), jnp.repeat(cache.lengths, 3))
    new = np.array(ids[:1, 10:16].reshape(6, 1))
    _, want, _ = run(config, leaves, new, (copied,), starts=[9] * 6)
    _, got, _ = run(config, leaves, new, (cache,), starts=[9] * 6)
    np.testing.assert_allclose(got, want, **PARITY)


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_bfloat16_weights_are_close(name):
    want = golden(name)
    _, logits, cache = run(*load(name, jnp.bfloat16), want["ids"])
    assert logits.dtype == jnp.float32
    assert cache.keys[0].dtype == jnp.bfloat16
    error = np.abs(np.asarray(logits) - want["logits"])[used(want)]
    assert 1e-4 < error.max() < 0.1 * np.abs(want["logits"]).max()


def test_strict_promotion():
    config, leaves = load("llama", jnp.bfloat16)
    with jax.numpy_dtype_promotion("strict"):
        assert run(config, leaves, golden("llama")["ids"])[1].dtype == np.float32


def test_a_tied_head_is_no_copy():
    config, leaves = load("qwen3")
    assert sum(config.vocab_size in leaf.shape for leaf in leaves) == 1
    config, leaves = load("qwen2")
    assert sum(config.vocab_size in leaf.shape for leaf in leaves) == 2


def test_a_checkpoint_in_shards_that_lacks_one_is_refused(tmp_path):
    home = shutil.copytree(DATA / "mistral", tmp_path / "m")
    (home / "model-00002-of-00007.safetensors").unlink()
    abstract = abstract_decoder(DecoderConfig.from_mapping(raw_config("mistral")), jnp.dtype("float32"))[1]
    with pytest.raises(FileNotFoundError, match="lacks model-00002-of-00007.safetensors, which model.safetensors.ind"):
        load_state(home, abstract, DECODER)


def test_a_checkpoint_of_another_shape_is_refused():
    config = dataclasses.replace(DecoderConfig.from_mapping(raw_config("qwen2")), num_hidden_layers=4, head_norm=True)
    with pytest.raises(CheckpointError) as caught:
        load_state(DATA / "qwen2", abstract_decoder(config, jnp.dtype("float32"))[1], DECODER)
    for place in ("layers/3/q/weight", "layers/3/down/weight", "layers/0/q_norm/scale"):
        assert f"missing tensor for {place}" in str(caught.value)


def test_random_weights_can_be_made():
    config = DecoderConfig.from_mapping(raw_config("qwen3"))
    from georag_jax.models.decoder import Decoder

    leaves = jax.tree.leaves(nnx.split(Decoder(config, jnp.dtype("bfloat16"), nnx.Rngs(0)))[1])
    assert np.isfinite(run(config, leaves, golden("qwen3")["ids"])[1]).all()
