# SPDX-License-Identifier: Apache-2.0
"""lora_vectors.py - what PEFT computes with LoRA adapters of the models of arch_vectors.py.

    pip install torch transformers peft gguf    (made with torch 2.15, transformers 5.24, peft 0.21.2)
    python lora_vectors.py --out ../vectors/lora [NAME ...]

PEFT itself writes each adapter's folder and loads it from there; see ../vectors/lora/README.md.
"""
import argparse
import json
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

import arch_vectors as arch

GREEDY = 24
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
DENSE = ATTENTION + ["gate_proj", "up_proj", "down_proj"]
GGUF = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down"}

CASES = {
    "llama": dict(base="llama", r=4, alpha=6, targets=DENSE, dtype=torch.float32, gguf=True),
    "llama_small": dict(base="llama", r=2, alpha=2, targets=["q_proj", "v_proj"], dtype=torch.bfloat16,
                        layers=[1, 3]),
    "qwen2": dict(base="qwen2", r=3, alpha=5, targets=DENSE, dtype=torch.bfloat16, layers=[0, 3], gguf=True),
    "qwen3moe": dict(base="qwen3moe", r=2, alpha=3, targets=ATTENTION, dtype=torch.float16, layers=[1, 2]),
    "phi3": dict(base="phi3", r=5, alpha=7, targets=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
                 dtype=torch.float16, layers=[0, 2]),
    "gemma3": dict(base="gemma3", r=3, alpha=4, rslora=True, targets=DENSE, dtype=torch.bfloat16, layers=[2, 3]),
    "gpt_oss": dict(base="gpt_oss", r=2, alpha=2, targets=ATTENTION, dtype=torch.bfloat16, layers=[0, 3]),
}


def adapt(base, case, name, folder):
    """Has PEFT save the adapter with our numbers in it."""
    config = LoraConfig(r=case["r"], lora_alpha=case["alpha"], target_modules=case["targets"], lora_dropout=0.0,
                        use_rslora=case.get("rslora", False), layers_to_transform=case.get("layers"),
                        task_type="CAUSAL_LM")
    get_peft_model(base, config).save_pretrained(folder)
    file = folder / "adapter_model.safetensors"
    made = {}
    for tensor, was in load_file(file).items():
        scale = round((3 / was.shape[1]) ** 0.5, 4)  # A x is about as large as x, and B (A x) as A x
        made[tensor] = torch.from_numpy(arch.values(f"{name} {tensor}", tuple(was.shape), 0.0, scale)).to(case["dtype"])
    save_file(made, file, metadata={"format": "pt"})
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = case["base"]
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    (folder / "README.md").unlink(missing_ok=True)
    return made


def write_gguf(made, case, path):
    """The same adapter as llama.cpp's convert_lora_to_gguf.py lays it out."""
    base = arch.CASES[case["base"]]
    writer = gguf.GGUFWriter(path, base["arch"])
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(case["alpha"]))
    for name, tensor in made.items():
        layer, rest = name.removeprefix("base_model.model.model.layers.").split(".", 1)
        stem, half = rest.removesuffix(".weight").rsplit(".lora_", 1)
        data = tensor.float().numpy()
        if half == "B" and base.get("pairs") and stem.endswith(("q_proj", "k_proj")):
            heads = arch.HEADS if stem.endswith("q_proj") else arch.KV_HEADS
            data = data.reshape(heads, 2, data.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(data.shape)
        writer.add_tensor(f"blk.{layer}.{GGUF[stem]}.weight.lora_{half.lower()}", np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compute(model, lines):
    rng = np.random.default_rng(5)
    ids = [int(i) for i in rng.integers(0, arch.VOCAB, arch.PROMPT)]
    forward = lambda ids: model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()
    lines.append("ids " + " ".join(map(str, ids)))
    data = forward(ids)[-1].astype("<f4").tobytes()
    lines.append(f"logits {len(ids) - 1} 0")
    best, gaps = [], []
    for _ in range(GREEDY):
        last = forward(ids + best)[-1]
        second, first = np.argsort(last, kind="stable")[-2:]
        best.append(int(first))
        gaps.append(float(last[first] - last[second]))
    lines += ["greedy " + " ".join(map(str, best)), "gaps " + " ".join(f"{g:.5f}" for g in gaps)]
    return ids, data, forward(ids)[-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    for name in args.names or CASES:
        case, lines = CASES[name], []
        folder = args.out / name
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as checkpoint:
            build = lambda: arch.build(arch.CASES[case["base"]], Path(checkpoint))[1]
            made = adapt(build(), case, name, folder)
            if case.get("gguf"):
                write_gguf(made, case, folder / "adapter.gguf")
            model = PeftModel.from_pretrained(build(), folder).float().eval()
            ids, data, logits = compute(model, lines)
            merged = model.merge_and_unload()(torch.tensor([ids]), use_cache=False).logits[0, -1].float().numpy()
            plain = build()(torch.tensor([ids]), use_cache=False).logits[0, -1].float().numpy()
        (args.out / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="ascii")
        (args.out / f"{name}.bin").write_bytes(data)
        top = np.abs(logits).max()
        print(f"{name}: {len(made)} tensors; of the largest logit: merged differs by {np.abs(merged - logits).max() / top:.1e}, "
              f"the base model by {np.abs(plain - logits).max() / top:.2f}", flush=True)


if __name__ == "__main__":
    main()
