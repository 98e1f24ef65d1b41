"""release.py - a release of the chart on a real node: its Pods, its commands, requests to it, the demo's trace."""
import base64
import collections
import http.client
import json
import os
import subprocess
import time

import chart_policy as policy
from chart_lib import CHART, HERE, ROOT, WAIT_S, Cluster, Failed, await_true, muster, run

RELEASE, NAMESPACE, SERVICE = "muster", "muster", "muster-tiny"
TRACE = os.path.join(ROOT, "traces", "mooncake-conversation-4min.jsonl")
CONNECT_S = 2  # a connection that began before the node had the Service's rules never gets through
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: { name: one }
spec:
  capacity: { storage: 1Gi }
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  local: { path: /var/lib/volumes/one }
  nodeAffinity:
    required: { nodeSelectorTerms: [{ matchExpressions: [{ key: kubernetes.io/os, operator: In, values: [linux] }] }] }
"""


class Node(Cluster):
    """A node with one volume that claims can have."""

    def __init__(self, folder, image, *flags):
        super().__init__(folder, "--node", NAMESPACE, *flags)
        self.enter("mkdir", "-p", "/var/lib/volumes/one")
        self.kubectl("create", "-f", "-", stdin=VOLUME)
        self.enter("ctr", "--namespace", "k8s.io", "images", "import", image)

    def get(self, kinds, *words):
        return json.loads(self.kubectl("-n", NAMESPACE, "get", kinds, "-o", "json", *words)[1])["items"]

    def pods(self, part=None):
        found = self.get("pods", "-l", f"{policy.INSTANCE}={RELEASE}")
        return [p for p in found if part in (None, p["metadata"]["labels"][policy.COMPONENT])]

    def secret(self, name, key):
        text = self.kubectl("-n", NAMESPACE, "get", "secret", name, "-o", "json")[1]
        return base64.b64decode(json.loads(text)["data"][key]).decode()

    def service_ip(self, part):
        for service in self.get("services"):
            if service["metadata"]["labels"].get(policy.COMPONENT) == part:
                return service["spec"]["clusterIP"]
        return None

    def exec(self, *words):
        return self.kubectl("-n", NAMESPACE, "exec", f"statefulset/{RELEASE}-controller", "--", *words)[1]

    def part(self, name, action):
        """Kills, pauses, resumes or starts a part of the cluster."""
        run(os.path.join(HERE, "part"), "--dir", self.folder, name, action)

    def answers(self):
        """Returns true if the API server is ready."""
        return self.kubectl("get", "--raw", "/readyz", "--request-timeout=5s", check=False)[1] == "ok"

    def listed(self, *words):
        """What a `muster get` in the controller's Pod lists."""
        return json.loads(self.exec("muster", "get", *words, "-o", "json"))

    def said(self, part):
        """The logs of a part's Pods, one after the other, those of containers that were restarted included."""
        texts = []
        for pod in self.pods(part):
            name = pod["metadata"]["name"]
            for flag in ("--previous=true", "--previous=false"):
                status, text, _ = self.kubectl("-n", NAMESPACE, "logs", name, flag, "--tail=-1", check=False)
                texts.append(text if status == 0 else "")
        return "".join(texts)

    def new_key(self, name):
        """Makes a key, and waits until the routers know it."""
        key, address = self.exec("muster", "keys", "create", name).strip(), self.service_ip("router")
        await_true("the key", lambda: get(address, 8080, "/v1/models", key)[0] == 200)
        return key

    def upgrade(self, *flags):
        self.helm("upgrade", "--install", RELEASE, CHART, *flags, "--wait", "--timeout", f"{WAIT_S}s")

    def evict(self, name):
        """Asks for a Pod's eviction; returns (status, errors)."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        status, _, errors = self.kubectl("create", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction", "-f",
                                         "-", stdin=json.dumps(body), check=False)
        return status, errors


# ---- asking the router ----


def first_token(address, key, service=SERVICE):
    """Seconds from the request to the first token of a stream; None where nothing streams yet."""
    begin = time.monotonic()
    body = {"model": service, "stream": True, "max_tokens": 8, "messages": [{"role": "user", "content": "Hello!"}]}
    connection = http.client.HTTPConnection(address, 8080, timeout=CONNECT_S)
    try:
        connection.connect()
        connection.sock.settimeout(WAIT_S)
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
        reply = connection.getresponse()
        if reply.status != 200:
            return None
        for line in reply:
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                return time.monotonic() - begin
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return None


def chat(address, key, service, tokens, seconds):
    """Sends a streamed chat; (status, body, whether the stream came to its end)."""
    body = {"model": service, "stream": True, "max_tokens": tokens,
            "messages": [{"role": "user", "content": "Tell me a story."}]}
    connection = http.client.HTTPConnection(address, 8080, timeout=seconds)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
        reply = connection.getresponse()
        text = reply.read().decode(errors="replace")
        return reply.status, text, text.rstrip().endswith("data: [DONE]")
    except (OSError, http.client.HTTPException) as reason:
        return 0, str(reason), False
    finally:
        connection.close()


def get(address, port, path, key):
    """(status, body) of a GET."""
    connection = http.client.HTTPConnection(address, port, timeout=WAIT_S)
    connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
    reply = connection.getresponse()
    text = reply.read().decode(errors="replace")
    connection.close()
    return reply.status, text


def fleet_secret(node):
    for secret in node.get("secrets"):
        if secret["metadata"]["name"] == f"{RELEASE}-fleet":
            return base64.b64decode(secret["data"]["secret"]).decode()
    return None


class Load:
    """Replays the demo's trace from this machine while a test goes on."""

    def __init__(self, node, key, folder, *flags, model=SERVICE):
        self.record = os.path.join(folder, f"load-{time.monotonic_ns()}.jsonl")
        self.process = subprocess.Popen(
            [muster(), "load", "--trace", TRACE, *flags, "--output", "json", "--record", self.record, "--model", model,
             "--url", f"http://{node.service_ip('router')}:8080", "--api-key", key],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def runs(self):
        return self.process.poll() is None

    def end(self):
        """Waits for its end; returns how many requests had which outcome."""
        text = self.process.communicate(timeout=10 * WAIT_S)[0]
        if not os.path.exists(self.record):
            raise Failed(f"muster load: {text}")
        with open(self.record, encoding="utf-8") as file:
            return collections.Counter(json.loads(line).get("outcome", "ok") for line in file)

    def stop(self):
        if self.runs():
            self.process.kill()
            self.process.wait()


def is_ready(pod):
    conditions = pod["status"].get("conditions", [])
    return "deletionTimestamp" not in pod["metadata"] and any(
        c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def build_image(work):
    path = os.path.join(work, "muster.tar")
    run(os.path.join(ROOT, "scripts", "image.sh"), "--output", path)
    return path
