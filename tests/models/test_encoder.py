import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from georag_jax._types import Encoder
from georag_jax.models.encoder import SentenceEncoder, sentence_vectors

PARITY = {"rtol": 0, "atol": 1e-5}
SAME = {"rtol": 0, "atol": 1e-6}


@pytest.fixture(scope="module")
def encoder(tiny):
    return SentenceEncoder.from_directory(tiny)


@pytest.fixture
def changed(tiny, tmp_path):
    """Makes a copy of the tiny directory in which one JSON file has other fields; None removes a field."""

    def changed(file, **fields):
        home = shutil.copytree(tiny, tmp_path / "model", dirs_exist_ok=True)
        raw = json.loads((home / file).read_text()) | fields
        (home / file).write_text(json.dumps({name: value for name, value in raw.items() if value is not None}))
        return home

    return changed


def many_texts(count):
    words = ["the", "cat", "dog", "bird", "sat", "ran", "flew", "on", "over", "mat", "hill"]
    random = np.random.default_rng(5)
    return [" ".join(random.choice(words, random.integers(0, 30))) for _ in range(count)]


@pytest.mark.parametrize("kind", ["query", "document"])
@pytest.mark.parametrize("mode", ["mean", "cls"])
def test_tiny_vectors_are_upstreams(changed, golden, mode, kind):
    encoder = SentenceEncoder.from_directory(changed("1_Pooling/config.json", pooling_mode=mode))
    np.testing.assert_allclose(encoder.encode(list(golden["texts"]), kind), golden[f"{mode}_{kind}"], **PARITY)


def test_minilm_vectors_are_upstreams(minilm, minilm_golden):
    texts, vectors = minilm_golden
    np.testing.assert_allclose(minilm.encode(texts), vectors, **PARITY)
    np.testing.assert_allclose(minilm.encode(texts[:2], "query"), vectors[:2], **PARITY)


def test_minilm_is_an_encoder_with_a_fingerprint(minilm):
    assert isinstance(minilm, Encoder)
    assert minilm.fingerprint == "minilm:53aa51172d14:mean:256"
    assert minilm.dim == 384


def test_rows_are_unit_float32_in_the_order_of_the_texts(encoder):
    texts = many_texts(70)
    vectors = encoder.encode(texts)
    assert vectors.shape == (70, 32)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    order = np.random.default_rng(0).permutation(70)
    np.testing.assert_allclose(encoder.encode([texts[i] for i in order]), vectors[order], **SAME)


def test_a_vector_does_not_depend_on_its_batch(tiny, encoder):
    texts = many_texts(30)
    batched = SentenceEncoder.from_directory(tiny, batch_tokens=64).encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    np.testing.assert_allclose(batched, alone, **SAME)


def test_a_real_vector_does_not_depend_on_its_batch(minilm, minilm_golden):
    texts = minilm_golden[0][:6]
    alone = np.concatenate([minilm.encode([text]) for text in texts])
    np.testing.assert_allclose(minilm.encode(texts), alone, **SAME)


def test_a_second_call_compiles_nothing(encoder):
    texts = many_texts(90)
    encoder.encode(texts)
    compiled = sentence_vectors._cache_size()
    encoder.encode(texts[::-1])
    assert sentence_vectors._cache_size() == compiled


def test_few_shapes_are_compiled(tiny):
    encoder = SentenceEncoder.from_directory(tiny, batch_tokens=256)
    before = sentence_vectors._cache_size()
    for count in range(1, 40):
        encoder.encode(many_texts(count))
    # Lengths 16 and 24; 1, 4 or 16 rows, or the full batch of 10 for the longer ones.
    assert sentence_vectors._cache_size() - before <= 6


def test_no_texts(encoder):
    vectors = encoder.encode([])
    assert vectors.shape == (0, 32)
    assert vectors.dtype == np.float32


def test_odd_texts_are_defined(encoder):
    vectors = encoder.encode(["", " ", "\ud800", "?", "\x00", "word " * 1000])
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(vectors[2], vectors[3])


def test_progress_counts_the_texts_done(tiny):
    seen = []
    SentenceEncoder.from_directory(tiny, batch_tokens=64).encode(many_texts(9), progress=seen.append)
    assert seen == sorted(set(seen))
    assert len(seen) > 1
    assert seen[-1] == 9


@pytest.mark.parametrize(
    "texts, message",
    [
        (["a", 3], r"texts\[1\]: expected str, got int"),
        ([None], r"texts\[0\]: expected str, got NoneType"),
        ("a text", "texts: expected a sequence of str, got one str"),
    ],
)
def test_what_is_not_text_is_refused(encoder, texts, message):
    with pytest.raises(TypeError, match=message):
        encoder.encode(texts)


