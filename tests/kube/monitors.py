"""monitors.py - turns ServiceMonitors and PodMonitors into the configuration of a Prometheus, and discovers their targets.

The rules of relabelling are those that the Prometheus operator writes around a monitor's own, in its order: what selects
the targets, the labels that it gives every target, then the monitor's relabelings. So a monitor that would find nothing,
lose a label or read with a wrong key there does so here. Debian's Prometheus is built without the discovery of
Kubernetes: Discovery gives it the same targets, with the labels that the roles `endpoints` and `pod` have, over HTTP.
"""
import contextlib
import http.server
import json
import threading

REFRESH_S = 3


def safe(name):
    """A label of Kubernetes as service discovery names it."""
    return "".join(c if c.isalnum() else "_" for c in name)


def keep(source, regex):
    return {"action": "keep", "source_labels": [source], "regex": regex}


def label(target, source):
    return {"source_labels": [source], "target_label": target}


def selected(kind, selector):
    if selector.get("matchExpressions"):
        raise ValueError(f"this program does not know {selector}")
    return [keep(f"__meta_kubernetes_{kind}_label_{safe(n)}", v) for n, v in selector["matchLabels"].items()]


def own(relabelings):
    """The monitor's relabelings, in Prometheus' spelling."""
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return [{names.get(k, k): v for k, v in r.items()} for r in relabelings]


def scrape(monitor, end, role, relabelings, access):
    """What both kinds of monitors share. `access` has the discovery's `url` and `key`, which gives a Secret's value."""
    meta, config = monitor["metadata"], {}
    for name, to in (("interval", "scrape_interval"), ("scrapeTimeout", "scrape_timeout"), ("path", "metrics_path"),
                     ("scheme", "scheme"), ("honorLabels", "honor_labels"), ("params", "params")):
        if name in end:
            config[to] = end[name]
    if "authorization" in end:
        secret = end["authorization"]["credentials"]
        config["authorization"] = {"type": end["authorization"].get("type", "Bearer"),
                                   "credentials": access["key"](secret["name"], secret["key"])}
    return {
        "job_name": f"{monitor['kind']}/{meta['namespace']}/{meta['name']}", **config,
        "http_sd_configs": [{"url": f"{access['url']}/{role}", "refresh_interval": f"{REFRESH_S}s"}],
        "relabel_configs": [*relabelings, *own(end.get("relabelings", []))],
        "metric_relabel_configs": own(end.get("metricRelabelings", [])),
    }


def of_service_monitor(monitor, access):
    spec, name = monitor["spec"], monitor["metadata"]
    for end in spec["endpoints"]:
        yield scrape(monitor, end, "endpoints", [
            *selected("service", spec["selector"]),
            keep("__meta_kubernetes_endpoint_port_name", end["port"]),
            label("namespace", "__meta_kubernetes_namespace"),
            label("service", "__meta_kubernetes_service_name"),
            label("pod", "__meta_kubernetes_pod_name"),
            label("container", "__meta_kubernetes_pod_container_name"),
            {"action": "drop", "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)"},
            label("job", "__meta_kubernetes_service_name"),
            {"target_label": "endpoint", "replacement": end["port"]}], access)
    if not spec["endpoints"]:
        raise ValueError(f"the monitor {name['name']} has no endpoint")


def of_pod_monitor(monitor, access):
    spec, meta = monitor["spec"], monitor["metadata"]
    for end in spec["podMetricsEndpoints"]:
        yield scrape(monitor, end, "pod", [
            {"action": "drop", "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)"},
            *selected("pod", spec["selector"]),
            keep("__meta_kubernetes_pod_container_port_name", end["port"]),
            label("namespace", "__meta_kubernetes_namespace"),
            label("container", "__meta_kubernetes_pod_container_name"),
            label("pod", "__meta_kubernetes_pod_name"),
            {"target_label": "job", "replacement": f"{meta['namespace']}/{meta['name']}"},
            {"target_label": "endpoint", "replacement": end["port"]}], access)


def scrape_configs(monitors, access):
    """The scrape configurations of all monitors."""
    kinds = {"ServiceMonitor": of_service_monitor, "PodMonitor": of_pod_monitor}
    return [config for monitor in monitors for config in kinds[monitor["kind"]](monitor, access)]


