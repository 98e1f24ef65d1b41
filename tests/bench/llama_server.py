#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama_server.py - run llama.cpp's own server out of the xllamacpp wheel, with the options of llama-server.

The wheel has the server as a Python object and no program. Only the options that an agent of Muster gives
are read (agent/engines/llama_server.c); another one is an error, as it is for llama-server.
"""
import argparse
import signal
import sys
import threading

import xllamacpp


def options(argv):
    p = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    p.add_argument("-m", "--model", required=True)
    p.add_argument("-a", "--alias", default="")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8080)
    p.add_argument("-c", "--ctx-size", type=int, default=0)
    p.add_argument("-np", "--parallel", type=int, default=4)
    p.add_argument("-t", "--threads", type=int, default=0)
    p.add_argument("--metrics", action="store_true")
    p.add_argument("--slots", action="store_true")
    p.add_argument("--no-webui", action="store_true")
    return p.parse_args(argv)


def main(argv):
    o = options(argv)
    p = xllamacpp.CommonParams()
    p.model.path = o.model
    if o.alias:
        p.model_alias = {o.alias}
    p.hostnames = [o.host]
    p.port = o.port
    p.n_ctx = o.ctx_size
    p.n_parallel = o.parallel
    if o.threads:
        p.cpuparams.n_threads = o.threads
        p.cpuparams_batch.n_threads = o.threads
    p.endpoint_metrics = o.metrics
    p.endpoint_slots = o.slots
    p.ui = not o.no_webui
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = xllamacpp.Server(p)
    print("listening", server.listening_address, flush=True)
    ended.wait()
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
