# SPDX-License-Identifier: Apache-2.0
"""reference.py - the slow truth: a llama forward pass in numpy float64, from the GGUF file alone.

Written against the file format, not against train.py: RoPE turns adjacent pairs as complex
numbers, softmax and RMSNorm are spelt out, weights are dequantised once. Every number that the
engine must reproduce is made here, and --compare holds it against torch's own forward pass.

    python reference.py --model M.gguf --text DIR --out ../vectors/model
    python reference.py --model M.gguf --compare
    python reference.py --model M.gguf --perplexity questions.txt --context 256
"""
import argparse
import hashlib
from pathlib import Path

import numpy as np

import gguf_read

GREEDY = 24


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class Model:
    """forward() may be fed in pieces: `cache` keeps the keys and values of what came before."""

    def __init__(self, path, dtype=np.float64):
        self.meta, weights = gguf_read.load(path)
        self.w = {name: x.astype(dtype) for name, x in weights.items()}
        self.dtype = dtype
        arch = self.meta["general.architecture"]
        key = lambda name: self.meta[f"{arch}.{name}"]
        self.layers, self.heads = key("block_count"), key("attention.head_count")
        self.kv_heads, self.eps = key("attention.head_count_kv"), key("attention.layer_norm_rms_epsilon")
        self.head = key("embedding_length") // self.heads
        pairs = np.arange(key("rope.dimension_count") // 2)
        self.theta = float(key("rope.freq_base")) ** (-2.0 * pairs / key("rope.dimension_count"))

    def rope(self, x, first):
        """x: [token, head, head size]; dimensions 2i and 2i+1 are one complex number."""
        angle = np.outer(np.arange(first, first + len(x)), self.theta)
        z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None, :]
        out = np.empty_like(x)
        out[..., 0::2], out[..., 1::2] = z.real, z.imag
        return out

    def attention(self, x, layer, cache):
        w = lambda name: self.w[f"blk.{layer}.{name}.weight"]
        t = len(x)
        q = (x @ w("attn_q").T).reshape(t, self.heads, self.head)
        k = (x @ w("attn_k").T).reshape(t, self.kv_heads, self.head)
        v = (x @ w("attn_v").T).reshape(t, self.kv_heads, self.head)
        past_k, past_v = cache.get(layer, (k[:0], v[:0]))
        first = len(past_k)
        q, k = self.rope(q, first), np.concatenate([past_k, self.rope(k, first)])
        v = np.concatenate([past_v, v])
        cache[layer] = (k, v)
        unseen = np.arange(first + t)[None, :] > np.arange(first, first + t)[:, None]
        out = np.empty((t, self.heads, self.head), self.dtype)
        for h in range(self.heads):
            g = h // (self.heads // self.kv_heads)  # query head h reads this kv head
            score = q[:, h] @ k[:, g].T / np.sqrt(self.dtype(self.head))
            out[:, h] = softmax(np.where(unseen, self.dtype(-np.inf), score)) @ v[:, g]
        return out.reshape(t, -1) @ w("attn_output").T

    def forward(self, ids, cache=None, last_only=False):
        """-> logits [token, vocab] of the given ids"""
        cache = {} if cache is None else cache
        x = self.w["token_embd.weight"][ids]
        for layer in range(self.layers):
            w = lambda name: self.w[f"blk.{layer}.{name}.weight"]
            x = x + self.attention(rms_norm(x, w("attn_norm"), self.eps), layer, cache)
            y = rms_norm(x, w("ffn_norm"), self.eps)
            gate = y @ w("ffn_gate").T
            x = x + (gate / (1 + np.exp(-gate)) * (y @ w("ffn_up").T)) @ w("ffn_down").T
        x = rms_norm(x[-1:] if last_only else x, self.w["output_norm.weight"], self.eps)
        return x @ self.w.get("output.weight", self.w["token_embd.weight"]).T


# ---- prompts

def prompts(tokenizer, template, text):
    """(name, ids). Every prompt starts with <|begin|>, as add_bos_token asks for."""
    import vocabulary as v
    encode = lambda s: [v.BEGIN] + tokenizer.encode(s).ids
    ask = lambda *contents: encode(template.render(add_generation_prompt=True, messages=[
        {"role": ("user", "assistant")[i % 2], "content": c} for i, c in enumerate(contents)]))
    start = text.index("It is a truth universally acknowledged")
    prose = " ".join(text[start:start + 20000].split())
    words = lambda n: tokenizer.decode(tokenizer.encode(prose).ids[:n])
    yield "begin", [v.BEGIN]
    yield "words", encode("Once upon a time")
    yield "chat", ask("What is the capital of France?")
    yield "turns", ask("Hello!", "Hello! How can I help you?", "Name 5 fruits.",
                       "1. Apple\n2. Plum\n3. Fig\n4. Cherry\n5. Pear", "Count from 1 to 20.")
    yield "prose", encode(words(130))
    yield "notes", ask(words(680) + "\n\nName 7 animals.")
    yield "full", ask(words(1960) + "\n\nWhat is 7 plus 5?")


