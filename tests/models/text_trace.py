# SPDX-License-Identifier: Apache-2.0
"""text_trace.py - a trace with text: seeded prompts of eight tenants, answered by the shipped model.

Length predictors that read text need prompts, and answers that are really the model's. So every
prompt below is asked of a running engine, sampled with its own seed, and what is kept is when it
came, from whom, its text, and how long prompt and answer were. The same engine build gives the
same file again: prompts depend on --seed alone, an answer on its prompt and its seed.

    muster engine --model models/muster-tiny-q8_0.gguf --threads 1 --listen 127.0.0.1:8200
    python text_trace.py --url 127.0.0.1:8200 --model muster-tiny-q8_0 --out traces/text-5000.jsonl

What the tenants send is in TENANTS: which generators of dialogues.py, how many turns, behind which
lead. A lead is a sentence on the same line as the question, as people write; it hides the question
from a predictor that looks at the first words only. Tenant `batch` is made of tasks: a shared system
prompt and one kind of question each. Some tenants set a low max_tokens, so a few answers are cut.
"""
import argparse
import http.client
import json
import random
from concurrent.futures import ThreadPoolExecutor

import dialogues as d

REQUESTS_PER_SECOND = 2.0
THINK_S = 15.0
TEMPERATURE = 0.7
MAX_TOKENS = 400

LEADS = ["I hope you can help me.", "This is for my sister {name}.", "We are busy today.", "It is raining in {town}.",
         "My friend {name} wants to know this.", "I have asked {name} before, but got no answer.",
         "Please take your time.", "I need this before {day}.", "{name} and I are in {town} and have a question.",
         "You were of great help on {day}.", "I am writing to you from {town}.", "Now something else."]

# share of requests, generators (None: all, by their weights), turns at most, share of prompts with a
# lead, share behind notes, max_tokens (share of requests that set it)
TENANTS = {
    "desk": (0.22, ["greeting", "farewell", "identity", "opposite", "colour", "capital", "next_day", "yes_no",
                    "unknown", "advice"], 1, 0.3, 0.0, (64, 0.2)),
    "school": (0.16, ["count_up", "count_down", "times_table", "arithmetic", "next_number", "plural", "alphabet",
                      "young", "legs"], 1, 0.5, 0.0, (0, 0)),
    "writer": (0.10, ["story", "poem", "thanks_note", "person", "rhyme"], 4, 0.4, 0.0, (96, 0.2)),
    "travel": (0.10, ["capital", "weather", "steps", "week", "advice", "list_of"], 2, 0.4, 0.1, (0, 0)),
    "shop": (0.10, ["list_of", "table_of", "yes_no", "thanks_note"], 1, 0.3, 0.5, (0, 0)),
    "lexicon": (0.10, ["explain", "difference", "opposite", "rhyme", "plural", "sound"], 1, 0.5, 0.0, (0, 0)),
    "everyone": (0.12, None, 5, 0.5, 0.1, (0, 0)),
    "batch": (0.10, ["count_up", "weather", "steps", "table_of", "opposite", "explain", "story", "arithmetic",
                     "person", "list_of"], 1, 0.0, 0.0, (0, 0)),
}


def question(r, names, like=None):
    """One (generator's name, question); three times in four of the generators' kind `like`."""
    for _ in range(8):
        if names:
            name = r.choice(names)
            text = d.TABLE[name][0](r)[0]
        else:
            text, _, _, name = d.ask(r)
        if like is None or r.random() < 0.25 or d.kind_of(name, text) == like:
            break
    return name, text


def lead(r):
    return r.choice(LEADS).format(name=r.choice(d.NAMES), town=r.choice(d.TOWNS), day=r.choice(d.DAYS))


