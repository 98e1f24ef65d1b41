# SPDX-License-Identifier: Apache-2.0
"""encoder_vectors.py - what transformers computes with a small random encoder of each kind.

    pip install torch transformers        (made with torch 2.15, transformers 5.24)
    python encoder_vectors.py --out ../vectors/arch [NAME ...]

Weights are made from names, as in arch_vectors.py; see ../vectors/arch/README.md for the files. Without
names it also writes two small tokenizers, and served.txt: what becomes of texts and of pairs of them.
"""
import argparse
import json
import math
import re
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from arch_vectors import key_lines, values
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

TEXT, SECOND = 37, 14  # tokens of the text, and where the second of a pair begins
LAYERS, WIDTH, HEADS, FF, VOCAB, POSITIONS = 3, 64, 4, 96, 300, 48

TOP = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
       "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
       "pooler.dense": "cls", "classifier": "cls.output", "classifier.dense": "cls",
       "classifier.out_proj": "cls.output"}
LAYER = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
         "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
         "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}

MODERN_TOP = {"embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm",
              "final_norm": "output_norm", "head.dense": "cls", "head.norm": "cls.norm", "classifier": "cls.output"}
MODERN_LAYER = {"attn_norm": "attn_norm", "attn.Wqkv": "attn_qkv", "attn.Wo": "attn_output", "mlp_norm": "ffn_norm",
                "mlp.Wi": "ffn_up", "mlp.Wo": "ffn_down"}
NOMIC_TOP = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
             "emb_ln": "token_embd_norm"}
NOMIC_LAYER = {"attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "norm1": "attn_output_norm",
               "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down", "norm2": "layer_output_norm"}
MODERN = dict(pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3)
# general.architecture, names of tensors, and what stands before a layer's number.
KINDS = {"ModernBert": ("modern-bert", MODERN_TOP, MODERN_LAYER, r"layers\."),
         "NomicBert": ("nomic-bert", NOMIC_TOP, NOMIC_LAYER, r"encoder\.layers\.")}
BERT = ("bert", TOP, LAYER, r"encoder\.layer\.")

CASES = {
    "bert": dict(cls="Bert", config=dict(max_position_embeddings=POSITIONS)),
    "bert_cross": dict(cls="Bert", head=True, config=dict(max_position_embeddings=POSITIONS)),
    "xlm_roberta": dict(cls="XLMRoberta", skip=2, config=dict(max_position_embeddings=POSITIONS + 2, type_vocab_size=1)),
    "roberta_cross": dict(cls="Roberta", skip=2, head=True,
                          config=dict(max_position_embeddings=POSITIONS + 2, type_vocab_size=1)),
    "modern_bert": dict(cls="ModernBert", config=dict(max_position_embeddings=POSITIONS, local_attention=8, **MODERN)),
    "modern_cross": dict(cls="ModernBert", head=True, config=dict(max_position_embeddings=POSITIONS, local_attention=20,
                                                                  classifier_pooling="mean", **MODERN)),
    "nomic_bert": dict(cls="NomicBert", config=dict(max_position_embeddings=POSITIONS)),
}


def spread(name, shape):
    """-> (offset, scale): the states of tokens differ, and no product loses its size."""
    if "norm" in name.lower() or "emb_ln" in name:
        return (1.0 if name.endswith("weight") else 0.0), 0.3
    if name.endswith("bias"):
        return 0.0, 0.4
    if "embeddings" in name:
        return 0.0, 1.0
    sharp = 2.0 if re.search("query|key|Wqkv", name) else 1.0
    return 0.0, round(sharp * math.sqrt(3 / shape[-1]), 4)


