"""hypervisor.py - makes this machine the data centres of providers: each machine that a fake sells is a network namespace
with a file system of its own, in which its very user data runs.

A site is a provider's network. Machines of a public site have addresses that everybody reaches; those of a private one
lie behind a gateway that translates addresses, so that they can dial out and nobody can dial in. Needs root.

    with Hypervisor() as h:
        site = h.site("eu", fake_port, private=False)
        h.watch()                 # boots what the fakes have made, and ends what is gone, until the end
        site.running()            # the machines that are on
"""

import ctypes
import fcntl
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

BRIDGE = "muster-dc"
LOCK = "/run/muster-dc.lock"
CORE = "10.77.0.1"  # controller, router and the providers' file server
METADATA = "169.254.169.254"
POLL_S = 0.2
CLONE_NEWNET = 0x40000000

# What stands in for systemd on a machine: it runs a unit's program in its environment, again after a failure, and
# switches the machine off when it ends well, as SuccessAction=poweroff says.
SYSTEMCTL = """#!/bin/sh
[ "$1" = enable ] || exit 0
unit=/etc/systemd/system/muster-instance.service
grep -q '^SuccessAction=poweroff$' "$unit" || exit 1
(
    export $(sed -n 's/^Environment=//p' "$unit")
    until $(sed -n 's/^ExecStart=//p' "$unit"); do sleep 1; done
    touch /run/muster-machine/off
) </dev/null >/run/muster-machine/unit.log 2>&1 &
"""

# Fills the folders that user data writes to with the machine's own, and boots.
BOOT = """
set -eu
mount --make-rprivate /
mount --bind "$1/lib" /var/lib
mount --bind "$1/units" /etc/systemd/system
mount --bind "$1/bin" /usr/local/bin
mkdir -p /run/muster-machine
mount --bind "$1/run" /run/muster-machine
exec env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root sh "$1/user-data"
"""


def sh(command):
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")


def names(command):
    """The first words of the lines that a command prints."""
    lines = subprocess.run(command.split(), capture_output=True, text=True).stdout.split("\n")
    return [line.split()[0] for line in lines if line.strip()]


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def call(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data)
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)


def may_run():
    """Returns why namespaces cannot be had; None: they can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for tool in ("ip", "unshare", "iptables", "curl"):
        if not shutil.which(tool):
            return f"there is no {tool}"
    try:
        sh("ip netns add muster-try && ip netns del muster-try && unshare -m true")
    except RuntimeError as why:
        return str(why)
    return None


class Metadata(http.server.BaseHTTPRequestHandler):
    """The metadata service of EC2 (version 2), of one machine: a notice when there is one."""

    def do_PUT(self):
        self.reply(200, "token-of-the-metadata-service")

    def do_GET(self):
        notice = self.server.machine.notice
        if notice and self.path.endswith("/spot/instance-action"):
            self.reply(200, json.dumps({"action": "terminate", "time": notice}))
        else:
            self.reply(404, "")

    def reply(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


class Machine:
    """One machine: switched on by its user data, off by its own unit or by the provider."""

    def __init__(self, site, number, row):
        self.site, self.name, self.row = site, row["name"], row
        self.space = f"muster-m{number}"
        self.folder = site.hypervisor.folder / self.space
        self.address = site.address(number)
        self.notice, self.process, self.metadata = None, None, None

    def on(self):
        for name in ("lib", "units", "bin", "run"):
            (self.folder / name).mkdir(parents=True)
        systemctl = self.folder / "bin/systemctl"
        systemctl.write_text(SYSTEMCTL)
        systemctl.chmod(0o755)
        (self.folder / "user-data").write_text(self.row["user_data"])
        here, there = f"mm{self.space[8:]}", "eth0"
        sh(f"ip netns add {self.space}")
        sh(f"ip link add {here} type veth peer name {there} netns {self.space}")
        self.site.plug(here)
        sh(f"ip -n {self.space} addr add {self.address}/24 dev {there}")
        sh(f"ip -n {self.space} addr add {METADATA}/32 dev lo")
        sh(f"ip -n {self.space} link set lo up && ip -n {self.space} link set {there} up")
        if self.site.gateway:
            sh(f"ip -n {self.space} route add default via {self.site.gateway}")
        self.serve_metadata()
        with open(self.folder / "boot.log", "wb") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", self.space, "unshare", "-m", "sh", "-c", BOOT, "boot", str(self.folder)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def serve_metadata(self):
        """Listens in the machine's namespace: a socket stays in the one where it was made."""
        made = []

        def listen():
            with open(f"/run/netns/{self.space}", "rb") as space:
                if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            made.append(http.server.HTTPServer((METADATA, 80), Metadata))

        thread = threading.Thread(target=listen)
        thread.start()
        thread.join()
        self.metadata = made[0]
        self.metadata.machine = self
        threading.Thread(target=self.metadata.serve_forever, daemon=True).start()

    def is_on(self):
        return not (self.folder / "run/off").exists()

    def off(self):
        """Cuts the power: nothing on it is asked, and no peer hears that its connections end."""
        subprocess.run(["ip", "-n", self.space, "link", "set", "eth0", "down"], check=False)
        for pid in names(f"ip netns pids {self.space}"):
            kill(int(pid))
        self.metadata.shutdown()
        self.metadata.server_close()
        self.process.wait()
        subprocess.run(["ip", "netns", "del", self.space], check=False)

    def log(self):
        texts = [p.read_text(errors="replace") for p in (self.folder / "boot.log", self.folder / "run/unit.log") if p.exists()]
        return "\n".join(texts)


