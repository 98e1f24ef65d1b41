# SPDX-License-Identifier: Apache-2.0
"""packed_vectors.py - small random models whose weights are packed by the formats' own packages.

    pip install torch transformers compressed-tensors gptqmodel==7.7.0 gguf
    pip download --no-deps auto-gptq==0.7.1 autoawq==0.2.9, both unpacked   (they build for CUDA; these parts are torch)
    python packed_vectors.py --auto-gptq DIR --autoawq DIR --out ../vectors/packed [NAME ...]

Each model is a folder, as a user would have it, and NAME.safetensors with what the packages and transformers compute
from it (see ../vectors/packed/README.md). Made with torch 2.15, transformers 5.24, compressed-tensors 0.20.
"""
import argparse
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

PROMPT, GREEDY, VOCAB, LAYERS, HEADS, KV_HEADS = 24, 24, 64, 2, 4, 2
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def grid(w, groups, symmetric, rng):
    """-> scales and zeros [rows][groups] and the weights on that grid, with 16 steps of each group."""
    rows, cols = w.shape
    parts = w.reshape(rows, groups, cols // groups)
    if symmetric:
        scales = (parts.abs().amax(-1) / 7.5).half().float()
        zeros = torch.full_like(scales, 8)
    else:
        low, high = parts.amin(-1).clamp(max=0), parts.amax(-1).clamp(min=0)
        scales = ((high - low) / 15).half().float()
        zeros = torch.round(-low / scales).clamp(1, 15)
        zeros[rng.random(tuple(zeros.shape)) < 0.1] = 15  # at the ends, too
        zeros[rng.random(tuple(zeros.shape)) < 0.1] = 1
    q = torch.round(parts / scales[..., None] + zeros[..., None]).clamp(0, 15)
    return scales, zeros, ((q - zeros[..., None]) * scales[..., None]).reshape(rows, cols)


def as_q4_1(w, scales, zeros):
    """What a Q4_1 block holds of w = scale (q - zero): scale q + m, with m in F16."""
    parts = w.reshape(w.shape[0], scales.shape[1], -1)
    q = torch.round(parts / scales[..., None]) + zeros[..., None]
    return (q * scales[..., None] - (scales * zeros).half().float()[..., None]).reshape(w.shape)


def as_q8_0(w):
    from gguf import GGMLQuantizationType, quants
    packed = quants.quantize(np.ascontiguousarray(w.numpy()), GGMLQuantizationType.Q8_0)
    return torch.from_numpy(quants.dequantize(packed, GGMLQuantizationType.Q8_0))


# ---- one matrix: -> the tensors of its module, the package's own dequantisation, [rows][cols] in F32, and what of it
# our blocks hold


def gptq(w, case, tools, rng):
    rows, cols = w.shape
    size = cols if case["group"] == -1 else case["group"]
    order = torch.arange(cols)
    if case.get("act"):
        order = torch.from_numpy(rng.permutation(cols))
    scales, zeros, on_grid = grid(w[:, order], cols // size, case["sym"], rng)
    g_idx = torch.empty(cols, dtype=torch.int32)
    g_idx[order] = torch.arange(cols, dtype=torch.int32) // size
    plain = torch.empty_like(on_grid)
    plain[:, order] = on_grid
    linear = torch.nn.Linear(cols, rows, bias=False)
    linear.weight.data = plain
    module = tools["gptq"].QuantLinear(4, size, cols, rows, False, weight_dtype=torch.float32)
    module.pack(linear, scales.clone(), zeros.clone(), g_idx)
    dequantised = module(torch.eye(cols)).t()
    tensors = {"qweight": module.qweight, "qzeros": module.qzeros, "scales": module.scales.half(), "g_idx": module.g_idx}
    carried = as_q8_0(dequantised) if case.get("act") else dequantised
    return tensors, dequantised, carried if case["sym"] or case.get("act") else as_q4_1(dequantised, scales, zeros)


def gptqmodel(w, case, tools, rng):
    """GPTQModel's own packing, with zero points of 0, which old readers of checkpoint_format gptq do not agree on."""
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module, convert_gptq_v2_to_v1_format_module
    from types import SimpleNamespace
    rows, cols = w.shape
    size = case["group"]
    scales, zeros, on_grid = grid(w, cols // size, False, rng)
    zeros[rng.random(tuple(zeros.shape)) < 0.1] = 0
    on_grid = on_grid.reshape(rows, -1, size).clamp(-zeros[..., None] * scales[..., None],
                                                    (15 - zeros[..., None]) * scales[..., None]).reshape(rows, cols)
    linear = torch.nn.Linear(cols, rows, bias=False)
    linear.weight.data = on_grid
    module = TorchLinear(bits=4, group_size=size, sym=False, desc_act=False, in_features=cols, out_features=rows)
    module.pack(linear, scales.clone(), zeros.clone(), torch.arange(cols, dtype=torch.int32) // size)
    module.qzero_format(format=2)
    kept = module.qzeros.clone()
    if not case.get("v2"):
        convert_gptq_v2_to_v1_format_module(module, SimpleNamespace(bits=4, pack_dtype=torch.int32))
    tensors = {k: getattr(module, k).clone() for k in ("qweight", "qzeros", "g_idx")} | {"scales": module.scales.half()}
    if not case.get("v2"):
        convert_gptq_v1_to_v2_format_module(module, 4, torch.int32)
    assert torch.equal(kept, module.qzeros)
    module.scales = module.scales.float()
    dequantised = module.dequantize_weight().t().float()
    return tensors, dequantised, as_q4_1(dequantised, scales, zeros)


def awq(w, case, tools, rng):
    rows, cols = w.shape
    scales, zeros, on_grid = grid(w, cols // case["group"], False, rng)
    linear = torch.nn.Linear(cols, rows, bias=False)
    linear.weight.data = on_grid
    module = tools["awq"].WQLinear_GEMM.from_linear(linear, 4, case["group"], False, scales.t().contiguous(),
                                                    zeros.t().contiguous())
    dequantised = tools["awq"].dequantize_gemm(module.qweight, module.qzeros, module.scales.float(), 4, case["group"]).t()
    tensors = {"qweight": module.qweight, "qzeros": module.qzeros, "scales": module.scales}
    return tensors, dequantised, as_q4_1(dequantised, scales, zeros)


def compressed(w, case, tools, rng):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    scheme = QuantizationScheme(targets=["Linear"], weights=case["weights"])
    rows, cols = w.shape
    kind = case["weights"]
    if kind["num_bits"] == 4:
        groups = cols // kind["group_size"] if kind["strategy"] == "group" else 1
        scales, zeros, on_grid = grid(w, groups, kind["symmetric"], rng)
        state = {"weight": on_grid, "weight_scale": scales, "weight_zero_point": (zeros - 8).to(torch.int8)}
    elif kind["strategy"] == "block":
        down, across = (-(-n // b) for n, b in zip(w.shape, kind["block_structure"]))
        padded = torch.zeros(down * kind["block_structure"][0], across * kind["block_structure"][1])
        padded[:rows, :cols] = w
        blocks = padded.reshape(down, kind["block_structure"][0], across, kind["block_structure"][1])
        state = {"weight": w, "weight_scale": (blocks.abs().amax((1, 3)) / 448).float()}
    else:
        top = 127 if kind["type"] == "int" else 448
        state = {"weight": w, "weight_scale": (w.abs().amax(-1, keepdim=True) / top).bfloat16().float()}
    compressor = BaseCompressor.get_value_from_registry(case["format"])
    packed = compressor.compress(state, scheme)
    dequantised = compressor.decompress(packed, scheme)["weight"]
    dequantised = dequantised.float()
    scale_type = torch.float32 if kind["strategy"] == "block" else case.get("scale", torch.bfloat16)
    packed["weight_scale"] = packed["weight_scale"].to(scale_type)
    carried = dequantised if kind["symmetric"] else as_q4_1(dequantised, scales, zeros)
    if kind["type"] == "float":
        carried = dequantised.half().float()
    return {k: v for k, v in packed.items() if v is not None}, dequantised, carried


def weights(bits, kind, symmetric, strategy, **more):
    return dict(num_bits=bits, type=kind, symmetric=symmetric, strategy=strategy, dynamic=False, **more)


def ct_config(case):
    return {"quant_method": "compressed-tensors", "format": case["format"], "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": case["weights"], "input_activations": None,
                                          "output_activations": None}},
            "ignore": ["lm_head"], "kv_cache_scheme": None}


def gptq_config(case):
    return {"quant_method": "gptq", "bits": 4, "group_size": case["group"], "desc_act": bool(case.get("act")),
            "sym": case["sym"], "checkpoint_format": "gptq_v2" if case.get("v2") else "gptq", "damp_percent": 0.1,
            "true_sequential": True, "static_groups": False, "meta": {"quantizer": ["gptqmodel:7.7.0"]}}


def awq_config(case):
    return {"quant_method": "awq", "bits": 4, "group_size": case["group"], "zero_point": True, "version": "gemm",
            "modules_to_not_convert": None}


HALF = torch.float16
CASES = {
    "gptq_sym_32": dict(make=gptq, config=gptq_config, group=32, sym=True),
    "gptq_asym_64": dict(make=gptq, config=gptq_config, group=64, sym=False),
    "gptq_zero_64": dict(make=gptqmodel, config=gptq_config, group=64, sym=False),
    "gptq_v2_128": dict(make=gptqmodel, config=gptq_config, group=128, sym=False, v2=True, width=128),
    "gptq_whole": dict(make=gptq, config=gptq_config, group=-1, sym=True),
    "gptq_act": dict(make=gptq, config=gptq_config, group=32, sym=False, act=True),
    "awq_32": dict(make=awq, config=awq_config, group=32),
    "awq_128": dict(make=awq, config=awq_config, group=128, width=128),
    "ct_sym_32": dict(make=compressed, config=ct_config, format="pack-quantized", scale=HALF,
                      weights=weights(4, "int", True, "group", group_size=32)),
    "ct_asym_64": dict(make=compressed, config=ct_config, format="pack-quantized", scale=HALF,
                       weights=weights(4, "int", False, "group", group_size=64)),
    "ct_channel": dict(make=compressed, config=ct_config, format="pack-quantized", scale=HALF,
                       weights=weights(4, "int", True, "channel")),
    "ct_int8": dict(make=compressed, config=ct_config, format="int-quantized",
                    weights=weights(8, "int", True, "channel")),
    "ct_float8": dict(make=compressed, config=ct_config, format="float-quantized",
                      weights=weights(8, "float", True, "channel")),
    "ct_block": dict(make=compressed, config=ct_config, format="float-quantized",
                     weights=weights(8, "float", True, "block", block_structure=[48, 32])),
    "gpt_oss": dict(),
}


# ---- whole models


def reference(model, expected):
    rng = np.random.default_rng(3)
    ids = [int(i) for i in rng.integers(0, VOCAB, PROMPT)]
    forward = lambda ids: model(torch.tensor([ids]), use_cache=False).logits[0].float()
    logits = forward(ids)
    expected["logits"] = torch.stack([logits[PROMPT // 2], logits[-1]]).contiguous()
    expected["ids"] = torch.tensor(ids, dtype=torch.int32)
    best, gaps = [], []
    for _ in range(GREEDY):
        last = forward(ids + best)[-1]
        two = torch.topk(last, 2)
        best.append(int(two.indices[0]))
        gaps.append(float(two.values[0] - two.values[1]))
    expected["greedy"] = torch.tensor(best, dtype=torch.int32)
    expected["gaps"] = torch.tensor(gaps)
    return float(logits.abs().max()), min(gaps)


def write(out, name, config, tensors, expected):
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    save_file({k: v.contiguous() for k, v in expected.items()}, out / f"{name}.safetensors")


def llama(name, case, out, tools):
    width = case.get("width", 64)
    config = transformers.LlamaConfig(vocab_size=VOCAB, hidden_size=width, intermediate_size=width,
                                      num_hidden_layers=1 if width > 64 else LAYERS, num_attention_heads=HEADS,
                                      num_key_value_heads=KV_HEADS, max_position_embeddings=128,
                                      tie_word_embeddings=True, bos_token_id=1, eos_token_id=2)
    config._attn_implementation = "eager"
    torch.manual_seed(len(name))
    rng = np.random.default_rng(len(name))
    model = transformers.LlamaForCausalLM(config).float().eval()
    tensors, expected, carried = {}, {}, {}
    for key, value in model.state_dict().items():
        if key == "lm_head.weight":
            continue
        if "norm" in key:
            value.copy_((1 + 0.3 * torch.randn_like(value)).half().float())
        elif "embed" in key:
            value.copy_((0.25 * torch.randn_like(value)).half().float())  # small, so that the layers decide
        else:
            value.copy_(torch.randn_like(value) * (1.6 if "q_proj" in key or "k_proj" in key else 1.0) / width ** 0.5)
        if not any(part in key for part in LINEAR):
            tensors[key] = value.half()
            continue
        packed, dequantised, carried[key] = case["make"](value.clone(), case, tools, rng)
        value.copy_(dequantised)
        expected["rows." + key] = dequantised[::7].clone()
        tensors |= {key.removesuffix("weight") + k: v for k, v in packed.items()}
    text = json.loads(config.to_json_string())
    text["quantization_config"] = case["config"](case)
    reference(model, expected)
    expected = {k: v for k, v in expected.items() if k.startswith("rows.")} | {"logits_package": expected["logits"]}
    for key, value in carried.items():
        model.state_dict()[key].copy_(value)
    top, gap = reference(model, expected)
    write(out, name, text, tensors, expected)
    return top, gap


def gpt_oss(name, out):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    config = transformers.GptOssConfig(vocab_size=VOCAB, hidden_size=64, intermediate_size=32, num_hidden_layers=LAYERS,
                                       num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=32,
                                       num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=128,
                                       sliding_window=9, bos_token_id=1, eos_token_id=2,
                                       rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0,
                                                        "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                                                        "original_max_position_embeddings": 64})
    config._attn_implementation = "eager"
    torch.manual_seed(5)
    model = transformers.GptOssForCausalLM(config).float().eval()
    tensors, expected = {}, {}
    for key, value in model.state_dict().items():
        if key.endswith(("gate_up_proj", "down_proj")):  # [experts][in][out]; files have [experts][out][in / 32][16]
            experts, cols, rows = value.shape
            blocks = torch.randint(0, 256, (experts, rows, cols // 32, 16), dtype=torch.uint8)
            scales = torch.randint(122, 126, (experts, rows, cols // 32), dtype=torch.uint8)
            value.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
            tensors[key + "_blocks"], tensors[key + "_scales"] = blocks, scales
            if ".0.mlp" in key:
                expected["rows." + key] = value.transpose(1, 2).clone()
            continue
        scale = 0.3 if "norm" in key else 0.4 if "bias" in key or "sinks" in key else 1.0 if "embed" in key else 0.15
        value.copy_(((1.0 if "norm" in key else 0.0) + scale * torch.randn_like(value)).bfloat16().float())
        tensors[key] = value.bfloat16()
    text = json.loads(config.to_json_string())
    text["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert":
                                   ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                                    "lm_head"]}
    top, gap = reference(model, expected)
    expected["logits_package"] = expected["logits"].clone()
    write(out, name, text, tensors, expected)
    return top, gap


def main():
    parser = argparse.ArgumentParser()
    for name in ("out", "auto-gptq", "autoawq"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    sys.path.insert(0, str(args.autoawq))
    packing = load(args.autoawq / "awq/utils/packing_utils.py")
    tools = {"gptq": load(args.auto_gptq / "auto_gptq/nn_modules/qlinear/qlinear_cuda.py")}
    # awq/__init__.py wants models that this transformers no longer has; the module needs three names of it.
    for name in ("awq", "awq.utils"):
        sys.modules[name] = type(sys)(name)
    for name, member, value in (("awq.utils.module", "try_import", lambda name: (None, "")),
                                ("awq.utils.utils", "get_best_device", lambda: "cpu"),
                                ("awq.utils.packing_utils", "dequantize_gemm", packing.dequantize_gemm)):
        sys.modules[name] = type(sys)(name)
        setattr(sys.modules[name], member, value)
    tools["awq"] = load(args.autoawq / "awq/modules/linear/gemm.py")
    for name in args.names or CASES:
        top, gap = gpt_oss(name, args.out) if name == "gpt_oss" else llama(name, CASES[name], args.out, tools)
        print(f"{name}: largest logit {top:.2f}, smallest gap {gap:.4f}", flush=True)


if __name__ == "__main__":
    main()
