#!/usr/bin/env python3
"""t_pull.py - tests `muster pull` against servers that cut, lie, refuse and redirect, and engines that load by name.

Each test scripts a site: what it answers to a path, request by request. The site keeps all requests, so that a test
sees what was asked for again, and with which headers.
"""
import contextlib
import hashlib
import http.server
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

MUSTER = os.environ["MUSTER_BIN"]
TINY = "models/muster-tiny-q8_0.gguf"
TOKEN = "hf_secretsecretsecret"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
WAIT_S = 240 if "asan" in MUSTER or "tsan" in MUSTER else 60


def sha(data):
    return hashlib.sha256(data).hexdigest()


def body_of(size, seed=1):
    return random.Random(seed).randbytes(size)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        site = self.server.site
        with site.lock:
            site.requests.append((self.path, dict(self.headers.items())))
            reply = site.routes.get(self.path.split("?")[0])
            if isinstance(reply, list):
                reply = reply.pop(0) if len(reply) > 1 else reply[0]
        try:
            if reply is None:
                self.say(404, b"none")
            else:
                reply(self)
        except OSError:
            self.close_connection = True  # the client went away

    def log_message(self, *args):
        pass

    def say(self, status, data=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def cut(self):
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that went away


class Site:
    """A server of its own port, which answers `routes` and keeps `requests`."""

    def __init__(self):
        self.lock = threading.Lock()
        self.routes, self.requests = {}, []
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.site = self
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def ranges(self, path):
        return [h.get("Range") for p, h in self.requests if p == path]


def served(data, etag='"one"', cut=None, hold=None):
    """Answers as a good server does, with parts; stops behind `cut` bytes of the body, or waits there for `hold`."""

    def reply(h):
        first, status = 0, 200
        asked = h.headers.get("Range")
        if asked and h.headers.get("If-Range") in (None, etag):
            first, status = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]), 206
        if first >= len(data) and status == 206:
            h.say(416, b"", Content_Range=f"bytes */{len(data)}")
            return
        part = data[first:]
        h.send_response(status)
        if etag:
            h.send_header("ETag", etag)
        if status == 206:
            h.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        h.send_header("Content-Length", str(len(part)))
        h.end_headers()
        if cut is None:
            h.wfile.write(part)
            return
        h.wfile.write(part[:cut])
        h.wfile.flush()
        if hold:
            hold.wait(WAIT_S)
        h.cut()

    return reply


def chunked(pieces, ends):
    def reply(h):
        h.send_response(200)
        h.send_header("Transfer-Encoding", "chunked")
        h.end_headers()
        for piece in pieces:
            h.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if ends:
            h.wfile.write(b"0\r\n\r\n")
        else:
            h.cut()

    return reply


def says(status, **headers):
    return lambda h: h.say(status, b"no", **headers)


def raw(text):
    def reply(h):
        h.wfile.write(text)
        h.cut()

    return reply


def as_json(value, **headers):
    return lambda h: h.say(200, json.dumps(value).encode(), **headers)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="muster-pull-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.site = Site()
        self.addCleanup(self.site.close)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb" if isinstance(data, bytes) else "w") as f:
            f.write(data)

    def read(self, *parts):
        with open(self.path(*parts), "rb") as f:
            return f.read()

    def start(self, *args, token=TOKEN, endpoint=None):
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and not k.startswith("HF_")}
        env["HF_ENDPOINT"] = endpoint or self.site.url
        if token:
            env["HF_TOKEN"] = token
        return subprocess.Popen([MUSTER, *args], cwd=self.folder, env=env, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self, process):
        out, err = process.communicate(timeout=WAIT_S)
        self.assertNotIn(TOKEN, out + err)
        self.assertNotIn("Sanitizer", err)
        return process.returncode, out, err

    def pull(self, *args, **more):
        return self.end(self.start("pull", *args, **more))

    def good(self, *args, **more):
        status, out, err = self.pull(*args, "-o", "json", **more)
        self.assertEqual(status, 0, err)
        return json.loads(out)

    def bad(self, *args, **more):
        status, out, err = self.pull(*args, **more)
        self.assertEqual((status, out), (1, ""), err)
        return err

    def names(self, *parts):
        """Everything in a folder but locks, which stay."""
        folder = self.path(*parts)
        return sorted(os.path.relpath(os.path.join(at, f), folder) for at, _, files in os.walk(folder) for f in files
                      if not f.endswith(".lock"))


