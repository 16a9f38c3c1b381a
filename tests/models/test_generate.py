import dataclasses
import json
import logging
import re
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from georag_jax.models.chat import ChatModel, Completion, Sampling
from georag_jax.models.decoding import length_bucket
from georag_jax.models.generate import Generator
from georag_jax.models.language_model import LanguageModel

DATA = Path(__file__).parent / "data" / "decoders"
GREEDY = Sampling(temperature=0.0, max_tokens=32)


def spell(ids):
    return "".join(f"{number} " for number in ids)


def tokens_of(completions):
    return [[int(word) for word in completion.text.split()] for completion in completions]


@pytest.fixture(scope="module", params=["llama", "mistral", "qwen2", "qwen3"])
def family(request):
    with np.load(DATA / f"{request.param}.npz") as arrays:
        golden = dict(arrays)
    model = LanguageModel.from_path(DATA / request.param)
    prompts = [row[:length].tolist() for row, length in zip(golden["ids"], golden["lengths"], strict=True)]
    return model, prompts, golden["greedy"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """One layer of the Qwen3 checkpoint, since what these tests take is mostly compilation."""
    home = shutil.copytree(DATA / "qwen3", tmp_path_factory.mktemp("models") / "short")
    raw = json.loads((home / "config.json").read_text())
    raw |= {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
    (home / "config.json").write_text(json.dumps(raw))
    tensors = load_file(home / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if not re.search(r"layers\.[12]\.", name)}
    kept["lm_head.weight"] = np.array(kept["model.embed_tokens.weight"])  # as some writers store a tied head
    save_file(kept, home / "model.safetensors")
    return LanguageModel.from_path(home)


def generator(model, ends=(-5,)):
    """Gives the numbers of tokens as text, so that tests can count them; no token is -5."""
    return Generator(model._leaves, model.config, ends, spell)


PROMPTS = [[5, 6, 7], list(range(10, 26)), [200], list(range(100, 117))]


def test_greedy_tokens_are_upstreams_whatever_the_batch(family):
    model, prompts, greedy = family
    together = generator(model).complete(prompts, 1, GREEDY, None)
    assert [tokens_of(row)[0] for row in together] == greedy.tolist()
    assert all(row[0].cut for row in together)
    samples = generator(model).complete(prompts, 2, GREEDY, None)
    assert tokens_of(samples[2]) == [greedy[2].tolist()] * 2


def test_the_same_seed_is_the_same_text_whatever_the_batch(model):
    sampling = Sampling(temperature=0.9, max_tokens=20, seed=5)
    together = generator(model).complete(PROMPTS, 3, sampling, None)
    for prompt, row in list(zip(PROMPTS, together, strict=True))[1:3]:  # the rest would compile no other programs
        assert generator(model).complete([prompt], 3, sampling, None) == [row]
    assert generator(model).complete(PROMPTS[:1], 1, sampling, None) == [together[0][:1]]
    again = generator(model).complete(PROMPTS, 3, dataclasses.replace(sampling, seed=6), None)
    assert all(a != b for row, other in zip(together, again, strict=True) for a, b in zip(row, other, strict=True))
    assert all(len(set(row)) == 3 for row in together)


def test_a_kept_beginning_changes_nothing(model):
    beginning = [int(x) for x in np.random.default_rng(3).integers(4, 290, 80)]
    prompts = [[*beginning, *prompt] for prompt in PROMPTS[:2]]
    keeping = generator(model)
    plain = [generator(model).complete([prompt], 2, GREEDY, None)[0] for prompt in prompts]
    assert keeping.complete(prompts, 2, GREEDY, None) == plain
    assert [len(tokens) for tokens in keeping._prefixes] == [64]
    assert keeping.complete(prompts[:1], 2, GREEDY, None) == plain[:1]
    assert len(keeping._prefixes) == 1


def test_one_prompt_after_another_shares_its_beginning(model):
    beginning = [int(x) for x in np.random.default_rng(4).integers(4, 290, 100)]
    one_by_one = generator(model)
    for prompt in PROMPTS[:2]:
        one_by_one.complete([[*beginning, *prompt]], 1, dataclasses.replace(GREEDY, max_tokens=1), None)
    assert [len(tokens) for tokens in one_by_one._prefixes] == [96]


def test_only_the_newest_beginnings_are_kept(model):
    keeping = generator(model)
    for seed in range(6):
        beginning = [int(x) for x in np.random.default_rng(seed).integers(4, 290, 70)]
        prompts = [[*beginning, number] for number in range(2)]
        keeping.complete(prompts, 1, dataclasses.replace(GREEDY, max_tokens=1), None)
    assert len(keeping._prefixes) == 4


def test_an_end_token_ends_an_answer_and_is_not_part_of_it(family):
    model, prompts, greedy = family
    end = int(greedy[0][5])
    row, *_ = generator(model, [end]).complete(prompts, 2, GREEDY, None)
    at = greedy[0].tolist().index(end)
    assert row == [Completion(spell(greedy[0][:at]), cut=False)] * 2


def test_a_stop_string_may_cross_tokens(model):
    (free,) = generator(model).complete(PROMPTS[:1], 1, Sampling(temperature=1.0, max_tokens=60, seed=1), None)
    text = free[0].text
    at = text.index(" ", len(text) // 2)
    stop = text[at - 1 : at + 3]  # the end of a token, and the beginning of the next
    sampling = Sampling(temperature=1.0, max_tokens=60, seed=1, stop=("nowhere", stop))
    (row,) = generator(model).complete(PROMPTS[:1], 1, sampling, None)
    assert row == [Completion(text[: text.index(stop)], cut=False)]


def test_answers_longer_than_the_first_room(model):
    sampling = Sampling(temperature=1.0, max_tokens=150, seed=2)
    (long,) = generator(model).complete(PROMPTS[:1], 2, sampling, None)
    assert [len(tokens) for tokens in tokens_of(long)] == [150, 150]
    (short,) = generator(model).complete(PROMPTS[:1], 2, dataclasses.replace(sampling, max_tokens=60), None)
    assert [tokens[:60] for tokens in tokens_of(long)] == tokens_of(short)


def test_many_prompts_go_in_batches_and_progress_is_told(model):
    many = generator(model)
    many._most_rows = 4
    prompts = [[number, number + 1] for number in range(7)]
    told = []
    sampling = Sampling(max_tokens=4, seed=3)
    answers = many.complete(prompts, 2, sampling, told.append)
    assert told == [2, 4, 6, 7]
    assert answers[2:4] == generator(model).complete(prompts[2:4], 2, sampling, None)


def test_no_prompts_no_answers(model):
    assert generator(model).complete([], 3, GREEDY, None) == []


@pytest.mark.parametrize(
    "prompts, n, message",
    [
        ([[1], []], 1, r"prompts\[1\]: expected 1 to 224 tokens, which leaves room for 32 of 256, got 0"),
        ([[1] * 225], 1, r"prompts\[0\]: expected 1 to 224 tokens, which leaves room for 32 of 256, got 225"),
        ([[1]], 0, "n: expected at least 1, got 0"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(model, prompts, n, message):
    with pytest.raises(ValueError, match=message):
        generator(model).complete(prompts, n, GREEDY, None)


def test_a_second_call_of_the_same_shapes_compiles_nothing(model, caplog):
    run = generator(model)
    sampling = Sampling(max_tokens=40, top_p=0.9, seed=1, stop=("nowhere",))
    run.complete(PROMPTS, 2, sampling, None)
    other = Sampling(max_tokens=33, top_p=0.5, top_k=7, temperature=0.3, seed=2, stop=("never", "ever"))
    with jax.log_compiles(), caplog.at_level(logging.DEBUG, "jax"):
        run.complete([[*prompt, 9] for prompt in PROMPTS], 2, other, None)
    assert not [record.message for record in caplog.records if "Compiling" in record.message]


def test_buckets_are_few_and_wide_enough():
    buckets = {length_bucket(length) for length in range(1, 1025)}
    assert all(length <= length_bucket(length) for length in range(1, 1025))
    assert buckets == {16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024}


def test_it_is_a_chat_model(model):
    assert isinstance(model, ChatModel)
    assert model.fingerprint.startswith("qwen3:")
    assert model.fingerprint.endswith(":float32")
    other = LanguageModel.from_path(DATA / "qwen3", dtype=jnp.bfloat16)
    assert other.fingerprint.endswith(":bfloat16")
    chats = [[{"role": "user", "content": "hello"}]]
    (answers,) = other.complete(chats, 2, Sampling(max_tokens=5))
    assert all(isinstance(answer.text, str) and answer.cut for answer in answers)


def test_option_scores_are_sums_of_log_probabilities(model):
    chats = [[{"role": "user", "content": text}] for text in ("hi", "the mill on the river", "word")]
    options = ["Yes", "No", "a", "the mill"]
    ids = [model.tokenizer.encode(option, special=False) for option in options]
    assert len({len(row) for row in ids}) > 1
    got = model.option_scores(chats, options)
    for chat, row in zip(chats, got, strict=True):
        prompt = model.chat_ids(chat)
        for option, score in zip(ids, row, strict=True):
            want = sequence_scores(model, [*prompt, *option])[-len(option) :].sum()
            assert score == pytest.approx(want, abs=2e-5)
    single = model.option_scores(chats, ["a", "b"])
    np.testing.assert_allclose(single[:, 0], got[:, 2], atol=1e-5)
    with pytest.raises(ValueError, match="options: expected answers of at least one token"):
        model.option_scores(chats, ["a", ""])


def sequence_scores(model, ids):
    from georag_jax.models.decoding import log_probabilities, pad_right

    padded, _ = pad_right([ids], 1, length_bucket(len(ids)))
    return np.asarray(log_probabilities(model._leaves, padded, config=model.config))[0, : len(ids) - 1]


def test_log_probabilities_are_those_of_the_logits(family):
    model, prompts, _ = family
    ids = prompts[0]
    with np.load(DATA / f"{model.config.model_type}.npz") as arrays:
        logits = arrays["logits"][0].astype(np.float64)
    scores = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    want = scores[np.arange(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(sequence_scores(model, ids), want, atol=2e-5)


def test_texts_too_short_or_too_long_to_be_scored_are_refused(model):
    with pytest.raises(ValueError, match="text: expected 2 to 256 tokens, got 1"):
        model.log_probabilities("")
    with pytest.raises(ValueError, match="text: expected 2 to 256 tokens"):
        model.negative_log_likelihood("word " * 300)
    assert model.negative_log_likelihood("the mill") == pytest.approx(-model.log_probabilities("the mill").mean())


def test_plain_prompts_have_what_the_model_puts_around_texts(model):
    (from_text,) = model.generate(["the mill"], 1, GREEDY)
    ids = model.tokenizer.encode("the mill")
    assert ids[0] == 3
    assert model.count("the mill") == len(ids) - 1
    (want,) = Generator(model._leaves, model.config, model.ends, model.tokenizer.decode).complete(
        [ids], 1, GREEDY, None
    )
    assert from_text == want
