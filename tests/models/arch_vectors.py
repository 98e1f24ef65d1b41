# SPDX-License-Identifier: Apache-2.0
"""arch_vectors.py - what transformers computes with a small random model of each architecture.

    pip install torch transformers        (made with torch 2.15, transformers 5.24)
    python arch_vectors.py --out ../vectors/arch [NAME ...]

The weights are not stored: both sides make each from its name (see ../vectors/arch/README.md). The
names are those of the checkpoint that transformers itself saves, and it loads them from there.
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
from safetensors import safe_open
from safetensors.numpy import save_file

GREEDY = 64
PROMPT = 40
LAYERS, WIDTH, HEADS, KV_HEADS, FF, VOCAB = 4, 64, 4, 2, 96, 300
RANK, PLAIN, TURNED, VALUE, QUERY_RANK = 32, 64, 16, 16, 96  # of latent attention


def values(name, shape, offset, scale):
    """splitmix64 from the FNV-1a hash of the name; 24 bits a value, even in [-scale, scale)."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 & (1 << 64) - 1
    count = int(np.prod(shape))
    z = np.uint64(seed) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    unit = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0 ** -23) - np.float32(1)
    return (unit * np.float32(scale) + np.float32(offset)).reshape(shape)


def spread(name, shape, one_plus):
    """-> (offset, scale): products keep the size of their input, queries and keys are sharp."""
    if "norm" in name:
        return (0.0 if one_plus else 1.0), 0.3
    if "bias" in name or "sinks" in name:
        return 0.0, 0.4
    if "embed_tokens" in name:
        return 0.0, 0.15 if one_plus else 1.0  # those are multiplied by sqrt(width)
    if name.endswith("experts.gate_up_proj") or name.endswith("experts.down_proj"):
        return 0.0, round(math.sqrt(3 / shape[-2]), 4)  # [expert][in][out]
    sharp = 1.6 if re.search(r"q_proj|k_proj|qkv|q_b_proj|kv_a_proj|gate\.weight|router", name) else 1.0
    return 0.0, round(sharp * math.sqrt(3 / shape[-1]), 4)


# ---- GGUF files: how each differs from the checkpoint

TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
       "lm_head.weight": "output.weight"}
LAYER = {"input_layernorm.weight": "attn_norm.weight", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp"}
NORMS = {"post_attention_layernorm": "ffn_norm"}
LATENT = {"self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
          "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
          "self_attn.kv_b_proj": "attn_kv_b", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
          "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
          "mlp.shared_experts.down_proj": "ffn_down_shexp"} | NORMS
OSS_NORMS = {"post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp",
             "self_attn.sinks": "attn_sinks.weight"}
OSS_EXPERTS = {"gate_up_proj": [("ffn_gate_exps.weight", "turned 0 2"), ("ffn_up_exps.weight", "turned 1 2")],
               "down_proj": [("ffn_down_exps.weight", "turned 0 1")],
               "gate_up_proj_bias": [("ffn_gate_exps.bias", "every 0 2"), ("ffn_up_exps.bias", "every 1 2")],
               "down_proj_bias": [("ffn_down_exps.bias", "every 0 1")]}
GEMMA_NORMS = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}
EXPERT = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps", "gate_proj": "ffn_gate_exps",
          "down_proj": "ffn_down_exps", "up_proj": "ffn_up_exps"}


def gguf_lines(names, case):
    """One line a tensor: its name, and how it is made of the checkpoint's."""
    lines = []
    for name in names:
        layer = re.match(r"model\.layers\.(\d+)\.(.*)", name)
        if not layer:
            to, rest = TOP[name], ""
        else:
            rest = layer[2]
            expert = re.match(r"(.*\.experts\.)(\d+)\.(\w+)\.weight", rest)
            if expert:
                if expert[2] == "0":
                    lines.append(f"gguf blk.{layer[1]}.{EXPERT[expert[3]]}.weight stack {case['experts']} "
                                 f"model.layers.{layer[1]}.{expert[1]}*.{expert[3]}.weight")
                continue
            if rest.startswith("mlp.experts."):
                lines += [f"gguf blk.{layer[1]}.{to} {how} {name}" for to, how in OSS_EXPERTS[rest.split(".")[2]]]
                continue
            if rest.startswith("self_attn.kv_b_proj") and case.get("split"):
                lines += [f"gguf blk.{layer[1]}.attn_{part}_b.weight heads_{part} {HEADS} {PLAIN} {VALUE} {name}"
                          for part in "kv"]
                continue
            table = LAYER | (OSS_NORMS if case["cls"] == "GptOss" else GEMMA_NORMS if case.get("one_plus")
                             else LATENT if case.get("latent") else NORMS)
            stem, dot, suffix = rest.rpartition(".")
            to = f"blk.{layer[1]}." + (table.get(rest) or table[stem] + dot + suffix)
        how = "copy"
        if case.get("pairs") and rest.startswith(("self_attn.q_proj", "self_attn.k_proj")):
            how = f"pairs {HEADS if 'q_proj' in rest else KV_HEADS}"
        if case.get("one_plus") and to.endswith("norm.weight"):
            how = "one_plus"
        lines.append(f"gguf {to} {how} {name}")
    return lines