class Whole(Case):
    def test_a_file_by_url(self):
        data = body_of(3_000_001)
        self.site.routes["/x/m.gguf"] = served(data)
        got = self.good(f"{self.site.url}/x/m.gguf?sig=hidden#part", "--sha256", sha(data).upper())
        self.assertEqual(got, {"path": "models/m.gguf", "status": "pulled", "sha256": sha(data), "bytes": len(data),
                               "fetched_bytes": len(data), "evicted": []})
        self.assertEqual(self.read("models/m.gguf"), data)
        self.assertEqual(self.names("models"), ["m.gguf"])
        self.assertNotIn("Authorization", self.site.requests[0][1])  # the token is the hub's
        again = self.good(f"{self.site.url}/x/m.gguf", "--sha256", sha(data))
        self.assertEqual((again["status"], again["fetched_bytes"]), ("present", 0))
        self.assertEqual(len(self.site.requests), 1)
        err = self.bad(f"{self.site.url}/x/m.gguf", "--sha256", sha(b"other"))
        self.assertIn(sha(data), err)
        self.assertIn(sha(b"other"), err)

    def test_an_empty_file_and_one_of_unknown_length(self):
        self.site.routes["/e"] = served(b"")
        self.site.routes["/c"] = chunked([b"abc", b"d" * 70000], True)
        self.assertEqual(self.good(f"{self.site.url}/e", "--to", "to")["bytes"], 0)
        self.assertEqual(self.good(f"{self.site.url}/c", "--to", "to")["bytes"], 70003)
        self.assertEqual(self.read("to", "c"), b"abc" + b"d" * 70000)

    def test_all_shards_of_a_file(self):
        parts = {f"m-0000{i}-of-00003.gguf": body_of(1000 * i, i) for i in (1, 2, 3)}
        for name, data in parts.items():
            self.site.routes["/" + name] = served(data)
        got = self.good(f"{self.site.url}/m-00001-of-00003.gguf?q=1", "--to", "to")
        self.assertEqual(got["path"], "to/m/m-00001-of-00003.gguf")
        for name, data in parts.items():
            self.assertEqual(self.read("to", "m", name), data)
        listing = subprocess.run("sha256sum m-*.gguf | sha256sum", shell=True, cwd=self.path("to", "m"),
                                 capture_output=True, check=True, text=True)
        self.assertEqual(got["sha256"], listing.stdout.split()[0])
        self.assertEqual([p for p, _ in self.site.requests], [f"/{n}?q=1" for n in parts])

    def test_lines_of_progress(self):
        self.site.routes["/m"] = served(body_of(2_000_000))
        status, out, err = self.pull(f"{self.site.url}/m")
        self.assertEqual(status, 0)
        self.assertIn("models/m: 2.00 MB, sha256 ", out)
        self.assertRegex(err, r"1\.\d of 2\.0 MB\n")
        self.assertNotIn("\r", err)


