# SPDX-License-Identifier: Apache-2.0
"""train.py - train muster-tiny: a llama-shaped model of 6 layers, on two CPU cores, in an hour.

Rows of T+1 tokens are packed from three sources: prose, one chat behind a long context filled up
with short chats, and short chats only. A row is a function of (seed, row number), so a run can be
resumed and the data is the same again. Attention is causal over the whole row: documents are only
separated by <|begin|>, which is cheaper than a mask and teaches the model to let go of old text.

The schedule (learning rate, row length) follows `progress`, which is the spent share of --minutes
or of --tokens. A clock makes the run fit its slot on a shared machine; tokens make it repeatable.
RoPE turns adjacent pairs (2i, 2i+1), as GGUF's llama does, so that export permutes nothing.

    python train.py --text DIR --tokenizer tokenizer.json --out DIR --minutes 80
"""
import argparse
import math
import random
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from tokenizers import Tokenizer

import dialogues
import vocabulary as v

WIDTH, LAYERS, FF, HEADS, KV_HEADS, HEAD = 256, 6, 768, 4, 2, 64
EPS, ROPE_BASE, CONTEXT = 1e-5, 10000.0, 2048
SOURCES = ("prose", "long", "chats")
# (until this share of the run, row length, tokens per step, rows per pass, shares of the sources
# in the rows). Short rows first, because they are cheaper; more chats at the end, because to heed
# the number in "count to 17" is what this model learns last.
PHASES = [(0.40, 512, 4096, 8, (0.20, 0.55, 0.25)),
          (0.50, CONTEXT, 8192, 2, (0.20, 0.55, 0.25)),
          (1.00, CONTEXT, 4096, 2, (0.12, 0.43, 0.45))]
