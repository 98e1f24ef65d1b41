#!/usr/bin/env python3
"""t_panels_live.py - runs every panel, rule and alert against a real fleet under load and a real Prometheus.

The fleet serves the shipped model on loopback: one service under load whose budget is too small, one that sleeps at
zero instances, spot instances that are taken away and sell out, a cloud that is a fake. `muster load` sends requests of a tenant. Then each
query must return data, or be in the list of those that cannot here, with the reason. Faults are made, and the alerts
on them must become pending: their `for` is tested with promtool (t_alerts.py). At the end all dashboards are drawn;
MUSTER_PICTURES keeps the pictures.
"""

import json
import math
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
import xml.etree.ElementTree

import checks
import queries
import render
import rig

CONFIGURATION = """
controller: {{ listen: "127.0.0.1:{controller}", state: "{state}", drain: 3s }}
# Nothing listens at the collector's port, and the queue is small: spans are lost.
router: {{ listen: "127.0.0.1:{router}", trace_endpoint: "http://127.0.0.1:9", trace_ratio: 1, trace_queue: 64 }}
services:
  - name: chat
    model: {model}
    slo_ttft: 2s
    slo_tpot: 200ms
    budget_per_hour: 0.35
    stabilisation: 2s
    life: 1m
    engine_flags: ["--max-num-seqs", "4", "--threads", "1", "--trace-endpoint", "http://127.0.0.1:9",
                   "--trace-queue", "64"]
    pools:
      - {{ name: small, offers: [small], min: 1, max: 3 }}
      - {{ name: spot, offers: [spot], min: 1, max: 2 }}
  - name: sleepy
    model: {model}
    engine_flags: ["--max-num-seqs", "2", "--threads", "1"]
    pools: [ {{ name: none, offers: [small], min: 0, max: 1 }} ]
local:
  cores: 1.5
  offers:
    - {{ name: small, share: 0.25, price_per_hour: 0.10, launch_delay: 500ms, lead: 2s, max_num_seqs: 4,
        perf_step: 0.001, perf_prefill: 0.0005, perf_decode: 0.0015 }}
    - {{ name: spot, share: 0.25, price_per_hour: 0.04, launch_delay: 500ms, lead: 2s, max_num_seqs: 4,
        perf_step: 0.001, perf_prefill: 0.0005, perf_decode: 0.0015,
        spot: true, zone: z1, spot_life: 12s, spot_notice: 2s, spot_outage: 20s }}
clouds:
  - name: eu
    kind: hetzner
    endpoint: http://127.0.0.1:{cloud}/v1
    credentials_file: {token}
    image: debian-12
    poll: 1s
    calls_per_s: 0.5
    offers: [ {{ name: far, type: cx22, zones: [fsn1], price_per_hour: 9 }} ]
"""
LOAD_S = 45
RATE = "20s"

# Queries that return nothing here, by dashboard, panel and legend ("*": every query of the panel), and why.
EMPTY = {
    ("muster-fleet", "Power", "*"): "no service has a power policy",
    ("muster-controller", "Power limit", "*"): "no service has a power limit",
    ("muster-controller", "Series beyond their bound", "*"): "no metric has reached its bound",
    ("muster-autoscaler", "Roles", "{{service}} {{role}} changes"): "no service has a role policy",
    ("muster-autoscaler", "Room of offers", "*"): "no offer is made of nodes",
    ("muster-router", "Moves", "slices {{result}}"): "no policy slices outputs",
    ("muster-engine", "Large bodies at engines", "*"): "routers send ids, no client sends bodies to engines",
    **{("muster-engine", panel, "*"): "no engine is of another make" for panel in (
        "Ready, as agents see it", "Load, as agents see it", "KV, as agents see it", "Prefix cache since their start",
        "Done since their start", "KV events", "KV events that failed", "Agents and routers")},
}
# Likewise, of what only a fleet with `clouds` has; here there is one, whose machines do not boot.
NO_CLOUDS = {("muster-autoscaler", panel, "*"): "no provider is one of `clouds`" for panel in (
    "Requests to clouds", "Time of requests to clouds")}
NO_MACHINES = {("muster-autoscaler", "Agents that join", "*"): "no machine of a cloud boots"}
# Likewise, of what only a cluster has.
NO_CLUSTER = {("muster-autoscaler", panel, legend): "no provider is a Kubernetes cluster" for panel, legend in (
    ("Learned lead by phase", "*"), ("Launches by phase, P90", "*"), ("Calls to Kubernetes", "*"),
    ("Time of calls to Kubernetes", "{{verb}}"))}
