"""Writes the golden data of the sentence-encoder tests with the upstream implementation; run by hand.

    python -m venv upstream
    upstream/bin/pip install torch==2.13.0 transformers==5.24.0 sentence-transformers==6.2.0
    upstream/bin/python tests/models/make_goldens.py MINILM

MINILM is a directory with the files of all-MiniLM-L6-v2, such as `georag_jax.models.resolve("minilm")` returns.
Writes next to this file, under data/:

    tiny/           a random BERT sentence encoder with no field of its configuration at its default
    tiny.npz        its hidden states and sentence vectors, and the activation functions on a grid
    minilm.json     texts
    minilm.npz      their vectors under all-MiniLM-L6-v2
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, BertTokenizerFast
from transformers.activations import ACT2FN

DATA = Path(__file__).parent / "data"
ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")
WORDS = (
    *("a", "an", "and", "the", "cat", "dog", "bird", "sat", "ran", "flew", "on", "in", "over", "mat", "hill", "sea"),
    *("red", "blue", "old", "who", "what", "where", "why", "is", "was", "it", "of"),
)
TINY_TEXTS = [
    "the cat sat on the mat",
    "",
    "who ran over the old red hill and why",
    "bird",
    "the sea is blue and the dog ran in it and the bird flew over it and the cat sat on the red mat of an old dog",
    "xylophone the cat",
]
MINILM_TEXTS = [
    "The treaty was signed in 1848 and moved the border to the river.",
    "Who signed the treaty that moved the border?",
    "",
    "   spaces    at both ends   and \t tabs\n\nand newlines   ",
    "Rain again 🌧️ — but the picnic 🧺 goes on 👩‍👩‍👧!",
    "彼女は図書館で古い地図を見つけた。",
    "这座桥建于明朝,后来在洪水中被毁。",
    "وصلت السفينة إلى الميناء قبل شروق الشمس",
    "הספר הישן נמצא על המדף העליון",
    "naïve café, façade, Ærøskøbing, straße, İstanbul",
    "x = [i**2 for i in range(10)]  # squares",
    "word",
    " ".join(f"Paragraph {i} tells how the mill on river number {i} was built, sold and forgotten." for i in range(40)),
]


def tiny_tokenizer():
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz:", *WORDS[1:]]
    vocabulary += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    numbers = {token: i for i, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", numbers["[CLS]"]), ("[SEP]", numbers["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    return BertTokenizerFast(tokenizer_object=tokenizer, model_max_length=24, do_lower_case=False)


def tiny_model(vocab_size):
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=80,
        hidden_act="gelu_new",
        max_position_embeddings=40,
        type_vocab_size=3,
        layer_norm_eps=1e-2,
    )
    model = BertModel(config).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():  # the initial zeros and ones of biases and norms would hide a misplaced tensor
        for name, weight in model.named_parameters():
            weight.normal_(1.0 if name.endswith("LayerNorm.weight") else 0.0, 0.2, generator=generator)
    return model


def save_tiny(model, tokenizer, mode, target):
    shutil.rmtree(target, ignore_errors=True)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    transformer = Transformer(str(target))
    modules = [transformer, Pooling(model.config.hidden_size, pooling_mode=mode), Normalize()]
    encoder = SentenceTransformer(modules=modules, prompts={"query": "who: ", "document": ""}, device="cpu")
    encoder.save(str(target), create_model_card=False)
    return encoder


def write_tiny():
    tokenizer = tiny_tokenizer()
    model = tiny_model(len(tokenizer) + 3)
    target = DATA / "tiny"
    arrays = {}
    for mode in ("cls", "mean"):
        encoder = save_tiny(model, tokenizer, mode, target)
        for kind, encode in (("query", encoder.encode_query), ("document", encoder.encode_document)):
            arrays[f"{mode}_{kind}"] = np.stack([encode(text) for text in TINY_TEXTS])
    # A tokenizer.json with lengths of its own, as all-MiniLM-L6-v2 has: they must not be used.
    own = Tokenizer.from_file(str(target / "tokenizer.json"))
    own.enable_truncation(5)
    own.enable_padding(length=9)
    own.save(str(target / "tokenizer.json"))
    random = np.random.default_rng(11)
    ids = random.integers(0, model.config.vocab_size, (5, 12))
    segments = random.integers(0, model.config.type_vocab_size, ids.shape)
    mask = np.arange(12) < np.array([12, 7, 1, 12, 12])[:, None]
    mask[3, :4] = False
    mask[4, [2, 5, 6]] = False
    with torch.no_grad():
        tensors = [torch.tensor(array) for array in (ids, mask.astype(int), segments)]
        hidden = model(tensors[0], attention_mask=tensors[1], token_type_ids=tensors[2]).last_hidden_state.numpy()
        grid = torch.linspace(-6, 6, 97)
        arrays |= {f"activation_{name}": ACT2FN[name](grid).numpy() for name in ACTIVATIONS}
    arrays |= {"ids": ids.astype(np.int32), "segments": segments.astype(np.int32), "mask": mask, "hidden": hidden}
    np.savez_compressed(DATA / "tiny.npz", texts=np.array(TINY_TEXTS), grid=grid.numpy(), **arrays)


def write_minilm(directory):
    encoder = SentenceTransformer(directory, device="cpu")
    vectors = np.stack([encoder.encode(text) for text in MINILM_TEXTS])
    (DATA / "minilm.json").write_text(json.dumps(MINILM_TEXTS, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    np.savez_compressed(DATA / "minilm.npz", vectors=vectors)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    DATA.mkdir(exist_ok=True)
    write_tiny()
    write_minilm(sys.argv[1])
