"""t_two_clouds.py - shows a fleet over two providers on one machine, and judges it: machines in network namespaces boot from
their very user data, one provider's lie behind a gateway, one is sold out in the middle, and a spot machine is taken away.

    MUSTER_BIN=build/muster FAKE_CLOUD_BIN=build/tests/fakes/cloud/fake_cloud_server python3 tests/proc/cloud/t_two_clouds.py

Prints what happens, then what was decided and why, and the bill. Exits 1 when a request failed that had not begun to
stream, when a decision has no reason, or when our bill is not the providers'. Needs root; exits 77 without it.
"""

import functools
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hypervisor  # noqa: E402
from hypervisor import CORE, call  # noqa: E402

SKIPPED = 77
LIMIT_S = 1800  # ends what hangs
PATIENCE = "20m"  # of the load and of the router: a slow machine delays requests and fails none
NOTICE_S = 10
BILL_DOLLARS = 0.0005  # a listing is half a second old; so much do all machines cost in ten
HETZNER_TOKEN, EC2_SECRET = "token-of-the-fake", "secret-of-the-fake/with+signs=="
EC2_KEY = "AKIAFAKEFAKEFAKEFAKE"
ROOT = pathlib.Path(__file__).resolve().parents[3]
TRACE = ROOT / "traces/mooncake-conversation-4min.jsonl"
MODEL = ROOT / "models/muster-tiny-q8_0.gguf"

# Two providers whose machines fetch muster from here; `perf`: what is known of their speed before they run.
CLOUDS = """clouds:
  - name: eu
    kind: hetzner
    endpoint: http://127.0.0.1:{eu}/v1
    image: debian-12
    public_address: false
    networks: [4711]
    exchange_rates: [EUR=1.08]
    muster_url: http://{core}:{files}/muster
    muster_sha256: {digest}
    poll: 500ms
    calls_per_s: 20
    offers:
      - {{ name: small, type: cx22, zones: [fsn1], lead: 3s{perf} }}
  - name: us
    kind: ec2
    region: eu-central-1
    endpoint: http://127.0.0.1:{us}
    image: ami-0123456789abcdef0
    muster_url: http://{core}:{files}/muster
    muster_sha256: {digest}
    poll: 500ms
    calls_per_s: 20
    offers:
      - {{ name: spot, type: t3.large, zones: [eu-central-1a], spot: true, lead: 3s{perf} }}
      - {{ name: steady, type: t3.large, lead: 3s{perf} }}
"""

CONFIG = """
controller: {{ listen: 0.0.0.0:{controller}, agents_reach: {core}:{controller}, state: {folder}/state, tick: 250ms, drain: 20s,
              require_keys: false }}
router: {{ listen: 0.0.0.0:{router}, agents_reach: {core}:{router}, controller: {core}:{controller}, secret_file: {folder}/state/secret,
          hold_max: {patience}, request_max: {patience} }}
services:
  - name: chat
    model: {model}
    slo_ttft: 2s
    slo_tpot: 200ms
    budget_per_hour: 0.30
    scale: work
    clear: 5s
    stabilisation: 8s
    life: 2m
    engine_flags: ["--max-num-seqs", "8", "--threads", "1", "--cpu-share", "{share:.3f}"]
    pools:
      - {{ name: eu, provider: eu, offers: [small], min: 1, max: 4 }}
      - {{ name: us, provider: us, offers: [spot, steady], min: 0, max: 4, tunnel: true }}
""" + CLOUDS
PERF = ", max_num_seqs: 8, perf_step: 0.001, perf_prefill: 0.0005, perf_decode: 0.0015"