def test_an_unknown_kind_is_refused(encoder):
    with pytest.raises(ValueError, match="kind: expected 'query' or 'document', got 'passage'"):
        encoder.encode(["a"], "passage")


def test_batch_tokens_must_be_positive(tiny):
    with pytest.raises(ValueError, match="batch_tokens: expected at least 1, got 0"):
        SentenceEncoder.from_directory(tiny, batch_tokens=0)


@pytest.mark.parametrize(
    "file, fields, message",
    [
        ("config.json", {"is_decoder": True}, "is_decoder=True is not implemented"),
        ("config.json", {"vocab_size": 80}, "model.safetensors does not fit the network: misshapen"),
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "pooling: expected one mode, mean or cls, got .'max'."),
        ("1_Pooling/config.json", {"embedding_dimension": 8}, "pooling: expected the width of the network, 32, got 8"),
        ("1_Pooling/config.json", {"include_prompt": False}, "pooling: expected the prompt to be pooled"),
        (
            "1_Pooling/config.json",
            {"pooling_mode": None, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
            r"pooling: expected one mode, mean or cls, got \['mean_tokens', 'max_tokens'\]",
        ),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "expected the task feature-extraction"),
        ("sentence_bert_config.json", {"model_args": {"x": 1}}, "known ones, got .'model_args'."),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "expected no default_prompt_name"),
        ("config_sentence_transformers.json", {"truncate_dim": 16}, "expected no truncate_dim, got 16"),
    ],
)
def test_settings_that_are_not_honoured_are_refused(changed, file, fields, message):
    with pytest.raises(ValueError, match=message):
        SentenceEncoder.from_directory(changed(file, **fields))


def test_a_tokeniser_larger_than_the_network_is_refused(changed):
    home = changed("tokenizer_config.json")
    raw = json.loads((home / "tokenizer.json").read_text())
    raw["model"]["vocab"] |= {f"extra{i}": 84 + i for i in range(9)}
    (home / "tokenizer.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match="tokenizer: expected at most 87 tokens, got 93"):
        SentenceEncoder.from_directory(home)


def rewrite_modules(home, types):
    modules = json.loads((home / "modules.json").read_text())
    kept = [module | {"type": f"upstream.{kind}"} for module, kind in zip(modules, types, strict=False)]
    (home / "modules.json").write_text(json.dumps(kept))


def test_other_modules_are_refused(changed):
    home = changed("config.json")
    rewrite_modules(home, ["Transformer", "Pooling", "Dense"])
    with pytest.raises(ValueError, match=r"modules.json: expected .*, got \['Transformer', 'Pooling', 'Dense'\]"):
        SentenceEncoder.from_directory(home)


def test_without_normalize_only_cosine_is_accepted(changed, golden):
    home = changed("config_sentence_transformers.json", similarity_fn_name="cosine")
    rewrite_modules(home, ["Transformer", "Pooling"])
    texts = list(golden["texts"])
    np.testing.assert_allclose(SentenceEncoder.from_directory(home).encode(texts), golden["mean_document"], **PARITY)
    home = changed("config_sentence_transformers.json", similarity_fn_name="dot")
    rewrite_modules(home, ["Transformer", "Pooling"])
    with pytest.raises(ValueError, match="expected cosine similarity or a Normalize module, got dot"):
        SentenceEncoder.from_directory(home)


def test_the_length_of_the_sentence_config_wins(changed):
    short = SentenceEncoder.from_directory(changed("sentence_bert_config.json", max_seq_length=6))
    np.testing.assert_array_equal(*short.encode(["the cat sat on the mat", "the cat sat on a hill"]))
    capped = SentenceEncoder.from_directory(changed("sentence_bert_config.json", max_seq_length=4000))
    assert capped.fingerprint.split(":")[3] == "40"


def test_lower_casing_is_honoured_and_part_of_the_fingerprint(changed, encoder):
    lower = SentenceEncoder.from_directory(changed("sentence_bert_config.json", do_lower_case=True))
    np.testing.assert_array_equal(lower.encode(["The CAT"]), encoder.encode(["the cat"]))
    assert np.abs(encoder.encode(["The CAT"]) - encoder.encode(["the cat"])).max() > 1e-3
    assert lower.fingerprint != encoder.fingerprint


def test_the_package_does_not_import_flax_until_asked():
    check = "import sys, georag_jax.models; sys.exit(any(m in sys.modules for m in ('flax', 'tokenizers')))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@pytest.mark.parametrize("package, module", [("flax", "bert"), ("safetensors", "loading"), ("tokenizers", "encoder")])
def test_a_missing_package_names_its_extra(package, module):
    code = f"import sys; sys.modules[{package!r}] = None; import georag_jax.models.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"MissingExtraError: {package} is needed here and is not installed: pip install 'georag-jax[models]'" in (
        done.stderr
    )
