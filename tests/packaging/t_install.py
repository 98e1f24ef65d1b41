"""t_install.py - tests `cmake --install`: what is where, what the files say, and that the binary finds its data."""
import os
import shutil
import signal
import sys

import rig

FILES = """
bin/muster
etc/muster/muster.yaml
lib/systemd/system/muster-agent@.service
lib/systemd/system/muster-controller.service
lib/systemd/system/muster-engine@.service
lib/systemd/system/muster-router.service
lib/sysusers.d/muster.conf
share/bash-completion/completions/muster
share/doc/muster/CHANGELOG.md
share/doc/muster/LICENSE
share/doc/muster/README.md
share/doc/muster/docs/configuration.md
share/doc/muster/docs/systems/routing.md
share/doc/muster/models/README.md
share/fish/vendor_completions.d/muster.fish
share/man/man1/muster.1
share/man/man1/muster-plan-layers.1
share/man/man5/muster.yaml.5
share/muster/models/muster-tiny-q8_0.gguf
share/muster/models/specs/llama-3-8b.spec
share/muster/muster.yaml
share/muster/prices/offers-2026-11.txt
share/muster/traces/mooncake-conversation-4min.jsonl
share/zsh/site-functions/_muster
""".split()


def texts(root):
    """(path, text) of all files that are text."""
    for place, _, names in os.walk(root):
        for name in names:
            path = os.path.join(place, name)
            if not path.endswith((".gguf", ".gz", "bin/muster")):
                yield path, rig.read(path)


def test_a_prefix_holds_everything():
    with rig.folder() as prefix:
        rig.installed(prefix, destdir=False)
        for name in FILES:
            path = os.path.join(prefix, name)
            assert os.path.isfile(path), name
            assert os.stat(path).st_mode & 0o777 == (0o755 if name.startswith("bin/") else 0o644), name
        binary = os.path.join(prefix, "bin/muster")
        assert rig.run(binary, "--version").stdout.startswith("muster ")
        config = os.path.join(prefix, "etc/muster/muster.yaml")
        rig.run(binary, "config", "check", config)
        view = rig.run(binary, "config", "view", config).stdout
        for line in (f"{prefix}/share/muster/models/muster-tiny-q8_0.gguf", "state: /var/lib/muster",
                     "controller: 127.0.0.1:8090", "secret_file: /var/lib/muster/secret"):
            assert line in view, line
        for unit in ("muster-controller.service", "muster-router.service", "muster-engine@.service"):
            text = rig.read(prefix, "lib/systemd/system", unit)
            assert f"ExecStart={binary} " in text and f"--config {prefix}/etc/muster/" in text, unit
        for path, text in texts(prefix):
            assert rig.BUILD not in text, f"{path} names the build folder"
            assert "@bindir@" not in text and "@statedir@" not in text and "@hardening@" not in text, path


def test_destdir_is_in_no_file():
    with rig.folder() as root:
        rig.installed(root)
        assert os.path.isfile(os.path.join(root, "etc/muster/muster.yaml")), "/usr has its configuration in /etc"
        assert os.path.isfile(os.path.join(root, "usr/bin/muster"))
        assert sorted(os.listdir(root)) == ["etc", "usr"]
        for path, text in texts(root):
            assert root not in text, path
        assert "ExecStart=/usr/bin/muster" in rig.read(root, "usr/lib/systemd/system/muster-router.service")
        assert "model: /usr/share/muster/models/" in rig.read(root, "etc/muster/muster.yaml")


def test_the_binary_finds_its_data_from_anywhere():
    with rig.folder() as prefix, rig.folder() as elsewhere:
        rig.installed(prefix, destdir=False)
        moved = os.path.join(elsewhere, "moved")
        shutil.copytree(prefix, moved)  # the data is found beside the binary, wherever that is
        work = os.path.join(elsewhere, "work")
        os.mkdir(work)
        for root in (prefix, moved):
            binary = os.path.join(root, "bin/muster")
            for trace in ("mooncake-conversation-4min.jsonl", "traces/mooncake-conversation-4min.jsonl"):
                out = rig.run(binary, "simulate", "--trace", trace, "--requests", "20", "--fleet", "2xa100",
                              "--seed", "1", cwd=work).stdout
                assert "20 offered, 20 completed" in out, out
            asked = rig.run(binary, "run", os.path.join(root, "share/muster/models/muster-tiny-q8_0.gguf"), "Hello",
                            cwd=work)
            assert "generated" in asked.stdout + asked.stderr
        nothing = rig.run(binary, "simulate", "--trace", "no-such-trace", "--fleet", "2xa100", cwd=work, status=None)
        assert nothing.returncode != 0 and "no-such-trace" in nothing.stderr, nothing.stderr


def test_the_demo_runs_from_an_empty_folder():
    with rig.folder() as prefix, rig.folder() as work:
        rig.installed(prefix, destdir=False)
        log = os.path.join(work, "demo.log")
        with rig.process(os.path.join(prefix, "bin/muster"), "demo", cwd=work, log=log) as demo:
            # Configuration and trace are read before this line; the fleet itself is tested by ./demo.
            rig.wait_for("the demo begins", lambda: "measuring the engine" in rig.read(log) or demo.poll() is not None)
            assert demo.poll() is None, rig.read(log)
            rig.stop(demo, signal.SIGINT)


def test_manual_pages_are_found_there():
    rig.need("man")
    with rig.folder() as prefix:
        rig.installed(prefix, destdir=False)
        pages = os.path.join(prefix, "share/man")
        for name, section in (("muster", "1"), ("muster-simulate", "1"), ("muster.yaml", "5")):
            found = rig.run("man", "-M", pages, "-w", section, name).stdout.strip()
            assert found == os.path.join(pages, f"man{section}", f"{name}.{section}"), found


def test_installing_twice_gives_the_same():
    with rig.folder() as one, rig.folder() as two:
        for root in (one, two):
            rig.installed(root)
        rig.run("diff", "-r", one, two)


if __name__ == "__main__":
    rig.main(sys.modules[__name__])
