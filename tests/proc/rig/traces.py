"""traces.py - a collector of traces for tests, and the checks of what it got.

    traces.py serve PORT FILE            keeps the body of each POST /v1/traces as a line of FILE
    traces.py check FILE SCENARIO TRACE [PARENT]
                                         waits until the spans of the trace are as the scenario says

A check prints the trace as a tree. Where the Python package opentelemetry-proto is installed, every body is also read
with its classes, which know no field that is not in the protocol.
"""
import base64
import copy
import http.server
import json
import sys
import time

WAIT_S = 60
SLACK_NS = 200_000_000  # two processes turn their clocks into dates at different moments
KINDS = {1: "internal", 2: "server", 3: "client"}


class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    file = None

    def do_GET(self):
        self.answer(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        good = self.path == "/v1/traces" and self.headers["content-type"] == "application/json"
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(json.loads(body)) + "\n")
        self.answer(200 if good else 400)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def value_of(value):
    (kind, inner), = value.items()
    if kind == "intValue":
        return int(inner)
    return [value_of(v) for v in inner["values"]] if kind == "arrayValue" else inner


def attributes(holder):
    return {a["key"]: value_of(a["value"]) for a in holder["attributes"]}


def read(path):
    """Returns all spans of the file, each with its resource's attributes, and the bodies."""
    spans, bodies = [], []
    try:
        lines = open(path, encoding="utf-8").read().split("\n")[:-1]
    except FileNotFoundError:
        return [], []
    for line in lines:
        body = json.loads(line)
        bodies.append(body)
        for resource in body["resourceSpans"]:
            about = attributes(resource["resource"])
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    spans.append(dict(span, about=about, a=attributes(span),
                                      start=int(span["startTimeUnixNano"]),
                                      end=int(span["endTimeUnixNano"])))
    return spans, bodies


