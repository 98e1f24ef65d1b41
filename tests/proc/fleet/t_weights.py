#!/usr/bin/env python3
"""t_weights.py - tests agents whose machines lack their model: they have it fetched, say how far it is, and start the
engine when it is whole and has its digest.

The controller is a few lines here: it answers reports and keeps them. The source is the site of t_pull.
"""
import hashlib
import hmac
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


CHUNK = 8 << 20
LARGE = body_of(2 * CHUNK + 1_000_003, 7)  # three chunks


def chunks_of(data):
    return [data[i:i + CHUNK] for i in range(0, len(data), CHUNK)]


def seal_of(data, claims=None):
    """The seal of a model of one file, as the data or as the chunks in `claims` have it."""
    rows = [f"chunk {sha(c)}\n" for c in chunks_of(claims or data)]
    return (f"muster-seal 1\nmodel {sha(data)}\nfile {sha(data)} {len(data)} -\n" + "".join(rows)).encode()


def ranged(data, cut=()):
    """A source that knows parts; those that begin at a place in `cut` are cut there once."""
    cut = set(cut)

    def reply(h):
        asked = t_pull.re.fullmatch(r"bytes=(\d+)-(\d*)", h.headers.get("Range", "bytes=0-"))
        first, last = int(asked[1]), min(int(asked[2] or len(data) - 1), len(data) - 1)
        whole = "Range" not in h.headers
        h.send_response(200 if whole else 206)
        h.send_header("ETag", '"one"')
        if not whole:
            h.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        h.send_header("Content-Length", str(last + 1 - first))
        h.end_headers()
        if first in cut and not whole:
            cut.discard(first)
            h.wfile.write(data[first:first + 1000])
            h.cut()
        else:
            h.wfile.write(data[first:last + 1])

    return reply