WEIGHT_PROSE, WEIGHT_PROMPT, WEIGHT_ANSWER = 1.0, 0.3, 1.0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm, self.ffn_norm = nn.RMSNorm(WIDTH, EPS), nn.RMSNorm(WIDTH, EPS)
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.gate_up = nn.Linear(WIDTH, 2 * FF, bias=False)
        self.down = nn.Linear(FF, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, val = self.qkv(self.attn_norm(x)).view(b, t, -1, HEAD).transpose(1, 2).split(
            [HEADS, KV_HEADS, KV_HEADS], dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = HEADS // KV_HEADS  # query head h reads kv head h // group
        k, val = k.repeat_interleave(group, 1), val.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q, k, val, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, HEADS * HEAD))
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    a, b = x.float().unflatten(-1, (HEAD // 2, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(v.VOCAB, WIDTH)  # also the output matrix
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, EPS)
        angle = torch.outer(torch.arange(CONTEXT).float(),
                            ROPE_BASE ** (-torch.arange(0, HEAD, 2).float() / HEAD))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, w in self.named_parameters():
            if w.dim() == 2:
                deep = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(w, std=0.04 / (math.sqrt(2 * LAYERS) if deep else 1))

    def forward(self, ids):
        x = self.embed(ids)
        cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.linear(self.norm(x), self.embed.weight)


def token_losses(model, ids):
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(ids[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")


# ---- rows

class Rows:
    """Row number -> (ids, weights), each T+1 long. weights[i] belongs to predicting ids[i]."""

    def __init__(self, tokenizer, text, seed):
        self.tok, self.text, self.seed = tokenizer, text, seed

    def encode(self, text):
        return self.tok.encode(text).ids

    def chat(self, r, context_chars):
        ids, weights = [v.BEGIN], [0.0]
        for m in dialogues.chat(r, self.text, context_chars):
            body = self.encode(m["content"]) + [v.END]
            answer = m["role"] == "assistant"
            ids += [v.SYSTEM if m["role"] == "system" else v.ASSISTANT if answer else v.USER] + body
            w = WEIGHT_ANSWER if answer else WEIGHT_PROMPT
            weights += [0.0] + [w] * (len(body) - 1) + [w if answer else 0.0]
        return ids, weights

    def row(self, number, length, shares):
        r = random.Random(self.seed * 1_000_003 + number)
        source = r.choices(SOURCES, shares)[0]
        need = length + 1
        if source == "prose":
            start = r.randrange(len(self.text) - need * 5)
            ids = [v.BEGIN] + self.encode(self.text[start:start + need * 5])
            return ids[:need], ([0.0] + [WEIGHT_PROSE] * length)
        ids, weights = [], []
        if source == "long":  # the question must survive the cut, so its context shrinks until it fits
            room = r.uniform(0.05, 0.97) * length
            chars = int(room * 3.2)
            while not ids or len(ids) > need:
                ids, weights = self.chat(r, max(chars, 40))
                chars = int(chars * 0.85)
        while len(ids) < need:
            more, w = self.chat(r, r.randrange(40, 600) if r.random() < 0.2 else 0)
            ids, weights = ids + more, weights + w
        return ids[:need], weights[:need]

    def batch(self, first, count, length, shares):
        rows = [self.row(first + i, length, shares) for i in range(count)]
        return torch.tensor([x for x, _ in rows]), torch.tensor([w for _, w in rows])[:, 1:].flatten()


@torch.no_grad()
def held_out(model, rows, length=1024, count=8):
    """Mean loss in nats per token: prose, answers behind contexts, answers of short chats."""
    result = {}
    for source in SOURCES:
        only = [float(s == source) for s in SOURCES]
        total = weight = 0.0
        for i in range(count):
            ids, w = rows.batch(10_000_000 + i, 1, length, only)
            w = (w == 1.0).float()  # answers only, or all of prose
            total += (token_losses(model, ids) * w).sum().item()
            weight += w.sum().item()
        result[source] = round(total / weight, 4)
    return result


# ---- the run

def rate(progress, step, peak):
    return peak * min(1.0, (step + 1) / 100) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


def main():
    p = argparse.ArgumentParser(description="train muster-tiny")
    p.add_argument("--text", default="../../../shared/data/text")
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--out", required=True, help="directory of checkpoints; resumes from last.pt")
    p.add_argument("--minutes", type=float, help="the schedule follows the clock")
    p.add_argument("--tokens", type=float, help="the schedule follows the tokens seen")
    p.add_argument("--rate", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=20)
    p.add_argument("--save-s", type=float, default=240)
    p.add_argument("--eager", action="store_true", help="no torch.compile (about three times slower)")
    a = p.parse_args()
    if not a.minutes and not a.tokens:
        p.error("give --minutes or --tokens")
    torch.manual_seed(a.seed)
    torch.set_num_threads(2)
    out = Path(a.out)
    tok = Tokenizer.from_file(a.tokenizer)
    rows = Rows(tok, v.prose(a.text), a.seed)
    test = Rows(tok, v.prose(a.text, held_out=True), a.seed + 1)
    model = Model()
    decay = [w for w in model.parameters() if w.dim() == 2]
    plain = [w for w in model.parameters() if w.dim() == 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
                            lr=a.rate, betas=(0.9, 0.97), fused=True)
    at = {"step": 0, "row": 0, "tokens": 0, "seconds": 0.0}
    if (out / "last.pt").exists():
        saved = torch.load(out / "last.pt")
        model.load_state_dict(saved["model"])
        opt.load_state_dict(saved["opt"])
        at = saved["at"]
        print(f"resumed at {at}", flush=True)
    print(f"{sum(w.numel() for w in model.parameters())} parameters", flush=True)
    losses = token_losses if a.eager else torch.compile(token_losses, dynamic=False)

    def save(name):
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "at": at}, out / "tmp.pt")
        (out / "tmp.pt").rename(out / name)

    began, saved_at, mean = time.monotonic() - at["seconds"], time.monotonic(), 0.0
    while True:
        at["seconds"] = time.monotonic() - began
        progress = max(at["seconds"] / 60 / a.minutes if a.minutes else 0, at["tokens"] / a.tokens if a.tokens else 0)
        if progress >= 1:
            break
        _, length, per_step, count, shares = next(ph for ph in PHASES if progress < ph[0])
        for group in opt.param_groups:
            group["lr"] = rate(progress, at["step"], a.rate)
        passes = per_step // (length * count)
        for _ in range(passes):
            ids, w = rows.batch(at["row"], count, length, shares)
            loss = (losses(model, ids) * w).sum() / w.sum()
            (loss / passes).backward()
            at["row"] += count
            at["tokens"] += length * count
            mean += loss.item() / passes
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        at["step"] += 1
        if at["step"] % 50 == 0:
            print(f"step {at['step']} row {length} tokens {at['tokens']} loss {mean / 50:.4f} progress {progress:.3f} "
                  f"rate {opt.param_groups[0]['lr']:.5f} {at['tokens'] / at['seconds']:.0f} tok/s", flush=True)
            mean = 0.0
        if time.monotonic() - saved_at > a.save_s:
            save("last.pt")
            print(f"saved; held out {held_out(model, test, 512, 4)}", flush=True)
            saved_at = time.monotonic()
    save("last.pt")
    print(f"done {at}\ntrain    {held_out(model, rows, CONTEXT, 16)}\nheld out {held_out(model, test, CONTEXT, 16)}", flush=True)


if __name__ == "__main__":
    main()
