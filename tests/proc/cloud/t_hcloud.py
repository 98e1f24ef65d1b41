"""t_hcloud.py - tests our Hetzner driver beside the provider's own Python library on one fake: each sees what the other
made, and the library deletes what the driver made.

Skipped where the library is not installed. MUSTER_HCLOUD_PYTHON names a Python that has it.
"""

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


def hcloud_or_skip():
    try:
        import hcloud

        return hcloud
    except ImportError:
        other = os.environ.pop("MUSTER_HCLOUD_PYTHON", None)  # tried once
        if other:
            os.execv(other, [other, *sys.argv])
        print("skipped: the Python library hcloud is not installed")
        sys.exit(SKIPPED)


hcloud = hcloud_or_skip()
from hcloud.images import Image  # noqa: E402
from hcloud.server_types import ServerType  # noqa: E402


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
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.port = free_port()
        self.start([os.environ["FAKE_CLOUD_BIN"], "--plays", "hetzner", "--port", str(self.port), "--token", TOKEN])
        wait(lambda: self.get("/fake/state") is not None, "the fake answers")
        self.client = hcloud.Client(token=TOKEN, api_endpoint=f"http://127.0.0.1:{self.port}/v1", poll_interval=0.1)

    def start(self, argv, **more):
        with open(pathlib.Path(self.folder.name) / "log", "ab") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log, **more)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
                return json.load(reply)
        except OSError:
            return None

    def start_controller(self, count):
        folder = pathlib.Path(self.folder.name)
        config = folder / "muster.yaml"
        config.write_text(f"""
controller: {{ state: {folder}/state, tick: 100ms }}
clouds:
  - name: eu
    kind: hetzner
    endpoint: http://127.0.0.1:{self.port}/v1
    image: debian-12
    poll: 300ms
    calls_per_s: 50
    offers: [ {{ name: small, type: cx22, zones: [nbg1] }} ]
services:
  - name: org/chat
    model: /nowhere.gguf
    scale: static
    count: {count}
    pools: [ {{ name: only, provider: eu, offers: [small], min: {count}, max: {count} }} ]
""")
        listen = f"127.0.0.1:{free_port()}"
        environment = dict(os.environ, HCLOUD_TOKEN=TOKEN)
        return self.start([os.environ["MUSTER_BIN"], "controller", "--config", str(config), "--listen", listen],
                          env=environment)

    def test_each_sees_the_other(self):
        theirs = self.client.servers.create(
            name="not-of-the-fleet", server_type=ServerType(name="cx22"), image=Image(name="debian-12"),
            labels={"muster-fleet": "another"}).server
        self.start_controller(2)
        ours = lambda: self.client.servers.get_all(label_selector="muster-fleet=muster")
        wait(lambda: len(ours()) == 2, "two servers of ours")
        first = ours()[0]
        self.assertEqual(first.server_type.name, "cx22")
        self.assertEqual(first.location.name, "nbg1")
        self.assertEqual(first.name, first.labels["muster-intent"])
        self.assertEqual(first.labels["muster-service"], "org_2fchat")
        self.assertEqual(first.labels["muster-offer"], "small")

        # What the library deletes, the controller misses and buys anew.
        first.delete()
        wait(lambda: len(ours()) == 2 and all(s.id != first.id for s in ours()), "the lost one is replaced")
        self.assertEqual(self.client.servers.get_by_id(theirs.id).name, "not-of-the-fleet")
        state = self.get("/fake/state")
        self.assertEqual((state["refused_form"], state["last_refused"]), (0, ""))

    def test_a_name_that_is_taken(self):
        create = lambda: self.client.servers.create(
            name="twice", server_type=ServerType(name="cx22"), image=Image(name="debian-12"))
        create()
        with self.assertRaises(hcloud.APIException) as refused:
            create()
        self.assertEqual(refused.exception.code, "uniqueness_error")


if __name__ == "__main__":
    unittest.main()
