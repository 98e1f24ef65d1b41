"""t_user_data.py - runs the default user data of a cloud's machine as the machine would, in a folder in place of its root:
it fetches muster, refuses another one, joins the fleet with its one-time token and serves. Whoever has the same user data
is refused, or found out, and no secret is where it should not be.

Programs of the machine that the test has not (curl to the internet, systemctl, ip, getent) are stand-ins in the path. The
thief is a second machine that runs the same user data.
"""

import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import unittest
import urllib.request

CREDENTIAL = "credential-of-the-fake"
LIMIT_S = 120  # ends what hangs
MODEL = "models/muster-tiny-q8_0.gguf"

STUBS = {
    # curl ... -o FILE URL: the "internet" has one file.
    "curl": """while [ "$1" != -o ]; do shift; done; cp "$ROOT/internet" "$2" """,
    "getent": """[ "$1" = ahostsv4 ] && echo "$2 STREAM" """,
    "ip": """echo "$4 dev lo src 127.0.0.1 uid 0 " """,
    # What systemd would make of the unit.
    "systemctl": """
[ "$1" = enable ] || exit 0
unit=$ROOT/etc/systemd/system/muster-instance.service
export $(sed -n 's/^Environment=//p' "$unit")
export MUSTER_AGENT_LISTEN=127.0.0.1:0
$(sed -n 's/^ExecStart=//p' "$unit") > "$ROOT/agent.log" 2>&1 &
echo $! > "$ROOT/agent.pid" """,
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(port, path, read=json.load):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
            return read(reply)
    except OSError:
        return None


def wait(is_so, what):
    end = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.05)


class Machine:
    """A folder that stands for a machine's root."""

    def __init__(self, test, name, user_data):
        self.root = test.folder / name
        self.home = self.root / "var/lib/muster"
        for place in ("bin", "var/lib", "etc/systemd/system", "usr/local/bin"):
            (self.root / place).mkdir(parents=True)
        (self.root / "internet").hardlink_to(test.program)
        for stub, text in STUBS.items():
            (self.root / "bin" / stub).write_text("#!/bin/sh\n" + text)
            (self.root / "bin" / stub).chmod(0o755)
        for place in ("/var/lib/", "/etc/systemd/", "/usr/local/bin/"):
            user_data = user_data.replace(place, f"{self.root}{place}")
        # The launch document names them too, in base64: it is changed as the script writes it.
        launch = f"> {self.root}/var/lib/muster/launch.json"
        user_data = user_data.replace(launch, f"| sed 's|/var/lib/|{self.root}/var/lib/|g' {launch}")
        self.script = self.root / "user-data"
        self.script.write_text(user_data.replace("for pause in 1 2 4 8 16 32 0", "for pause in 0"))
        environment = dict(os.environ, ROOT=str(self.root),
                           PATH=f"{self.root}/bin:{self.root}/usr/local/bin:{os.environ['PATH']}")
        self.environment = environment
        self.done = self.boot()
        if (self.root / "agent.pid").exists():
            test.addCleanup(self.end)

    def boot(self):
        return subprocess.run(["sh", str(self.script)], env=self.environment, capture_output=True, text=True)

    def start_unit(self):
        """What systemd does at a boot."""
        subprocess.run([str(self.root / "bin/systemctl"), "enable"], env=self.environment, check=True)

    def runs(self):
        try:
            with open(f"/proc/{self.pid()}/stat") as stat_file:
                return stat_file.read().split(")")[1].split()[0] != "Z"
        except OSError:
            return False

    def pid(self):
        return int((self.root / "agent.pid").read_text())

    def end(self):
        try:
            os.kill(self.pid(), signal.SIGTERM)
        except ProcessLookupError:
            pass

    def log(self):
        return (self.root / "agent.log").read_text()

    def has_key(self):
        return (self.home / "instance.key").exists()

    def says(self, words):
        return lambda: words in self.log()


