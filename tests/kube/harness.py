# harness.py - a cluster of kwok and a controller outside it, for the tests of this folder that are in Python.
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
MUSTER = os.environ.get("MUSTER_BIN", str(TREE / "build/muster"))
BIN = pathlib.Path(os.environ.get("MUSTER_KUBE_CACHE", pathlib.Path.home() / ".cache/muster/kube")) / "bin"
SKIP = 77
LABEL = "muster.dev/fleet=test"


class Cluster:
    """One cluster for all cases; its parts can be killed and paused."""

    def __init__(self, folder, nodes=4, *flags):
        self.dir = folder / "cluster"
        run = subprocess.run([HERE / "up", "--kwok", "--nodes", str(nodes), "--dir", self.dir, *flags], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if run.returncode == SKIP:
            print(run.stdout.strip())
            sys.exit(SKIP)
        if run.returncode != 0:
            sys.exit(run.stdout)
        self.kubeconfig = self.dir / "state/kubeconfig"
        self.audit = self.dir / "log/audit.log"

    def down(self):
        subprocess.run([HERE / "down", "--dir", self.dir], check=True, stdout=subprocess.DEVNULL)

    def part(self, name, action):
        subprocess.run([HERE / "part", "--dir", self.dir, name, action], check=True, stdout=subprocess.DEVNULL)

    def kubectl(self, *words, check=True):
        run = subprocess.run([BIN / "kubectl", "--kubeconfig", self.kubeconfig, "--request-timeout=20s", *words],
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if check and run.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(map(str, words))}: {run.stdout}")
        return run.stdout

    def pods(self, selector=LABEL):
        found = json.loads(self.kubectl("-n", "serving", "get", "pods", "-l", selector, "-o", "json"))
        return found["items"]

    def alive(self):
        return [p for p in self.pods() if "deletionTimestamp" not in p["metadata"]]

    def empty(self):
        """Makes the namespace new, and nodes without taints."""
        for part in ("start", "resume"):
            subprocess.run([HERE / "part", "--dir", self.dir, "kube-apiserver", part], check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait("the API server", lambda: self.kubectl("get", "--raw", "/readyz") == "ok")
        self.kubectl("-n", "serving", "delete", "pods", "--all", "--force", "--grace-period=0", check=False)
        self.kubectl("delete", "namespace", "serving", "--ignore-not-found", "--wait=true", "--timeout=60s")
        self.make_namespace()
        self.kubectl("label", "namespace", "serving", "pod-security.kubernetes.io/enforce=restricted")
        for node in json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]:
            for taint in node["spec"].get("taints", []):
                if not taint["key"].startswith("node.kubernetes.io/"):
                    self.kubectl("taint", "node", node["metadata"]["name"], f"{taint['key']}-")

    def make_namespace(self):
        """Makes the namespace, in which Pods can be made once it has an account for them."""
        self.kubectl("create", "namespace", "serving")
        wait("the account of the Pods", lambda: "default" in self.kubectl("-n", "serving", "get", "serviceaccounts"))

    def calls(self, since):
        """Returns the audit log's calls of the controller from a byte offset on: (verb, resource, code)."""
        with open(self.audit, "rb") as log:
            log.seek(since)
            lines = log.read().splitlines()
        events = []
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if not event.get("userAgent", "").startswith("muster/") or event["stage"] != "ResponseComplete":
                continue
            events.append((event["verb"], event["objectRef"]["resource"], event["responseStatus"]["code"]))
        return events


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Controller:
    """A controller outside the cluster, on a state folder that outlives it."""

    def __init__(self, cluster, folder, config, **settings):
        self.port = free_port()
        self.state = folder / "state"
        self.file = folder / "muster.yaml"
        self.file.write_text(config.format(port=self.port, state=self.state, kubeconfig=cluster.kubeconfig, **settings))
        self.log = folder / "controller.log"
        self.process = None

    def start(self, *flags):
        self.process = subprocess.Popen([MUSTER, "controller", "--config", self.file, *flags],
                                        stdout=open(self.log, "ab"), stderr=subprocess.STDOUT)
        return self

    def stop(self, how=signal.SIGTERM):
        if self.process:
            self.process.send_signal(how)
            self.process.wait(30)
        self.process = None

    def run(self, *words):
        """Runs a command of muster against this controller; returns what it prints."""
        run = subprocess.run([MUSTER, *words, "--controller", f"127.0.0.1:{self.port}", "--state", self.state],
                             text=True, capture_output=True)
        if run.returncode != 0:
            raise AssertionError(f"{' '.join(words)}: {run.stderr}")
        return run.stdout

    def get(self, kind):
        return json.loads(self.run("get", kind, "-o", "json"))

    def live(self):
        return [i for i in self.get("instances") if i["phase"] in ("starting", "ready", "draining")]

    def says(self, text):
        return text in self.log.read_text(errors="replace")


def wait(what, condition, seconds=60):
    """Waits until the condition holds; conditions that cannot be asked do not hold."""
    end = time.monotonic() + seconds
    last = None
    while time.monotonic() < end:
        try:
            if condition():
                return
            last = None
        except (AssertionError, OSError, ValueError) as error:
            last = error
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {seconds} s{f' ({last})' if last else ''}")


def names(pods):
    return sorted(p["metadata"]["name"] for p in pods)
