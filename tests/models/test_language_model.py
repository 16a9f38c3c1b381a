"""Tokenizers, templates and a real model."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from georag_jax.models.chat import Sampling
from georag_jax.models.language_model import LanguageModel, read_ends
from georag_jax.models.tokenizer import ChatTokenizer

DATA = Path(__file__).parent / "data"
TOKENS = json.loads((DATA / "decoders" / "tokens.json").read_text("utf-8"))
SMOLLM2 = json.loads((DATA / "smollm2.json").read_text("utf-8"))


@pytest.fixture(scope="session")
def smollm2():
    """The real model, from the cache or fetched."""
    return LanguageModel.from_path("smollm2")


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer.from_directory(DATA / "decoders" / "qwen3")


@pytest.fixture
def templated(tokenizer):
    """A tokenizer with another template."""
    return lambda template: ChatTokenizer(tokenizer._tokenizer, tokenizer.specials, template)


def test_tokens_are_upstreams(tokenizer):
    for entry in TOKENS["texts"]:
        assert tokenizer.encode(entry["text"]) == entry["ids"]
        assert tokenizer.encode(entry["text"], special=False) == entry["ids"][1:]


def test_chats_are_rendered_as_upstream_renders_them(tokenizer):
    for entry in TOKENS["chats"]:
        assert tokenizer.render(entry["chat"]) == entry["text"]


def test_lone_surrogates_are_read_as_question_marks(tokenizer):
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a?b")


def test_a_template_may_refuse(tokenizer):
    with pytest.raises(ValueError, match="the chat template refuses this chat: no tools, please"):
        tokenizer.render([{"role": "tool", "content": "x"}])


def test_a_model_without_a_template_says_so(templated):
    with pytest.raises(ValueError, match="no chat template"):
        templated(None).render([{"role": "user", "content": "x"}])


def test_a_template_knows_the_time(templated):
    assert templated("{{ strftime_now('%Y') }}").render([]) in (str(datetime.now().year), str(datetime.now().year - 1))


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% set state = namespace() %}{% set state.__class__ = 1 %}",
        "{{ namespace.__init__.__globals__ }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(templated, template):
    try:
        text = templated(template).render([{"role": "user", "content": "x"}])
    except ValueError:
        return
    assert text == ""


def test_where_template_and_special_tokens_are_found(tokenizer, tmp_path):
    (tmp_path / "tokenizer.json").write_text((DATA / "decoders" / "qwen3" / "tokenizer.json").read_text("utf-8"))
    templates = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d{{ eos_token }}"}]
    raw = {"chat_template": templates, "eos_token": {"content": "<|im_end|>", "special": True}, "pad_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(raw))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<s>"}))
    found = ChatTokenizer.from_directory(tmp_path)
    assert found.specials == {"bos_token": "<s>", "eos_token": "<|im_end|>"}
    assert found.render([]) == "d<|im_end|>"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert ChatTokenizer.from_directory(tmp_path).render([]) == "file"


@pytest.mark.parametrize(
    "generation, config, ends",
    [({"eos_token_id": [0, 7]}, {}, [0, 2, 7]), ({}, {"eos_token_id": 5}, [2, 5]), ({"eos_token_id": 2}, {}, [2])],
)
def test_which_tokens_end_an_answer(tokenizer, tmp_path, generation, config, ends):
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_ends(tmp_path, tokenizer) == ends


def test_a_directory_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="lacks tokenizer.json"):
        ChatTokenizer.from_directory(tmp_path)


def test_other_dtypes_are_refused():
    with pytest.raises(ValueError, match="dtype: expected float32 or bfloat16, got float16"):
        LanguageModel.from_path(DATA / "decoders" / "qwen3", dtype="float16")


@pytest.mark.slow
def test_smollm2_has_upstreams_tokens(smollm2):
    for entry in SMOLLM2["texts"]:
        ids = smollm2.tokenizer.encode(entry["text"])
        assert ids == entry["ids"]
        assert smollm2.tokenizer.decode(ids) == entry["decoded"]
    for entry in SMOLLM2["chats"]:
        assert smollm2.tokenizer.render(entry["chat"]) == entry["text"]
        assert smollm2.chat_ids(entry["chat"]) == entry["ids"]


@pytest.mark.slow
def test_smollm2_has_upstreams_likelihoods(smollm2):
    entry = SMOLLM2["texts"][0]
    assert smollm2.negative_log_likelihood(entry["text"]) == pytest.approx(entry["nll"], abs=1e-4)


@pytest.mark.slow
def test_smollm2_gives_upstreams_answers(smollm2):
    sampling = Sampling(temperature=0.0, max_tokens=32)
    answers = smollm2.complete([entry["chat"] for entry in SMOLLM2["chats"]], 1, sampling)
    assert [row[0].text for row in answers] == [entry["answer"] for entry in SMOLLM2["chats"]]
    assert smollm2.fingerprint.startswith("smollm2:")
