"""t_deb.py - tests the Debian package: what it holds, what it depends on, what its scripts do, what lintian says."""
import atexit
import functools
import glob
import gzip
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile

import rig


@functools.lru_cache(maxsize=None)
def package():
    """Packs what the build folder holds, once; returns the path of the .deb. The program's end removes it."""
    rig.need("cpack", "dpkg-deb", "dpkg-shlibdeps", "gzip")
    place = tempfile.mkdtemp(prefix="muster-packaging-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    rig.run("cpack", "-G", "DEB", "-B", place, cwd=rig.BUILD)
    found = glob.glob(os.path.join(place, "*.deb"))
    assert len(found) == 1, found
    return found[0]


def unpacked(path, place):
    root, control = os.path.join(place, "root"), os.path.join(place, "control")
    rig.run("dpkg-deb", "-x", path, root)
    rig.run("dpkg-deb", "-e", path, control)
    return root, control


def fields(control):
    return dict(re.findall(r"^([A-Z][A-Za-z-]*): (.*)$", rig.read(control, "control"), re.M))


def test_contents():
    path = package()
    with rig.folder() as place:
        root, control = unpacked(path, place)
        for name in """etc/muster/muster.yaml usr/bin/muster usr/lib/systemd/system/muster-controller.service
                usr/lib/systemd/system/muster-agent@.service usr/lib/sysusers.d/muster.conf
                usr/share/man/man1/muster.1.gz usr/share/man/man5/muster.yaml.5.gz usr/share/doc/muster/copyright
                usr/share/doc/muster/changelog.Debian.gz usr/share/doc/muster/docs/configuration.md
                usr/share/bash-completion/completions/muster usr/share/zsh/vendor-completions/_muster
                usr/share/fish/vendor_completions.d/muster.fish usr/share/muster/models/muster-tiny-q8_0.gguf""".split():
            assert os.path.isfile(os.path.join(root, name)), name
        assert rig.read(control, "conffiles").split() == ["/etc/muster/muster.yaml"]
        for line in rig.read(control, "md5sums").splitlines():
            code, name = line.split("  ", 1)
            with open(os.path.join(root, name), "rb") as file:
                assert hashlib.md5(file.read(), usedforsecurity=False).hexdigest() == code, name
        owners = rig.run("dpkg-deb", "-c", path).stdout.splitlines()
        assert owners and all(line.split()[1] == "root/root" for line in owners)
        for place_, _, names in os.walk(root):
            for name in names:
                mode = stat.S_IMODE(os.lstat(os.path.join(place_, name)).st_mode)
                assert mode == (0o755 if name == "muster" and place_.endswith("bin") else 0o644), (name, oct(mode))
        with gzip.open(os.path.join(root, "usr/share/man/man1/muster-up.1.gz"), "rt") as page:
            assert "start a fleet" in page.read()


def test_dependencies_are_those_of_the_binary():
    path = package()
    with rig.folder() as place:
        root, control = unpacked(path, place)
        found = fields(control)
        wanted = {"passwd"}
        for line in rig.run("readelf", "-d", os.path.join(root, "usr/bin/muster")).stdout.splitlines():
            match = re.search(r"NEEDED.*\[(.+)\]", line)
            if match:
                library = rig.run("sh", "-c", f"ldconfig -p | sed -n 's/.*{re.escape(match.group(1))} .*=> //p'",
                                  env=dict(os.environ, PATH=os.environ["PATH"] + ":/sbin:/usr/sbin")).stdout.split()[0]
                owner = rig.run("sh", "-c", f"dpkg -S {library} 2>/dev/null || dpkg -S /usr{library} || "
                                            f"dpkg -S {os.path.realpath(library)}").stdout
                wanted.add(owner.split(":")[0])
        depends = {item.split()[0] for item in found["Depends"].split(", ")}
        assert depends == wanted, depends ^ wanted
        version = re.search(r"^project\(muster VERSION (\S+)", rig.read(rig.SOURCE, "CMakeLists.txt"), re.M).group(1)
        assert found["Package"] == "muster" and found["Version"].startswith(version + "-"), found


def test_the_binary_runs_from_the_package():
    path = package()
    with rig.folder() as place:
        root, _ = unpacked(path, place)
        binary = os.path.join(root, "usr/bin/muster")
        assert rig.run(binary, "--version").stdout.startswith("muster ")
        out = rig.run(binary, "simulate", "--trace", "mooncake-conversation-4min.jsonl", "--requests", "20", "--fleet",
                      "2xa100", cwd=place).stdout
        assert "20 offered, 20 completed" in out, out


# ---- maintainer scripts ----

def scripted(control, script, words, known=(), tools=()):
    """Runs a script with every program that it may call replaced by one that writes its name; returns the calls."""
    with rig.folder() as place:
        log = os.path.join(place, "calls")
        programs = {name: f'#!/bin/sh\necho "{name} $*" >>{log}\n' for name in tools}
        programs["getent"] = "#!/bin/sh\n" + "".join(f'[ "$2" = {name} ] && exit 0\n' for name in known) + "exit 2\n"
        programs["rm"] = f'#!/bin/sh\necho "rm $*" >>{log}\n'
        for name, text in programs.items():
            with open(os.path.join(place, name), "w", encoding="ascii") as file:
                file.write(text)
            os.chmod(os.path.join(place, name), 0o755)
        rig.run("/bin/sh", os.path.join(control, script), *words, env={"PATH": place})
        return rig.read(log).splitlines() if os.path.exists(log) else []


def test_scripts_make_the_user_only_where_there_is_none():
    path = package()
    with rig.folder() as place:
        _, control = unpacked(path, place)
        for script in ("postinst", "prerm", "postrm"):
            rig.run("/bin/sh", "-n", os.path.join(control, script))
            assert os.stat(os.path.join(control, script)).st_mode & 0o777 == 0o755
        both = ("systemd-sysusers", "useradd")
        assert scripted(control, "postinst", ["configure", ""], tools=both) == ["systemd-sysusers muster.conf"]
        made = scripted(control, "postinst", ["configure", ""], tools=("useradd",))
        assert len(made) == 1 and made[0].startswith("useradd --system") and made[0].endswith(" muster"), made
        assert not scripted(control, "postinst", ["configure", "0.1"], known=("muster",), tools=both)
        assert not scripted(control, "postinst", ["abort-upgrade"], tools=both)
        assert not scripted(control, "postrm", ["remove"])
        assert scripted(control, "postrm", ["purge"]) == ["rm -rf /var/lib/muster"]


# ---- lintian ----

def test_lintian_says_only_what_the_readme_explains():
    rig.need("lintian")
    explained = set(re.findall(r"^\| `([a-z0-9-]+)` \| lintian", rig.read(rig.SOURCE, "packaging/README.md"), re.M))
    words = ["lintian", "--no-cfg", package()]
    if os.geteuid() == 0:
        words.insert(1, "--allow-root")
    out = rig.run(*words, status=None).stdout
    tags = set(re.findall(r"^[EW]: muster: (\S+)", out, re.M))
    assert tags <= explained, out
    assert explained <= tags, f"explained in vain: {explained - tags}"


if __name__ == "__main__":
    rig.main(sys.modules[__name__])
