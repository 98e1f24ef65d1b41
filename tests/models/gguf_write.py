# SPDX-License-Identifier: Apache-2.0
"""gguf_write.py - write a checkpoint of train.py as one GGUF v3 file.

2-D tensors become Q8_0 (blocks of 32 along the row: an f16 scale, then 32 signed bytes), norms
stay F32. There is no output.weight: the embedding is the output matrix as well.

    python gguf_write.py --checkpoint last.pt --tokenizer tokenizer.json --out muster-tiny-q8_0.gguf
"""
import argparse
import json
import struct
from pathlib import Path

import numpy as np

import train
import vocabulary as v

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5  # value types of GGUF
TENSOR_F32, TENSOR_Q8_0 = 0, 8
FILE_TYPE_Q8_0, QUANTISATION_VERSION, ALIGNMENT = 7, 2, 32
TOKEN_NORMAL, TOKEN_CONTROL = 1, 3


def text(s):
    raw = s.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


SCALAR = {U32: lambda x: struct.pack("<I", x), I32: lambda x: struct.pack("<i", x), STRING: text,
          F32: lambda x: struct.pack("<f", x), BOOL: lambda x: struct.pack("<?", x)}


def entry(key, kind, value, of=None):
    if kind == ARRAY:
        body = struct.pack("<IQ", of, len(value)) + b"".join(map(SCALAR[of], value))
    else:
        body = SCALAR[kind](value)
    return text(key) + struct.pack("<I", kind) + body


def q8_0(x):
    """Rows of f32 -> bytes. The scale is rounded to f16 only after the bytes were made with it,
    halves are rounded away from zero: both as the format's usual writers do."""
    blocks = np.ascontiguousarray(x, np.float32).reshape(-1, 32)
    d = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    y = blocks * np.where(d > 0, np.float32(1) / np.where(d > 0, d, 1), 0).astype(np.float32)
    q = np.trunc(y + np.copysign(np.float32(0.5), y)).astype(np.int8)
    out = np.empty((len(blocks), 34), np.uint8)
    out[:, :2] = d.astype("<f2").view(np.uint8)
    out[:, 2:] = q.view(np.uint8)
    return out.tobytes()


def tensors(state):
    """Checkpoint names -> (GGUF name, matrix), in the order they are written."""
    get = lambda name: state[name].float().numpy()
    q, kv = train.HEADS * train.HEAD, train.KV_HEADS * train.HEAD
    yield "token_embd.weight", get("embed.weight")
    for i in range(train.LAYERS):
        mine, theirs = f"blocks.{i}.", f"blk.{i}."
        qkv = get(mine + "qkv.weight")
        gate_up = get(mine + "gate_up.weight")
        yield theirs + "attn_norm.weight", get(mine + "attn_norm.weight")
        yield theirs + "attn_q.weight", qkv[:q]
        yield theirs + "attn_k.weight", qkv[q:q + kv]
        yield theirs + "attn_v.weight", qkv[q + kv:]
        yield theirs + "attn_output.weight", get(mine + "out.weight")
        yield theirs + "ffn_norm.weight", get(mine + "ffn_norm.weight")
        yield theirs + "ffn_gate.weight", gate_up[:train.FF]
        yield theirs + "ffn_up.weight", gate_up[train.FF:]
        yield theirs + "ffn_down.weight", get(mine + "down.weight")
    yield "output_norm.weight", get("norm.weight")


def metadata(tokenizer_path, template):
    model = json.loads(Path(tokenizer_path).read_text(encoding="utf-8"))["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    kinds = [TOKEN_CONTROL if t in v.SPECIALS else TOKEN_NORMAL for t in tokens]
    return [
        entry("general.architecture", STRING, "llama"),
        entry("general.name", STRING, "muster-tiny"),
        entry("general.license", STRING, "apache-2.0"),
        entry("general.file_type", U32, FILE_TYPE_Q8_0),
        entry("general.quantization_version", U32, QUANTISATION_VERSION),
        entry("general.alignment", U32, ALIGNMENT),
        entry("llama.vocab_size", U32, v.VOCAB),
        entry("llama.context_length", U32, train.CONTEXT),
        entry("llama.embedding_length", U32, train.WIDTH),
        entry("llama.block_count", U32, train.LAYERS),
        entry("llama.feed_forward_length", U32, train.FF),
        entry("llama.attention.head_count", U32, train.HEADS),
        entry("llama.attention.head_count_kv", U32, train.KV_HEADS),
        entry("llama.attention.layer_norm_rms_epsilon", F32, train.EPS),
        entry("llama.rope.dimension_count", U32, train.HEAD),
        entry("llama.rope.freq_base", F32, train.ROPE_BASE),
        entry("tokenizer.ggml.model", STRING, "gpt2"),
        entry("tokenizer.ggml.pre", STRING, "gpt-2"),
        entry("tokenizer.ggml.tokens", ARRAY, tokens, STRING),
        entry("tokenizer.ggml.token_type", ARRAY, kinds, I32),
        entry("tokenizer.ggml.merges", ARRAY, merges, STRING),
        entry("tokenizer.ggml.bos_token_id", U32, v.BEGIN),
        entry("tokenizer.ggml.eos_token_id", U32, v.END),
        entry("tokenizer.ggml.add_bos_token", BOOL, True),
        entry("tokenizer.chat_template", STRING, template),
    ]


def write(path, meta, named):
    """Header, metadata, tensor table, then the data, every tensor on an aligned offset."""
    table, data = [], bytearray()
    for name, x in named:
        data += bytes(-len(data) % ALIGNMENT)
        kind = TENSOR_Q8_0 if x.ndim == 2 else TENSOR_F32
        dims = x.shape[::-1]  # GGUF names the fastest dimension first
        table.append(text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data)))
        data += q8_0(x) if kind == TENSOR_Q8_0 else x.astype("<f4").tobytes()
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(table), len(meta)) + b"".join(meta) + b"".join(table)
    head += bytes(-len(head) % ALIGNMENT)
    Path(path).write_bytes(head + data)
    return len(table), len(head) + len(data)


def main():
    import torch
    p = argparse.ArgumentParser(description="checkpoint -> GGUF v3, Q8_0")
    p.add_argument("--checkpoint", required=True)
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--template", default=str(Path(__file__).parent / "template.jinja"))
    p.add_argument("--out", required=True)
    a = p.parse_args()
    saved = torch.load(a.checkpoint, map_location="cpu")
    count, size = write(a.out, metadata(a.tokenizer, Path(a.template).read_text(encoding="utf-8")),
                        tensors(saved["model"]))
    print(f"{a.out}: {count} tensors, {size} bytes, trained {saved['at']}")


if __name__ == "__main__":
    main()
