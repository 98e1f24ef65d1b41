"""Runs our controller on a fake of a provider, beside a client library of others."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

SKIPPED = 77
TOKEN = "token-of-the-fake"
LIMIT_S = 120  # ends what hangs


def import_or_skip(name, variable):
    """Imports a library; without it, goes on with the Python that `variable` names, or skips the test."""
    try:
        return __import__(name)
    except ImportError:
        other = os.environ.get(variable)
        if other and os.path.realpath(os.path.dirname(other)) != os.path.realpath(os.path.dirname(sys.executable)):
            os.execv(other, [other, *sys.argv])
        print(f"skipped: the Python library {name} is not installed")
        sys.exit(SKIPPED)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait(is_so, what):
    end = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.05)


class Beside(unittest.TestCase):
    """One fake of the kind of cloud that a subclass names."""

    plays = None

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start([os.environ["FAKE_CLOUD_BIN"], "--plays", self.plays, "--port", str(self.port), "--token", TOKEN])
        wait(lambda: self.get("/fake/state") is not None, "the fake answers")

    def start(self, argv, **more):
        with open(pathlib.Path(self.folder.name) / "log", "ab") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log, **more)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def get(self, path):
        return self.get_of(self.port, path)

    @staticmethod
    def get_of(port, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
                return json.load(reply)
        except OSError:
            return None

    def start_controller(self, count, cloud, environment):
        """`cloud` has the lines of the cloud, with an offer `small`, behind its name."""
        folder = pathlib.Path(self.folder.name)
        config = folder / "muster.yaml"
        config.write_text(f"""
controller: {{ state: {folder}/state, tick: 100ms }}
clouds:
  - name: there
    kind: {self.plays}
    poll: 300ms
    calls_per_s: 100
{cloud}
services:
  - name: org/chat
    model: /nowhere.gguf
    scale: static
    count: {count}
    pools: [ {{ name: only, provider: there, offers: [small], min: {count}, max: {count} }} ]
""")
        argv = [os.environ["MUSTER_BIN"], "controller", "--config", str(config), "--listen", f"127.0.0.1:{free_port()}"]
        return self.start(argv, env=dict(os.environ, **environment))

    def assert_understood(self):
        state = self.get("/fake/state")
        self.assertEqual((state["refused_form"], state["last_refused"]), (0, ""))
