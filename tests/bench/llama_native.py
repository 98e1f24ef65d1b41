#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama_native.py - our engine beside llama.cpp that was compiled for this machine, by the clock.

    python3 tests/bench/llama_native.py --llama BIN [--part cells|http] [--types q4_0,q8_0] [--layers 16] [--rounds 5]

BIN holds llama-bench, llama-batched-bench and llama-server. They are built of the sources in Python's package
llama-cpp-python (pip download --no-deps --no-binary :all: llama-cpp-python), folder vendor/llama.cpp:

    cmake -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF
    cmake --build build --target llama-bench llama-batched-bench llama-server

On a processor with AMX, gcc 12 wants -DCMAKE_CXX_FLAGS="-fno-tree-dse -fno-dse" as well: its _tile_loadconfig says that it
reads eight bytes, so that the rest of llama.cpp's configuration of tiles is never stored, and it ends with SIGILL.

cells: a prompt of 256 tokens, an output of 32 after it, and eight sequences that decode together, two threads each,
in turns on the same random file; medians, and the median's share of the limits that our engine measured in its round.
First both must agree on the token after a prompt, on a small file of the same type. http: both servers under Poisson
arrivals of 512 tokens in and 64 out, 32 at most at once; goodput is the rate of requests whose first token came
within 30 s, the best of the rates offered. The machine must be idle.
"""
import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

SHAPE = ["--width", "2048", "--ff", "8192", "--heads", "32", "--kv-heads", "8"]
TOKENIZER = ["--tokenizer", "models/muster-tiny-q8_0.gguf"]
VOCAB, SMALL_VOCAB = 128256, 4096
PROMPT, OUTPUT, TOGETHER = 256, 32, 8
TOP = 5  # our token must be among so many of llama.cpp's
IN, OUT, AT_ONCE, TTFT_S = 512, 64, 32, 30
LOAD_S = 90  # of arrivals at each rate


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--llama", required=True, help="folder with llama.cpp's programs")
    p.add_argument("--part", default="cells", choices=("cells", "http"))
    p.add_argument("--muster", default=os.environ.get("MUSTER_BIN", "build/muster"))
    p.add_argument("--types", default="q4_0,q4_k,q6_k,q8_0,bf16")
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rates", default="0.1,0.2,0.4,0.8,1.6", help="http: requests a second offered")
    return p.parse_args()


def make(o, path, kind, layers, vocabulary):
    subprocess.run([o.muster, "model", "make-random", *SHAPE, *vocabulary, "--layers", str(layers), "--type", kind,
                    "--force", path], check=True, stdout=subprocess.DEVNULL)


def run_json(command):
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return out.stdout


class Server:
    """llama-server or `muster engine` on a port of its own."""

    def __init__(self, command, health):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.process = subprocess.Popen([a.replace("PORT", str(self.port)) for a in command],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self.answers(health):
            if self.process.poll() is not None:
                sys.exit(f"{command[0]} has ended: does it load the file?")
            time.sleep(0.1)

    def answers(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def ask(self, path, body):
        call = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
                                      {"content-type": "application/json"})
        with urllib.request.urlopen(call, timeout=300) as reply:
            return json.load(reply)

    def end(self):
        self.process.kill()
        self.process.wait()


def llama_server(o, path, at_once, context):
    return Server([os.path.join(o.llama, "llama-server"), "-m", path, "--port", "PORT", "--host", "127.0.0.1",
                   "-t", str(o.threads), "-np", str(at_once), "-c", str(context)], "/health")


# ---- cells ----


def ours(o, path, batch, output=OUTPUT, prompt=PROMPT):
    return json.loads(run_json([o.muster, "bench", "engine", "--model", path, "--prompt-tokens", str(prompt),
                                "--gen-tokens", str(output), "--batch", str(batch), "--threads", str(o.threads),
                                "-o", "json"]))


def check(o, kind, path):
    make(o, path, kind, 2, TOKENIZER)
    mine = ours(o, path, 1, output=1)["next_token"]
    server = llama_server(o, path, 1, 512)
    try:
        answer = server.ask("/completion", {"prompt": [(7919 * i + 13) % SMALL_VOCAB for i in range(PROMPT)],
                                            "n_predict": 1, "temperature": 0, "n_probs": TOP})
    finally:
        server.end()
    first = answer["completion_probabilities"][0]
    top = [t["id"] for t in first.get("top_logprobs", first.get("top_probs"))]
    if mine not in top:
        sys.exit(f"{kind}: our token after the prompt is {mine}, llama.cpp's are {top}")


def theirs(o, path):
    """Returns tokens a second of a prompt, of one output and of eight."""
    bench = json.loads(run_json([os.path.join(o.llama, "llama-bench"), "-m", path, "-t", str(o.threads), "-p",
                                 str(PROMPT), "-n", str(OUTPUT), "-d", "0", "-r", "1", "-o", "json"]))
    one = json.loads(run_json([os.path.join(o.llama, "llama-bench"), "-m", path, "-t", str(o.threads), "-p", "0",
                               "-n", str(OUTPUT), "-d", str(PROMPT), "-r", "1", "-o", "json"]))
    lines = run_json([os.path.join(o.llama, "llama-batched-bench"), "-m", path, "-t", str(o.threads), "-npp",
                      str(PROMPT), "-ntg", str(OUTPUT), "-npl", str(TOGETHER), "-c",
                      str(TOGETHER * (PROMPT + OUTPUT)), "--output-format", "jsonl"]).splitlines()
    eight = json.loads([line for line in lines if line.startswith("{")][-1])
    prompt = [b for b in bench if b["n_prompt"]][0]
    return prompt["avg_ts"], one[0]["avg_ts"], eight["speed_tg"]


def round_of(o, path):
    one, eight = ours(o, path, 1), ours(o, path, TOGETHER)
    mine = one["prefill_tok_s"], one["decode_tok_s"], eight["decode_tok_s"]
    return mine, theirs(o, path), (one["peak_share"], one["bandwidth_share"])


def cells(o, folder):
    path = os.path.join(folder, "random.gguf")
    print("| type | prefill, tokens/s: ours, llama.cpp: ratio | decode | 8 sequences | share of int8 rate, prefill | "
          "share of read bandwidth, decode |\n|---|---|---|---|---|---|")
    for kind in o.types.split(","):
        check(o, kind, path)
        make(o, path, kind, o.layers, ["--vocab", str(VOCAB)])
        rounds = [round_of(o, path) for _ in range(o.rounds)]
        row = []
        for i in range(3):
            mine, peer = (statistics.median(r[who][i] for r in rounds) for who in range(2))
            ratio = statistics.median(r[0][i] / r[1][i] for r in rounds)
            row.append(f"{mine:.1f}, {peer:.1f}: {ratio:.2f}")
        row += [f"{100 * statistics.median(r[2][i] for r in rounds):.0f} %" for i in range(2)]
        print(f"| {kind} | {' | '.join(row)} |", flush=True)


# ---- http ----


def write_trace(path, rate):
    chance, at, lines = random.Random(7), 0.0, []
    while (at := at + chance.expovariate(rate)) < LOAD_S:
        lines.append(json.dumps({"timestamp": int(1000 * at), "input_length": IN, "output_length": OUT}))
    with open(path, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")


def goodput(o, server, trace):
    report = json.loads(run_json([o.muster, "load", "--trace", trace, "--url", f"http://127.0.0.1:{server.port}",
                                  "--max-tokens", str(OUT), "--temperature", "0", "--tokens-per-word", "1",
                                  "--slo-ttft", f"{TTFT_S}s", "--slo-tpot", "1000s", "--timeout", "600s",
                                  "-o", "json"]))
    return report["goodput_rps"]


def http(o, folder):
    path, trace = os.path.join(folder, "random.gguf"), os.path.join(folder, "trace.jsonl")
    make(o, path, "q4_0", o.layers, TOKENIZER)
    context = AT_ONCE * (IN + OUT + 64)
    arms = (("ours", lambda: Server([o.muster, "engine", "--model", path, "--listen", "127.0.0.1:PORT", "--threads",
                                     str(o.threads), "--max-num-seqs", str(AT_ONCE), "--kv-cache-memory-bytes", "1GiB"],
                                    "/health")),
            ("llama.cpp", lambda: llama_server(o, path, AT_ONCE, context)))
    best = {}
    print("| offered a second | ours | llama.cpp |\n|---|---|---|")
    for rate in o.rates.split(","):
        write_trace(trace, float(rate))
        row = []
        for name, start in arms:
            server = start()
            try:
                good = goodput(o, server, trace)
            finally:
                server.end()
            best[name] = max(best.get(name, 0), good)
            row.append(f"{good:.3f}")
        print(f"| {rate} | {' | '.join(row)} |", flush=True)
    print(f"\nbest: {best['ours']:.3f} and {best['llama.cpp']:.3f} good requests a second: "
          f"{best['ours'] / best['llama.cpp']:.2f}")


def main():
    o = options()
    with tempfile.TemporaryDirectory() as folder:
        (cells if o.part == "cells" else http)(o, folder)


if __name__ == "__main__":
    main()