class Cut(Case):
    SIZE = 200_000

    def test_it_goes_on_from_every_place(self):
        data = body_of(self.SIZE)
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\nETag: \"one\"\r\n"
        first = {
            "no reply": (raw(b""), 0),
            "in the head": (raw(head), 0),
            "behind the head": (served(data, cut=0), 0),
            "behind a byte": (served(data, cut=1), 1),
            "in the middle": (served(data, cut=100_003), 100_003),
            "before the last byte": (served(data, cut=self.SIZE - 1), self.SIZE - 1),
        }
        for i, (where, (reply, got)) in enumerate(first.items()):
            with self.subTest(where):
                path = f"/{i}"
                self.site.routes[path] = [reply, served(data)]
                told = self.good(self.site.url + path, "--sha256", sha(data))
                self.assertEqual(told["fetched_bytes"], self.SIZE)
                self.assertEqual(self.read("models", str(i)), data)
                self.assertEqual(self.site.ranges(path), [None, f"bytes={got}-" if got else None])
                if got:
                    self.assertEqual(self.site.requests[-1][1]["If-Range"], '"one"')

    def test_it_goes_on_many_times(self):
        data = body_of(self.SIZE)
        self.site.routes["/m"] = [served(data, cut=40_000)] * 4 + [served(data)]
        self.good(f"{self.site.url}/m", "--retries", "1", "--sha256", sha(data))
        self.assertEqual(len(self.site.requests), 5)

    def test_a_later_command_goes_on(self):
        data = body_of(self.SIZE)
        self.site.routes["/m"] = [served(data, cut=70_000), served(data)]
        err = self.bad(f"{self.site.url}/m", "--retries", "0")
        self.assertIn("70000 bytes stay in models/m.part", err)
        self.assertEqual(self.names("models"), ["m.part", "m.part.source"])
        got = self.good(f"{self.site.url}/m")
        self.assertEqual((got["sha256"], got["fetched_bytes"]), (sha(data), self.SIZE - 70_000))
        self.assertEqual(self.names("models"), ["m"])

    def test_a_part_that_is_whole_already(self):
        data = body_of(self.SIZE)
        self.site.routes["/m"] = [served(data, cut=70_000), served(data)]
        self.bad(f"{self.site.url}/m", "--retries", "0")
        self.write("models/m.part", data)
        got = self.good(f"{self.site.url}/m")
        self.assertEqual((got["sha256"], got["fetched_bytes"]), (sha(data), 0))

    def test_a_part_that_is_too_long(self):
        data = body_of(self.SIZE)
        self.site.routes["/m"] = [served(data, cut=70_000), served(data)]
        self.bad(f"{self.site.url}/m", "--retries", "0")
        self.write("models/m.part", data + b"more")
        self.assertEqual(self.good(f"{self.site.url}/m")["sha256"], sha(data))

    def test_a_damaged_part_is_found_and_removed(self):
        data = body_of(self.SIZE)
        self.site.routes["/m"] = [served(data, cut=70_000), served(data)]
        self.bad(f"{self.site.url}/m", "--retries", "0")
        self.write("models/m.part", b"x" * 70_000)
        self.assertIn(sha(data), self.bad(f"{self.site.url}/m", "--sha256", sha(data)))
        self.assertEqual(self.names("models"), [])
        self.good(f"{self.site.url}/m", "--sha256", sha(data))

    def test_a_part_of_another_url_or_without_a_validator_is_begun_anew(self):
        data = body_of(self.SIZE)
        self.site.routes["/a/m"] = served(body_of(self.SIZE, 2), cut=1000)
        self.site.routes["/b/m"] = served(data)
        self.bad(f"{self.site.url}/a/m", "--retries", "0")
        self.assertEqual(self.good(f"{self.site.url}/b/m")["sha256"], sha(data))
        self.site.routes["/n"] = [served(data, etag=None, cut=1000), served(data, etag=None)]
        self.assertEqual(self.good(f"{self.site.url}/n")["sha256"], sha(data))
        self.assertEqual(self.site.ranges("/n"), [None, None])

    def test_a_changed_file_is_fetched_from_its_start(self):
        old, new = body_of(self.SIZE, 1), body_of(self.SIZE + 5, 2)
        liar = [b"HTTP/1.1 206 Partial Content\r\nETag: \"two\"\r\nContent-Length: 100005\r\n"
                b"Content-Range: bytes 100000-200004/200005\r\n\r\n" + new[100_000:]]
        self.site.routes["/a"] = [served(old, cut=100_000), served(new, etag='"two"')]
        self.site.routes["/b"] = [served(old, cut=100_000), raw(liar[0]), served(new, etag='"two"')]
        for name in "ab":
            self.assertEqual(self.good(f"{self.site.url}/{name}")["sha256"], sha(new))
            self.assertEqual(self.read("models", name), new)
        self.assertEqual(self.site.ranges("/b"), [None, "bytes=100000-", None])

    def test_a_reply_of_another_part_is_refused(self):
        data = body_of(self.SIZE)
        for i, said in enumerate(["bytes 0-199999/200000", "bytes 999-1/5", "bytes 1000-1003/*", "lines 1-2/3", ""]):
            wrong = (f"HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\nETag: \"one\"\r\n"
                     f"Content-Range: {said}\r\n\r\nabcd").encode()
            self.site.routes[f"/{i}"] = [served(data, cut=1000), raw(wrong)]
            self.assertIn("not the part that was asked for", self.bad(f"{self.site.url}/{i}"))

    def test_sigint_leaves_a_part_that_goes_on(self):
        data, hold = body_of(self.SIZE), threading.Event()
        self.site.routes["/m"] = [served(data, cut=50_000, hold=hold), served(data)]
        process = self.start("pull", f"{self.site.url}/m")
        until = time.monotonic() + WAIT_S
        part = self.path("models/m.part")
        while not (os.path.exists(part) and os.path.getsize(part) == 50_000) and time.monotonic() < until:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        status, _, err = self.end(process)
        hold.set()
        self.assertEqual(status, 1)
        self.assertIn("stopped", err)
        got = self.good(f"{self.site.url}/m")
        self.assertEqual((got["sha256"], got["fetched_bytes"]), (sha(data), self.SIZE - 50_000))

    def test_bodies_that_end_early_and_never(self):
        self.site.routes["/short"] = chunked([b"abc"], False)
        self.assertIn("given up after 2 tries", self.bad(f"{self.site.url}/short", "--retries", "1"))
        self.assertNotIn("short", self.names("models"))
        self.write("muster.yaml", "models: { folder: models, max: 3MiB }\n")
        self.site.routes["/endless"] = chunked((b"x" * 65536 for _ in iter(int, 1)), False)
        self.assertIn("sends more than the", self.bad(f"{self.site.url}/endless"))
        self.assertLessEqual(os.path.getsize(self.path("models/endless.part")), 3 << 20)