def build(case, folder):
    """Saves the model as transformers would, with our weights in it, and loads it from there."""
    config = getattr(transformers, case["cls"] + "Config")(
        **(dict(vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=FF, num_hidden_layers=LAYERS,
                num_attention_heads=HEADS) | (dict(num_labels=1) if case.get("head") else {}) | case["config"]))
    kind = getattr(transformers, case["cls"] + ("ForSequenceClassification" if case.get("head") else "Model"))
    kind(config).float().save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}
    plan = {name: (shape, *spread(name, shape)) for name, shape in sorted(shapes.items())}
    save_file({name: values(name, *p) for name, p in plan.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval(), plan


def gguf_lines(plan, case):
    _, top, of_layer, before = KINDS.get(case["cls"], BERT)
    for name in plan:
        stem, dot, suffix = re.sub(r"^(bert|roberta|model|nomic_bert)\.", "", name).rpartition(".")
        layer = re.match(before + r"(\d+)\.(.*)", stem)
        if stem == "pooler.dense" and not case.get("head"):
            continue  # embedders do not use it
        to = f"blk.{layer[1]}.{of_layer[layer[2]]}" if layer else top[stem]
        how = f"rows {case['skip']}" if to == "position_embd" and "skip" in case else "copy"
        yield f"gguf {to}{dot}{suffix} {how} {name}"


def keys_of(case, config):
    pooling = 4 if case.get("head") else 2
    arch = KINDS.get(case["cls"], BERT)[0]
    keys = {"block_count": LAYERS, "context_length": POSITIONS, "embedding_length": WIDTH, "feed_forward_length": FF,
            "attention.head_count": HEADS, "vocab_size": VOCAB, "pooling_type": pooling}
    if arch == "modern-bert":
        keys |= {"attention.layer_norm_epsilon": float(config.norm_eps), "attention.sliding_window": config.local_attention,
                 "attention.sliding_window_pattern": 3, "rope.freq_base": 160000.0, "rope.freq_base_swa": 10000.0}
        if case.get("head"):
            keys["classifier.pooling_type"] = 1
    else:
        keys["attention.layer_norm_epsilon"] = float(config.layer_norm_eps)
    if arch == "nomic-bert":
        keys["rope.freq_base"] = 1000.0
    return {"general.architecture": arch, "tokenizer.ggml.model": "no_vocab"} | {f"{arch}.{k}": v for k, v in keys.items()}


def compute(model, case, lines):
    ids = [int(i) for i in np.random.default_rng(5).integers(5, VOCAB, TEXT)]  # no padding tokens
    types = [0] * TEXT
    if case.get("head") and case["cls"] == "Bert":
        types = [0] * SECOND + [1] * (TEXT - SECOND)
    inputs = dict(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types]))
    if case["cls"] == "ModernBert":
        del inputs["token_type_ids"]
    base = getattr(model, model.base_model_prefix, model)
    states = base(**inputs).last_hidden_state[0].float().numpy()
    lines.append("ids " + " ".join(map(str, ids)))
    data = bytearray(states.astype("<f4").tobytes())
    lines.append("states 0")
    if case.get("head"):
        lines += [f"second {SECOND}", f"score {len(data)}"]
        data += model(**inputs).logits[0].float().numpy().astype("<f4").tobytes()
    return data, float(np.abs(states).max())


# ---- from text to vectors and scores

TEXTS = ["a cat sat on the mat", "The sun, and the moon!", "zebras"]
PAIRS = [("where is the cat", "a cat sat on the mat"), ("where is the cat", "the sun"), ("moon?", "zebras on the moon")]
WORDS = "a cat sat on the mat sun and moon where is".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz,.!?"


def fill(tokens):
    return tokens + [f"[unused{i}]" for i in range(VOCAB - len(tokens))]


def word_pieces():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = fill(special + list(LETTERS) + ["##" + c for c in LETTERS] + [w for w in WORDS if len(w) > 1])
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(tokens)}, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                     special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.add_special_tokens(special)
    return t


def unigram():
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokens = fill(special + ["\u2581"] + list(LETTERS) + ["\u2581" + w for w in WORDS])
    t = Tokenizer(models.Unigram([(w, 0.0 if i < 4 else -2.0 if w[1:] in WORDS else -6.0 - i / 100)
                                  for i, w in enumerate(tokens)], unk_id=3))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
                                                     special_tokens=[("<s>", 0), ("</s>", 2)])
    t.add_special_tokens(special)
    return t


def run(model, encoding, **more):
    types = {} if model.config.model_type == "modernbert" else dict(token_type_ids=torch.tensor([encoding.type_ids]))
    return model(input_ids=torch.tensor([encoding.ids]), **types, **more)


def served(name, model, tokenizer):
    """Lines of what a server must reply: vectors of length 1 by two poolings, or scores by a sigmoid."""
    if CASES[name].get("head"):
        for a, b in PAIRS:
            yield f"score {name} {float(torch.sigmoid(run(model, tokenizer.encode(a, b)).logits[0, 0])):.6f}"
        return
    for text in TEXTS:
        states = run(model, tokenizer.encode(text)).last_hidden_state[0].double().numpy()
        for pooling, v in ("cls", states[0]), ("mean", states.mean(axis=0)):
            yield f"vector {name} {pooling} " + " ".join(f"{x:.6f}" for x in v / np.linalg.norm(v))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    tokenizers = {"Bert": word_pieces(), "XLMRoberta": unigram(), "Roberta": unigram()}
    tokenizers |= {"ModernBert": tokenizers["Bert"], "NomicBert": tokenizers["Bert"]}
    replies = [f"text {t}" for t in TEXTS] + [f"pair {a}|{b}" for a, b in PAIRS]
    for name in args.names or CASES:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            model, plan = build(case, Path(folder))
            text = json.loads((Path(folder) / "config.json").read_text())
            lines = ["config " + json.dumps(text, separators=(",", ":"))]
            lines += [f"tensor {n} {o!r} {s!r} " + " ".join(map(str, shape)) for n, (shape, o, s) in plan.items()]
            lines += key_lines(keys_of(case, model.config))
            lines += gguf_lines(plan, case)
            data, top = compute(model, case, lines)
            (args.out / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="ascii")
            (args.out / f"{name}.bin").write_bytes(data)
            replies += served(name, model, tokenizers[case["cls"]])
            print(f"{name}: {len(plan)} tensors, largest state {top:.2f}", flush=True)
    if not args.names:
        (args.out / "served.txt").write_text("\n".join(replies) + "\n", encoding="ascii")
        for kind in "Bert", "XLMRoberta":
            tokenizers[kind].save(str(args.out / f"{kind.lower()}.tokenizer.json"), pretty=False)


if __name__ == "__main__":
    main()
