"""t_peers.py - tests that the machines of a fleet give each other their model, under a real controller: machines are
network namespaces with folders of their own (hypervisor.py), which boot from their very user data.

    MUSTER_BIN=build/muster FAKE_CLOUD_BIN=build/tests/fakes/cloud/fake_cloud_server python3 tests/proc/cloud/t_peers.py

The first machine has the model from its source. Each later one, behind NAT too, has all of it from those that have it,
in chunks, and the source is asked nothing more. When the only machine that has it lies behind NAT, nobody can ask that
one, and the source is asked at once. Needs root; exits 77 without it.
"""

import hashlib
import http.server
import os
import pathlib
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hypervisor  # noqa: E402
from hypervisor import CORE  # noqa: E402
from t_two_clouds import CLOUDS, MODEL, SKIPPED, Fleet  # noqa: E402

CHUNK = 8 << 20
FOLDER = "/var/lib/muster/models"  # of each machine

CONFIG = """
controller: {{ listen: 0.0.0.0:{controller}, agents_reach: {core}:{controller}, state: {folder}/state, tick: 250ms, drain: 5s,
              require_keys: false }}
router: {{ listen: 0.0.0.0:{router}, agents_reach: {core}:{router}, controller: {core}:{controller}, secret_file: {folder}/state/secret }}
models:
  folder: {models}
  list: [ {{ name: shared, url: "http://{core}:{files}/model.gguf", sha256: {model} }} ]
services:
  - name: chat
    model: shared
    scale: static
    engine_flags: ["--threads", "1", "--cpu-share", "0.2"]
    pools:
      - {{ name: eu, provider: eu, offers: [small], max: 4 }}
      - {{ name: us, provider: us, offers: [steady], max: 4, tunnel: true }}
""" + CLOUDS


class Source(http.server.BaseHTTPRequestHandler):
    """Gives muster and the model, whole or in a part, and notes who asked for the model."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        data = self.server.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        if self.path == "/model.gguf":
            self.server.asked.append(self.client_address[0])
        first, last = 0, len(data) - 1
        wanted = self.headers.get("Range", "")
        if wanted.startswith("bytes="):
            begin, end = wanted[6:].split("-")
            first, last = int(begin), min(int(end or last), last)
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", '"one"')
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        self.wfile.write(data[first:last + 1])

    def log_message(self, *_):
        pass


class Giving(Fleet):
    """The providers' fakes, the controller, and a source that has a model of several chunks."""

    def start(self):
        self.spawn_providers(boot_ms=500)
        model = self.h.folder / "model.gguf"
        self.run("model", "quantize", str(MODEL), str(model), "--type", "f32", "--requantize")
        self.model = model.read_bytes()
        assert len(self.model) > 2 * CHUNK, "a model of one chunk shows little"
        model.unlink()
        muster = pathlib.Path(self.muster).read_bytes()
        self.source = http.server.ThreadingHTTPServer((CORE, self.port["files"]), Source)
        self.source.files, self.source.asked = {"/muster": muster, "/model.gguf": self.model}, []
        self.source.handle_error = lambda *_: None  # agents leave when they know enough
        threading.Thread(target=self.source.serve_forever, daemon=True).start()
        self.config.write_text(CONFIG.format(
            core=CORE, folder=self.h.folder, models=FOLDER, digest=hashlib.sha256(muster).hexdigest(),
            model=hashlib.sha256(self.model).hexdigest(), perf="", **self.port))
        self.spawn_roles()

    def scale(self, pool, count):
        """Returns the weights of the instances that serve then, by their names."""
        self.run("scale", f"chat/{pool}", str(count), *self.access())
        self.wait(lambda: len(self.ready(pool)) == count, f"{count} instances of {pool} serve")
        self.h.say(f"{count} instances of {pool} serve; the source was asked {len(self.source.asked)} times")
        return {i["instance"]: i["weights"] for i in self.ready(pool)}


def pull_log(machine):
    """What the machine's pull of the model said."""
    return "\n".join(p.read_text(errors="replace") for p in machine.folder.rglob("weights.log"))


def story(fleet, eu, us):
    def expect(so, what):
        if not so:
            raise AssertionError(what)

    size = len(fleet.model)
    first = fleet.scale("eu", 1)
    (name,) = first
    expect(first[name]["seed_bytes"] == 0 and first[name]["bytes"] == size, f"the first has it from its source: {first}")
    asked = len(fleet.source.asked)
    expect(asked > 0, "the source was asked")

    both = fleet.scale("eu", 2)
    (second,) = set(both) - set(first)
    expect(both[second]["seed_bytes"] == size, f"the second has all of it from the first: {both[second]}")
    expect(len(fleet.source.asked) == asked, f"the source was asked by {fleet.source.asked[asked:]}")
    lies = {m.name: (m.folder / "lib/muster/models").rglob("*.gguf") for m in eu.running()}
    for machine, files in lies.items():
        (file,) = files
        expect(file.read_bytes() == fleet.model, f"{machine} has another file")

    (behind,) = fleet.scale("us", 1).values()
    expect(behind["seed_bytes"] == size, f"the one behind NAT has it from the others: {behind}")
    expect(len(fleet.source.asked) == asked, f"the source was asked by {fleet.source.asked[asked:]}")

    fleet.scale("eu", 0)
    fleet.wait(lambda: not eu.running(), "the others are gone")
    (last,) = fleet.scale("eu", 1).values()
    expect(last["seed_bytes"] == 0 and len(fleet.source.asked) > asked, f"the source is asked again: {last}")
    said = pull_log(eu.running()[0])
    expect("tunnel:" not in said and "no seal" not in said, f"it was sent to the one that nobody can ask:\n{said}")
    expect(len(us.running()) == 1, "the one behind NAT serves on")


def main():
    why = hypervisor.may_run()
    if why:
        print(f"skipped: {why}")
        return SKIPPED
    with hypervisor.Hypervisor() as h:
        fleet = Giving(h)
        try:
            fleet.start()
            eu = h.site("eu", fleet.port["eu"], private=False, ends_what_is_off=False)
            us = h.site("us", fleet.port["us"], private=True, ends_what_is_off=True)
            h.watch()
            story(fleet, eu, us)
        except BaseException:
            for path in h.folder.glob("*.log"):
                print(f"---- {path.name}\n{path.read_text(errors='replace')[-3000:]}")
            for site in h.sites:
                for machine in site.seen.values():
                    print(f"---- {machine.name}\n{machine.log()[-2500:]}\n{pull_log(machine)[-2500:]}")
            raise
        finally:
            fleet.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