class Peers(Case):
    """The engine here is a program that sleeps: what is told is when the model is there."""

    def setUp(self):
        super().setUp()
        self.sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]

    def agent(self, name, url, **more):
        return super().agent(name, url, sha256=sha(LARGE), engine_args=self.sleeper, **more)

    def there(self, name):
        report = self.heard(name, "of a whole model", lambda r: r["weights"].get("whole"))
        self.assertEqual((self.folder / name / "models" / "m.gguf").read_bytes(), LARGE)
        self.assertEqual((report["weights"]["bytes"], report["weights"]["total"]), (len(LARGE), len(LARGE)))
        return report["weights"]

    def log(self, name):
        return (self.folder / name / "weights.log").read_text()

    def fake(self, seal, chunks):
        """An agent that gives this seal, and these chunks or what a function does."""
        site = Site()
        self.addCleanup(site.close)
        path = f"/internal/weights/{sha(LARGE)}"
        site.routes[path] = lambda h: h.say(200, seal)
        for i, chunk in enumerate(chunks):
            site.routes[f"{path}/0/{i}"] = chunk if callable(chunk) else lambda h, c=chunk: h.say(200, c)
        return {"host": "127.0.0.1", "port": site.port}

    def first(self):
        """An agent that has the model from its source."""
        self.site.routes["/m.gguf"] = ranged(LARGE)
        self.agent("a", self.site.url + "/m.gguf")
        self.there("a")
        port = self.heard("a", "of a port", lambda r: r["weights"].get("port"))["weights"]["port"]
        return {"host": "127.0.0.1", "port": port}

    def second(self, *seeds, source="/m.gguf"):
        self.controller.reply["b"] = {"seeds": list(seeds)}
        self.agent("b", self.site.url + source)
        return self.there("b")

    def test_one_gives_it_to_the_next(self):
        told = self.second(self.first(), source="/none")
        self.assertEqual(told["seed_bytes"], len(LARGE))
        self.assertEqual(self.site.ranges("/none"), [])

    def test_a_liars_chunk_is_found_and_the_source_asked_for_it(self):
        parts = chunks_of(LARGE)
        parts[1] = parts[1][:-1] + bytes([parts[1][-1] ^ 1])
        liar = self.fake(seal_of(LARGE), parts)
        self.site.routes["/m.gguf"] = ranged(LARGE)
        told = self.second(liar)
        self.assertLess(told["seed_bytes"], len(LARGE))
        # The source may be asked for the third before: what the liar had not given when it was found out comes from there.
        self.assertIn(f"bytes={CHUNK}-{2 * CHUNK - 1}", self.site.ranges("/m.gguf"))
        self.assertIn("is not asked again", self.log("b"))

    def test_a_liars_seal_is_dropped_for_an_honest_one(self):
        false = bytearray(LARGE)
        false[CHUNK + 5] ^= 1
        liar = self.fake(seal_of(LARGE, bytes(false)), chunks_of(bytes(false)))
        told = self.second(liar, self.first(), source="/none")
        self.assertGreaterEqual(told["seed_bytes"], len(LARGE))
        self.assertIn("is not asked again", self.log("b"))

    def test_only_liars_leave_the_source(self):
        false = bytearray(LARGE)
        false[0] ^= 1
        liar = self.fake(seal_of(LARGE, bytes(false)), chunks_of(bytes(false)))
        self.site.routes["/m.gguf"] = ranged(LARGE)
        self.second(liar, self.fake(b"nonsense", []))
        self.assertIn("no seal", self.log("b"))

    def test_one_that_goes_away_costs_a_retry(self):
        def cut(h):
            h.send_response(200)
            h.send_header("Content-Length", str(CHUNK))
            h.end_headers()
            h.wfile.write(LARGE[:100_000])
            h.cut()

        self.site.routes["/m.gguf"] = ranged(LARGE)
        self.second(self.fake(seal_of(LARGE), [cut, cut, cut]))
        self.assertIn("left alone", self.log("b"))

    def test_a_key_is_wanted_and_is_the_readers(self):
        secret = os.urandom(32).hex()
        mac = lambda key, label, name: hmac.digest(key, b"muster-key 1 " + label + b"\0" + name, hashlib.sha256)
        key = mac(secret.encode(), b"instance", b"a")
        (self.folder / "a").mkdir()
        file = self.folder / "a" / "key"
        file.write_text(f"muster-instance-key 1\ninstance a\nkey {key.hex()}\nblocks {0:016x}\nbearer {0:064x}\n")
        file.chmod(0o600)
        self.site.routes["/m.gguf"] = ranged(LARGE)
        self.agent("a", self.site.url + "/m.gguf", secret_file=str(file))
        log = self.folder / "a" / "agent.log"
        until = time.monotonic() + WAIT_S
        while not (port := t_pull.re.search(r"weights_given .*port=(\d+)", log.read_text())):
            self.assertLess(time.monotonic(), until, log.read_text()[-2000:])
            time.sleep(0.05)
        reader = {"host": "127.0.0.1", "port": int(port[1]), "id": "weights/a/b", "key": mac(key, b"weights", b"weights/a/b").hex()}
        for wrong in ({}, {"key": secret}, {"id": "weights/c/b"}):
            seeds = self.folder / "seeds"
            seeds.write_text(json.dumps({"seeds": [reader | wrong] if wrong else [{k: reader[k] for k in ("host", "port")}]}))
            status, err = self.pull_by(seeds)
            self.assertIn("no seal", err)
            self.assertNotEqual(status, 0)
        seeds.write_text(json.dumps({"seeds": [reader]}))
        status, err = self.pull_by(seeds)
        self.assertEqual(status, 0, err)
        self.assertEqual((self.folder / "to" / "x").read_bytes(), LARGE)

    def pull_by(self, seeds):
        done = subprocess.run([MUSTER, "pull", self.site.url + "/x", "--at", str(self.folder / "to" / "x"), "--sha256",
                               sha(LARGE), "--seeds", str(seeds)], capture_output=True, text=True, timeout=WAIT_S)
        return done.returncode, done.stderr

    def test_parts_of_the_source_are_cut_and_gone_on_with(self):
        self.site.routes["/m.gguf"] = ranged(LARGE, cut=[CHUNK])
        self.agent("b", self.site.url + "/m.gguf")
        self.there("b")
        wanted = [f"bytes={i * CHUNK}-{min((i + 1) * CHUNK, len(LARGE)) - 1}" for i in (0, 1, 1, 2)]
        self.assertEqual(sorted(r for r in self.site.ranges("/m.gguf") if r), sorted(wanted))


if __name__ == "__main__":
    unittest.main()