# ---- discovery ----


def pod_labels(pod, container, port):
    """The labels of the role `pod` for a port of a container."""
    meta, found = pod["metadata"], {
        "__meta_kubernetes_namespace": pod["metadata"]["namespace"], "__meta_kubernetes_pod_name": pod["metadata"]["name"],
        "__meta_kubernetes_pod_ip": pod["status"].get("podIP", ""), "__meta_kubernetes_pod_uid": pod["metadata"]["uid"],
        "__meta_kubernetes_pod_phase": pod["status"].get("phase", ""),
        "__meta_kubernetes_pod_node_name": pod["spec"].get("nodeName", ""),
        "__meta_kubernetes_pod_container_name": container["name"],
        "__meta_kubernetes_pod_container_port_name": port.get("name", ""),
        "__meta_kubernetes_pod_container_port_number": str(port["containerPort"])}
    for kind in ("label", "annotation"):
        for name, value in meta.get(f"{kind}s", {}).items():
            found[f"__meta_kubernetes_pod_{kind}_{safe(name)}"] = value
            found[f"__meta_kubernetes_pod_{kind}present_{safe(name)}"] = "true"
    return found


def ports_of(pod):
    return [(c, p) for c in pod["spec"]["containers"] for p in c.get("ports", [])]


def of_pods(pods):
    """The targets of the role `pod`."""
    for pod in pods:
        for container, port in ports_of(pod) if pod["status"].get("podIP") else []:
            yield f"{pod['status']['podIP']}:{port['containerPort']}", pod_labels(pod, container, port)


def of_endpoints(endpoints, services, pods):
    """The targets of the role `endpoints`."""
    pods = {p["metadata"]["name"]: p for p in pods}
    services = {s["metadata"]["name"]: s for s in services}
    for one in endpoints:
        name = one["metadata"]["name"]
        common = {"__meta_kubernetes_namespace": one["metadata"]["namespace"], "__meta_kubernetes_endpoints_name": name}
        if name in services:
            common["__meta_kubernetes_service_name"] = name
            for key, value in services[name]["metadata"].get("labels", {}).items():
                common[f"__meta_kubernetes_service_label_{safe(key)}"] = value
        for subset in one.get("subsets", []):
            addresses = [(a, "true") for a in subset.get("addresses", [])]
            addresses += [(a, "false") for a in subset.get("notReadyAddresses", [])]
            for address, ready in addresses:
                for port in subset.get("ports", []):
                    target = address.get("targetRef", {})
                    labels = {**common, "__meta_kubernetes_endpoint_port_name": port.get("name", ""),
                              "__meta_kubernetes_endpoint_ready": ready,
                              "__meta_kubernetes_endpoint_address_target_kind": target.get("kind", ""),
                              "__meta_kubernetes_endpoint_address_target_name": target.get("name", "")}
                    for container, its in ports_of(pods[target["name"]]) if target.get("name") in pods else []:
                        if its["containerPort"] == port["port"]:
                            labels.update(pod_labels(pods[target["name"]], container, its))
                    yield f"{address['ip']}:{port['port']}", labels


class Discovery:
    """Answers GET /endpoints and /pod with the targets of a namespace, as `get(kinds)` lists its objects."""

    def __init__(self, get):
        outer = self
        self.get = get

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                try:
                    found = outer.targets(self.path)
                except Exception as reason:  # the API server is away: the targets stay as they were
                    self.send_error(503, str(reason)[:100].replace("\n", " "))
                    return
                body = json.dumps([{"targets": [at], "labels": labels} for at, labels in found]).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):  # Prometheus did not wait for it
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def targets(self, path):
        kinds = {"Pod": [], "Service": [], "Endpoints": []}
        for thing in self.get("pods" if path == "/pod" else "pods,services,endpoints"):
            kinds[thing["kind"]].append(thing)
        if path == "/pod":
            return list(of_pods(kinds["Pod"]))
        return list(of_endpoints(kinds["Endpoints"], kinds["Service"], kinds["Pod"]))

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
