"""t_container.py - runs the start command of a container of a cloud as the container would, in a folder in place of its
root: the command finds the user data in the environment and ends as an agent that reports and serves.

Programs that the test has not (ip, getent) are stand-ins in the path.
"""

import json
import os
import pathlib
import unittest

from beside import TOKEN, Beside, free_port, wait

STUBS = {
    "getent": """[ "$1" = ahostsv4 ] && echo "$2 STREAM" """,
    "ip": """echo "$4 dev lo src 127.0.0.1 uid 0 " """,
}


class Container(Beside):
    plays = "runpod"

    def first_environment(self):
        folder = pathlib.Path(self.folder.name)
        model = pathlib.Path("models/muster-tiny-q8_0.gguf").resolve()
        muster = os.environ["MUSTER_BIN"]
        self.controller = free_port()
        config = folder / "muster.yaml"
        config.write_text(f"""
controller: {{ state: {folder}/state, tick: 100ms }}
clouds:
  - name: there
    kind: runpod
    endpoint: {self.url}/v2
    image: example.org/muster:0.1.0
    poll: 300ms
    calls_per_s: 100
    offers: [ {{ name: small, type: NVIDIA GeForce RTX 4090 }} ]
services:
  - name: chat
    model: {model}
    scale: static
    count: 1
    pools: [ {{ name: only, provider: there, offers: [small], min: 1, max: 1 }} ]
""")
        self.start([muster, "controller", "--config", str(config), "--listen", f"127.0.0.1:{self.controller}"],
                   env=dict(os.environ, RUNPOD_API_KEY=TOKEN))
        machines = lambda: (self.get("/fake/machines") or {}).get("machines")
        wait(machines, "a Pod is made")
        return json.loads(machines()[0]["user_data"])

    def boot(self, environment):
        """Runs `sh -c` with the start command. The script names its root in base64: it is changed behind the decoding."""
        root = pathlib.Path(self.folder.name) / "root"
        (root / "bin").mkdir(parents=True)
        (root / "bin/muster").symlink_to(os.environ["MUSTER_BIN"])
        for name, text in STUBS.items():
            (root / "bin" / name).write_text("#!/bin/sh\n" + text)
            (root / "bin" / name).chmod(0o755)
        place = f"{root}/var/lib/muster"
        other = f"s|/var/lib/muster|{place}|g; s|base64 -d > {place}/launch.json|base64 -d \\| sed s,/var/lib/muster,{place},g > {place}/launch.json|"
        start = (f"umask 077; mkdir -p {place}; env | sort | sed -n s/^BOOT_MUSTER[_0-9]*=//p | base64 -d | "
                 f"sed '{other}; s|0.0.0.0:8100|127.0.0.1:0|' > {place}/boot.sh; exec sh {place}/boot.sh")
        agent = self.start(["sh", "-c", start], env=dict(environment, PATH=f"{root}/bin:{os.environ['PATH']}"))
        return root, agent

    def instances(self):
        return (self.get_of(self.controller, "/api/v1/instances") or {}).get("instances", [])

    def test_a_container_becomes_an_instance(self):
        environment = self.first_environment()
        root, agent = self.boot(environment)
        log = pathlib.Path(self.folder.name) / "log"
        try:
            wait(lambda: any(i.get("phase") == "ready" for i in self.instances()), "the instance is ready")
        except AssertionError:
            print(log.read_text()[-3000:])
            raise
        for spent in ("boot.sh", "join.token", "join.seed"):
            self.assertFalse((root / "var/lib/muster" / spent).exists(), spent)
        self.assertEqual((root / "var/lib/muster/instance.key").stat().st_mode & 0o777, 0o600)
        kept = pathlib.Path(f"/proc/{agent.pid}/environ").read_bytes()
        self.assertIn(b"muster", pathlib.Path(f"/proc/{agent.pid}/cmdline").read_bytes())  # the shell became the agent
        self.assertNotIn(b"BOOT_MUSTER", kept)
        agent.terminate()
        agent.wait(60)
        self.assert_understood()


if __name__ == "__main__":
    unittest.main()
