"""t_notify_roles.py - tests what a service manager hears from the roles, as real processes with a socket of ours.

The kernel adds the sender's pid to each message, so a word from an agent or an engine that the controller started
would be seen: a manager that listens to the main process only would not count it, but others might.
"""
import contextlib
import json
import os
import re
import signal
import socket
import struct
import sys

import rig

CREDENTIALS = struct.Struct("3i")
PERIOD_US = 900_000  # three signs of life within it


class Manager:
    """A service manager's socket: a path, or an abstract name."""

    def __init__(self, place, abstract=False):
        self.path = os.path.join(place, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.settimeout(rig.WAIT_S)
        self.socket.bind("\0" + self.path if abstract else self.path)
        self.variables = {"NOTIFY_SOCKET": ("@" if abstract else "") + self.path, "WATCHDOG_USEC": str(PERIOD_US)}

    def environment(self):
        return dict(os.environ, **self.variables)

    def hear(self, pid):
        """Returns the next message as {name: value}; it must be that process's."""
        text, more, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(CREDENTIALS.size))
        sender = CREDENTIALS.unpack(more[0][2][:CREDENTIALS.size])[0]
        assert sender == pid, f"{text!r} is of {sender}, not of {pid}"
        lines = text.decode().splitlines()
        assert all("=" in line for line in lines), text
        return dict(line.split("=", 1) for line in lines)

    def await_word(self, pid, name):
        """Skips signs of life until a message has `name`."""
        while True:
            message = self.hear(pid)
            if name in message:
                return message
            assert set(message) == {"WATCHDOG"}, message

    def close(self):
        self.socket.close()


@contextlib.contextmanager
def managed(place, role, *words, abstract=False, **variables):
    """Starts a role below a manager; gives (process, manager, its first READY message)."""
    manager = Manager(place, abstract)
    manager.variables.update(variables)
    log = os.path.join(place, role + ".log")
    try:
        with rig.process(rig.MUSTER, role, *words, cwd=place, log=log, env=manager.environment()) as started:
            yield started, manager
    finally:
        manager.close()
        if os.path.exists(manager.path):
            os.unlink(manager.path)


