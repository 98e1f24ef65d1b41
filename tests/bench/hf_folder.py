#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hf_folder.py - write a GGUF file of a Llama model as a folder in Hugging Face's format, in float32.

    hf_folder.py MODEL.gguf FOLDER

vLLM and SGLang read such folders. Only what the shipped model needs is written: architecture llama, a
byte-level BPE with GPT-2's pre-tokeniser, a chat template. GGUF rotates adjacent pairs of a head's
dimensions, Hugging Face its two halves, so the rows of Q and K are put in the other order. Servers of
Hugging Face folders put no token in front of a rendered chat, so the template itself begins with it.
"""
import json
import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))
import gguf_read  # noqa: E402

CONTROL = 3  # token_type of a control token
LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def halves_first(rows, heads):
    """Puts each head's even rows before its odd ones."""
    per_head = rows.reshape(heads, -1, 2, rows.shape[1])
    return np.concatenate([per_head[:, :, 0], per_head[:, :, 1]], axis=1).reshape(rows.shape)


def weights(meta, tensors):
    heads = {"attn_q": meta["llama.attention.head_count"], "attn_k": meta["llama.attention.head_count_kv"]}
    for name, value in tensors.items():
        if name in OTHER:
            yield OTHER[name], value
            continue
        _, number, kind, _ = name.split(".")
        if kind in heads:
            value = halves_first(value, heads[kind])
        yield f"model.layers.{number}.{LAYER[kind]}.weight", value


def write_safetensors(path, named):
    header, at, parts = {"__metadata__": {"format": "pt"}}, 0, []
    for name, value in named:
        raw = np.ascontiguousarray(value, dtype="<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        parts.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def model_config(meta, tied):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": meta["llama.attention.head_count"],
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": meta["llama.rope.dimension_count"],
        "max_position_embeddings": meta["llama.context_length"],
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "rms_norm_eps": round(meta["llama.attention.layer_norm_rms_epsilon"], 9),
        "rope_theta": meta["llama.rope.freq_base"],
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "float32",
    }


def tokenizer(meta):
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    first = meta["tokenizer.ggml.bos_token_id"]
    bos = tokens[first]
    controls = [
        {"id": i, "content": tokens[i], "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for i, kind in enumerate(kinds) if kind == CONTROL
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    begin = {"SpecialToken": {"id": bos, "type_id": 0}}
    begins_with_bos = {
        "type": "TemplateProcessing",
        "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [first], "tokens": [bos]}},
    }
    bpe = {
        "type": "BPE",
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": meta["tokenizer.ggml.merges"],
        "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
    }
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": controls, "pre_tokenizer": byte_level, "decoder": byte_level,
        "post_processor": begins_with_bos, "model": bpe,
    }


def main(source, folder):
    meta, tensors = gguf_read.load(source)
    if meta["general.architecture"] != "llama" or meta["tokenizer.ggml.model"] != "gpt2":
        sys.exit(f"{source}: neither a Llama model nor one with a byte-level BPE")
    out = pathlib.Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    tokens = meta["tokenizer.ggml.tokens"]
    bos, eos = meta["tokenizer.ggml.bos_token_id"], meta["tokenizer.ggml.eos_token_id"]
    write_safetensors(out / "model.safetensors", weights(meta, tensors))
    files = {
        "config.json": model_config(meta, "output.weight" not in tensors),
        "generation_config.json": {"bos_token_id": bos, "eos_token_id": eos},
        "tokenizer.json": tokenizer(meta),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[bos],
            "eos_token": tokens[eos],
            "clean_up_tokenization_spaces": False,
            "model_max_length": meta["llama.context_length"],
            "chat_template": "{{ bos_token }}" + meta["tokenizer.chat_template"],
        },
    }
    for name, value in files.items():
        (out / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