class Refused(Case):
    def test_a_wrong_digest(self):
        data = body_of(1000)
        self.site.routes["/m"] = served(data)
        err = self.bad(f"{self.site.url}/m", "--sha256", sha(b""))
        self.assertIn(f"its SHA-256 is {sha(data)}, expected is {sha(b'')}", err)
        self.assertEqual(self.names("models"), [])

    def test_what_will_not_pass_is_asked_for_once(self):
        for status, words in ((404, "no such file (404)"), (403, "refuses it (403)"), (401, "HF_TOKEN"),
                              (400, "answers 400")):
            self.site.requests.clear()
            self.site.routes["/m"] = says(status)
            self.assertIn(words, self.bad(f"{self.site.url}/m?sig=hidden"))
            self.assertEqual(len(self.site.requests), 1)

    def test_what_may_pass_is_asked_for_again(self):
        data = body_of(1000)
        self.site.routes["/m"] = [says(429, Retry_After="1"), says(503), served(data)]
        began = time.monotonic()
        status, _, err = self.pull(f"{self.site.url}/m?sig=hidden")
        self.assertEqual(status, 0)
        self.assertGreaterEqual(time.monotonic() - began, 1.0)
        self.assertIn("answers 429; asking again in 1.0 s", err)
        self.assertNotIn("hidden", err)
        self.site.routes["/n"] = says(500)
        self.assertIn("given up after 3 tries", self.bad(f"{self.site.url}/n", "--retries", "2"))
        self.site.routes["/o"] = says(429, Retry_After="86400")
        self.assertIn("in more than 300 s", self.bad(f"{self.site.url}/o"))

    def test_no_server(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            err = self.bad(f"http://127.0.0.1:{s.getsockname()[1]}/m", "--retries", "1")
        self.assertIn("given up after 2 tries", err)

    def test_words_that_are_no_model(self):
        rows = {"ftp://h/m": "want https://HOST/FILE", "http://h": "plain file name", "http://h/": "plain file name",
                "http://h/..": "plain file name", "hf://org": "want hf://ORG/REPO", "hf://o/r@": "want hf://",
                "hf://o/r/../x": "names no file", "hf://o/r//x": "names no file", "hf://o/r/": "names no file",
                "http://u:p@127.0.0.1:1/m": "user or password"}
        for word, said in rows.items():
            self.assertIn(said, self.bad(word, "--retries", "0"), word)
        self.assertEqual(self.pull("http://h/m", "--sha256", "12")[0], 2)
        self.assertIn("muster.yaml", self.pull("name")[2])

    def test_a_token_needs_a_safe_way(self):
        self.assertIn("unprotected", self.bad("hf://o/r", endpoint="http://192.0.2.1"))
        self.assertIn("unprotected", self.bad("hf://o/r", endpoint="http://127.0.0.1.example.org"))
        self.assertIn("HF_ENDPOINT must be", self.bad("hf://o/r", endpoint="nowhere"))
        self.assertIn("HF_TOKEN has a blank", self.bad("hf://o/r", token="a b"))


class Hub(Case):
    FILES = {
        "config.json": b"{}", "tokenizer.json": b"{\"a\": 1}", "model-00001-of-00002.safetensors": body_of(30000, 1),
        "model-00002-of-00002.safetensors": body_of(40000, 2), "1_Pooling/config.json": b"{ }",
    }
    OTHERS = {".gitattributes": b"x", "README.md": b"x", "consolidated.safetensors": b"x", "onnx/model.onnx": b"x",
              "pytorch_model.bin": b"x"}

    def entry(self, name, data):
        entry = {"type": "file", "oid": "0" * 40, "size": len(data), "path": name}
        if name.endswith((".safetensors", ".gguf")):
            entry["lfs"] = {"oid": sha(data), "size": len(data), "pointerSize": 130}
        return entry

    def repository(self, files, commit=COMMIT, rev="main"):
        routes = self.site.routes
        routes[f"/api/models/o/r/revision/{rev}"] = as_json({"sha": commit})
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "onnx"}]
        entries += [self.entry(n, d) for n, d in files.items()]
        routes[f"/api/models/o/r/tree/{commit}"] = as_json(entries)
        for name, data in files.items():
            routes[f"/o/r/resolve/{commit}/{name.replace(' ', '%20')}"] = served(data, etag=f'"{sha(data)[:8]}"')

    def test_a_folder(self):
        self.repository({**self.OTHERS, **self.FILES})
        got = self.good("hf://o/r", "--to", "to")
        self.assertEqual(self.names("to", "r"), sorted(self.FILES))
        for name, data in self.FILES.items():
            self.assertEqual(self.read("to", "r", name), data)
        listing = subprocess.run("find -L . -type f -not -path '*/.*' -printf '%P\\n' | LC_ALL=C sort | "
                                 "xargs -d '\\n' sha256sum | sha256sum", shell=True, cwd=self.path("to", "r"),
                                 capture_output=True, check=True, text=True)
        self.assertEqual(got["sha256"], listing.stdout.split()[0])
        self.assertTrue(all(h["Authorization"] == f"Bearer {TOKEN}" for _, h in self.site.requests))
        self.assertEqual(self.good("hf://o/r", "--to", "to", "--sha256", got["sha256"])["status"], "present")

    def test_a_folder_goes_on(self):
        self.repository(self.FILES)
        second = f"/o/r/resolve/{COMMIT}/model-00002-of-00002.safetensors"
        data = self.FILES["model-00002-of-00002.safetensors"]
        etag = f'"{sha(data)[:8]}"'
        self.site.routes[second] = [served(data, etag=etag, cut=1234), served(data, etag=etag)]
        self.bad("hf://o/r", "--retries", "0")
        self.assertFalse(os.path.exists(self.path("models/r")))
        self.site.requests.clear()
        got = self.good("hf://o/r")
        self.assertEqual(self.names("models", "r"), sorted(self.FILES))
        self.assertEqual(self.site.ranges(second), ["bytes=1234-"])
        self.assertEqual(got["fetched_bytes"], len(data) - 1234 + len(self.FILES["tokenizer.json"]))

    def test_another_commit_begins_anew(self):
        self.repository(self.FILES)
        name = "model-00002-of-00002.safetensors"
        self.site.routes[f"/o/r/resolve/{COMMIT}/{name}"] = says(404)
        self.bad("hf://o/r")
        other = {**self.FILES, "config.json": b"{\"new\": 1}"}
        self.repository(other, commit=COMMIT[::-1])
        self.good("hf://o/r")
        self.assertEqual(self.read("models/r/config.json"), b"{\"new\": 1}")

    def test_files_of_a_repository(self):
        gguf = {"a b.gguf": body_of(5000), "q/m-00001-of-00002.gguf": body_of(100, 3),
                "q/m-00002-of-00002.gguf": body_of(200, 4), "README.md": b"x"}
        self.repository(gguf, rev="v1.0")
        self.assertEqual(self.good("hf://o/r@v1.0/README.md")["sha256"], sha(b"x"))
        got = self.good("hf://o/r@v1.0/q/m-00001-of-00002.gguf")
        self.assertEqual(got["path"], "models/m/m-00001-of-00002.gguf")
        self.assertEqual(self.names("models", "m"), ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"])
        self.assertIn("name one as hf://ORG/REPO/FILE: a b.gguf", self.bad("hf://o/r@v1.0"))
        self.assertIn("no file x.gguf", self.bad("hf://o/r@v1.0/x.gguf"))
        before = len(self.site.requests)
        err = self.bad("hf://o/r@v1.0/q/../x.gguf")
        self.assertIn("names no file", err)
        self.assertEqual(len(self.site.requests), before)

    def test_the_hubs_digest_is_checked_first(self):
        self.repository({"m.gguf": b"data"})
        err = self.bad("hf://o/r/m.gguf", "--sha256", sha(b"wanted"))
        self.assertIn(f"{sha(b'data')} by the hub, expected is {sha(b'wanted')}", err)
        self.assertEqual(len(self.site.requests), 2)  # nothing was fetched
        self.site.routes[f"/o/r/resolve/{COMMIT}/m.gguf"] = served(b"dota")
        self.assertIn(f"its SHA-256 is {sha(b'dota')}", self.bad("hf://o/r/m.gguf"))
        self.site.routes[f"/o/r/resolve/{COMMIT}/m.gguf"] = served(b"data and more")
        self.assertIn("the listing says 4", self.bad("hf://o/r/m.gguf"))
        self.site.routes[f"/o/r/resolve/{COMMIT}/m.gguf"] = chunked([b"da"], True)
        self.assertIn("ends after 2 of 4 bytes", self.bad("hf://o/r/m.gguf"))

    def test_pages_of_a_listing(self):
        self.repository(self.FILES)
        tree, names = f"/api/models/o/r/tree/{COMMIT}", list(self.FILES)
        second = f"{self.site.url}{tree}?recursive=1&cursor=x"
        self.site.routes[tree] = [
            as_json([self.entry(n, self.FILES[n]) for n in names[:2]], Link=f'<{second}>; rel="next"'),
            as_json([self.entry(n, self.FILES[n]) for n in names[2:]])]
        self.good("hf://o/r")
        self.assertEqual(self.names("models", "r"), sorted(self.FILES))
        other = Site()
        self.addCleanup(other.close)
        for place in (f"{other.url}/x", f"{self.site.url}0/x"):
            self.site.routes[tree] = as_json([], Link=f'<{place}>; rel="next"')
            self.assertIn("at another place than the hub", self.bad("hf://o/r", "--to", "to"))
        self.assertEqual(other.requests, [])

    def test_bad_names_in_a_listing(self):
        good = self.entry("model.safetensors", b"x")
        for name in ("../x.safetensors", "/etc/x.json", "", "a/../../x.json", "./x.json", "a//x.json", "x/", "a\\b.json",
                     "C:x.json", "a\nb.json", "x" * 201 + ".json", "d/" * 9 + "x.json", ".."):
            self.repository({})
            self.site.routes[f"/api/models/o/r/tree/{COMMIT}"] = as_json([good, self.entry(name, b"x")])
            self.assertIn("nothing was fetched", self.bad("hf://o/r"), repr(name))
        self.assertEqual(self.names("."), [])

    def test_a_model_larger_than_the_disk_is_refused_first(self):
        self.repository({})
        self.site.routes[f"/api/models/o/r/tree/{COMMIT}"] = as_json([
            {"type": "file", "path": "m.gguf", "size": 10**15, "lfs": {"oid": sha(b""), "size": 10**15}}])
        err = self.bad("hf://o/r/m.gguf", "--to", "to")
        self.assertIn("m.gguf needs 1000.00 TB more and the disk of to lacks", err)
        self.assertEqual(len(self.site.requests), 2)

    def test_replies_that_are_no_listing(self):
        for value in ({"error": "x"}, ["x"], [{"type": "file"}], [{"type": "file", "path": "a.json"}],
                      [{"type": "file", "path": "a.json", "size": -1}], [{"type": "file", "path": 1, "size": 1}],
                      [self.entry("a.json", b"")] * 2, []):
            self.repository({})
            self.site.routes[f"/api/models/o/r/tree/{COMMIT}"] = as_json(value)
            self.bad("hf://o/r")
        self.site.routes[f"/api/models/o/r/tree/{COMMIT}"] = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[{")
        self.assertIn("listing", self.bad("hf://o/r"))
        self.site.routes["/api/models/o/r/revision/main"] = as_json({"sha": "../../x"})
        self.assertIn("names no commit", self.bad("hf://o/r"))

    def test_a_redirect_to_another_host_gets_no_token(self):
        data = body_of(100_000)
        other = Site()
        self.addCleanup(other.close)
        other.routes["/blob"] = [served(data, cut=5000), served(data)]
        self.repository({"m.gguf": data})
        self.site.routes[f"/o/r/resolve/{COMMIT}/m.gguf"] = says(302, Location=f"{other.url}/blob?sig=1")
        self.assertEqual(self.good("hf://o/r/m.gguf")["sha256"], sha(data))
        self.assertEqual(len(other.requests), 2)
        for _, headers in other.requests:
            self.assertNotIn("Authorization", headers)
            self.assertNotIn(TOKEN, str(headers))
        self.assertEqual(other.ranges("/blob?sig=1"), [None, "bytes=5000-"])
        self.assertEqual(other.requests[1][1]["If-Range"], '"one"')
        to_hub = [h for p, h in self.site.requests if "resolve" in p]
        self.assertEqual([h["Authorization"] for h in to_hub], [f"Bearer {TOKEN}"] * 2)
        self.site.routes["/loop"] = says(302, Location="/loop")
        self.assertIn("redirects (302) more than", self.bad(f"{self.site.url}/loop"))

    def test_no_token_lies_on_the_disk(self):
        self.repository({"m.gguf": b"data" * 1000})
        self.site.routes[f"/o/r/resolve/{COMMIT}/m.gguf"] = served(b"data" * 1000, cut=10)
        self.bad("hf://o/r/m.gguf", "--retries", "0")
        for name in self.names("."):
            self.assertNotIn(TOKEN.encode(), self.read(name))


class Room(Case):
    def config(self, maximum, service=None, more=""):
        services = ""
        if service:
            services = ("local: { cores: 1, offers: [ { name: bit, share: 0.2, price_per_hour: 1 } ] }\n"
                        f"services: [ {{ name: s, model: {service}, pools: [ {{ name: p, offers: [bit] }} ] }} ]\n")
        self.write("muster.yaml", f"models:\n  folder: models\n  max: {maximum}\n  list:\n" + "".join(
            f"    - {{ name: {n}, url: '{self.site.url}/{n}.gguf' }}\n" for n in ("a", "b", "c", "d")) + more + services)

    def fill(self, size=2_000_000):
        for age, name in ((300, "b.gguf"), (200, "a.gguf"), (100, "c.gguf"), (400, "mine.gguf")):
            self.write(f"models/{name}", b"x" * size)
            at = time.time() - age * 86400
            os.utime(self.path("models", name), (at, at))
        self.site.routes["/d.gguf"] = served(body_of(3_000_000))

    def test_a_pull_beyond_the_bound_is_refused(self):
        self.config("8MiB")
        self.fill()
        err = self.bad("d")
        self.assertIn("models.max 8.39 MB", err)
        self.assertIn("--evict removes what can go", err)
        self.assertRegex(err, r"2\.00 MB  read \d{4}-\d\d-\d\d  b\.gguf: can go\n")
        self.assertIn("mine.gguf: not in models.list", err)
        self.assertEqual(sorted(n for n in self.names("models") if n.endswith(".gguf")),
                         ["a.gguf", "b.gguf", "c.gguf", "mine.gguf"])

    def test_evict_removes_the_one_read_longest_ago(self):
        self.config("10MiB")
        self.fill()
        self.assertEqual(self.good("d", "--evict")["evicted"], ["b.gguf"])
        self.assertEqual(self.names("models"), ["a.gguf", "c.gguf", "d.gguf", "mine.gguf"])

    def test_evict_spares_what_is_in_use(self):
        self.config("10MiB", service="b")
        self.fill()
        self.write("muster-state/instances/i1/spec.json", json.dumps({"engine_args": ["--model", "models/a.gguf"]}))
        self.assertEqual(self.good("d", "--evict")["evicted"], ["c.gguf"])
        self.assertEqual(self.names("models"), ["a.gguf", "b.gguf", "d.gguf", "mine.gguf"])

    def test_evict_spares_a_folder_with_other_things(self):
        self.config("10MiB", more="    - { name: deep, path: models/sub/deep.gguf }\n"
                    "    - { name: split, path: models/split/m-00001-of-00002.gguf }\n")
        self.write("models/sub/deep.gguf", b"x" * 3_000_000)
        self.write("models/sub/mine.gguf", b"x" * 3_000_000)
        for n in (1, 2):
            self.write(f"models/split/m-0000{n}-of-00002.gguf", b"x" * 1_500_000)
        self.site.routes["/d.gguf"] = served(body_of(3_000_000))
        self.assertEqual(self.good("d", "--evict")["evicted"], ["split"])
        self.assertEqual(self.names("models"), ["d.gguf", "sub/deep.gguf", "sub/mine.gguf"])

    def test_evict_removes_nothing_in_vain(self):
        self.config("6MiB", service="./models/b.gguf")
        self.fill()
        err = self.bad("d", "--evict")
        self.assertIn("what can go is not enough", err)
        self.assertIn("b.gguf: a service names it", err)
        self.assertEqual(len([n for n in self.names("models") if n.endswith(".gguf")]), 4)

    def test_another_folder_has_no_bound(self):
        self.config("1MiB")
        self.site.routes["/d.gguf"] = served(body_of(3_000_000))
        self.assertEqual(self.good("d", "--to", "elsewhere")["path"], "elsewhere/d.gguf")

    def test_two_pulls_at_once(self):
        self.config("7MiB")
        hold, data = threading.Event(), body_of(3_000_000)
        self.site.routes["/d.gguf"] = [served(data, cut=50_000, hold=hold), served(data)]
        self.site.routes["/a.gguf"] = served(body_of(3_000_000, 2))
        self.site.routes["/b.gguf"] = served(body_of(3_000_000, 3))
        first = self.start("pull", "d")
        until = time.monotonic() + WAIT_S
        part = self.path("models/d.gguf.part")
        while not (os.path.exists(part) and os.path.getsize(part) == 50_000) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertIn(str(first.pid), self.bad("d"))
        self.good("a")
        self.assertIn("lacks", self.bad("b"))  # the first pull will need its place
        hold.set()
        self.assertEqual(self.end(first)[0], 0)
        self.assertEqual(self.read("models/d.gguf"), data)


class Names(Case):
    def config(self, digest, more="", model="tiny"):
        self.write("muster.yaml", f"""
models:
  folder: models
  list:
    - {{ name: tiny, url: '{self.site.url}/t.gguf', sha256: {digest} }}
    - {{ name: plain, path: other.gguf }}
controller: {{ listen: '127.0.0.1:{free_port()}' }}
router: {{ listen: '127.0.0.1:{free_port()}' }}
local: {{ cores: 1, offers: [ {{ name: bit, share: 0.5, price_per_hour: 1 }} ] }}
services:
  - {{ name: s, model: {model}, pools: [ {{ name: p, offers: [bit], min: 1, max: 1 }} ] }}
{more}
""")

    def setUp(self):
        super().setUp()
        with open(TINY, "rb") as f:
            self.tiny = f.read()
        self.site.routes["/t.gguf"] = served(self.tiny)

    def run_muster(self, *args):
        return self.end(self.start(*args))

    def test_a_name_is_pulled_and_known(self):
        self.config(sha(self.tiny))
        status, out, err = self.run_muster("config", "check", "muster.yaml")
        self.assertEqual(status, 1)
        self.assertIn("fetch it with muster pull tiny", out + err)
        self.assertEqual(self.good("tiny")["path"], "models/tiny.gguf")
        self.assertEqual(self.run_muster("config", "check", "muster.yaml")[0], 0)
        self.assertIn("plain has no url", self.bad("plain"))
        self.assertIn("which has tiny, plain; did you mean tiny?", self.bad("tinny"))
        self.config(sha(self.tiny), model="tinny")
        self.assertIn("which has tiny, plain; did you mean tiny?", "".join(self.run_muster("config", "check", "muster.yaml")[1:]))

    def test_entries_that_are_wrong(self):
        for entry, said in (("{ name: a }", "neither a path nor a url"), ("{ name: a/b, path: x }", "the name 'a/b'"),
                            ("{ name: a, path: x, sha256: 12 }", "64 hex digits"),
                            ("{ name: a, path: x }, { name: a, path: y }", "a")):
            self.write("muster.yaml", f"models: {{ list: [ {entry} ] }}\n")
            status, out, err = self.run_muster("config", "check", "muster.yaml")
            self.assertEqual(status, 1)
            self.assertIn(said, out + err)

    def engine(self, *args):
        port = free_port()
        process = self.start("engine", "--config", "muster.yaml", "--listen", f"127.0.0.1:{port}", *args)
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "engine_ready" in line:
                break
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WAIT_S)
        return process.returncode, "".join(lines) + out + err

    def test_an_engine_compares_once(self):
        self.config(sha(self.tiny))
        self.good("tiny")
        stamps = self.path("muster-state/models")
        shutil.rmtree(stamps, True)
        for read in ("yes", "no"):
            status, log = self.engine("--model", "tiny")
            self.assertEqual(status, 0, log)
            self.assertRegex(log, f"model_checked .*read={read}")
            self.assertIn("model=tiny", log)
        os.utime(self.path("models/tiny.gguf"))
        self.assertRegex(self.engine("--model", "tiny")[1], "model_checked .*read=yes")
        self.assertEqual(len(os.listdir(stamps)), 2)

    def test_an_engine_refuses_another_file(self):
        self.config(sha(b"x"))
        self.write("models/tiny.gguf", self.tiny)
        status, log = self.engine("--model", "tiny")
        self.assertEqual(status, 1)
        self.assertIn(f"its SHA-256 is {sha(self.tiny)}, expected is {sha(b'x')}", log)
        self.assertEqual(self.engine("--model", "models/tiny.gguf")[0], 0)
        self.assertIn("is no name of models.list", self.engine("--model", "tinny")[1])

    def test_a_fleet_is_checked_before_it_starts(self):
        self.config(sha(b"x"))
        self.write("models/tiny.gguf", self.tiny)
        status, _, err = self.run_muster("up")
        self.assertEqual(status, 1)
        self.assertIn(f"its SHA-256 is {sha(self.tiny)}, expected is {sha(b'x')}", err)
        self.assertFalse(os.path.exists(self.path("muster-state/fleet.json")))
        self.config(sha(self.tiny))
        status, _, err = self.run_muster("up")
        try:
            self.assertEqual(status, 0, err)
            logs = [self.read(n).decode() for n in self.names(".") if n.endswith("engine.log")]
            self.assertTrue(any(re.search("model_checked .*read=no", log) for log in logs), logs)
        finally:
            self.assertEqual(self.run_muster("down")[0], 0)


def free_port():
    with contextlib.closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    unittest.main()