def greedy(model, ids, count):
    """-> (ids, gaps): a gap is the distance between the two best logits of that step. Goes on
    after the end token, so that every prompt has `count` of them."""
    cache, out, gaps, new = {}, [], [], ids
    for _ in range(count):
        logits = model.forward(new, cache, last_only=True)[-1]
        second, best = np.argsort(logits, kind="stable")[-2:]
        out.append(int(best))
        gaps.append(logits[best] - logits[second])
        new = [int(best)]
    return out, gaps


def write(model, path, named, out):
    raw = Path(path).read_bytes()
    lines = [f"model {Path(path).name} {len(raw)} {hashlib.sha256(raw).hexdigest()}",
             f"vocab {len(model.meta['tokenizer.ggml.tokens'])}"]
    data = bytearray()
    for name, ids in named:
        logits = model.forward(ids)
        lines += [f"prompt {name} {len(ids)}", "ids " + " ".join(map(str, ids))]
        for at in sorted({min(1, len(ids) - 1), len(ids) // 2, len(ids) - 1}):  # 0 is always <|begin|>
            lines.append(f"logits {at} {len(data)}")
            data += logits[at].astype("<f4").tobytes()
        best, gaps = greedy(model, ids, GREEDY)
        lines += ["greedy " + " ".join(map(str, best)), "gaps " + " ".join(f"{g:.4f}" for g in gaps)]
        print(f"{name}: {len(ids)} tokens, smallest gap {min(gaps):.4f}", flush=True)
    (out / "logits.txt").write_text("\n".join(lines) + "\n", encoding="ascii")
    (out / "logits.bin").write_bytes(data)


def compare(model):
    """The same dequantised weights in torch, float32, against this float64: the largest
    difference over the largest logit, at three lengths."""
    import torch
    import train
    torch.set_grad_enabled(False)
    t, w = train.Model(), lambda name: torch.from_numpy(model.w[name]).float()
    state = {"embed.weight": w("token_embd.weight"), "norm.weight": w("output_norm.weight")}
    for i in range(model.layers):
        theirs = lambda *names: torch.cat([w(f"blk.{i}.{n}.weight") for n in names])
        state |= {f"blocks.{i}.qkv.weight": theirs("attn_q", "attn_k", "attn_v"),
                  f"blocks.{i}.gate_up.weight": theirs("ffn_gate", "ffn_up"),
                  f"blocks.{i}.out.weight": theirs("attn_output"), f"blocks.{i}.down.weight": theirs("ffn_down"),
                  f"blocks.{i}.attn_norm.weight": theirs("attn_norm"), f"blocks.{i}.ffn_norm.weight": theirs("ffn_norm")}
    t.load_state_dict(state)
    for length in (1, 100, 2048):
        ids = np.random.default_rng(length).integers(0, train.v.VOCAB, length)
        ours, others = model.forward(ids), t(torch.from_numpy(ids)[None])[0].double().numpy()
        print(f"length {length}: max|diff| / max|logit| = {np.abs(ours - others).max() / np.abs(ours).max():.2e}")


def perplexity(model, text, context):
    """exp of the mean negative log-probability of the second halves of whole windows."""
    import vocabulary as v
    ids, nats = v.of_gguf(model.meta, special=False).encode(text).ids, []
    for start in range(0, len(ids) - context + 1, context):
        window = [v.BEGIN] + ids[start + 1:start + context]
        logits = model.forward(window)[context // 2:-1]
        logits -= logits.max(axis=-1, keepdims=True)
        told = logits[np.arange(len(logits)), window[context // 2 + 1:]]
        nats += list(np.log(np.exp(logits).sum(axis=-1)) - told)
    print(f"perplexity {np.exp(np.mean(nats)):.4f}, {len(nats)} tokens")


def main():
    p = argparse.ArgumentParser(description="float64 reference logits from a GGUF file")
    p.add_argument("--model", required=True)
    p.add_argument("--text", default="../../../shared/data/text")
    p.add_argument("--out")
    p.add_argument("--compare", action="store_true")
    p.add_argument("--perplexity", metavar="TEXT")
    p.add_argument("--context", type=int, default=512)
    a = p.parse_args()
    model = Model(a.model)
    if a.compare:
        compare(model)
    if a.perplexity:
        perplexity(model, Path(a.perplexity).read_text(encoding="utf-8"), a.context)
    if a.out:
        import strings
        import vocabulary
        named = prompts(vocabulary.of_gguf(model.meta), strings.template(model.meta["tokenizer.chat_template"]), vocabulary.prose(a.text))
        write(model, a.model, named, Path(a.out))


if __name__ == "__main__":
    main()