def common_keys(arch, config, head_dim):
    return {"general.architecture": arch, "tokenizer.ggml.model": "no_vocab", f"{arch}.block_count": LAYERS,
            f"{arch}.context_length": config.max_position_embeddings, f"{arch}.embedding_length": WIDTH,
            f"{arch}.feed_forward_length": FF, f"{arch}.attention.head_count": HEADS,
            f"{arch}.attention.head_count_kv": KV_HEADS, f"{arch}.attention.key_length": head_dim,
            f"{arch}.attention.value_length": head_dim, f"{arch}.vocab_size": VOCAB,
            f"{arch}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps)}


def key_lines(keys):
    for key, value in keys.items():
        if isinstance(value, list):
            yield f"bools {key} " + " ".join(str(int(v)) for v in value)
        elif isinstance(value, bool):
            yield f"bool {key} {int(value)}"
        else:
            kind = {int: "u32", float: "f32", str: "str"}[type(value)]
            yield f"{kind} {key} {value!r}" if kind != "str" else f"str {key} {value}"


# ---- the models

ROPE = {"rope_type": "default", "rope_theta": 10000.0}
LONG = [1.0 + 0.4 * i for i in range(6)]
SHORT = [1.0 + 0.05 * i for i in range(6)]
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def llama3_factors(pairs):
    wave = 2 * np.pi * 10000.0 ** (np.arange(pairs) / pairs)
    share = np.clip((64 / wave - 1) / 3, 0, 1)
    return [float(f) for f in 1 / ((1 - share) / 8 + share)]


LATENT_SIZES = dict(kv_lora_rank=RANK, qk_nope_head_dim=PLAIN, qk_rope_head_dim=TURNED, v_head_dim=VALUE,
                    num_key_value_heads=HEADS, first_k_dense_replace=1, moe_intermediate_size=48)
EXPERT_KEYS = {"attention.kv_lora_rank": RANK, "rope.dimension_count": TURNED, "leading_dense_block_count": 1,
               "expert_feed_forward_length": 48}
ABSORBED_KEYS = {"attention.key_length": RANK + TURNED, "attention.value_length": RANK, "attention.head_count_kv": 1,
                 "attention.key_length_mla": PLAIN + TURNED, "attention.value_length_mla": VALUE}
MSCALE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
          "mscale": 0.707, "mscale_all_dim": 0.707, "original_max_position_embeddings": 32}
MSCALE_KEYS = {"rope.freq_base": 10000.0, "rope.scaling.type": "yarn", "rope.scaling.factor": 8.0,
               "rope.scaling.original_context_length": 32}