class Site:
    """A provider's network, over the machines of its fake."""

    def __init__(self, hypervisor, name, fake_port, index, private, ends_what_is_off):
        self.ends_what_is_off = ends_what_is_off
        self.hypervisor, self.name, self.fake_port = hypervisor, name, fake_port
        self.private, self.index = private, index
        self.gateway, self.seen = None, {}
        if private:
            self.make_gateway()

    def make_gateway(self):
        space, inside = f"muster-gw{self.index}", f"192.168.{self.index}.1"
        sh(f"ip netns add {space}")
        sh(f"ip link add mgw{self.index} type veth peer name out netns {space}")
        self.hypervisor.plug(f"mgw{self.index}")
        sh(f"ip -n {space} addr add 10.77.0.{200 + self.index}/24 dev out && ip -n {space} link set out up")
        sh(f"ip -n {space} link set lo up")
        sh(f"ip -n {space} link add inside type bridge && ip -n {space} link set inside up")
        sh(f"ip -n {space} addr add {inside}/24 dev inside")
        sh(f"ip netns exec {space} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'")
        sh(f"ip netns exec {space} iptables -t nat -A POSTROUTING -o out -j MASQUERADE")
        sh(f"ip netns exec {space} iptables -A FORWARD -i out -m conntrack ! --ctstate ESTABLISHED,RELATED -j DROP")
        self.space, self.gateway = space, inside

    def address(self, number):
        return f"192.168.{self.index}.{number + 1}" if self.private else f"10.77.0.{number + 1}"

    def plug(self, link):
        if not self.private:
            self.hypervisor.plug(link)
            return
        sh(f"ip link set {link} netns {self.space}")
        sh(f"ip -n {self.space} link set {link} master inside && ip -n {self.space} link set {link} up")

    def follow(self):
        """Boots what the provider has made, and ends what it has removed."""
        for row in call(self.fake_port, "/fake/machines")["machines"]:
            key = str(row["id"])
            if key not in self.seen and row["there"] and row["booted"]:
                machine = Machine(self, self.hypervisor.next_number(), row)
                machine.on()
                self.seen[key] = machine
                self.hypervisor.say(f"{self.name}: {machine.name} ({row['type']}, {row['zone']}) is on at {machine.address}")
            machine = self.seen.get(key)
            if machine is None or machine.metadata is None:
                continue
            if not row["there"]:
                self.end(machine, "is gone")
            elif not machine.is_on():
                self.end(machine, "has switched itself off")
                if self.ends_what_is_off:
                    self.terminate(machine)

    def terminate(self, machine):
        try:
            call(self.fake_port, "/fake/preempt", {"name": machine.name, "notice_ms": 0})
        except urllib.error.HTTPError:
            pass  # the controller was faster

    def end(self, machine, why):
        self.hypervisor.say(f"{self.name}: {machine.name} {why}")
        machine.off()
        machine.metadata = None

    def running(self):
        return [m for m in list(self.seen.values()) if m.metadata]

    def take_away(self, machine, notice_s):
        """The provider takes a spot machine: its metadata service says so, and later the power is cut."""
        at = time.gmtime(time.time() + notice_s)
        machine.notice = time.strftime("%Y-%m-%dT%H:%M:%SZ", at)
        call(self.fake_port, "/fake/preempt", {"name": machine.name, "notice_ms": int(notice_s * 1000)})


class Hypervisor:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-dc-"))
        self.sites, self.number, self.lines = [], 1, []
        self.ended = threading.Event()
        self.thread, self.failure = None, None
        self.began = time.monotonic()

    def __enter__(self):
        self.lock = open(LOCK, "w")  # names of namespaces and links are this machine's: one at a time
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.clean()
        sh(f"ip link add {BRIDGE} type bridge && ip addr add {CORE}/24 dev {BRIDGE} && ip link set {BRIDGE} up")
        return self

    def __exit__(self, *_):
        self.ended.set()
        if self.thread:
            self.thread.join()
        for site in self.sites:
            for machine in site.running():
                machine.off()
        self.clean()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.close()

    @staticmethod
    def clean():
        """Ends what a run that was killed has left."""
        for name in names("ip netns list"):
            if name.startswith(("muster-m", "muster-gw")):
                for pid in names(f"ip netns pids {name}"):
                    kill(int(pid))
                subprocess.run(["ip", "netns", "del", name], check=False)
        for name in names("ip -br link"):
            name = name.split("@")[0]
            if name == BRIDGE or re.fullmatch("(mm|mgw)[0-9]+", name):
                subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)

    def site(self, name, fake_port, private, ends_what_is_off):
        """ends_what_is_off: a machine that switches itself off is gone, as at EC2; else it stays, and is billed."""
        site = Site(self, name, fake_port, len(self.sites) + 1, private, ends_what_is_off)
        self.sites.append(site)
        return site

    @staticmethod
    def plug(link):
        sh(f"ip link set {link} master {BRIDGE} && ip link set {link} up")

    def next_number(self):
        self.number += 1
        return self.number

    def say(self, line):
        self.lines.append(line)
        print(f"{time.monotonic() - self.began:7.1f} s  {line}", flush=True)

    def watch(self):
        def run():
            while not self.ended.wait(POLL_S):
                try:
                    for site in self.sites:
                        site.follow()
                except Exception as why:  # whoever waits raises it
                    self.failure = why
                    return

        self.thread = threading.Thread(target=run)
        self.thread.start()
