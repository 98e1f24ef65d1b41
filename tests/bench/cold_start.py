#!/usr/bin/env python3
"""cold_start.py - measures the time from exec of an engine to the first streamed token of a 16-token prompt.

    tests/bench/cold_start.py MODEL.gguf [RUNS] [FLAG OF muster engine ...]

The file is read once before, so that it lies in the page cache. MUSTER_BIN names the program (build/muster). With
--weight-cache FOLDER the first run packs the weights; it is printed apart and does not count.
"""

import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time

BODY = json.dumps({"prompt": list(range(100, 116)), "max_tokens": 2, "temperature": 0, "stream": True})


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def first_token(port):
    """True once a chunk of the stream has come; False while nobody listens, or the model is loading."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        client.request("POST", "/v1/completions", BODY, {"content-type": "application/json"})
        reply = client.getresponse()
        if reply.status == 503:
            return False
        if reply.status != 200:
            sys.exit(f"the engine replied {reply.status}: {reply.read().decode()}")
        return reply.readline().startswith(b"data:")
    except ConnectionError:
        return False
    finally:
        client.close()


def run(program, model, flags):
    port = free_port()
    begin = time.monotonic()
    engine = subprocess.Popen([program, "engine", "--model", model, "--listen", f"127.0.0.1:{port}", *flags],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not first_token(port):
            if engine.poll() is not None:
                sys.exit("the engine has ended; start it by hand to see why")
            time.sleep(0.002)
        return time.monotonic() - begin
    finally:
        engine.kill()
        engine.wait()


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    model, runs, flags = sys.argv[1], 5, sys.argv[2:]
    if flags and flags[0].isdigit():
        runs, flags = int(flags[0]), flags[1:]
    program = os.environ.get("MUSTER_BIN", "build/muster")
    with open(model, "rb") as f:
        while f.read(1 << 24):
            pass
    if "--weight-cache" in flags:
        print(f"first start, which may pack the weights: {run(program, model, flags):.2f} s")
    seconds = [run(program, model, flags) for _ in range(runs)]
    print(f"exec to first token: median {statistics.median(seconds):.2f} s of", " ".join(f"{s:.2f}" for s in seconds))


if __name__ == "__main__":
    main()
