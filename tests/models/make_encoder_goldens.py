"""Writes the golden data of the RoBERTa and cross-encoder tests with the upstream implementation; run by hand.

    upstream/bin/python tests/models/make_encoder_goldens.py

The environment is that of make_goldens.py. Writes next to this file, under data/, random models with no field of their
configuration at its default, and what upstream computes with them:

    roberta/, roberta.npz               a sentence encoder with a pooler; the padding token is number 3
    roberta_pooled.json                 its settings when the output of its pooler is the sentence vector
    bert_reranker/, bert_reranker.npz   one logit
    bert_nli/, bert_nli.npz             three labels in an order of their own
    xlm_reranker/, xlm_reranker.npz     XLM-RoBERTa with one logit; the padding token is number 4
"""

import json
import shutil

import numpy as np
import torch
from make_goldens import DATA, WORDS
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizerFast,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

TEXTS = [
    "the cat sat on the mat",
    "",
    "who ran over the old red hill and why?",
    "rain 🌧️ over the sea 👩‍👩‍👧!",
    "彼女は図書館で古い地図を見つけた。",
    "وصلت السفينة إلى الميناء",
    "הספר הישן נמצא על המדף",
    "  the   dog \t ran\n\nin  ",
    "naïve café, Ærøskøbing, straße",
    "the sea is blue and the dog ran in it and the bird flew over it and the cat sat on the red mat of an old dog " * 2,
]
PAIRS = [(first, second) for first in TEXTS for second in TEXTS[::-1]][::3]
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # the initial zeros and ones of biases and norms would hide a misplaced tensor
        for name, weight in model.named_parameters():
            weight.normal_(1.0 if name.endswith("LayerNorm.weight") else 0.0, 0.25, generator=generator)
    return model.eval()


def wordpiece():
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "[PAD]", *"abcdefghijklmnopqrstuvwxyz?!,.", *WORDS[1:]]
    vocabulary += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"] + list("地図古いاלø")
    numbers = {token: i for i, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", numbers["[CLS]"]), ("[SEP]", numbers["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return BertTokenizerFast(tokenizer_object=tokenizer, model_max_length=30)


def byte_bpe():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("c", "at"), ("a", "t"), ("Ġ", "d"), ("o", "g"), ("Ð", "¾")]
    merges = [pair for pair in merges if pair != ("c", "at")] + [("c", "at")]
    tokens = ["<s>", "</s>", "<unk>", "<pad>", "<mask>", *alphabet, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), add_prefix_space=False)
    return fast(tokenizer, 48)


def unigram():
    pieces = [f"▁{word}" for word in WORDS[1:]] + list("▁abcdefghijklmnopqrstuvwxyz?!,.地図古いاלø")
    scores = [(piece, -3.0 - 0.1 * i) for i, piece in enumerate(pieces)]
    special = [(token, 0.0) for token in ("<unk>", "<s>", "</s>", "<mask>", "<pad>")]
    tokenizer = Tokenizer(models.Unigram([*special, *scores], unk_id=0))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" {2,}", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return fast(tokenizer, 36)


def fast(tokenizer, longest):
    special = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "unk": "<unk>", "pad": "<pad>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=longest,
        model_input_names=["input_ids", "attention_mask"],
        mask_token="<mask>",
        **{f"{name}_token": token for name, token in special.items()},
    )


def inputs(config, shape=(6, 14)):
    random = np.random.default_rng(12)
    ids = random.integers(5, config.vocab_size, shape)
    segments = random.integers(0, config.type_vocab_size, shape)
    mask = np.arange(shape[1]) < np.array([14, 8, 1, 14, 14, 14])[:, None]
    mask[3, :4] = False
    mask[4, [2, 5, 6]] = False
    ids[~mask] = config.pad_token_id
    ids[5, 3] = config.pad_token_id  # unmasked: takes no position in RoBERTa, and is attended to
    return ids, mask, segments


