import jax
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from georag_jax.models.bert import BERT, abstract_bert
from georag_jax.models.bert_config import BertConfig
from georag_jax.models.loading import CheckpointError, load_state

QUERY = "encoder.layer.1.attention.self.query.weight"


@pytest.fixture(scope="module")
def abstract(tiny_config):
    return abstract_bert(BertConfig.from_mapping(tiny_config))[1]


@pytest.fixture
def tensors(tiny):
    return load_file(tiny / "model.safetensors")


@pytest.fixture
def load(tmp_path, abstract):
    def load(tensors):
        save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, tmp_path / "m.safetensors")
        return load_state(tmp_path / "m.safetensors", abstract, BERT)

    return load


def flat(state):
    return {"/".join(map(str, path)): np.asarray(leaf[...]) for path, leaf in nnx.to_flat_state(state)}


def test_every_place_is_filled_with_its_tensor(load, tensors, abstract):
    state = load(tensors)
    assert jax.tree.structure(state) == jax.tree.structure(abstract)
    places = flat(state)
    assert len(places) == 5 + 3 * 16
    np.testing.assert_array_equal(places["layers/1/query/kernel"], tensors[QUERY].T)
    np.testing.assert_array_equal(places["words/embedding"], tensors["embeddings.word_embeddings.weight"])


def test_missing_unexpected_and_misshapen_tensors_are_named_together(load, tensors):
    del tensors["encoder.layer.2.output.LayerNorm.bias"]
    tensors["encoder.layer.0.adapter.weight"] = np.zeros((2, 2), np.float32)
    tensors["encoder.layer.7.output.dense.bias"] = np.zeros(32, np.float32)
    tensors[QUERY] = np.zeros((32, 16), np.float32)
    with pytest.raises(CheckpointError) as caught:
        load(tensors)
    message = str(caught.value)
    assert message.startswith("m.safetensors does not fit the network: ")
    assert "missing tensor for layers/2/output_norm/bias" in message
    assert "unexpected tensor encoder.layer.0.adapter.weight (no rule)" in message
    assert "unexpected tensor encoder.layer.7.output.dense.bias (no place layers/7/output/bias)" in message
    assert f"misshapen tensor {QUERY}: expected (32, 32) at layers/1/query/kernel, got (16, 32)" in message
    assert message.count(";") == 3


def test_two_tensors_for_one_place_are_refused(load, tensors):
    tensors["bert." + QUERY] = tensors[QUERY]
    with pytest.raises(CheckpointError, match=f"tensors bert.{QUERY} and {QUERY} both go to layers/1/query/kernel"):
        load(tensors)


def test_tensors_known_to_be_harmless_are_left_out(load, tensors):
    assert "pooler.dense.weight" in tensors
    tensors["embeddings.position_ids"] = np.arange(40)[None]
    with_pooler = flat(load(tensors))
    without = {name: tensor for name, tensor in tensors.items() if "pooler" not in name}
    for place, array in flat(load(without)).items():
        np.testing.assert_array_equal(array, with_pooler[place])


def test_a_prefixed_checkpoint_is_the_same(load, tensors):
    prefixed = flat(load({"bert." + name: tensor for name, tensor in tensors.items()}))
    for place, array in flat(load(tensors)).items():
        np.testing.assert_array_equal(array, prefixed[place])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_weights_are_widened(load, tensors, dtype):
    places = flat(load({name: tensor.astype(dtype) for name, tensor in tensors.items()}))
    assert {array.dtype for array in places.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(places["layers/1/query/kernel"], tensors[QUERY].T.astype(dtype).astype(np.float32))


def test_a_missing_file_is_an_error(tmp_path, abstract):
    with pytest.raises(FileNotFoundError):
        load_state(tmp_path / "none.safetensors", abstract, BERT)