# The trace at --speed 1 with --divide 8, each prompt cut to the model's context: tokens a second of prompts that no earlier
# one has, and of outputs; half of the prompts' tokens are in prompts of more than PROMPT.
PROMPT_TOK_S, OUTPUT_TOK_S, PROMPT = 2630, 115, 1900
INSTANCES = 3  # that the load should need, on any machine
SHARE_MIN, SHARE_MAX = 0.05, 0.3  # of a core, for one instance


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Fleet:
    """The providers' fakes, the controller and the router."""

    def __init__(self, h):
        self.h, self.processes = h, []
        self.muster = shutil.copy(os.environ["MUSTER_BIN"], h.folder / "muster")  # a build meanwhile changes nothing
        self.port = {name: free_port() for name in ("eu", "us", "controller", "router", "files")}
        self.config = h.folder / "muster.yaml"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        self.environment.update(HCLOUD_TOKEN=HETZNER_TOKEN, AWS_ACCESS_KEY_ID=EC2_KEY, AWS_SECRET_ACCESS_KEY=EC2_SECRET,
                                AWS_ENDPOINT_URL_PRICING=f"http://127.0.0.1:{self.port['us']}")

    def size(self):
        """Measures the engine; sets instances' share of a core and the trace's speed so that the load needs INSTANCES."""
        bench = json.loads(self.run("bench", "engine", "--model", str(MODEL), "--threads", "1", "--prompt-tokens", str(PROMPT),
                                    "--gen-tokens", "32", "--batch", "4", "-o", "json"))
        cores = PROMPT_TOK_S / bench["prefill_tok_s"] + OUTPUT_TOK_S / bench["decode_tok_s"]  # at speed 1
        self.share = min(max(2 * cores / INSTANCES, SHARE_MIN), SHARE_MAX)
        self.speed = INSTANCES * self.share / cores
        self.h.say(f"an instance has {self.share:.3f} of a core; the trace runs at speed {self.speed:.1f}")

    def start(self):
        self.size()
        self.spawn_providers(boot_ms=1500)
        self.serve_files()
        digest = hashlib.sha256(pathlib.Path(self.muster).read_bytes()).hexdigest()
        self.config.write_text(CONFIG.format(core=CORE, folder=self.h.folder, digest=digest, model=MODEL, perf=PERF, share=self.share,
                                             patience=PATIENCE, **self.port))
        self.spawn_roles()

    def spawn_providers(self, boot_ms):
        for name, plays, token in (("eu", "hetzner", HETZNER_TOKEN), ("us", "ec2", EC2_SECRET)):
            self.spawn(name, [os.environ["FAKE_CLOUD_BIN"], "--plays", plays, "--port", str(self.port[name]), "--token",
                              token, "--lag-ms", "500", "--boot-ms", str(boot_ms)])
            self.wait(lambda: self.get(name, "/fake/state"), f"the fake {plays} answers")

    def spawn_roles(self):
        self.spawn("controller", [self.muster, "controller", "--config", str(self.config)])
        self.wait(lambda: self.ask("services"), "the controller answers")
        self.spawn("router", [self.muster, "router", "--config", str(self.config)])

    def serve_files(self):
        """The providers' machines fetch muster from here."""
        folder = self.h.folder / "files"
        folder.mkdir()
        (folder / "muster").symlink_to(self.muster)
        serve = functools.partial(Quiet, directory=str(folder))
        server = http.server.ThreadingHTTPServer((CORE, self.port["files"]), serve)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def spawn(self, name, argv):
        with open(self.h.folder / f"{name}.log", "ab") as log:
            self.processes.append(subprocess.Popen(argv, stdout=log, stderr=log, env=self.environment))

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait()

    def get(self, name, path):
        try:
            return call(self.port[name], path)
        except OSError:
            return None

    def ask(self, kind):
        """What `muster get KIND` lists; empty while the controller does not answer."""
        try:
            return json.loads(self.run("get", kind, *self.access(), "-o", "json"))
        except AssertionError:
            return []

    def access(self):
        return ["--controller", f"127.0.0.1:{self.port['controller']}", "--state", str(self.h.folder / "state")]

    def run(self, *argv):
        done = self.run_anyway(*argv)
        if done.returncode:
            raise AssertionError(f"muster {' '.join(argv)}: {done.stderr or done.stdout}")
        return done.stdout

    def run_anyway(self, *argv):
        return subprocess.run([self.muster, *argv], capture_output=True, text=True, env=self.environment)

    def instances(self, phase="ready"):
        return [i for i in self.ask("instances") if i.get("phase") == phase]

    def metrics(self, prefix):
        """The router's lines of metrics that begin so."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port['router']}/metrics", timeout=10) as reply:
            return [line for line in reply.read().decode().split("\n") if line.startswith(prefix)]

    def metric(self, name):
        return sum(float(line.split()[-1]) for line in self.metrics(name + " "))

    def open_intents(self):
        return sum(i["state"] != "ended" for i in self.ask("intents"))

    def ready(self, pool):
        return [i for i in self.instances() if i.get("pool") == pool]

    def wait(self, is_so, what):
        end = time.monotonic() + LIMIT_S
        while not is_so():
            if self.h.failure:
                raise self.h.failure
            if time.monotonic() > end:
                raise AssertionError(f"never: {what}")
            time.sleep(0.1)


def make_key(fleet):
    return json.loads(fleet.run("keys", "create", "load", *fleet.access(), "-o", "json"))["key"]


def send_load(fleet, key):
    """Replays the trace beside what happens; the report is in the returned list when the thread has ended."""
    reports = []

    def run():
        out = fleet.run_anyway("load", "--trace", str(TRACE), "--url", f"http://127.0.0.1:{fleet.port['router']}",
                        "--api-key", key, "--speed", f"{fleet.speed:.2f}", "--divide", "8", "--max-tokens", "64",
                        "--timeout", PATIENCE, "-o", "json")
        reports.append(json.loads(out.stdout))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, reports


def story(fleet, h, eu, us):
    """What happens while the load is on."""
    key = make_key(fleet)
    fleet.wait(lambda: fleet.ready("eu"), "the first machine serves")
    call(fleet.port["eu"], "/fake/stock", {"type": "cx22", "zone": "fsn1", "count": 1})
    h.say("the first instance serves; the load begins, and eu has one more machine to sell")
    load, reports = send_load(fleet, key)
    fleet.wait(lambda: len(eu.running()) == 2, "the fleet grows at eu")
    fleet.wait(lambda: fleet.ready("us"), "the other provider's machine serves")
    fleet.wait(lambda: fleet.metric("muster_router_tunnel_streams") > 0, "requests go through the tunnel of its agent")
    h.say("eu is sold out; an instance at us serves, through the tunnel that its agent opened")
    spot = next(m for m in us.running())
    h.say(f"us takes {spot.name} away, with {NOTICE_S} s of notice")
    us.take_away(spot, NOTICE_S)
    fleet.wait(lambda: spot not in us.running(), "it is gone")
    while load.is_alive():
        load.join(1)
        if h.failure:
            raise h.failure
    h.say("the load has ended")
    fleet.wait(lambda: len(eu.running()) == 1 and not us.running(), "the fleet has shrunk to one")
    fleet.wait(lambda: fleet.open_intents() == 1, "the providers list no other")
    return reports[0]


def judge(fleet, h, report):
    """Returns what does not hold."""
    broken = []
    failures = report["failures"]
    not_begun = report["requests"]["failed"] - failures["cut"]
    if not_begun:
        why = fleet.metrics("muster_router_refused_total") + fleet.metrics("muster_router_retries_total")
        broken.append(f"{not_begun} requests failed that had not begun to stream: {failures}; {why}")
    decisions = fleet.ask("decisions")
    if not decisions or any(not d["decision"]["reason"] for d in decisions):
        broken.append("a decision has no reason")
    for name in ("eu", "us"):
        state = fleet.get(name, "/fake/state")
        theirs = state["bill_udollars"] / 1e6
        ours = sum(row["total"] for row in fleet.ask("cost") if row["pool"] == name)
        print(f"{name}: the provider's bill is {theirs:.5f} dollars, ours {ours:.5f}")
        if abs(ours - theirs) > BILL_DOLLARS:
            broken.append(f"{name}: our bill of {ours:.5f} dollars is not the provider's of {theirs:.5f}")
        if state["refused_form"]:
            broken.append(f"{name} did not understand {state['refused_form']} requests: {state['last_refused']}")
    for path in h.folder.rglob("*.log"):
        text = path.read_text(errors="replace")
        if HETZNER_TOKEN in text or EC2_SECRET in text:
            broken.append(f"{path.name} has a credential")
    return broken


def show(fleet, report):
    sent, ttft = report["requests"], report["ttft_s"]
    print(f"{sent['sent']} requests, {sent['failed']} failed; TTFT {ttft['p50']:.2f} s (half), {ttft['p90']:.2f} s (nine in ten);"
          f" within the SLO {100 * report['slo']['attainment']:.0f} %")
    for d in reversed(fleet.ask("decisions")):
        print(f"  decided: {d['decision']['reason']}")
    print(fleet.run("get", "cost", *fleet.access()))



def main():
    why = hypervisor.may_run()
    if why:
        print(f"skipped: {why}")
        return SKIPPED
    with hypervisor.Hypervisor() as h:
        fleet = Fleet(h)
        try:
            fleet.start()
            eu = h.site("eu", fleet.port["eu"], private=False, ends_what_is_off=False)
            us = h.site("us", fleet.port["us"], private=True, ends_what_is_off=True)
            h.watch()
            report = story(fleet, h, eu, us)
            show(fleet, report)
            broken = judge(fleet, h, report)
        except BaseException:
            for path in h.folder.glob("*.log"):
                print(f"---- {path.name}\n{path.read_text(errors='replace')[-3000:]}")
            for site in h.sites:
                for machine in site.seen.values():
                    print(f"---- {machine.name}\n{machine.log()[-2500:]}")
            raise
        finally:
            fleet.stop()
    for line in broken:
        print(f"BROKEN: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
