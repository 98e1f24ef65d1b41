"""lora_files.py - makes LoRA adapters of the shipped model, and one model with an adapter merged into its weights.

    lora_files.py models/muster-tiny-q8_0.gguf FOLDER

Writes base.gguf and merged.gguf (F32), the adapters tone and sql as PEFT saves them, and sql.gguf, the second one in
the form of GGUF. Numpy alone makes them: the merged weights are the truth for outputs with the adapter tone.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, "tests/models")
import gguf_read  # noqa: E402

RANK, ALPHA = 6, 9
TARGETS = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
           "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
           "mlp.down_proj": "ffn_down"}


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def write_gguf(path, metadata, meta_count, tensors):
    table, data = b"", b""
    for name, x in tensors.items():
        data += bytes(-len(data) % 32)
        table += text(name) + struct.pack("<I", x.ndim) + struct.pack(f"<{x.ndim}Q", *x.shape[::-1])
        table += struct.pack("<IQ", 0, len(data))
        data += np.ascontiguousarray(x, "<f4").tobytes()
    head = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), meta_count) + metadata + table
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def write_peft(folder, halves):
    folder.mkdir()
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, x in halves.items():
        raw = np.ascontiguousarray(x, "<f4").tobytes()
        header[f"base_model.model.{name}"] = {"dtype": "F32", "shape": list(x.shape),
                                              "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "target_modules": "all-linear",
        "task_type": "CAUSAL_LM", "use_dora": False, "modules_to_save": None}))


def to_pairs(x, heads):
    """The rows of a checkpoint in the order of GGUF files, whose RoPE turns adjacent pairs."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(x.shape)


def make(meta, weights, seed, layers):
    """-> halves by PEFT's names, halves by GGUF's, and what is added to each weight."""
    rng = np.random.default_rng(seed)
    peft, gguf, delta = {}, {}, {}
    heads = {"attn_q": meta["llama.attention.head_count"], "attn_k": meta["llama.attention.head_count_kv"]}
    for layer in layers:
        for module, short in TARGETS.items():
            name = f"blk.{layer}.{short}.weight"
            rows, cols = weights[name].shape
            a = rng.standard_normal((RANK, cols)).astype(np.float32) / np.float32(cols ** 0.5)
            b = rng.standard_normal((rows, RANK)).astype(np.float32) * np.float32(0.25 * weights[name].std() * cols ** 0.5)
            there = to_pairs(b, heads[short]) if short in heads else b
            peft[f"model.layers.{layer}.{module}.lora_A.weight"] = a
            peft[f"model.layers.{layer}.{module}.lora_B.weight"] = b
            gguf[name + ".lora_a"], gguf[name + ".lora_b"] = a, there
            delta[name] = ALPHA / RANK * there.astype(np.float64) @ a.astype(np.float64)
    return peft, gguf, delta


def main():
    source, folder = sys.argv[1], Path(sys.argv[2])
    meta, weights = gguf_read.load(source)
    raw = Path(source).read_bytes()
    reader = gguf_read.Reader(raw)
    reader.at = 24
    for _ in range(len(meta)):
        reader.string()
        reader.value(reader.number("<u4"))
    metadata, layers = raw[24:reader.at], range(meta["llama.block_count"])
    write_gguf(folder / "base.gguf", metadata, len(meta), weights)
    peft, _, delta = make(meta, weights, 1, layers)
    write_peft(folder / "tone", peft)
    write_gguf(folder / "merged.gguf", metadata, len(meta), {n: w + delta.get(n, 0) for n, w in weights.items()})
    peft, gguf, _ = make(meta, weights, 2, layers[1::2])
    write_peft(folder / "sql", peft)
    keys = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
    adapter = b"".join(text(k) + struct.pack("<I", 8) + text(v) for k, v in keys.items())
    adapter += text("adapter.lora.alpha") + struct.pack("<If", 6, ALPHA)
    write_gguf(folder / "sql.gguf", adapter, len(keys) + 1, gguf)


if __name__ == "__main__":
    main()