def forward(model):
    """Hidden states, pooled output and logits, as far as the model has them, for ids with padding in odd places."""
    ids, mask, segments = inputs(model.config)
    tensors = {
        "input_ids": torch.tensor(ids),
        "attention_mask": torch.tensor(mask.astype(int)),
        "token_type_ids": torch.tensor(segments),
    }
    with torch.no_grad():
        output = model(**tensors, output_hidden_states=True)
    arrays = {"ids": ids.astype(np.int32), "mask": mask, "segments": segments.astype(np.int32)}
    arrays["hidden"] = output.hidden_states[-1].numpy()
    if "logits" in output:
        return arrays | {"logits": output.logits.numpy()}
    return arrays | {"pooled": output.pooler_output.numpy()}


def fresh(name):
    target = DATA / name
    shutil.rmtree(target, ignore_errors=True)
    return target


def write_roberta():
    tokenizer, target = byte_bpe(), fresh("roberta")
    config = RobertaConfig(
        vocab_size=len(tokenizer) + 2,
        intermediate_size=48,
        hidden_act="relu",
        max_position_embeddings=60,
        type_vocab_size=1,
        layer_norm_eps=1e-3,
        pad_token_id=3,
        bos_token_id=0,
        eos_token_id=1,
        **SIZES,
    )
    model = randomise(RobertaModel(config), 21)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    arrays = forward(model)
    transformer = Transformer(
        str(target),
        modality_config={"text": {"method": "forward", "method_output_name": "pooler_output"}},
        module_output_name="sentence_embedding",
    )
    encoder = SentenceTransformer(modules=[transformer, Normalize()], device="cpu")
    arrays["pooled_vectors"] = np.stack([encoder.encode(text) for text in TEXTS])
    encoder.save(str(target / "saved"), create_model_card=False)
    pooled = {f: json.loads((target / "saved" / f).read_text()) for f in ("modules.json", "sentence_bert_config.json")}
    shutil.rmtree(target / "saved")
    for mode in ("cls", "mean"):
        modules = [Transformer(str(target)), Pooling(config.hidden_size, pooling_mode=mode), Normalize()]
        encoder = SentenceTransformer(modules=modules, device="cpu")
        arrays[f"{mode}_vectors"] = np.stack([encoder.encode(text) for text in TEXTS])
    encoder.save(str(target), create_model_card=False)
    (DATA / "roberta_pooled.json").write_text(json.dumps(pooled, indent=1) + "\n")
    np.savez_compressed(DATA / "roberta.npz", texts=np.array(TEXTS), **arrays)


def write_classifier(name, model, tokenizer):
    target = fresh(name)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    arrays = forward(model)
    encoder = CrossEncoder(str(target), device="cpu", activation_fn=torch.nn.Identity())
    arrays["pair_logits"] = np.stack([encoder.predict([pair])[0] for pair in PAIRS]).reshape(len(PAIRS), -1)
    if name == "xlm_reranker":  # the newer layout, which says of itself what it is
        encoder.save_pretrained(str(target), create_model_card=False)
    np.savez_compressed(DATA / f"{name}.npz", pairs=np.array(PAIRS), **arrays)


def write_bert(name, labels, seed):
    tokenizer = wordpiece()
    config = BertConfig(
        vocab_size=len(tokenizer) + 1,
        intermediate_size=56,
        hidden_act="silu",
        max_position_embeddings=44,
        type_vocab_size=3,
        layer_norm_eps=1e-2,
        pad_token_id=4,
        id2label=dict(enumerate(labels)),
        **SIZES,
    )
    write_classifier(name, randomise(BertForSequenceClassification(config), seed), tokenizer)


def write_xlm():
    tokenizer = unigram()
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        intermediate_size=40,
        hidden_act="gelu_new",
        max_position_embeddings=50,
        type_vocab_size=1,
        layer_norm_eps=1e-4,
        pad_token_id=4,
        bos_token_id=1,
        eos_token_id=2,
        id2label={0: "LABEL_0"},
        **SIZES,
    )
    write_classifier("xlm_reranker", randomise(XLMRobertaForSequenceClassification(config), 24), tokenizer)


if __name__ == "__main__":
    write_roberta()
    write_bert("bert_reranker", ["LABEL_0"], 22)
    write_bert("bert_nli", ["CONTRADICTION", "entailment", "Neutral"], 23)
    write_xlm()
