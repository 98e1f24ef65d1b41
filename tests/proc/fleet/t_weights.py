#!/usr/bin/env python3
"""t_weights.py - tests agents whose machines lack their model: they have it fetched, say how far it is, and start the
engine when it is whole and has its digest.

The controller is a few lines here: it answers reports and keeps them. The source is the site of t_pull.
"""
import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import t_pull  # noqa: E402
from t_pull import Site, body_of, served, sha  # noqa: E402

MUSTER = os.path.abspath(os.environ["MUSTER_BIN"])
TINY = pathlib.Path("models/muster-tiny-q8_0.gguf").read_bytes()
WAIT_S = t_pull.WAIT_S


class Controller:
    """Takes reports, and answers each with `reply`."""

    def __init__(self):
        controller = self
        self.reports, self.reply = {}, {}

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                controller.reports.setdefault(report["instance"], []).append(report)
                told = controller.reply.get(report["instance"], {})
                body = json.dumps({"v": 1, "known": True, "lease_ms": 60000, **told}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-weights-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.site = Site()
        self.addCleanup(self.site.close)
        self.controller = Controller()
        self.addCleanup(self.controller.close)

    def agent(self, name, url, *, model=None, sha256="", more=(), **document):
        """Starts an agent; its model is to lie in its folder."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        path = str(model or home / "models" / "m.gguf")
        spec = {"v": 1, "instance": name, "service": "s", "pool": "p", "offer": "o", "controller_host": "127.0.0.1",
                "controller_port": self.controller.port, "engine_host": "127.0.0.1",
                "engine_args": [MUSTER, "engine", "--model", path, "--served-model-name", "s", "--threads", "1"],
                "model": path, "weights_url": url, "weights_path": path, "weights_sha256": sha256, "grace_ms": 600000,
                **document}
        (home / "launch.json").write_text(json.dumps(spec))
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        with open(home / "agent.log", "ab") as log:
            process = subprocess.Popen([MUSTER, "agent", "--spec", str(home / "launch.json"), "--report", "100ms", *more],
                                       cwd=home, env=env, stdout=subprocess.DEVNULL, stderr=log)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def heard(self, name, what, condition):
        """Waits for a report that meets the condition."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            for report in list(self.controller.reports.get(name, [])):
                if condition(report):
                    return report
            time.sleep(0.02)
        log = self.folder / name / "agent.log"
        self.fail(f"no report {what}: {self.controller.reports.get(name, [])[-1:]}\n{log.read_text()[-3000:]}")

    def up(self, name):
        return self.heard(name, "of an engine that is up", lambda r: r["state"] == "up")


class Fetched(Case):
    def test_progress_then_an_engine(self):
        hold = threading.Event()
        self.site.routes["/m.gguf"] = [served(TINY, cut=len(TINY) // 2, hold=hold), served(TINY)]
        self.agent("a", self.site.url + "/m.gguf", sha256=sha(TINY))
        half = self.heard("a", "of half a model", lambda r: r["weights"].get("bytes", 0) >= len(TINY) // 2)
        self.assertEqual((half["state"], half["weights"]["total"]), ("starting", len(TINY)))
        self.assertFalse(half["weights"].get("whole"))
        hold.set()
        there = self.up("a")["weights"]
        self.assertTrue(there["whole"])
        self.assertEqual((there["bytes"], there["total"], there["sha256"]), (len(TINY), len(TINY), sha(TINY)))
        self.assertGreater(there["fetch_s"], 0)
        self.heard("a", "of the time to load", lambda r: r["weights"].get("load_s", 0) > 0)
        self.assertEqual(self.site.ranges("/m.gguf"), [None, f"bytes={len(TINY) // 2}-"])

    def test_a_model_that_is_there_is_not_fetched(self):
        (self.folder / "a" / "models").mkdir(parents=True)
        (self.folder / "a" / "models" / "m.gguf").write_bytes(TINY)
        self.agent("a", self.site.url + "/m.gguf", sha256=sha(TINY))
        self.up("a")
        self.assertEqual(self.site.requests, [])

    def test_a_wrong_digest_is_said_and_tried_again(self):
        self.site.routes["/m.gguf"] = [served(TINY[:-1] + b"x", etag='"bad"'), served(TINY)]
        self.agent("a", self.site.url + "/m.gguf", sha256=sha(TINY))
        report = self.heard("a", "of the wrong digest", lambda r: sha(TINY) in r.get("trouble", ""))
        self.assertEqual(report["state"], "starting")
        self.up("a")

    def test_an_agent_that_dies_goes_on_and_one_that_drains_ends(self):
        hold = threading.Event()
        self.addCleanup(hold.set)
        first = served(TINY, cut=100_000, hold=hold)
        self.site.routes["/m.gguf"] = [first, served(TINY, cut=200_000, hold=hold)]
        process = self.agent("a", self.site.url + "/m.gguf", sha256=sha(TINY))
        self.heard("a", "of its first bytes", lambda r: r["weights"].get("bytes", 0) >= 100_000)
        process.kill()
        process.wait()
        process = self.agent("a", self.site.url + "/m.gguf", sha256=sha(TINY))
        self.heard("a", "of the bytes behind them", lambda r: r["weights"].get("bytes", 0) >= 300_000)
        self.assertEqual(self.site.ranges("/m.gguf"), [None, "bytes=100000-"])
        self.controller.reply["a"] = {"drain": True}
        self.assertEqual(process.wait(WAIT_S), 0)

    def test_a_disk_that_may_not_have_it(self):
        self.site.routes["/m.gguf"] = served(TINY)
        self.agent("a", self.site.url + "/m.gguf", sha256=sha(TINY), weights_max=1 << 20)
        self.heard("a", "of a bound", lambda r: "models.max" in r.get("trouble", "") or "bound" in r.get("trouble", ""))


if __name__ == "__main__":
    unittest.main()