# Those that may return nothing, because the event may not happen in so short a time.
RARE = {
    ("muster-controller", "Refused API requests", "closed {{reason}}"): "a connection is idle for 75 s",
    ("muster-router", "Requests that never came to a handler", "closed {{reason}}"): "likewise",
    ("muster-engine", "Connections of engines", "closed {{reason}}"): "likewise",
    ("muster-engine", "Connections of engines", "cut {{reason}}"): "a router leaves an engine",
    ("muster-autoscaler", "Orphans", "removed at {{provider}}"): "an instance runs without an intent",
    ("muster-autoscaler", "Calls that wait", "{{provider}} deferred"): "calls exceed the provider's budget",
    ("muster-autoscaler", "Time of requests to clouds", "{{provider}} waited, each second"): "likewise",
    ("muster-autoscaler", "Calls that wait", "{{provider}} lists failed"): "a listing fails",
}
# Alerts with a part that has no series here, and why; and those with one that may have none.
NO_SERIES = {"MusterPowerLimit": "no service has a power limit"}
RARE_SERIES = {
    "MusterShrinkHeld": "a decision lacks proof",
    "MusterBudgetReached": "a count set by hand exceeds the budget",
}


def usable(result):
    return [v for _, v in result if not math.isnan(v)]


def parts_of(expression):
    """The operands of and, or and unless, with comparisons that return 0 or 1 instead of filtering."""
    plain, depth, parts, begin = expression, 0, [], 0
    for match in re.finditer(r"[()]|\s(and|or|unless)(\s+(on|ignoring)\s*\([^)]*\))?\s", plain):
        if match.group() in "()":
            depth += 1 if match.group() == "(" else -1
        elif depth == 0:
            parts.append(plain[begin:match.start()])
            begin = match.end()
    parts.append(plain[begin:])
    return [re.sub(r" (>=|<=|==|<|>) ", r" \1 bool ", p) for p in parts]