CASES = {
    "llama": dict(cls="Llama", arch="llama", pairs=True, config=dict(rope_parameters=LLAMA3),
                  keys={"rope.freq_base": 10000.0}, made={"rope_freqs.weight": llama3_factors(8)}),
    "mistral": dict(cls="Mistral", arch="llama", pairs=True, head_dim=32,
                    config=dict(sliding_window=19, rope_parameters=ROPE | {"rope_theta": 1000.0}),
                    keys={"rope.freq_base": 1000.0, "attention.sliding_window": 19}),
    "mixtral": dict(cls="Mixtral", arch="llama", pairs=True, experts=5,
                    config=dict(num_local_experts=5, num_experts_per_tok=2, sliding_window=None, rope_parameters=ROPE),
                    keys={"rope.freq_base": 10000.0, "expert_count": 5, "expert_used_count": 2}),
    "smollm3": dict(cls="SmolLM3", arch="smollm3", pairs=True,
                    config=dict(rope_parameters=ROPE, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                                no_rope_layers=[1, 1, 1, 0]),
                    keys={"rope.freq_base": 10000.0}),
    "qwen2": dict(cls="Qwen2", arch="qwen2",
                  config=dict(use_sliding_window=True, sliding_window=21, max_window_layers=2, rope_parameters=ROPE),
                  keys={"rope.freq_base": 10000.0, "attention.sliding_window": 21,
                        "attention.sliding_window_pattern": [False, False, True, True]}),
    "qwen3": dict(cls="Qwen3", arch="qwen3", head_dim=32,
                  config=dict(rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                               "original_max_position_embeddings": 64}),
                  keys={"rope.freq_base": 10000.0, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                        "rope.scaling.original_context_length": 64}),
    "qwen3moe": dict(cls="Qwen3Moe", arch="qwen3moe", head_dim=32, experts=6,
                     config=dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=48, norm_topk_prob=True,
                                 rope_parameters=ROPE),
                     keys={"rope.freq_base": 10000.0, "expert_count": 6, "expert_used_count": 3,
                           "expert_feed_forward_length": 48}),
    "phi3": dict(cls="Phi3", arch="phi3", original=16,
                 config=dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, original_max_position_embeddings=16,
                             sliding_window=25,
                             rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "long_factor": LONG,
                                              "short_factor": SHORT, "partial_rotary_factor": 0.75}),
                 keys={"rope.freq_base": 10000.0, "rope.dimension_count": 12, "attention.sliding_window": 25,
                       "rope.scaling.original_context_length": 16,
                       "rope.scaling.attn_factor": math.sqrt(1 + math.log(256 / 16) / math.log(16))},
                 made={"rope_factors_long.weight": LONG, "rope_factors_short.weight": SHORT}),
    "phi3_short": dict(cls="Phi3", arch="phi3",
                       config=dict(pad_token_id=0, bos_token_id=1, eos_token_id=2,
                                   original_max_position_embeddings=256,
                                   rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0,
                                                    "long_factor": LONG, "short_factor": SHORT,
                                                    "partial_rotary_factor": 0.75}),
                       keys={"rope.freq_base": 10000.0, "rope.dimension_count": 12,
                             "rope.scaling.original_context_length": 256, "rope.scaling.attn_factor": 1.0},
                       made={"rope_factors_long.weight": LONG, "rope_factors_short.weight": SHORT}),
    "gemma2": dict(cls="Gemma2", arch="gemma2", head_dim=32, one_plus=True,
                   config=dict(sliding_window=18, query_pre_attn_scalar=24, attn_logit_softcapping=4.0,
                               final_logit_softcapping=6.0, rope_parameters=ROPE),
                   keys={"rope.freq_base": 10000.0, "attention.sliding_window": 18,
                         "attn_logit_softcapping": 4.0, "final_logit_softcapping": 6.0,
                         "attention.scale": 24 ** -0.5}),
    "gemma3": dict(cls="Gemma3", arch="gemma3", head_dim=32, one_plus=True,
                   config=dict(sliding_window=17, query_pre_attn_scalar=32,
                               layer_types=["sliding_attention", "sliding_attention", "full_attention",
                                            "sliding_attention"],
                               rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0,
                                                                   "rope_theta": 100000.0},
                                                "sliding_attention": {"rope_type": "default",
                                                                      "rope_theta": 10000.0}}),
                   keys={"rope.freq_base": 100000.0, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
                         "attention.sliding_window": 17,
                         "attention.sliding_window_pattern": [True, True, False, True]}),
    "deepseek_v2": dict(cls="DeepseekV2", arch="deepseek2", latent=True, experts=8,
                        config=LATENT_SIZES | dict(q_lora_rank=QUERY_RANK, n_routed_experts=8, n_shared_experts=2, n_group=4,
                                                   topk_group=2, topk_method="group_limited_greedy",
                                                   num_experts_per_tok=3, routed_scaling_factor=4.0,
                                                   norm_topk_prob=False, rope_parameters=MSCALE),
                        keys=EXPERT_KEYS | MSCALE_KEYS | {
                            "attention.q_lora_rank": QUERY_RANK, "attention.key_length": PLAIN + TURNED,
                            "attention.value_length": VALUE, "attention.head_count_kv": HEADS, "expert_count": 8,
                            "expert_used_count": 3, "expert_shared_count": 2, "expert_group_count": 4,
                            "expert_group_used_count": 2, "expert_weights_scale": 4.0,
                            "rope.scaling.yarn_log_multiplier": 0.1 * 0.707, "rope.scaling.attn_factor": 1.0}),
    "deepseek_v2_lite": dict(cls="DeepseekV2", arch="deepseek2", latent=True, split=True, experts=6,
                             config=LATENT_SIZES | dict(q_lora_rank=None, n_routed_experts=6, n_shared_experts=1,
                                                        topk_method="greedy", num_experts_per_tok=2,
                                                        routed_scaling_factor=1.0, norm_topk_prob=False,
                                                        rope_parameters=ROPE),
                             keys=EXPERT_KEYS | ABSORBED_KEYS | {
                                 "rope.freq_base": 10000.0, "expert_count": 6, "expert_used_count": 2,
                                 "expert_shared_count": 1, "expert_gating_func": 1, "expert_weights_norm": False}),
    "deepseek_v3": dict(cls="DeepseekV3", arch="deepseek2", latent=True, split=True, experts=8,
                        config=LATENT_SIZES | dict(q_lora_rank=QUERY_RANK, n_routed_experts=8, n_shared_experts=1, n_group=4,
                                                   topk_group=2, num_experts_per_tok=3, routed_scaling_factor=2.5,
                                                   norm_topk_prob=True, num_mtp_layers=0,
                                                   rope_parameters=MSCALE | {"mscale": 1.2, "mscale_all_dim": 0.9}),
                        keys=EXPERT_KEYS | ABSORBED_KEYS | MSCALE_KEYS | {
                            "attention.q_lora_rank": QUERY_RANK, "expert_count": 8, "expert_used_count": 3,
                            "expert_shared_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
                            "expert_group_count": 4, "expert_group_used_count": 2, "expert_weights_scale": 2.5,
                            "rope.scaling.yarn_log_multiplier": 0.1 * 0.9,
                            "rope.scaling.attn_factor": (1 + 1.2 * 0.1 * math.log(8)) / (1 + 0.9 * 0.1 * math.log(8))}),
    "gpt_oss": dict(cls="GptOss", arch="gpt-oss", head_dim=32,
                    config=dict(num_local_experts=6, num_experts_per_tok=3, sliding_window=23,
                                rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0,
                                                 "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                                                 "original_max_position_embeddings": 64}),
                    keys={"rope.freq_base": 150000.0, "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
                          "rope.scaling.original_context_length": 64, "attention.sliding_window": 23,
                          "expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": FF}),
}


