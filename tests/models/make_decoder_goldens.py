"""Writes the golden data of the language-model tests with the upstream implementation; run by hand.

    python -m venv upstream
    upstream/bin/pip install torch==2.13.0 transformers==5.24.0 sentence-transformers==6.2.0 accelerate gguf==0.19.0
    upstream/bin/python tests/models/make_decoder_goldens.py SMOLLM2

SMOLLM2 is a directory with SmolLM2-135M-Instruct.Q4_1.gguf, as `georag_jax.models.weights.resolve_language_model` finds
it. Writes next to this file, under data/:

    decoders/NAME/      random checkpoints, a family each, with no field of their configurations at its default
    decoders/NAME.npz   their hidden states, logits and greedy continuations, and ids of texts and chats
    embedding/          a random sentence encoder with a Qwen3 decoder in it
    embedding.npz       its vectors
    smollm2.json        ids, texts, greedy answers and likelihoods of SmolLM2
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    Qwen3Model,
)

DATA = Path(__file__).parent / "data"
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 300.0,
    "factor": 4.0,
    "low_freq_factor": 0.7,
    "high_freq_factor": 5.0,
    "original_max_position_embeddings": 64,
}
SIZES = {"intermediate_size": 56, "num_hidden_layers": 3, "initializer_range": 0.3}
FAMILIES = {
    "llama": LlamaConfig(
        **SIZES,
        hidden_size=36,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=10,
        hidden_act="gelu",
        max_position_embeddings=96,
        rms_norm_eps=1e-2,
        rope_parameters=LLAMA3,
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
    ),
    "mistral": MistralConfig(
        **SIZES,
        hidden_size=40,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        hidden_act="relu",
        max_position_embeddings=112,
        rms_norm_eps=3e-3,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        sliding_window=None,
    ),
    "qwen2": Qwen2Config(
        **SIZES,
        hidden_size=48,
        num_attention_heads=6,
        num_key_value_heads=3,
        hidden_act="gelu_pytorch_tanh",
        max_position_embeddings=120,
        rms_norm_eps=2e-3,
        rope_parameters={"rope_type": "default", "rope_theta": 900.0},
        tie_word_embeddings=False,
    ),
    "qwen3": Qwen3Config(
        **SIZES,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=14,
        max_position_embeddings=256,
        rms_norm_eps=5e-3,
        rope_parameters={"rope_type": "default", "rope_theta": 2e4},
        tie_word_embeddings=True,
        attention_bias=True,
    ),
}
TEXTS = [
    "The mill on the river was built in 1848, sold twice and then forgotten.",
    "Rain again 🌧️ — but the picnic 🧺 goes on 👩‍👩‍👧!",
    "彼女は図書館で古い地図を見つけた。这座桥建于明朝,后来在洪水中被毁。",
    "وصلت السفينة إلى الميناء قبل شروق الشمس. הספר הישן נמצא על המדף העליון",
    "   spaces    at both ends   and \t tabs\n\nand\r\nnewlines \n \n  ",
    "naïve café, façade, Ærøskøbing, straße, İstanbul, I'll, don't, THEY'RE",
    "x = [i**2 for i in range(10)]  # squares <html>&amp;</html>",
    "<|im_start|>user\nspecial tokens are read<|im_end|><|endoftext|>",
    "word",
]
CHATS = [
    [{"role": "user", "content": "Who signed the treaty that moved the border?"}],
    [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "  What does <b>bold</b> & \"quoted\" 'text' 🌧️ mean?\n\nSay!  "},
        {"role": "assistant", "content": "Emphasis."},
        {"role": "user", "content": "彼女は?"},
    ],
]
TEMPLATE = """{%- set state = namespace(count=0) %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{{ raise_exception('no tools, please') }}{% endif %}
    {%- if loop.index0 > 5 %}{% break %}{% endif %}
    {%- set state.count = state.count + 1 %}
    {{- '<|im_start|>' + message.role + ' ' + state.count|string + '\\n' + message.content | trim }}
    {{- ' ' + (message | tojson) + '<|im_end|>\\n' }}
{% endfor %}
{%- if tools %}{{ tools | tojson }}{% endif %}
{{ strftime_now('%%') }}{{ eos_token }}
{%- if add_generation_prompt %}
    {{- '\\n<|im_start|>assistant\\n' }}
{%- endif %}"""


def tiny_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=specials, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 3)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = TEMPLATE
    return fast


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # the initial zeros and ones of biases and norms would hide a misplaced tensor
        for name, weight in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                weight.normal_(1.0 if "norm" in name else 0.0, 0.3, generator=generator)
            else:
                weight.normal_(0.0, 0.15, generator=generator)
    return model.eval()


def write_family(name, config, seed):
    tokenizer = tiny_tokenizer()
    config.vocab_size = len(tokenizer) + 5
    config.bos_token_id, config.eos_token_id = 3, None
    model = randomise(AutoModelForCausalLM.from_config(config), seed)
    model.generation_config.eos_token_id = None
    target = DATA / "decoders" / name
    shutil.rmtree(target, ignore_errors=True)
    # One family comes in shards.
    model.save_pretrained(target, max_shard_size="40KB" if name == "mistral" else "5GB")
    tokenizer.save_pretrained(target)
    random = np.random.default_rng(seed)
    ids = random.integers(0, config.vocab_size, (3, 37))
    lengths = np.array([37, 1, 20])
    hidden, logits, greedy = (np.zeros((*ids.shape, config.hidden_size)), np.zeros((*ids.shape, config.vocab_size)), [])
    for row, length in enumerate(lengths):  # one by one, without padding
        prompt = torch.tensor(ids[None, row, :length])
        with torch.no_grad():
            out = model(prompt, output_hidden_states=True)
            grown = model.generate(prompt, max_new_tokens=32, do_sample=False)
        hidden[row, :length], logits[row, :length] = out.hidden_states[-1][0], out.logits[0]
        greedy.append(grown[0, length:].numpy())
    np.savez_compressed(
        DATA / "decoders" / f"{name}.npz",
        ids=ids.astype(np.int32),
        lengths=lengths.astype(np.int32),
        hidden=hidden.astype(np.float32),
        logits=logits.astype(np.float32),
        greedy=np.stack(greedy).astype(np.int32),
    )


def write_tokens():
    tokenizer = tiny_tokenizer()
    golden = {
        "texts": [{"text": text, "ids": tokenizer(text).input_ids} for text in TEXTS],
        "chats": [
            {"chat": chat, "text": tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)}
            for chat in CHATS
        ],
    }
    write_json(DATA / "decoders" / "tokens.json", golden)


def write_embedding():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None  # newer upstream would read every text as a chat
    ends = [("<|endoftext|>", 0)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing("$A <|endoftext|>", special_tokens=ends)
    config = Qwen3Config.from_dict(FAMILIES["qwen3"].to_dict() | {"vocab_size": len(tokenizer), "eos_token_id": 0})
    target = DATA / "embedding"
    shutil.rmtree(target, ignore_errors=True)
    tokenizer.model_max_length, tokenizer.padding_side = 40, "left"
    randomise(Qwen3Model(config), 5).save_pretrained(target)
    tokenizer.save_pretrained(target)
    modules = [Transformer(str(target)), Pooling(config.hidden_size, pooling_mode="lasttoken"), Normalize()]
    prompts = {"query": "Instruct: Given a question, find the text\nQuery:", "document": ""}
    encoder = SentenceTransformer(modules=modules, prompts=prompts, device="cpu")
    encoder.save(str(target), create_model_card=False)
    texts = [*TEXTS, "", "long " * 60]
    vectors = {
        "query": np.stack([encoder.encode_query(text) for text in texts]),
        "document": np.stack([encoder.encode_document(text) for text in texts]),
        "narrow": np.stack(
            [encoder.encode_document(text, truncate_dim=8, normalize_embeddings=True) for text in texts]
        ),
    }
    np.savez_compressed(DATA / "embedding.npz", texts=np.array(texts), **vectors)


def write_smollm2(directory):
    file = next(Path(directory).glob("*.gguf")).name
    tokenizer = AutoTokenizer.from_pretrained(directory, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(directory, gguf_file=file, dtype=torch.float32).eval()
    golden = {"texts": [], "chats": []}
    for text in TEXTS:
        ids = tokenizer(text).input_ids
        entry = {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)}
        if len(ids) > 1:
            with torch.no_grad():
                scores = torch.log_softmax(model(torch.tensor([ids])).logits[0, :-1].double(), -1)
            entry["nll"] = -scores.gather(1, torch.tensor(ids[1:])[:, None]).mean().item()
        golden["texts"].append(entry)
    for chat in CHATS:
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        with torch.no_grad():
            grown = model.generate(ids, max_new_tokens=32, do_sample=False)[0, ids.shape[1] :]
        answer = tokenizer.decode(grown, skip_special_tokens=True)
        golden["chats"].append({"chat": chat, "text": text, "ids": ids[0].tolist(), "answer": answer})
    write_json(DATA / "smollm2.json", golden)


def write_json(file, content):
    file.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    (DATA / "decoders").mkdir(parents=True, exist_ok=True)
    for number, (name, config) in enumerate(FAMILIES.items()):
        write_family(name, config, seed=number)
    write_tokens()
    write_embedding()
    write_smollm2(sys.argv[1])
