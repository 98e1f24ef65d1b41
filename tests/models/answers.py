# SPDX-License-Identifier: Apache-2.0
"""answers.py - ask the shipped file questions, and measure whether and when it stops.

Samples with the reference's forward pass in float32. The statistics are what a load test needs to
know of the model: how long its answers are per kind of question, with and without a long context,
how often the answer ends by itself, and how often it is right where right can be told.

    python answers.py --model M.gguf --text DIR --samples 20 --measure 96
"""
import argparse
import random
import re
from collections import defaultdict

import numpy as np

import dialogues
import reference
import vocabulary as v

LIMIT = 400


def generate(model, ids, temperature, rng):
    """-> (answer ids without the end token, whether it ended)"""
    cache, out, new = {}, [], ids
    while len(out) < LIMIT:
        logits = model.forward(new, cache, last_only=True)[-1]
        if temperature:
            token = int(rng.choice(len(logits), p=reference.softmax(logits.astype(np.float64) / temperature)))
        else:
            token = int(logits.argmax())
        if token == v.END:
            return out, True
        out.append(token)
        new = [token]
    return out, False


def right(name, question, answer):
    """Whether the answer has the form that was asked for; None where that cannot be told."""
    numbers = list(map(int, re.findall(r"\d+", question)))
    found = list(map(int, re.findall(r"\d+", answer)))
    if name == "count_up":
        return found == list(range(1, numbers[-1] + 1))
    if name == "count_down":
        return found == list(range(numbers[0], 0, -1))
    if name == "list_of":
        return len(answer.split("\n")) == numbers[0]
    if name == "table_of":
        return len(answer.split("\n")) == numbers[0] + 2
    if name == "poem":
        return len(answer.split("\n\n")) == numbers[0]
    if name == "times_table":
        n, rows = numbers
        return answer == "\n".join(f"{n} x {i} = {n * i}" for i in range(1, rows + 1))
    if name == "arithmetic":
        return found[-1:] == [numbers[0] + numbers[1] if "plus" in question else numbers[0] - numbers[1]]
    if name == "next_number":
        return found[-1:] == [numbers[0] + 1]
    table = {"opposite": dialogues.OPPOSITES, "colour": dialogues.COLOURS, "capital": dialogues.CAPITALS,
             "sound": dialogues.SOUNDS, "young": dialogues.YOUNG, "plural": dialogues.PLURALS,
             "legs": dialogues.LEGS}.get(name)
    if table:
        key = max((k for k in table if re.search(rf"\b{k}\b", question)), key=len)
        return table[key] in answer.lower() or table[key] in answer
    return None


def main():
    p = argparse.ArgumentParser(description="sample answers and measure their lengths")
    p.add_argument("--model", required=True)
    p.add_argument("--text", default="../../../shared/data/text")
    p.add_argument("--samples", type=int, default=20, help="answers to print")
    p.add_argument("--measure", type=int, default=96, help="questions per setting, evenly over the generators")
    p.add_argument("--context", type=int, default=1000, help="tokens in front of the question")
    p.add_argument("--seed", type=int, default=99)
    a = p.parse_args()
    model = reference.Model(a.model, np.float32)
    tok = v.of_gguf(model.meta)
    prose = v.prose(a.text, held_out=True)
    r, rng = random.Random(a.seed), np.random.default_rng(a.seed)

    def prompt(question, tokens):
        body = []
        if tokens:  # prose in blocks of 32 tokens, as the load generator shares them
            at = r.randrange(len(prose) - tokens * 5)
            body = tok.encode(" ".join(prose[at:at + tokens * 5].split())).ids[:tokens // 32 * 32]
            body += tok.encode("\n\n").ids
        return [v.BEGIN, v.USER, *body, *tok.encode(question).ids, v.END, v.ASSISTANT]

    for i in range(a.samples):
        question, _, kind, _ = dialogues.ask(r)
        tokens, temperature = (a.context if i % 4 >= 2 else 0), (0.8 if i % 2 else 0.0)
        ids, ended = generate(model, prompt(question, tokens), temperature, rng)
        print(f"[{kind}, context {tokens}, T={temperature}, {len(ids)} tokens, {'ended' if ended else 'CUT'}] {question}\n"
              f"{tok.decode(ids)}\n", flush=True)
    for tokens, temperature in ((0, 0.0), (0, 0.8), (a.context, 0.0), (a.context, 0.8)):
        lengths, wanted, marks, ends = defaultdict(list), defaultdict(list), defaultdict(list), []
        for i in range(a.measure):
            gen = dialogues.GENERATORS[i % len(dialogues.GENERATORS)][0]
            question, answer = gen(r)
            kind = dialogues.kind_of(gen.__name__, question)
            ids, ended = generate(model, prompt(question, tokens), temperature, rng)
            ends.append(ended)
            lengths[kind].append(len(ids) + 1)
            wanted[kind].append(len(tok.encode(answer).ids) + 1)
            mark = right(gen.__name__, question, tok.decode(ids))
            if mark is not None:
                marks[gen.__name__].append(mark)
        print(f"context {tokens}, T={temperature}: {100 * np.mean(ends):.1f} % of {len(ends)} ended within {LIMIT} tokens")
        for kind in ("short", "medium", "long"):
            n = lengths[kind]
            print(f"  {kind}: mean {np.mean(n):.1f} tokens (min {min(n)}, max {max(n)}), generator {np.mean(wanted[kind]):.1f}, n {len(n)}")
        print("  right: " + ", ".join(f"{k} {sum(m)}/{len(m)}" for k, m in marks.items())
              + f", together {sum(sum(m) for m in marks.values())}/{sum(len(m) for m in marks.values())}", flush=True)


if __name__ == "__main__":
    main()