class UserData(unittest.TestCase):
    plays = "hetzner"

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.program = self.folder / "muster"
        shutil.copy(os.environ["MUSTER_BIN"], self.program)
        self.fake, self.port = free_port(), free_port()
        self.start([os.environ["FAKE_CLOUD_BIN"], "--plays", self.plays, "--port", str(self.fake), "--token",
                    CREDENTIAL])
        wait(lambda: get(self.fake, "/fake/state"), "the fake answers")

    def start(self, argv, **more):
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log, **more)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start_controller(self, more="", model=MODEL, digest=None, count=1):
        digest = digest or hashlib.sha256(self.program.read_bytes()).hexdigest()
        credential = self.folder / "credential"
        credential.write_text(CREDENTIAL)
        credential.chmod(0o600)
        config = self.folder / "muster.yaml"
        config.write_text(f"""
controller: {{ state: {self.folder}/state, tick: 100ms{more} }}
clouds:
  - name: eu
    kind: hetzner
    endpoint: http://127.0.0.1:{self.fake}/v1
    credentials_file: {credential}
    image: debian-12
    muster_url: https://example.org/muster
    muster_sha256: {digest}
    poll: 300ms
    calls_per_s: 50
    offers: [ {{ name: small, type: cx22 }} ]
services:
  - name: chat
    model: {pathlib.Path(model).resolve()}
    scale: static
    count: {count}
    pools: [ {{ name: only, provider: eu, offers: [small], min: {count}, max: {count} }} ]
""")
        return self.start([str(self.program), "controller", "--config", str(config), "--listen",
                           f"127.0.0.1:{self.port}"])

    def machines(self):
        return (get(self.fake, "/fake/machines") or {}).get("machines", [])

    def first_user_data(self):
        wait(self.machines, "a machine is made")
        return self.machines()[0]["user_data"]

    def joins(self, result):
        text = get(self.port, "/metrics", lambda r: r.read().decode()) or ""
        found = re.search(rf'muster_controller_joins_total{{result="{result}"}} (\d+)', text)
        return int(found.group(1)) if found else None

    def events(self, what):
        events = (get(self.port, "/api/v1/events") or {}).get("events", [])
        return [e for e in events if e["what"] == what]

    def wait_ready(self, machine):
        ready = lambda: any(i.get("phase") == "ready"
                            for i in (get(self.port, "/api/v1/instances") or {}).get("instances", []))
        try:
            wait(ready, "the instance is ready")
        except AssertionError:
            print(machine.log()[-2000:], (self.folder / "log").read_text()[-2000:])
            raise

    def wait_replaced(self):
        """The contested machine is removed, and another one is there."""
        wait(lambda: [m["there"] for m in self.machines()][:2] == [False, True], "the instance is replaced")
        self.assertEqual(len(self.events("token_stolen")), 1)

    def test_a_machine_becomes_an_instance_and_its_token_is_worth_nothing(self):
        self.start_controller()
        user_data = self.first_user_data()
        machine = Machine(self, "machine", user_data)
        self.assertEqual(machine.done.returncode, 0, machine.done.stderr)
        self.wait_ready(machine)
        for name in ("launch.json", "instance.key"):
            self.assertEqual(stat.S_IMODE((machine.home / name).stat().st_mode), 0o600, name)
        for name in ("join.token", "join.seed"):
            self.assertFalse((machine.home / name).exists(), name)
        self.check_phases(machine)
        self.check_secrets(user_data, machine)
        thief = Machine(self, "thief", user_data)
        wait(thief.says("another agent has joined with this token"), "the thief is refused")
        self.assertFalse(thief.has_key())
        self.wait_replaced()
        self.assertEqual((self.joins("first"), self.joins("taken")), (1, 1))

    def check_phases(self, machine):
        """This machine ran before, so its launch has no boot; the other phases are told, learned and shown."""
        lead = lambda: get(self.port, "/api/v1/instances")["instances"][0].get("lead", {})
        wait(lambda: sorted(lead()) == ["load", "pull", "schedule", "warm"], "the phases of the launch are known")
        offer = get(self.port, "/api/v1/offers")["offers"][0]
        self.assertEqual(offer["lead"], lead())
        self.assertFalse((machine.home / "begun").exists())
        shown = self.muster("describe", "instance", self.instance_of(machine.script.read_text()))
        for words in ("to schedule", "to pull", "to load", "to warm"):
            self.assertIn(words, shown)
        self.assertIn("TO LOAD", self.muster("get", "instances", "-o", "wide"))

    def muster(self, *words):
        done = subprocess.run([self.program, *words, "--controller", f"127.0.0.1:{self.port}"], capture_output=True,
                              text=True, check=True)
        return done.stdout

    def check_secrets(self, user_data, machine):
        """Greps all that the fleet's processes have written and show for each secret, in each form it has."""
        key = (machine.home / "instance.key").read_text()
        token = next(p for p in self.parts(user_data) if b"muster-join-token" in p)
        secrets = {
            "the provider's credential": CREDENTIAL.encode(),
            "the fleet's secret": (self.folder / "state/secret").read_bytes().strip(),
            "the instance's key": re.search(r"^key +(\S+)", key, re.M).group(1).encode(),
            "the token": re.search(rb"^token +(\S+)", token, re.M).group(1),
            "user data": base64.b64encode(token)[:64],
        }
        forms = [(name, form) for name, s in secrets.items() for form in
                 ([s, bytes.fromhex(s.decode())] if re.fullmatch(rb"[0-9a-f]{64}", s) else [s])]
        allowed = {"credential", "state/secret", "machine/user-data", "machine/var/lib/muster/instance.key"}
        for path in self.folder.rglob("*"):
            if path.is_symlink() or not path.is_file() or str(path.relative_to(self.folder)) in allowed:
                continue
            text = path.read_bytes()
            for name, form in forms:
                self.assertFalse(form in text, f"{path} has {name}")
        processes = self.processes()
        if os.geteuid() == 0:
            self.assertGreaterEqual(len(processes), 3, "controller, agent, engine")
        for pid in processes:
            place = pathlib.Path(f"/proc/{pid}")
            for part in ("cmdline", "environ"):
                try:
                    text = (place / part).read_bytes()
                except PermissionError:  # not dumpable: nobody but root reads it
                    continue
                for name, form in forms:
                    self.assertFalse(form in text, f"{part} of {(place / 'cmdline').read_bytes()} has {name}")
            self.assertRegex((place / "limits").read_text(), r"Max core file size +0 ")

    def processes(self):
        """Those that run our copy of muster, on either side."""
        found = []
        for place in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                program = os.readlink(place / "exe")
            except OSError:
                continue
            if program.startswith(f"{self.folder}/"):
                found.append(place.name)
        return found

    def test_a_thief_that_comes_first_is_found_out(self):
        self.start_controller(model="/nowhere.gguf")
        user_data = self.first_user_data()
        thief = Machine(self, "thief", user_data)
        wait(thief.has_key, "the thief has joined")
        machine = Machine(self, "machine", user_data)
        wait(machine.says("another agent has joined with this token"), "the machine is refused")
        self.assertFalse(machine.has_key())
        self.wait_replaced()
        again = Machine(self, "again", user_data)
        wait(again.says("the instance takes no agent"), "the token is worth nothing afterwards either")

    def test_a_thief_is_only_told_of_where_people_want_that(self):
        self.start_controller(", join_twice: report", model="/nowhere.gguf")
        user_data = self.first_user_data()
        wait(Machine(self, "machine", user_data).has_key, "the machine has joined")
        wait(Machine(self, "thief", user_data).says("another agent has joined"), "the thief is refused")
        self.assertEqual(len(self.events("token_stolen")), 1)
        self.assertEqual([m["there"] for m in self.machines()], [True])

    def test_a_token_expires(self):
        self.start_controller(", join_within: 1ms", model="/nowhere.gguf")
        machine = Machine(self, "machine", self.first_user_data())
        wait(machine.says("the token has expired"), "the machine is refused")
        self.assertFalse(machine.has_key())
        self.assertEqual((self.joins("late"), self.joins("first")), (1, 0))
        self.assertEqual(self.events("token_stolen"), [])

    def test_a_token_is_of_one_instance(self):
        """A changed name makes it nobody's: the thief wants to be another instance, which is there."""
        self.start_controller(model="/nowhere.gguf", count=2)
        wait(lambda: len(self.machines()) == 2, "two machines are made")
        user_data, other = (m["user_data"] for m in self.machines())
        name, others = self.instance_of(user_data), self.instance_of(other)
        for part in self.parts(user_data):
            changed = base64.b64encode(part.replace(name.encode(), others.encode())).decode()
            user_data = user_data.replace(base64.b64encode(part).decode(), changed)
        thief = Machine(self, "thief", user_data)
        wait(thief.says("status=403"), "the thief is not heard")
        wait(lambda: self.joins("foreign"), "the controller counts it")
        self.assertFalse(thief.has_key())
        self.assertEqual(self.joins("first"), 0)

    @staticmethod
    def parts(user_data):
        """What user data has in base64: the launch document, the token, the CAs."""
        return [base64.b64decode(p) for p in re.findall(r"^echo '([^']+)' \| base64 -d", user_data, re.M)]

    def instance_of(self, user_data):
        return json.loads(self.parts(user_data)[0])["instance"]

    def test_a_controller_that_dies_before_it_replies_lets_the_same_agent_in(self):
        controller = self.start_controller(", crash_at: join.recorded", model="/nowhere.gguf")
        user_data = self.first_user_data()
        machine = Machine(self, "machine", user_data)
        controller.wait(LIMIT_S)
        self.assertEqual(controller.returncode, -signal.SIGKILL)
        self.assertFalse(machine.has_key())
        self.start_controller(model="/nowhere.gguf")
        wait(machine.has_key, "the next controller lets it in")
        self.assertEqual((self.joins("again"), self.joins("first")), (1, 0))
        thief = Machine(self, "thief", user_data)
        wait(thief.says("another agent has joined with this token"), "what the first controller knew is kept")

    def certificate(self, name, signer=None):
        """Makes NAME.pem and NAME.key in the folder: of 127.0.0.1, by a CA of the folder, or a CA."""
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        if signer:
            made += ["-CA", f"{signer}.pem", "-CAkey", f"{signer}.key", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run(made, cwd=self.folder, check=True, capture_output=True)

    @unittest.skipUnless(shutil.which("openssl"), "openssl is not installed")
    def test_a_machine_knows_the_controller_by_the_ca_in_its_user_data(self):
        self.certificate("ca")
        self.certificate("stranger")
        self.certificate("controller", "ca")
        tls = "".join(f", tls_{what}: {self.folder}/{file}" for what, file in
                      (("certificate", "controller.pem"), ("key", "controller.key"), ("ca", "ca.pem")))
        self.start_controller(tls, model="/nowhere.gguf")
        user_data = self.first_user_data()
        ca, other = ((self.folder / f"{name}.pem").read_bytes() for name in ("ca", "stranger"))
        self.assertEqual(self.parts(user_data)[2], ca)
        deceived = user_data.replace(base64.b64encode(ca).decode(), base64.b64encode(other).decode())
        wait(Machine(self, "deceived", deceived).says("join_not_heard"), "a machine with another CA hears no controller")
        machine = Machine(self, "machine", user_data)
        wait(machine.has_key, "the machine has joined")
        self.assertIn("certificate", (self.folder / "deceived/agent.log").read_text())

    def instances(self):
        return (get(self.port, "/api/v1/instances") or {}).get("instances", [])

    def test_user_data_that_is_too_long_is_told_before_it_is_needed(self):
        (self.folder / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n" + "x" * 12000)
        config = self.folder / "muster.yaml"
        config.write_text(f"""
controller: {{ tls_ca: {self.folder}/ca.pem }}
clouds:
  - {{ name: east, kind: ec2, region: us-east-1, image: ami-1, offers: [ {{ name: small, type: m5.large }} ] }}
services:
  - {{ name: chat, model: /nowhere.gguf, pools: [ {{ name: only, provider: east, offers: [small] }} ] }}
""")
        done = subprocess.run([self.program, "config", "check", config], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout + done.stderr, r"chat: pool only: user data of \d+ bytes, and ec2 takes 16384")

    def test_another_program_is_not_run(self):
        self.start_controller(digest="00" * 32)
        machine = Machine(self, "machine", self.first_user_data())
        self.assertNotEqual(machine.done.returncode, 0)
        self.assertFalse((machine.root / "usr/local/bin/muster").exists())
        self.assertFalse((machine.root / "agent.pid").exists())


class Stopped(UserData):
    """Machines that are stopped in place of removed, and started again, at the fake of EC2."""

    plays = "ec2"

    def config(self, keep, model=MODEL):
        config = self.folder / "muster.yaml"
        config.write_text(f"""
controller: {{ state: {self.folder}/state, tick: 100ms, drain: 20s }}
clouds:
  - name: aws
    kind: ec2
    region: eu-central-1
    endpoint: http://127.0.0.1:{self.fake}
    image: ami-0123456789abcdef0
    muster_url: https://example.org/muster
    muster_sha256: {hashlib.sha256(self.program.read_bytes()).hexdigest()}
    poll: 300ms
    calls_per_s: 50
    offers: [ {{ name: small, type: t3.large, price_per_hour: 0.1, disk_price_per_hour: 0.01 }} ]
services:
  - name: chat
    model: {pathlib.Path(model).resolve()}
    scale: static
    count: 1
    stabilisation: 1s
    pools: [ {{ name: only, provider: aws, offers: [small], max: 2, keep_stopped: {keep} }} ]
""")
        return config

    def start_at_ec2(self):
        environment = dict(os.environ, AWS_ACCESS_KEY_ID="AKIAFAKEFAKEFAKEFAKE", AWS_SECRET_ACCESS_KEY=CREDENTIAL)
        self.start([str(self.program), "controller", "--config", str(self.config(1)), "--listen",
                    f"127.0.0.1:{self.port}"], env=environment)

    def scale(self, count):
        self.muster("scale", "chat/only", str(count), "--state", str(self.folder / "state"))

    def phases(self):
        return [p.get("phase") for p in self.instances()]

    def stopped(self):
        return [m.get("stopped") for m in self.machines() if m["there"]]

    def test_a_drained_machine_is_stopped_and_serves_again(self):
        self.start_at_ec2()
        machine = Machine(self, "machine", self.first_user_data())
        self.assertEqual(machine.done.returncode, 0, machine.done.stderr)
        self.wait_ready(machine)
        name = self.instances()[0]["instance"]
        for _ in range(2):
            self.scale(0)
            wait(lambda: self.phases() == ["stopped"], "the instance is stopped")
            self.assertEqual(self.stopped(), [True])
            wait(lambda: not machine.runs(), "its agent has ended")
            self.assertAlmostEqual(get(self.port, "/api/v1/instances")["instances"][0]["price_per_h"], 0.01)
            self.assertEqual(get(self.port, "/api/v1/offers")["offers"][0]["stopped"], 1)
            self.scale(1)
            wait(lambda: self.stopped() == [False], "the machine is started")
            again = machine.boot()  # a script of Google's runs at each boot: it must leave the machine as it is
            self.assertEqual(again.returncode, 0, again.stderr)
            machine.start_unit()
            self.wait_ready(machine)
            self.assertEqual([p["instance"] for p in self.instances()], [name])
        self.assertEqual(len(self.machines()), 1, "no other machine was ever made")
        self.assertGreater(get(self.port, "/api/v1/offers")["offers"][0]["restart_s"], 0)
        self.assertEqual((self.joins("first"), self.joins("taken")), (1, 0))


for name in [n for n in dir(Stopped) if n.startswith("test_") and n not in vars(Stopped)]:
    setattr(Stopped, name, None)  # those are of machines that end


if __name__ == "__main__":
    unittest.main()
