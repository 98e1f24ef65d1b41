"""t_user_data.py - runs the default user data of a cloud's machine as the machine would, in a folder in place of its root:
it fetches muster, refuses another one, keeps its secrets to itself and starts an agent that reports.

Programs of the machine that the test has not (curl to the internet, systemctl, ip, getent) are stand-ins in the path.
"""

import hashlib
import json
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import tempfile
import time
import unittest
import urllib.request

TOKEN = "token-of-the-fake"
LIMIT_S = 120  # ends what hangs

STUBS = {
    # curl ... -o FILE URL: the "internet" has one file.
    "curl": """while [ "$1" != -o ]; do shift; done; cp "$ROOT/internet" "$2" """,
    "getent": """[ "$1" = ahostsv4 ] && echo "$2 STREAM" """,
    "ip": """echo "$4 dev lo src 127.0.0.1 uid 0 " """,
    # What systemd would make of the unit.
    "systemctl": """
[ "$1" = enable ] || exit 0
unit=$ROOT/etc/systemd/system/muster-instance.service
export $(sed -n 's/^Environment=//p' "$unit")
export MUSTER_AGENT_LISTEN=127.0.0.1:0
$(sed -n 's/^ExecStart=//p' "$unit") > "$ROOT/agent.log" 2>&1 &
echo $! > "$ROOT/agent.pid" """,
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
            return json.load(reply)
    except OSError:
        return None


def wait(is_so, what):
    end = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.05)


class UserData(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.muster = os.environ["MUSTER_BIN"]
        self.fake, self.controller = free_port(), free_port()
        self.start([os.environ["FAKE_CLOUD_BIN"], "--plays", "hetzner", "--port", str(self.fake), "--token", TOKEN])
        wait(lambda: get(self.fake, "/fake/state"), "the fake answers")

    def start(self, argv, **more):
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log, **more)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def first_user_data(self, digest):
        model = pathlib.Path("models/muster-tiny-q8_0.gguf").resolve()
        config = self.folder / "muster.yaml"
        config.write_text(f"""
controller: {{ state: {self.folder}/state, tick: 100ms }}
clouds:
  - name: eu
    kind: hetzner
    endpoint: http://127.0.0.1:{self.fake}/v1
    image: debian-12
    muster_url: https://example.org/muster
    muster_sha256: {digest}
    poll: 300ms
    calls_per_s: 50
    offers: [ {{ name: small, type: cx22 }} ]
services:
  - name: chat
    model: {model}
    scale: static
    count: 1
    pools: [ {{ name: only, provider: eu, offers: [small], min: 1, max: 1 }} ]
""")
        self.start([self.muster, "controller", "--config", str(config), "--listen", f"127.0.0.1:{self.controller}"],
                   env=dict(os.environ, HCLOUD_TOKEN=TOKEN))
        wait(lambda: (get(self.fake, "/fake/machines") or {}).get("machines"), "a machine is made")
        return get(self.fake, "/fake/machines")["machines"][0]["user_data"]

    def boot(self, user_data):
        root = self.folder / "root"
        for place in ("bin", "var/lib", "etc/systemd/system", "usr/local/bin"):
            (root / place).mkdir(parents=True)
        shutil.copy(self.muster, root / "internet")
        for name, text in STUBS.items():
            stub = root / "bin" / name
            stub.write_text("#!/bin/sh\n" + text)
            stub.chmod(0o755)
        for place in ("/var/lib/", "/etc/systemd/", "/usr/local/bin/"):
            user_data = user_data.replace(place, f"{root}{place}")
        # The launch document names them too, in base64: it is changed as the script writes it.
        launch = f"> {root}/var/lib/muster/launch.json"
        user_data = user_data.replace(launch, f"| sed 's|/var/lib/|{root}/var/lib/|g' {launch}")
        script = root / "user-data"
        script.write_text(user_data.replace("for pause in 1 2 4 8 16 32 0", "for pause in 0"))
        environment = dict(os.environ, ROOT=str(root), PATH=f"{root}/bin:{root}/usr/local/bin:{os.environ['PATH']}")
        done = subprocess.run(["sh", str(script)], env=environment, capture_output=True, text=True)
        if (root / "agent.pid").exists():
            self.addCleanup(self.end, int((root / "agent.pid").read_text()))
        return root, done

    @staticmethod
    def end(pid):
        try:
            os.kill(pid, 15)
        except ProcessLookupError:
            pass

    def test_a_machine_becomes_an_instance(self):
        digest = hashlib.sha256(pathlib.Path(self.muster).read_bytes()).hexdigest()
        user_data = self.first_user_data(digest)
        root, done = self.boot(user_data)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("launch.json", "instance.key"):
            mode = stat.S_IMODE((root / "var/lib/muster" / name).stat().st_mode)
            self.assertEqual(mode, 0o600, name)
        ready = lambda: any(i.get("phase") == "ready" for i in self.instances())
        try:
            wait(ready, "the instance is ready")
        finally:
            print((root / "agent.log").read_text()[-2000:] if not ready() else "", end="")

    def instances(self):
        return (get(self.controller, "/api/v1/instances") or {}).get("instances", [])

    def test_another_program_is_not_run(self):
        root, done = self.boot(self.first_user_data("00" * 32))
        self.assertNotEqual(done.returncode, 0)
        self.assertFalse((root / "usr/local/bin/muster").exists())
        self.assertFalse((root / "agent.pid").exists())


if __name__ == "__main__":
    unittest.main()