def session(r, tenant, tasks):
    """One visit: (system text, [turn]); a turn knows everything but its answer."""
    _, names, turns_max, lead_share, notes_share, (cut, cut_share) = TENANTS[tenant]
    number = 100 * (1 + list(TENANTS).index(tenant))
    system, group = "", number
    if tenant == "batch":
        i = r.randrange(len(names))
        system, group, names = tasks[i], number + 1 + i, [names[i]]
    elif r.random() < 0.5:
        i = r.randrange(2)
        system, group = d.SYSTEMS[(len(tenant) + i) % len(d.SYSTEMS)], number + 1 + i
    like = r.choice(["short", "medium", "long"]) if turns_max > 1 else None
    turns = []
    for _ in range(r.randint(1, turns_max)):
        _, text = question(r, names, like)
        if r.random() < lead_share:
            text = f"{lead(r)} {text}"
        if r.random() < notes_share:
            text = f"{d.notes(r, r.randint(2, 8))}\n\n{text}"
        limit = cut if cut and r.random() < cut_share else MAX_TOKENS
        turns.append({"prompt": text, "output_max": limit, "group": group})
    return system, turns


def sessions(seed, count):
    """Sessions with `count` turns in all, each turn with the time it comes (ms)."""
    r = random.Random(seed)
    tasks = [f"{r.choice(d.SYSTEMS)}\n\n{d.notes(r, 12)}" for _ in TENANTS["batch"][1]]
    names = list(TENANTS)
    turns_mean = {n: (1 + TENANTS[n][2]) / 2 for n in names}
    made, at_s, out = 0, 0.0, []
    while made < count:
        tenant = r.choices(names, [TENANTS[n][0] / turns_mean[n] for n in names])[0]
        system, turns = session(r, tenant, tasks)
        turns = turns[:count - made]
        at_s += r.expovariate(REQUESTS_PER_SECOND / 1.3)
        t = at_s
        for k, turn in enumerate(turns):
            turn.update(timestamp=int(t * 1000), tenant=1 + names.index(tenant), session=len(out) + 1, turn=k, seed=made + k)
            t += 2 + r.expovariate(1 / THINK_S)
        made += len(turns)
        out.append((system, turns))
    return out


def ask(url, model, messages, turn):
    body = {"model": model, "messages": messages, "max_tokens": turn["output_max"], "temperature": TEMPERATURE,
            "seed": turn["seed"]}
    c = http.client.HTTPConnection(url, timeout=600)
    c.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    reply = c.getresponse()
    text = json.loads(reply.read())
    c.close()
    if reply.status != 200:
        raise SystemExit(f"{reply.status}: {text}")
    return text


def answer(url, model, system, turns):
    """Asks the turns one after another, each behind the answers before it; -> trace rows."""
    messages = [{"role": "system", "content": system}] if system else []
    rows = []
    for turn in turns:
        messages.append({"role": "user", "content": turn["prompt"]})
        reply = ask(url, model, messages, turn)
        choice, usage = reply["choices"][0], reply["usage"]
        messages.append({"role": "assistant", "content": choice["message"]["content"]})
        rows.append({"timestamp": turn["timestamp"], "tenant": turn["tenant"], "session": turn["session"],
                     "turn": turn["turn"], "group": turn["group"], "prompt": turn["prompt"],
                     "output_max": turn["output_max"], "input_length": usage["prompt_tokens"],
                     "output_length": usage["completion_tokens"], "finish": choice["finish_reason"]})
    return rows


def main():
    p = argparse.ArgumentParser(description="record the answers of an engine to seeded prompts")
    p.add_argument("--url", default="127.0.0.1:8200")
    p.add_argument("--model", default="muster-tiny-q8_0")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=5000)
    p.add_argument("--parallel", type=int, default=16)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    with ThreadPoolExecutor(a.parallel) as pool:
        done = pool.map(lambda s: answer(a.url, a.model, *s), sessions(a.seed, a.count))
        rows = [row for turns in done for row in turns]
    rows.sort(key=lambda row: (row["timestamp"], row["session"]))
    with open(a.out, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


if __name__ == "__main__":
    main()
