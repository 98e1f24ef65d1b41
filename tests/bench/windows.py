#!/usr/bin/env python3
"""windows.py - counts the sequences of a model with sliding windows that run at once in so much KV memory.

    tests/bench/windows.py MODEL.gguf [--prompt-tokens 4000] [--output-tokens 128] [--requests 12]
                           [--kv-cache-memory-bytes 256MiB]

MUSTER_BIN names the program (build/muster); an older one shows what pages of one part held. All requests are sent at
once, with prompts that have nothing in common; outputs are to last until all that fit have begun. Printed are the most
that ran at once, the most resident memory of the engine beside that before the first request, the time of all, and a
digest of all outputs.
"""

import argparse
import hashlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(port, path):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    client.request("GET", path)
    return client.getresponse().read().decode()


def metric(port, name):
    for line in get(port, "/metrics").splitlines():
        if line.startswith(name):
            return float(line.split()[-1])
    return 0.0


def resident_mib(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def ask(port, number, tokens, generate, outputs):
    prompt = [100 + (number * 977 + i * 31 + i // 7) % 3000 for i in range(tokens)]
    body = {"prompt": prompt, "max_tokens": generate, "temperature": 0, "ignore_eos": True}
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    client.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    outputs[number] = json.loads(client.getresponse().read())["choices"][0]["text"]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("model")
    options.add_argument("--prompt-tokens", type=int, default=4000)
    options.add_argument("--output-tokens", type=int, default=128)
    options.add_argument("--requests", type=int, default=12)
    options.add_argument("--kv-cache-memory-bytes", default="256MiB")
    o = options.parse_args()
    port = free_port()
    engine = subprocess.Popen([os.environ.get("MUSTER_BIN", "build/muster"), "engine", "--model", o.model, "--listen",
                               f"127.0.0.1:{port}", "--max-num-seqs", str(o.requests), "--threads", "1",
                               "--kv-cache-memory-bytes", o.kv_cache_memory_bytes, "--max-model-len",
                               str(o.prompt_tokens + o.output_tokens + 64)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            if engine.poll() is not None:
                sys.exit("the engine has ended; start it by hand to see why")
            try:
                if "muster_engine_requests_running" in get(port, "/metrics") and get(port, "/health"):
                    ask(port, 0, 8, 1, {})
                    break
            except (OSError, KeyError, ValueError):
                time.sleep(0.05)
        outputs, most, before = {}, 0, resident_mib(engine.pid)
        top = before
        begin = time.monotonic()
        threads = [threading.Thread(target=ask, args=(port, i, o.prompt_tokens, o.output_tokens, outputs))
                   for i in range(o.requests)]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            most = max(most, metric(port, "muster_engine_requests_running"))
            top = max(top, resident_mib(engine.pid))
            time.sleep(0.05)
        seconds = time.monotonic() - begin
        digest = hashlib.sha256("".join(outputs[i] for i in sorted(outputs)).encode()).hexdigest()[:12]
        print(f"at once {most:.0f}, resident {top - before:+.0f} MiB, {seconds:.1f} s, outputs {digest}")
    finally:
        engine.kill()
        engine.wait()


main()
