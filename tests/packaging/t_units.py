"""t_units.py - tests the systemd units: systemd's own checks, the figures in packaging/README.md, system calls."""
import contextlib
import os
import re
import signal
import sys

import rig

UNITS = ("muster-controller.service", "muster-router.service", "muster-agent@.service", "muster-engine@.service")


@contextlib.contextmanager
def units():
    """Installs into a prefix of its own, where ExecStart exists; gives the folder of the units."""
    with rig.folder() as prefix:
        rig.installed(prefix, destdir=False)
        yield os.path.join(prefix, "lib/systemd/system")


def analyze(place, *words, **more):
    rig.need("systemd-analyze")
    environment = dict(os.environ, SYSTEMD_UNIT_PATH=place + ":/lib/systemd/system:/usr/lib/systemd/system",
                       LC_ALL="C.UTF-8", SYSTEMD_COLORS="0")
    return rig.run("systemd-analyze", *words, env=environment, **more)


def version():
    rig.need("systemd-analyze")
    return int(re.match(r"systemd (\d+)", rig.run("systemd-analyze", "--version").stdout).group(1))


def test_verify_is_clean():
    with units() as place:
        names = [unit.replace("@.", "@one.") for unit in UNITS]
        done = analyze(place, "verify", "--man=no", *names)
        assert done.stdout + done.stderr == "", done.stdout + done.stderr
        # A unit with a mistake must be found, or this test could not fail.
        with open(os.path.join(place, "muster-wrong.service"), "w", encoding="ascii") as file:
            file.write("[Service]\nExecStart=/no/such/muster\nTypo=yes\n")
        wrong = analyze(place, "verify", "--man=no", "muster-wrong.service", status=None)
        assert "Typo" in wrong.stderr and wrong.returncode != 0, wrong.stderr


def exposure(place, unit):
    out = analyze(place, "security", "--offline=true", "--no-pager", os.path.join(place, unit)).stdout
    return float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", out).group(1))


def test_exposure_is_what_the_readme_says():
    release = version()
    if release < 250:
        raise rig.Skip(f"systemd {release} has no offline figure")
    said = dict(re.findall(r"^\| `(muster-\S+)` \|[^|]*\| ([0-9.]+) \|", rig.read(rig.SOURCE, "packaging/README.md"),
                           re.M))
    assert set(said) == set(UNITS), said
    with units() as place:
        for unit in UNITS:
            found = exposure(place, unit)
            assert found <= 2.0, (unit, found)
            if release == 252:  # another release weighs otherwise
                assert found == float(said[unit]), (unit, found, said[unit])


def test_units_take_the_same_hardening():
    lines = [line for line in rig.read(rig.SOURCE, "packaging/systemd/hardening.conf").splitlines()
             if line and not line.startswith("#")]
    assert len(lines) > 25
    with units() as place:
        for unit in UNITS:
            text = rig.read(place, unit).splitlines()
            for line in lines:
                wanted = line.replace("@statedir@", "/var/lib/muster")
                assert text.count(wanted) == 1, (unit, wanted)
            for line in ("Type=notify", "NotifyAccess=main", "Restart=on-failure"):
                assert line in text, (unit, line)
            assert any(line.startswith("WatchdogSec=") for line in text), unit


# ---- system calls ----

def allowed_calls():
    """The calls of the units' filter, from this machine's own lists."""
    sets, name = {}, None
    for line in rig.run("systemd-analyze", "syscall-filter", "--no-pager",
                        env=dict(os.environ, SYSTEMD_COLORS="0")).stdout.splitlines():
        if line.startswith("@"):
            name = line.strip()
            sets[name] = set()
        elif name and line.startswith("    ") and not line.strip().startswith("#"):
            sets[name].add(line.strip())

    def flat(name):
        return set().union(*(flat(one) if one.startswith("@") else {one} for one in sets[name]))

    text = rig.read(rig.SOURCE, "packaging/systemd/hardening.conf")
    assert "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources\n" in text
    return flat("@system-service") - flat("@privileged") - flat("@resources")


@contextlib.contextmanager
def traced(place, name, *words):
    """Runs a role under strace and ends both: a process outlives a tracer that is killed."""
    log = os.path.join(place, name + ".log")
    with rig.process("strace", "-f", "-qq", "-o", os.path.join(place, name), rig.MUSTER, *words, cwd=place,
                     log=log) as tracer:
        first = rig.wait_for("a traced call", lambda: rig.read(place, name).split(maxsplit=1)[:1]
                             if os.path.exists(os.path.join(place, name)) else None)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(first[0]), signal.SIGTERM)
        # Children of the role that live on keep the tracer: the caller ends them.
        assert tracer.pid


def chat(at):
    return rig.get(at, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4})


def test_a_fleet_calls_only_what_the_filter_allows():
    rig.need("strace", "systemd-analyze")
    if rig.run("strace", "-o", "/dev/null", "true", status=None).returncode != 0:
        raise rig.Skip("strace may not trace here")
    allowed = allowed_calls()
    with rig.folder() as place:
        router, controller = rig.port(), rig.port()
        config = rig.read(rig.SOURCE, "muster.yaml").replace("models/", rig.SOURCE + "/models/")
        config = config.replace("127.0.0.1:8080", f"127.0.0.1:{router}")
        config = config.replace("127.0.0.1:8090", f"127.0.0.1:{controller}")
        config = config.replace("localhost:8090", f"localhost:{controller}")
        with open(os.path.join(place, "muster.yaml"), "w", encoding="utf-8") as file:
            file.write(config)
        state = os.path.join(place, "state")
        os.mkdir(state, 0o700)  # as StateDirectory= does
        common = ("--config", "muster.yaml")
        try:
            with traced(place, "controller", "controller", *common, "--state", state), \
                    traced(place, "router", "router", *common, "--controller", f"127.0.0.1:{controller}",
                           "--secret-file", state + "/secret"):
                # Agent and engine are children of the controller, so they are traced too.
                rig.wait_for("an answer", lambda: chat(router)[0] == 200)
        finally:
            rig.muster("down", "--state", state)
        for name in ("controller", "router"):
            used = set(re.findall(r"^\d+ +(?:<\.\.\. )?([a-z_0-9]+)(?:\(| resumed)", rig.read(place, name), re.M))
            assert len(used) > 25, used
            if os.geteuid() == 0:
                used.discard("fchown")  # SQLite gives its files to the folder's owner when root runs it
            assert used <= allowed, (name, used - allowed)


if __name__ == "__main__":
    rig.main(sys.modules[__name__])