class Live(unittest.TestCase):
    maxDiff = None
    empty, rare = {**EMPTY, **NO_CLUSTER, **NO_MACHINES}, RARE
    no_series, rare_series = NO_SERIES, RARE_SERIES  # of this fleet; others have their own

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cloud = rig.Cloud(cls.folder.name)
        cls.addClassCleanup(cloud.stop)
        cls.fleet = rig.Fleet(cls.folder.name, CONFIGURATION, cloud=cloud.port, token=cloud.token)
        cls.addClassCleanup(cls.fleet.down)
        cls.fleet.up()
        stand_in = rig.StandIn((pathlib.Path(__file__).parent / "stand_in.txt").read_text())
        cls.addClassCleanup(stand_in.stop)
        cls.prometheus = rig.Prometheus(cls.folder.name, cls.fleet, [stand_in])
        cls.addClassCleanup(cls.prometheus.stop)
        cls.api = cls.prometheus.api
        rig.await_("Prometheus answers", cls.prometheus.answers)
        rig.await_("Prometheus reads controller, router and engine", lambda: {"muster-controller", "muster-router",
                   "muster-engine"} <= {job for (job, _), t in cls.prometheus.targets().items() if t["health"] == "up"})
        made = json.loads(cls.fleet.here("keys", "create", "acme", "-o", "json"))
        cls.key = made["key"]
        cls.run_load()

    @classmethod
    def ask(cls, service, words="Hello", request_id=None):
        """Sends a chat; returns the status."""
        body = json.dumps({"model": service, "max_tokens": 12, "messages": [{"role": "user", "content": words}]})
        request = urllib.request.Request(f"http://127.0.0.1:{cls.fleet.router}/v1/chat/completions", body.encode(),
                                         {"content-type": "application/json", "authorization": "Bearer " + cls.key})
        if request_id:
            request.add_header("x-request-id", request_id)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    @classmethod
    def run_load(cls):
        rig.await_("the router knows the key", lambda: cls.answers("chat"))
        cls.began = time.time()
        load = cls.fleet.load("--model", "chat", "--api-key", cls.key, "--divide", 16, "--speed", 3,
                              "--tokens-per-word", 1.4, "--max-tokens", 48, "--duration", f"{LOAD_S}s")
        cls.addClassCleanup(load.kill)
        assert cls.ask("sleepy") == 200  # held until its first instance has started
        for i in range(20):  # large bodies go to text workers
            assert cls.ask("chat", "word " * 4000 if i % 2 else "again", f"probe-{i}") in (200, 400)
        cls.misbehave()
        said, _ = load.communicate(timeout=300)
        assert load.returncode == 0, said
        print(said.strip().splitlines()[-8:])

    @classmethod
    def misbehave(cls):
        """Sends what is no HTTP, and leaves streams: the edge counts both."""
        for _ in range(3):
            for at in [cls.fleet.router, cls.fleet.controller] + cls.engine_ports():
                with socket.create_connection(("127.0.0.1", at), timeout=30) as s:
                    s.sendall(b"THIS IS NO REQUEST\r\n\r\n")
                    s.recv(1000)
            with socket.create_connection(("127.0.0.1", cls.fleet.controller), timeout=30) as s:
                s.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                s.recv(1000)
            body = json.dumps({"model": "chat", "stream": True, "max_tokens": 200,
                               "messages": [{"role": "user", "content": "Tell me a long story."}]})
            with socket.create_connection(("127.0.0.1", cls.fleet.router), timeout=30) as s:
                s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                          f"Authorization: Bearer {cls.key}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                s.recv(1000)
            time.sleep(2)  # so that scrapes see each of them

    @classmethod
    def engine_ports(cls):
        return [i["engine"]["port"] for i in json.loads(cls.fleet.here("get", "instances", "-o", "json"))
                if i["phase"] == "ready" and i["engine"]]

    @classmethod
    def answers(cls, service):
        try:
            return cls.ask(service) == 200
        except OSError:
            return False

    def instants(self, model):
        values = queries.variables(model, RATE, f"{int(time.time() - self.began)}s")
        values["lead"] = "10s"
        for panel in queries.panels(model):
            for target in panel["targets"]:
                yield panel, target, queries.fill(target["expr"], values)

    def test_1_every_panel_query_returns_data(self):
        empty, wrongly, count = [], [], 0
        for uid, model in checks.models().items():
            for panel, target, expression in self.instants(model):
                count += 1
                keys = {(uid, panel["title"], target["legendFormat"]), (uid, panel["title"], "*")}
                # Rates of rare events may have ended: what there was during the load counts.
                found = any(usable([(None, v) for _, v in points]) for _, points in
                            self.api.range(expression, self.began, time.time(), 2))
                if not found and not keys & (self.empty.keys() | self.rare.keys()):
                    empty.append(f"{uid}: {panel['title']} ({target['legendFormat']}): {expression}")
                if found and keys & self.empty.keys():
                    wrongly.append(f"{uid}: {panel['title']}")
        print(f"{count} queries of panels; {len(self.empty)} panels or queries are empty here, {len(self.rare)} may be")
        self.assertEqual(empty, [], "no data")
        self.assertEqual(wrongly, [], "listed as empty, and has data")

    def test_1_every_variable_has_values(self):
        for uid, model in checks.models().items():
            for variable in model["templating"]["list"]:
                if variable["type"] != "query":
                    continue
                metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()
                metric = queries.fill(metric, queries.variables(model))
                values = {labels.get(label) for labels, _ in self.api.instant(metric)}
                self.assertTrue(values - {None, ""}, f"{uid}: ${variable['name']}")

    def test_1_every_rule_returns_data(self):
        for rule in checks.rule_groups():
            if "record" in rule:
                self.assertTrue(usable(self.api.instant(rule["record"])), rule["record"])
        missing = {}
        for rule in checks.rule_groups():
            for part in parts_of(rule["expr"]) if "alert" in rule else []:
                points = [p for _, points in self.api.range(part, self.began, time.time(), 2) for p in points]
                if not usable(points):
                    missing[rule["alert"]] = part
        self.assertEqual({a: p for a, p in missing.items() if a not in self.no_series and a not in self.rare_series}, {})
        self.assertEqual(set(self.no_series) - set(missing), set(), "listed as without series, and has one")

    def test_1_prometheus_accepts_all_rules(self):
        groups = self.api.get("rules")["groups"]
        rules = [r for g in groups for r in g["rules"]]
        self.assertEqual(len(rules), len(checks.rule_groups()))
        self.assertEqual([r["name"] for r in rules if r["health"] != "ok"], [])

    def test_2_exemplars_name_requests(self):
        """Prometheus asks for OpenMetrics, stores exemplars, and finds the ids that clients gave."""
        for metric in ("time_to_first_token", "time_per_output_token", "request"):
            name = f"muster_router_{metric}_seconds_bucket"
            found = rig.await_(f"exemplars of {name}", lambda n=name: [
                (t, v, labels) for t, v, labels in self.api.exemplars(n, self.began - 60, time.time() + 60)
                if labels.get("request_id", "").startswith("probe-")])
            for t, value, labels in found:
                self.assertEqual(set(labels) - {"trace_id"}, {"request_id"})
                self.assertTrue(self.began - 60 <= t <= time.time() + 5, t)
                self.assertTrue(0 < value < 60, value)

    def test_2_the_classic_format_has_none(self):
        at = f"http://127.0.0.1:{self.fleet.router}/metrics"
        with urllib.request.urlopen(at, timeout=30) as reply:
            text = reply.read().decode()
            self.assertIn("text/plain; version=0.0.4", reply.headers["content-type"])
        self.assertNotIn("request_id", text)
        done = subprocess.run([checks.PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        asked = urllib.request.Request(at, headers={"accept": "application/openmetrics-text; version=1.0.0"})
        with urllib.request.urlopen(asked, timeout=30) as reply:
            text = reply.read().decode()
            self.assertIn("application/openmetrics-text; version=1.0.0", reply.headers["content-type"])
        self.assertIn(' # {request_id="', text)
        self.assertTrue(text.endswith("# EOF\n"))

    def alert(self, name):
        return [labels for labels, _ in self.api.instant(f'ALERTS{{alertname="{name}"}}')]

    def engine_pids(self):
        """Pids of the engines of the pool that always has one."""
        folders = [f"{self.fleet.state}/instances/{i['instance']}/".encode()
                   for i in json.loads(self.fleet.here("get", "instances", "-o", "json"))
                   if i["pool"] == "small" and i["phase"] == "ready"]
        pids = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue
            if b"\0engine\0" in words and any(f in words for f in folders):
                pids.append(int(path.parent.name))
        return pids

    def test_3_spot_losses_and_stock_outs_are_seen(self):
        rig.await_("a loss is counted", lambda: usable(self.api.instant(
            'sum by (offer) (muster_controller_instances_lost_total{offer="spot"}) > 0')))
        rig.await_("refusals are counted", lambda: usable(self.api.instant(
            'sum by (offer) (muster_controller_create_failures_total{offer="spot",class="capacity"}) > 0')))

    def test_4_engines_that_die_raise_an_alert(self):
        counted = 'sum(muster_controller_engine_restarts_total{service="chat",pool="small"})'
        for deaths in range(1, 5):
            pids = rig.await_("an engine runs", self.engine_pids)
            os.kill(pids[0], signal.SIGKILL)
            rig.await_(f"{deaths} restarts are counted",
                       lambda n=deaths: [v for v in usable(self.api.instant(counted)) if v >= n])
        found = rig.await_("the alert is pending", lambda: self.alert("MusterInstanceRestartLoop"))
        self.assertEqual((found[0]["service"], found[0]["pool"]), ("chat", "small"))

    def test_5_a_silent_controller_raises_an_alert(self):
        process = json.loads((self.fleet.state / "fleet.json").read_text())["controller"]["process"]
        pid = int(re.match(r"pid (\d+)", process).group(1))
        os.kill(pid, signal.SIGSTOP)
        try:
            rig.await_("the alert is pending", lambda: self.alert("MusterControllerSilent"))
        finally:
            os.kill(pid, signal.SIGCONT)
        rig.await_("the alert ends", lambda: not self.alert("MusterControllerSilent"))
        rig.await_("the gap is counted", lambda: usable(self.api.instant(
            "sum(muster_controller_late_ticks_total) > 0")))

    def test_5_spans_that_no_collector_takes_raise_an_alert(self):
        for part in ("router", "engine"):
            rig.await_(f"lost spans of a {part} are counted", lambda p=part: usable(self.api.instant(
                f'sum(increase(muster_{p}_trace_spans_total{{result!="exported"}}[15m])) > 0')))
        found = rig.await_("the alert is pending", lambda: self.alert("MusterSpansLost"))
        self.assertLessEqual({labels["result"] for labels in found}, {"queue_full", "undelivered"})

    def test_6_all_dashboards_are_drawn(self):
        folder = pathlib.Path(os.environ.get("MUSTER_PICTURES", self.folder.name))
        folder.mkdir(parents=True, exist_ok=True)
        for uid, model in checks.models().items():
            picture = render.render(uid, self.api, (time.time() - self.began) / 60, RATE, {"lead": "10s"})
            (folder / (uid + ".svg")).write_text(picture)
            tree = xml.etree.ElementTree.fromstring(picture)
            words = [t.text or "" for t in tree.iter("{http://www.w3.org/2000/svg}text")]
            for panel in queries.panels(model):
                self.assertTrue(any(w == panel["title"] or w.endswith("…") for w in words), panel["title"])
            empty = sum(w.startswith("no data") for w in words)
            most = len({p for u, p, _ in list(self.empty) + list(self.rare) if u == uid})
            self.assertLessEqual(empty, most, f"{uid}: {empty} panels are empty")
        print(f"pictures: {folder}")


if __name__ == "__main__":
    checks.run("__main__", [("prometheus", rig.PROMETHEUS and checks.PROMTOOL),
                            ("the Python package yaml", checks.has("yaml")),
                            ("the muster binary (MUSTER_BIN)", pathlib.Path(rig.MUSTER).exists())])
