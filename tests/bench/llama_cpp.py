#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama_cpp.py - prefill and decode of random models by `muster bench engine` and by llama.cpp, in turns.

    python3 tests/bench/llama_cpp.py --python VENV/bin/python [--types q4_0,q8_0] [--layers 4] [--rounds 5]

llama.cpp comes from the package xllamacpp of Python's index, in VENV (pip install xllamacpp): a release built
for many processors, which picks its code for this one at run time. Both engines read the same file with the same
token ids, on one thread each, and are judged by tokens a second of processor time, so that other work on the
machine counts little: the time of a longer prompt or output less that of a short one. Figures are medians. The
most likely token after a prompt by ours must be among the first of llama.cpp's.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SHAPE = ["--width", "2048", "--ff", "8192", "--heads", "32", "--kv-heads", "8", "--tokenizer",
         "models/muster-tiny-q8_0.gguf"]
VOCAB = 4096
PROMPT, OUTPUT = (16, 144), (4, 36)  # short and long
TOP = 5

# Runs in VENV: loads the model, then answers each line on stdin with a line of JSON.
PEER = r"""
import json, sys, xllamacpp
p = xllamacpp.CommonParams()
p.model.path = sys.argv[1]
p.n_ctx, p.n_parallel, p.ui = 512, 1, False
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(p)
print("ready", flush=True)
for line in sys.stdin:
    answer = server.handle_completions(json.loads(line))
    print(json.dumps(answer[-1] if isinstance(answer, list) else answer), flush=True)
"""


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--python", required=True, help="Python that has the package xllamacpp")
    p.add_argument("--muster", default=os.environ.get("MUSTER_BIN", "build/muster"))
    p.add_argument("--types", default="q4_0,q8_0,q4_k,q6_k,bf16")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--rounds", type=int, default=5)
    return p.parse_args()


class Peer:
    def __init__(self, python, path):
        self.process = subprocess.Popen([python, "-c", PEER, path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.line()

    def line(self):
        """Skips what the server itself prints."""
        while True:
            text = self.process.stdout.readline()
            if not text:
                sys.exit("llama.cpp ended: does it load this file?")
            if text.startswith(("ready", "{")):
                return text

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, prompt, output):
        """Returns processor seconds and the answer."""
        before = self.cpu_s()
        call = {"prompt": [(7919 * i + 13) % VOCAB for i in range(prompt)], "n_predict": output,
                "temperature": 0, "ignore_eos": True, "cache_prompt": False, "n_probs": TOP}
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.line())
        return self.cpu_s() - before, answer

    def end(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()


def ours(o, path, prompt, output):
    """Returns processor seconds of prompt and output, as one thread measures them, and the answer."""
    out = subprocess.run([o.muster, "bench", "engine", "--model", path, "--prompt-tokens", str(prompt),
                          "--gen-tokens", str(output), "-o", "json"], check=True, stdout=subprocess.PIPE)
    answer = json.loads(out.stdout)
    return prompt / answer["prefill_tok_s"] + output / answer["decode_tok_s"], answer


def check(o, kind, path, peer):
    _, mine = ours(o, path, PROMPT[1], 1)
    _, answer = peer.ask(PROMPT[1], 1)
    top = [t["id"] for t in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]]
    if mine["next_token"] not in top:
        sys.exit(f"{kind}: our token after the prompt is {mine['next_token']}, llama.cpp's are {top}")


def rates(ask):
    """Returns tokens a second of prefill and decode."""
    short, prompt, output = (ask(*n)[0] for n in ((PROMPT[0], OUTPUT[0]), (PROMPT[1], OUTPUT[0]),
                                                  (PROMPT[0], OUTPUT[1])))
    return (PROMPT[1] - PROMPT[0]) / (prompt - short), (OUTPUT[1] - OUTPUT[0]) / (output - short)


def compare(o, kind, path):
    subprocess.run([o.muster, "model", "make-random", *SHAPE, "--layers", str(o.layers), "--type", kind,
                    "--force", path], check=True, stdout=subprocess.DEVNULL)
    peer = Peer(o.python, path)
    try:
        check(o, kind, path, peer)
        rounds = [(rates(lambda *n: ours(o, path, *n)), rates(peer.ask)) for _ in range(o.rounds)]
    finally:
        peer.end()
    cells = []
    for i in range(2):
        mine, theirs = (statistics.median(r[who][i] for r in rounds) for who in range(2))
        cells.append(f"{mine:.1f}, {theirs:.1f}: {mine / theirs:.2f}")
    print(f"| {kind} | {cells[0]} | {cells[1]} |", flush=True)


def main():
    o = options()
    if subprocess.run([o.python, "-c", "import xllamacpp"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print(f"skipped: {o.python} has no package xllamacpp (pip install xllamacpp)")
        return
    print("| type | prefill, tokens a processor second: ours, llama.cpp: ratio | decode |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in o.types.split(","):
            compare(o, kind, os.path.join(folder, "random.gguf"))


if __name__ == "__main__":
    main()