def read_as_protobuf(bodies):
    try:
        from google.protobuf import json_format
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError:
        print("skipped: the Python package opentelemetry-proto is not installed")
        return
    for body in copy.deepcopy(bodies):
        for resource in body["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    for name in ("traceId", "spanId", "parentSpanId"):
                        if name in span:
                            span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        json_format.ParseDict(body, ExportTraceServiceRequest(), ignore_unknown_fields=False)


class Trace:
    """The spans of one trace. `need` fails the check until it holds."""

    def __init__(self, spans, trace_id):
        self.spans = [s for s in spans if s["traceId"] == trace_id]
        self.by_id = {s["spanId"]: s for s in self.spans}

    def need(self, condition, what):
        if not condition:
            raise AssertionError(what)

    def named(self, name, count=1):
        found = [s for s in self.spans if s["name"] == name or s["name"].startswith(name + " ")]
        found.sort(key=lambda s: s["start"])
        self.need(len(found) == count, f"{len(found)} spans are named {name}, not {count}")
        return found

    def child(self, span, parent):
        self.need(span.get("parentSpanId") == parent["spanId"],
                  f"{span['name']} is no child of {parent['name']}")
        self.need(parent["start"] - SLACK_NS <= span["start"] <= span["end"] <= parent["end"] + SLACK_NS,
                  f"{span['name']} does not lie within {parent['name']}")

    def root(self, parent, operation="chat"):
        root, = self.named(operation)
        self.need(root.get("parentSpanId") == parent, "the client's span is not the parent")
        self.need(KINDS[root["kind"]] == "server" and root["about"]["service.name"] == "muster-router",
                  "the request's span is not the router's")
        self.need(len(self.by_id) == len(self.spans), "two spans have one id")
        return root

    def leg(self, root, number=0, legs=1):
        route, attempt = self.named("route", legs)[number], self.named("attempt", legs)[number]
        self.child(route, root)
        self.child(attempt, root)
        self.need(KINDS[attempt["kind"]] == "client", "the attempt is no client's span")
        self.need(route["a"]["muster.instance"] == attempt["a"]["muster.instance"], "two instances")
        self.need(route["start"] <= attempt["start"], "the attempt comes before its route")
        return route, attempt

    def show(self):
        def print_below(parent, depth):
            for s in sorted(self.spans, key=lambda s: s["start"]):
                if s.get("parentSpanId") != parent:
                    continue
                told = [f"{e['name']}({', '.join(map(str, attributes(e).values()))})" for e in s.get("events", [])]
                print(f"  {'  ' * depth}{s['name']:<{24 - 2 * depth}} {(s['end'] - s['start']) / 1e6:9.1f} ms  "
                      f"{s['about']['service.name']} {s['a'].get('muster.instance', '')} "
                      f"{s.get('status', {}).get('message', '')} {' '.join(told)}".rstrip())
                print_below(s["spanId"], depth + 1)
        tops = {s.get("parentSpanId") for s in self.spans} - set(self.by_id)
        for top in tops:
            print_below(top, 0)


def ours(t, parent):
    root = t.root(parent)
    route, attempt = t.leg(root)
    generate, = t.named("generate")
    t.child(generate, attempt)
    parts = [t.named(n)[0] for n in ("queue", "prefill", "decode")]
    for part in parts:
        t.child(part, generate)
    t.need(parts[0]["end"] == parts[1]["start"] and parts[1]["end"] == parts[2]["start"],
           "the engine's parts do not follow each other")
    t.need(len(t.spans) == 7, f"{len(t.spans)} spans, not 7")
    t.need(generate["about"]["service.name"] == "muster-engine", "generate is not the engine's")
    t.need(root["a"]["gen_ai.usage.output_tokens"] == generate["a"]["gen_ai.usage.output_tokens"] > 0,
           "the router and the engine count unlike")
    t.need(root["a"]["gen_ai.usage.input_tokens"] > 0 and root["a"]["muster.attempts"] == 1, "no usage")
    t.need(route["a"]["muster.route.candidates"] >= 1 and route["a"]["muster.route.policy"], "no decision")
    t.need(root.get("traceState") == generate.get("traceState") == "a=b,c@d=e f", "tracestate was lost")
    t.need("status" not in root and "status" not in attempt, "a span failed")


def other(t, parent):
    root = t.root(parent)
    _, attempt = t.leg(root)
    for name in ("queue_prefill", "decode"):
        span, = t.named(name)
        t.child(span, attempt)
        t.need(span["a"]["muster.observed_by"] == "router", "who saw it is not told")
    t.need(attempt["a"]["muster.engine.kind"] == "vllm", "the kind is not told")
    t.need(len(t.spans) == 5, f"{len(t.spans)} spans, not 5")
    t.need(root["a"]["gen_ai.usage.output_tokens"] == 6, "the usage is not told")


def alone(t, parent):
    generate, = t.named("generate")
    t.need(generate.get("parentSpanId") == parent, "the client's span is not the parent")
    t.need(generate["a"]["gen_ai.operation.name"] == "chat", "the operation is not told")
    for name in ("queue", "prefill", "decode"):
        t.child(t.named(name)[0], generate)
    t.need(len(t.spans) == 4, f"{len(t.spans)} spans, not 4")


def late(t, parent):
    root = t.root(parent)
    _, attempt = t.leg(root)
    for name in ("queue_prefill", "decode"):
        t.child(t.named(name)[0], attempt)
    t.need(attempt["a"]["muster.engine.kind"] == "muster", "it is another engine's")
    t.need(len(t.spans) == 5, f"{len(t.spans)} spans, not 5")


def killed(t, parent):
    root = t.root(parent, "text_completion")
    first_route, first = t.leg(root, 0, 2)
    second_route, second = t.leg(root, 1, 2)
    t.need(first["a"]["error.type"] == "died" and first["status"]["code"] == 2, "the first did not die")
    t.need(first["a"]["muster.instance"] != second["a"]["muster.instance"], "it went back")
    events = root["events"]
    t.need([e["name"] for e in events] == ["retry"], "the retry is not told")
    t.need(attributes(events[0])["error.type"] == "died", "the retry's reason is not told")
    t.need(attributes(events[0])["muster.instance"] == first["a"]["muster.instance"], "of another")
    t.need(first["end"] <= second["start"], "the attempts overlap")
    # The dead engine told nothing: the router says what it saw of it. The other tells for itself.
    seen = t.named("queue_prefill")[0]
    t.child(seen, first)
    generate, = t.named("generate")
    t.child(generate, second)
    before = second["a"]["muster.output_tokens.before"]
    t.need(0 < before == generate["a"]["muster.output_tokens.before"], "the output so far is not told")
    t.need(before + generate["a"]["gen_ai.usage.output_tokens"] == root["a"]["gen_ai.usage.output_tokens"],
           "the parts are not the whole")
    t.need("status" not in root, "the request failed")


def refused(t, parent):
    root = t.root(parent)
    attempt, = t.named("attempt")
    tried, held = t.named("route", 2)
    for span in (tried, attempt, held):
        t.child(span, root)
    t.need(attempt["a"]["error.type"] == "unreachable", "the attempt is not told")
    t.need(root["a"]["http.response.status_code"] == 503 and root["a"]["error.type"] == "503", "not refused")
    t.need(root["status"]["code"] == held["status"]["code"] == 2 and "status" not in tried, "the wrong spans failed")
    t.need([e["name"] for e in root["events"]] == ["attempt_failed"], "the failure is not told")
    t.need(len(t.spans) == 4, f"{len(t.spans)} spans, not 4")


def absent(t, _):
    t.need(not t.spans, "it has spans")


def check(path, scenario, trace_id, parent):
    until = time.monotonic() + WAIT_S
    while True:
        spans, bodies = read(path)
        trace = Trace(spans, trace_id)
        try:
            {f.__name__: f for f in (ours, other, alone, late, killed, refused, absent)}[scenario](trace, parent)
            break
        except AssertionError as why:
            if time.monotonic() > until:
                trace.show()
                print(f"{scenario}: {why}")
                return 1
        time.sleep(0.05)
    read_as_protobuf(bodies)
    print(f"{scenario}: trace {trace_id}")
    trace.show()
    return 0


if sys.argv[1] == "serve":
    Collector.file = sys.argv[3]
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Collector).serve_forever()
sys.exit(check(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5] if len(sys.argv) > 5 else None))
