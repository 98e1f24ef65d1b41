"""rig.py - starts a fleet of `muster up`, a Prometheus that scrapes it with the rules of this tree, and a stand-in
that exports what programs export which are not here (SGLang, llama-server, the DCGM exporter).

Every process ends with the test: the fleet by `muster down`, the others by their handles.
"""

import http.server
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading
import time

import checks
import queries

MUSTER = os.environ.get("MUSTER_BIN", str(checks.ROOT / "build" / "muster"))
MODEL = checks.ROOT / "models" / "muster-tiny-q8_0.gguf"
TRACE = checks.ROOT / "traces" / "mooncake-conversation-4min.jsonl"
PROMETHEUS = shutil.which("prometheus")
WAIT_S = 120
RULE_INTERVAL = "2s"


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def await_(what, condition, seconds=WAIT_S):
    """Waits for a condition; the time only ends what hangs."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what} within {seconds} s")


class Fleet:
    """A fleet on loopback, in a folder of its own."""

    def __init__(self, folder, configuration, **more):
        self.folder = pathlib.Path(folder)
        self.state = self.folder / "state"
        self.controller, self.router = port(), port()
        path = self.folder / "muster.yaml"
        path.write_text(configuration.format(state=self.state, controller=self.controller, router=self.router,
                                             model=MODEL, **more))
        self.path = path

    def muster(self, *arguments, status=0):
        done = subprocess.run([MUSTER, *map(str, arguments)], cwd=checks.ROOT, capture_output=True, text=True,
                              timeout=300, check=False)
        if status is not None and done.returncode != status:
            command = " ".join(map(str, arguments))
            raise AssertionError(f"muster {command}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def up(self):
        self.muster("up", "-f", self.path)

    def down(self):
        self.muster("down", "--state", self.state, "--now", status=None)

    def here(self, *arguments):
        """A command that is told where the fleet is."""
        return self.muster(*arguments, "--state", self.state)

    def load(self, *arguments):
        """Begins to send the trace; the process is the caller's."""
        return subprocess.Popen([MUSTER, "load", "--url", f"http://127.0.0.1:{self.router}", "--trace", str(TRACE),
                                 *map(str, arguments)], cwd=checks.ROOT, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)


class Cloud:
    """A fake of a provider's API that sells machines, and the file with the token for it."""

    def __init__(self, folder):
        self.port, self.token = port(), pathlib.Path(folder) / "cloud-token"
        self.token.write_text("token")
        self.token.chmod(0o600)
        self.process = subprocess.Popen([os.environ["FAKE_CLOUD_BIN"], "--plays", "hetzner", "--port", str(self.port),
                                         "--token", "token"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        self.process.kill()
        self.process.wait()


class StandIn:
    """Answers GET /metrics with a text in which `TIME` grows by one a second."""

    def __init__(self, text):
        self.began = time.monotonic()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = text.replace("TIME", f"{time.monotonic() - outer.began:.3f}").encode()
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


SCRAPES = """
global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: {interval} }}
rule_files: [ "rules/*.yaml" ]
scrape_configs:
  - job_name: muster-controller
    honor_labels: true
    static_configs: [ {{ targets: [ "127.0.0.1:{controller}" ] }} ]
  - job_name: muster
    honor_labels: true
    http_sd_configs: [ {{ url: "http://127.0.0.1:{controller}/api/v1/targets", refresh_interval: 1s }} ]
  # The same engines once more, under the names that vLLM has.
  - job_name: vllm
    params: {{ compat: [ vllm ] }}
    http_sd_configs: [ {{ url: "http://127.0.0.1:{controller}/api/v1/targets", refresh_interval: 1s }} ]
    relabel_configs:
      - {{ source_labels: [ job ], regex: muster-engine, action: keep }}
      - {{ target_label: job, replacement: vllm }}
  - job_name: stand-in
    static_configs: [ {{ targets: [ {stand_ins} ] }} ]
"""


class Prometheus:
    """A Prometheus with the rules of this tree, evaluated more often than in their files."""

    def __init__(self, folder, fleet, stand_ins=()):
        self.folder = pathlib.Path(folder)
        self.port = port()
        self.url = f"http://127.0.0.1:{self.port}"
        (self.folder / "rules").mkdir()
        for path in checks.RULES:
            text = re.sub(r"(?m)^(    interval: )\w+$", r"\g<1>" + RULE_INTERVAL, path.read_text())
            (self.folder / "rules" / path.name).write_text(text)
        at = ", ".join(f'"127.0.0.1:{s.port}"' for s in stand_ins)
        (self.folder / "prometheus.yml").write_text(
            SCRAPES.format(controller=fleet.controller, stand_ins=at, interval=RULE_INTERVAL))
        self.log = (self.folder / "prometheus.log").open("w")
        self.process = subprocess.Popen(
            [PROMETHEUS, f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}", "--enable-feature=exemplar-storage"],
            stdout=self.log, stderr=subprocess.STDOUT)
        self.api = queries.Prometheus(self.url)

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError((self.folder / "prometheus.log").read_text())
        try:
            return bool(self.api.get("status/buildinfo"))
        except queries.QueryError:
            return False

    def targets(self):
        return {(t["labels"]["job"], t["labels"]["instance"]): t
                for t in self.api.get("targets", state="active")["activeTargets"]}

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.log.close()
