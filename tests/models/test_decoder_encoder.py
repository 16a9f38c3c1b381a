import json
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from georag_jax._types import Encoder
from georag_jax.models.decoder_encoder import LastTokenEncoder

DATA = Path(__file__).parent / "data"
PARITY = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def golden():
    with np.load(DATA / "embedding.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def encoder():
    return LastTokenEncoder.from_directory(DATA / "embedding")


@pytest.fixture
def changed(tmp_path):
    """Makes a copy of the directory in which one JSON file has other fields; None removes a field."""

    def changed(file, **fields):
        home = shutil.copytree(DATA / "embedding", tmp_path / "model", dirs_exist_ok=True)
        raw = json.loads((home / file).read_text()) | fields
        (home / file).write_text(json.dumps({name: value for name, value in raw.items() if value is not None}))
        return home

    return changed


@pytest.mark.parametrize("kind", ["query", "document"])
def test_vectors_are_upstreams(encoder, golden, kind):
    np.testing.assert_allclose(encoder.encode(list(golden["texts"]), kind), golden[kind], **PARITY)


def test_narrow_vectors_are_upstreams(golden):
    encoder = LastTokenEncoder.from_directory(DATA / "embedding", dim=8)
    vectors = encoder.encode(list(golden["texts"]))
    np.testing.assert_allclose(vectors, golden["narrow"], **PARITY)
    assert encoder.dim == 8


def test_it_is_an_encoder_whose_fingerprint_names_what_shapes_vectors(encoder, changed):
    assert isinstance(encoder, Encoder)
    others = [
        LastTokenEncoder.from_directory(DATA / "embedding", dim=8),
        LastTokenEncoder.from_directory(DATA / "embedding", task="find it"),
        LastTokenEncoder.from_directory(DATA / "embedding", dtype=jnp.bfloat16),
        LastTokenEncoder.from_directory(changed("tokenizer_config.json", model_max_length=20)),
    ]
    assert len({encoder.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_a_task_is_put_as_upstream_puts_it(encoder, golden):
    same = LastTokenEncoder.from_directory(DATA / "embedding", task="Given a question, find the text")
    np.testing.assert_array_equal(same.encode(["word"], "query"), encoder.encode(["word"], "query"))
    other = LastTokenEncoder.from_directory(DATA / "embedding", task="Find names")
    assert np.abs(other.encode(["word"], "query") - golden["query"][8]).max() > 1e-3
    np.testing.assert_allclose(other.encode(["word"]), golden["document"][8:9], **PARITY)


def test_an_older_directory_is_the_same(changed, golden):
    flags = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}
    home = changed("1_Pooling/config.json", pooling_mode=None, embedding_dimension=None, **flags)
    (home / "sentence_bert_config.json").unlink()
    vectors = LastTokenEncoder.from_directory(home).encode(list(golden["texts"]))
    np.testing.assert_allclose(vectors, golden["document"], **PARITY)


def test_a_checkpoint_with_a_head_is_the_same(changed, golden):
    home = changed("config.json")
    tensors = {f"model.{name}": tensor for name, tensor in load_file(home / "model.safetensors").items()}
    save_file(tensors | {"lm_head.weight": np.zeros((3, 32), np.float32)}, home / "model.safetensors")
    vectors = LastTokenEncoder.from_directory(home).encode(list(golden["texts"]))
    np.testing.assert_allclose(vectors, golden["document"], **PARITY)


@pytest.mark.parametrize(
    "file, fields, message",
    [
        ("1_Pooling/config.json", {"pooling_mode": "mean"}, "pooling: expected the last token alone, got .'mean'"),
        (
            "1_Pooling/config.json",
            {"embedding_dimension": 16},
            "pooling: expected the width of the network, 32, got 16",
        ),
        ("1_Pooling/config.json", {"include_prompt": False}, "the prompt to be pooled with the text"),
        ("config_sentence_transformers.json", {"truncate_dim": 8}, "expected no truncate_dim, got 8"),
        ("sentence_bert_config.json", {"modality_config": {"text": {}, "message": {}}}, "text alone to be read"),
        ("config.json", {"novel": 1}, "novel=1 is not known"),
    ],
)
def test_what_is_not_implemented_is_refused(changed, file, fields, message):
    with pytest.raises(ValueError, match=message):
        LastTokenEncoder.from_directory(changed(file, **fields))


@pytest.mark.parametrize("dim", [0, 33])
def test_a_width_out_of_range_is_refused(dim):
    with pytest.raises(ValueError, match=f"dim: expected a number in 1..32, got {dim}"):
        LastTokenEncoder.from_directory(DATA / "embedding", dim=dim)
