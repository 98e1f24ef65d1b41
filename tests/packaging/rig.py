"""rig.py - what the packaging tests share: folders, processes, ports, skips, and a runner of test functions."""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

MUSTER = os.environ.get("MUSTER_BIN", "build/muster")
BUILD = os.environ.get("MUSTER_BUILD", "build")
SOURCE = os.environ.get("MUSTER_SOURCE", os.getcwd())
MODEL = os.path.join(SOURCE, "models/muster-tiny-q8_0.gguf")
WAIT_S = 600  # ends what hangs; no test decides by it
SKIPPED = 77


class Skip(Exception):
    """Why a test cannot run here."""


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed")


def run(*words, status=0, **more):
    """Runs a command to its end and returns it; another exit status than `status` (None: any) fails the test."""
    more.setdefault("timeout", WAIT_S)
    done = subprocess.run(words, capture_output=True, text=True, check=False, **more)
    if status is not None and done.returncode != status:
        raise AssertionError(f"{' '.join(words)}: exit {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
    return done


def muster(*words, **more):
    return run(MUSTER, *words, **more)


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="muster-packaging-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def installed(path, prefix="/usr", destdir=True):
    """Installs what the build folder holds, at `path` as DESTDIR or (destdir False) as prefix."""
    environment = dict(os.environ)
    words = ["cmake", "--install", BUILD, "--prefix", prefix if destdir else path]
    if destdir:
        environment["DESTDIR"] = path
    run(*words, env=environment)
    return path


def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, condition):
    """Returns the condition's first true value."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited in vain: {what}")


def get(at, path, body=None):
    """Returns (status, text) of one request; status 0 when nobody answers."""
    request = urllib.request.Request(f"http://127.0.0.1:{at}{path}", json.dumps(body).encode() if body else None,
                                     {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


@contextlib.contextmanager
def process(*words, log, **more):
    """Starts a process whose output goes to a file, and kills it at the end."""
    with open(log, "ab") as out:
        started = subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, **more)
    try:
        yield started
    except BaseException:
        with open(log, encoding="utf-8", errors="replace") as text:
            print(f"--- {log}\n{text.read()[-4000:]}---")
        raise
    finally:
        if started.poll() is None:
            started.kill()
            started.wait()


def stop(started, signo=signal.SIGTERM):
    started.send_signal(signo)
    return started.wait(timeout=WAIT_S)


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
        return file.read()


def main(module):
    """Runs the module's functions test_... in their order; exits 1 when one fails, 77 when all were skipped."""
    passed = failed = 0
    for name, function in list(vars(module).items()):
        if not name.startswith("test_"):
            continue
        try:
            function()
            print(f"ok {name}", flush=True)
            passed += 1
        except Skip as why:
            print(f"skipped: {name}: {why}", flush=True)
        except Exception:  # a test may fail in any way; the others run
            traceback.print_exc(file=sys.stdout)
            print(f"FAILED {name}", flush=True)
            failed += 1
    sys.exit(1 if failed else 0 if passed else SKIPPED)