def config_of(place):
    """A fleet of one instance on ports of our own; returns (path of its file, controller's port, router's port)."""
    text = rig.read(rig.SOURCE, "muster.yaml").replace("models/", rig.SOURCE + "/models/")
    controller, router = rig.port(), rig.port()
    for old, new in (("8090", controller), ("8080", router)):
        text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}").replace(f"localhost:{old}", f"localhost:{new}")
    text = text.replace("launch_delay: 2s", "launch_delay: 0")
    path = os.path.join(place, "muster.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.mkdir(os.path.join(place, "state"), 0o700)
    return path, controller, router


def spec_of(place):
    """The launch document of the first instance whose engine runs, or None."""
    top = os.path.join(place, "state/instances")
    for name in os.listdir(top) if os.path.isdir(top) else ():
        folder = os.path.join(top, name)
        if all(os.path.exists(os.path.join(folder, file)) for file in ("spec.json", "agent.lock", "engine.id")):
            return os.path.join(folder, "spec.json")
    return None


def pid_in(path):
    return int(re.match(r"pid (\d+)", rig.read(path)).group(1))


def test_controller_and_agent():
    with rig.folder() as place:
        config, at, _ = config_of(place)
        try:
            with managed(place, "controller", "--config", config, "--state", "state") as (role, manager):
                ready = manager.await_word(role.pid, "READY")
                assert ready["READY"] == "1" and str(at) in ready["STATUS"], ready
                assert manager.hear(role.pid) == {"WATCHDOG": "1"}
                # It starts an agent, that an engine: neither may say a word, and hear() checks who speaks.
                spec = rig.wait_for("an instance", lambda: spec_of(place))
                for _ in range(6):
                    assert manager.hear(role.pid) == {"WATCHDOG": "1"}
                role.send_signal(signal.SIGTERM)
                assert manager.await_word(role.pid, "STOPPING")["STOPPING"] == "1"
                assert role.wait(timeout=rig.WAIT_S) == 0
            agent_of(place, spec)
        finally:
            rig.muster("down", "--state", os.path.join(place, "state"), status=None)


def agent_of(place, spec):
    """The next agent of the same instance, below a manager: it adopts the engine, and drains it at the end."""
    folder = os.path.dirname(spec)
    os.kill(pid_in(os.path.join(folder, "agent.lock")), signal.SIGKILL)
    engine = pid_in(os.path.join(folder, "engine.id"))
    with managed(place, "agent", "--spec", spec, abstract=True) as (role, manager):
        ready = manager.await_word(role.pid, "READY")
        assert json.loads(rig.read(spec))["instance"] in ready["STATUS"], ready
        manager.await_word(role.pid, "WATCHDOG")
        assert pid_in(os.path.join(folder, "engine.id")) == engine, "the engine was adopted"
        role.send_signal(signal.SIGTERM)
        manager.await_word(role.pid, "STOPPING")
        assert role.wait(timeout=rig.WAIT_S) == 0


def test_router():
    with rig.folder() as place:
        config, _, at = config_of(place)
        with managed(place, "router", "--config", config, "--threads", "3", "--secret-file", "state/secret") as (
                role, manager):
            assert str(at) in manager.await_word(role.pid, "READY")["STATUS"]
            assert rig.get(at, "/health")[0] in (200, 503), "it listens once it says so"
            for _ in range(3):
                assert manager.hear(role.pid) == {"WATCHDOG": "1"}
            role.send_signal(signal.SIGTERM)
            manager.await_word(role.pid, "STOPPING")
            assert role.wait(timeout=rig.WAIT_S) == 0


def test_an_engine_is_ready_when_its_model_is_loaded():
    with rig.folder() as place:
        at = rig.port()
        with managed(place, "engine", "--model", rig.MODEL, "--listen", f"127.0.0.1:{at}") as (role, manager):
            manager.await_word(role.pid, "READY")
            assert rig.get(at, "/health")[0] == 200
            manager.await_word(role.pid, "WATCHDOG")
            role.send_signal(signal.SIGTERM)
            manager.await_word(role.pid, "STOPPING")
            assert role.wait(timeout=rig.WAIT_S) == 0


def test_a_model_that_does_not_load_is_never_ready():
    with rig.folder() as place:
        wrong = os.path.join(place, "wrong.gguf")
        with open(wrong, "wb") as file:
            file.write(b"GGUF" + bytes(64))
        with managed(place, "engine", "--model", wrong, "--listen", f"127.0.0.1:{rig.port()}") as (role, manager):
            assert role.wait(timeout=rig.WAIT_S) != 0
            manager.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    text = manager.socket.recv(4096)
                    assert b"READY" not in text, text


def test_a_device_that_hangs_ends_the_signs():
    with rig.folder() as place:
        at = rig.port()
        log = os.path.join(place, "engine.log")
        with managed(place, "engine", "--model", rig.MODEL, "--listen", f"127.0.0.1:{at}", "--fault",
                     "device.hang:20") as (role, manager):
            manager.await_word(role.pid, "READY")
            asked = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 200}

            def held():
                if "device_stalled" not in rig.read(log):  # short answers make few steps; the last one is cut
                    rig.get(at, "/v1/chat/completions", asked)
                return "watchdog_held" in rig.read(log)

            rig.wait_for("the watch sees it", held)
            # What was sent before is in the socket; then nothing comes for the time that the manager grants.
            manager.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    manager.socket.recv(4096)
            manager.socket.settimeout(PERIOD_US / 1e6)
            try:
                late = manager.socket.recv(4096)
                raise AssertionError(f"a hanging engine says {late!r}")
            except socket.timeout:
                pass


def test_a_wrong_variable_is_named():
    with rig.folder() as place:
        for name, value, says in (("NOTIFY_SOCKET", "run/notify", "NOTIFY_SOCKET is 'run/notify'"),
                                  ("WATCHDOG_USEC", "5s", "WATCHDOG_USEC is '5s'")):
            environment = dict(os.environ, NOTIFY_SOCKET="/nowhere/notify")
            environment[name] = value
            done = rig.muster("router", "--listen", f"127.0.0.1:{rig.port()}", env=environment, status=1, cwd=place)
            assert says in done.stderr, done.stderr


if __name__ == "__main__":
    rig.main(sys.modules[__name__])
