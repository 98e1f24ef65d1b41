"""chart_lib.py - what the tests of the chart share: programs that they run, tests that they count, and a cluster."""
import contextlib
import os
import re
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CHART = os.path.join(ROOT, "helm", "muster")
DOCUMENT = os.path.join(ROOT, "docs", "kubernetes.md")
CACHE = os.environ.get("MUSTER_KUBE_CACHE", os.path.expanduser("~/.cache/muster/kube"))
MUSTER = os.path.abspath(os.environ.get("MUSTER_BIN", os.path.join(ROOT, "build", "muster")))
WAIT_S = 120  # ends what hangs; no test decides by it


class Failed(Exception):
    """A test failed; the text says why."""


class Skipped(Exception):
    """A test cannot run here; the text says why."""


def run(*words, stdin=None, check=True, env=None):
    """Runs a program; returns (status, output, errors). With `check`, a failure is Failed."""
    done = subprocess.run([str(w) for w in words], input=stdin, capture_output=True, text=True, check=False,
                          env={**os.environ, **(env or {})})
    if check and done.returncode != 0:
        raise Failed(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.returncode, done.stdout, done.stderr


def program(name):
    path = os.path.join(CACHE, "bin", name)
    if not os.access(path, os.X_OK):
        raise Skipped(f"the cache {CACHE}/bin lacks {name}; tests/kube/fetch builds what is missing")
    return path


def muster():
    if not os.access(MUSTER, os.X_OK):
        raise Skipped(f"there is no {MUSTER}; build it, or set MUSTER_BIN")
    return MUSTER


def kubernetes_version():
    with open(os.path.join(HERE, "go", "k8s", "go.mod"), encoding="utf-8") as file:
        return re.search(r"k8s\.io/kubernetes v([0-9.]+)", file.read()).group(1)


def faults(sentences):
    found = list(sentences)
    if found:
        raise Failed("\n".join(found))


def await_true(what, question, seconds=WAIT_S):
    """Repeats the question until its answer is true, and returns that."""
    limit = time.monotonic() + seconds
    while not (answer := question()):
        if time.monotonic() > limit:
            raise Failed(f"waited in vain for {what}")
        time.sleep(0.1)
    return answer


class Suite:
    """Runs tests and counts them."""

    def __init__(self, name):
        self.name = name
        self.passed = self.failed = self.skipped = 0

    @contextlib.contextmanager
    def test(self, name):
        begin, result, why = time.monotonic(), "passed", ""
        try:
            yield
            self.passed += 1
        except Skipped as reason:
            self.skipped += 1
            result, why = "skipped", f"skipped: {self.name}: {name}: {reason}"
        except Failed as reason:
            self.failed += 1
            result, why = "FAILED", "\n".join("    " + line for line in str(reason).splitlines()[:60])
        except Exception:  # a fault of the test itself, or of what it reads
            self.failed += 1
            result, why = "FAILED", traceback.format_exc()
        print(f"{name:<72} {result:<8} {time.monotonic() - begin:6.1f} s")
        if why:
            print(why)
        sys.stdout.flush()

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        if self.failed:
            return 1
        return 0 if self.passed else 77


class Cluster:
    """A cluster that `up` starts in a mode, and its programs."""

    def __init__(self, folder, mode, namespace, *flags):
        self.folder, self.namespace = folder, namespace
        status, out, err = run(os.path.join(HERE, "up"), mode, "--dir", folder, *flags, check=False)
        if status == 77:
            raise Skipped(out.strip().replace("skipped: ", ""))
        if status != 0:
            raise Failed(out + err)
        self.env = {"KUBECONFIG": os.path.join(folder, "state", "kubeconfig")}
        with open(os.path.join(folder, "state", "addresses"), encoding="utf-8") as file:
            self.addresses = dict(line.strip().split("=", 1) for line in file if "=" in line)
        self.kubectl("create", "namespace", namespace)
        self.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")

    def kubectl(self, *words, **more):
        return run(program("kubectl"), *words, env=self.env, **more)

    def helm(self, *words, **more):
        return run(program("helm"), "--namespace", self.namespace, *words, env=self.env, **more)

    def enter(self, *words, **more):
        return run(os.path.join(HERE, "enter"), "--dir", self.folder, *words, **more)

    def down(self):
        run(os.path.join(HERE, "down"), "--dir", self.folder)