def build(case, folder):
    """Saves the model as transformers would, with our weights in it, and loads it from there."""
    kind = case["cls"]
    config_class = getattr(transformers, kind + ("TextConfig" if kind == "Gemma3" else "Config"))
    options = dict(vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=FF, num_hidden_layers=LAYERS,
                   num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=256)
    if "head_dim" in case:
        options["head_dim"] = case["head_dim"]
    config = config_class(**(options | case["config"]))
    config._attn_implementation = "eager"
    model_class = getattr(transformers, kind + "ForCausalLM")
    model_class(config).float().save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}
    plan = {name: (shape, *spread(name, shape, case.get("one_plus"))) for name, shape in sorted(shapes.items())}
    save_file({name: values(name, *p) for name, p in plan.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    return config, model, plan


def compute(model, out, lines):
    rng = np.random.default_rng(3)
    ids = [int(i) for i in rng.integers(0, VOCAB, PROMPT)]
    forward = lambda ids: model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()
    data = bytearray()
    logits = forward(ids)
    lines.append("ids " + " ".join(map(str, ids)))
    for at in (PROMPT // 2, PROMPT - 1) if not model.config.model_type == "phi3" else (PROMPT - 1,):
        lines.append(f"logits {at} {len(data)}")
        data += logits[at].astype("<f4").tobytes()
    best, gaps = [], []
    for _ in range(GREEDY):
        last = forward(ids + best)[-1]
        second, first = np.argsort(last, kind="stable")[-2:]
        best.append(int(first))
        gaps.append(float(last[first] - last[second]))
    lines.append(f"logits {PROMPT + GREEDY - 2} {len(data)}")
    data += last.astype("<f4").tobytes()
    lines += ["greedy " + " ".join(map(str, best)), "gaps " + " ".join(f"{g:.5f}" for g in gaps)]
    states = model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0].float().numpy()
    lines.append(f"states {len(data)}")
    data += np.concatenate([states[-1], states.mean(axis=0, dtype=np.float64)]).astype("<f4").tobytes()
    return data, float(np.abs(logits).max()), min(gaps)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    for name in args.names or CASES:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            config, model, plan = build(case, Path(folder))
            text = json.loads((Path(folder) / "config.json").read_text())
            lines = ["config " + json.dumps(text, separators=(",", ":"))]
            lines += [f"tensor {n} {o!r} {s!r} " + " ".join(map(str, shape)) for n, (shape, o, s) in plan.items()]
            arch = case["arch"]
            head_dim = case.get("head_dim", WIDTH // HEADS)
            keys = common_keys(arch, config, head_dim)
            if case.get("latent"):
                keys = {k: v for k, v in keys.items() if not k.endswith(("_length", "_kv")) or "attention" not in k}
            keys |= {f"{arch}.{k}": v for k, v in case["keys"].items()}
            lines += key_lines(keys)
            lines += gguf_lines(plan, case)
            lines += [f"gguf {n} values " + " ".join(repr(v) for v in list_) for n, list_ in
                      case.get("made", {}).items()]
            data, top, gap = compute(model, args.out, lines)
            (args.out / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="ascii")
            (args.out / f"{name}.bin").write_bytes(data)
            print(f"{name}: {len(plan)} tensors, largest logit {top:.2f}, smallest gap {gap:.4f}", flush=True)


if __name__ == "__main__":
    main()
