"""rootfs.py - collects the root file system of the image from an installation and the packages of this machine.

The image holds what the binary needs to run and nothing to run besides: no shell, no package manager. Libraries are
found by ldd, so the machine that builds must be the kind of machine that runs (same architecture); the loader and
all libraries are copied from it.
"""
import dataclasses
import os
import re
import stat
import subprocess

USER = 65532  # "nonroot" in the distroless images; the name below is only for people
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"

LIBRARIES, PROGRAM, MODEL = "libraries", "program", "model"
LAYERS = (LIBRARIES, PROGRAM, MODEL)


class Problem(Exception):
    """What went wrong, in a sentence for people."""


@dataclasses.dataclass
class Entry:
    """One path of the image. `data` is a file's content, `link` a symbolic link's target; neither: a folder."""

    layer: str
    mode: int
    data: bytes = None
    link: str = None
    owner: int = 0
    package: str = None  # the Debian package that the file is from; None: Muster's own


class Tree:
    """All entries by path, without a leading slash."""

    def __init__(self):
        self.entries = {}

    def folder(self, layer, path, mode=0o755, owner=0):
        self.parents(layer, path)
        if path not in self.entries:
            self.entries[path] = Entry(layer, mode, owner=owner)

    def parents(self, layer, path):
        parent = os.path.dirname(path)
        if parent:
            self.folder(layer, parent)

    def put(self, layer, path, data, mode=0o644, package=None):
        self.parents(layer, path)
        self.entries[path] = Entry(layer, mode, data=data, package=package)

    def copy(self, layer, path, source, package=None):
        with open(source, "rb") as file:
            executable = os.fstat(file.fileno()).st_mode & stat.S_IXUSR
            self.put(layer, path, file.read(), 0o755 if executable else 0o644, package)

    def symlink(self, layer, path, target, package=None):
        self.parents(layer, path)
        self.entries[path] = Entry(layer, 0o777, link=target, package=package)

    def layer(self, name):
        return sorted((path, entry) for path, entry in self.entries.items() if entry.layer == name)

    def files(self):
        return sorted((path, entry) for path, entry in self.entries.items() if entry.data is not None)


def run(*words):
    """Runs a program and returns its output; a program that is missing or fails is a Problem."""
    try:
        done = subprocess.run(words, check=True, capture_output=True, text=True,
                              env=dict(os.environ, LC_ALL="C.UTF-8"))
    except FileNotFoundError:
        raise Problem(f"the program {words[0]} is missing; the image is built on Debian or Ubuntu") from None
    except subprocess.CalledProcessError as failed:
        raise Problem(f"{' '.join(words)}: {failed.stderr.strip()}") from None
    return done.stdout


def owners_of(paths):
    """Returns {path: Debian package that the file is from}. Merged /usr has two names for a library."""
    names = {}
    for path in paths:
        real = os.path.realpath(path)
        for name in (path, real, re.sub(r"^/usr", "", real), "/usr" + path):
            names.setdefault(name, set()).add(path)  # a link and its target share a name
    found = subprocess.run(["dpkg", "-S"] + sorted(names), capture_output=True, text=True, check=False)
    owners = {}
    for line in found.stdout.splitlines():
        package, _, name = line.rpartition(": ")
        for path in names.get(name, ()):
            owners.setdefault(path, package.split(", ")[0])
    for path in paths:
        if path not in owners:
            raise Problem(f"{path} is from no Debian package, so the SBOM cannot name it; install its package")
    return owners


def libraries_of(program):
    """Returns (path in the image, file of this machine) of the loader and every library of a program."""
    found = {}
    for line in run("ldd", program).splitlines():
        match = re.match(r"\s*(?:(\S+) => )?(/\S+) \(0x", line)
        if match:
            name = match.group(2)
            found[name] = os.path.realpath(name)
        elif "not found" in line:
            raise Problem(f"{program}: {line.strip()}")
    if not found:
        raise Problem(f"{program} has no libraries: the image wants the dynamic binary of the build")
    return sorted(found.items())


def add_libraries(tree, program):
    """Puts each library where the loader looks for it, under the name that the program asks for."""
    libraries = libraries_of(program)
    owners = owners_of([real for _, real in libraries])
    for name, real in libraries:
        tree.copy(LIBRARIES, name.lstrip("/"), real, owners[real])
        tree.entries[name.lstrip("/")].mode = 0o755
    return set(owners.values())


def add_certificates(tree):
    """Makes the bundle from the package's own files: what an administrator of this machine added stays here."""
    names = [line for line in run("dpkg", "-L", "ca-certificates").splitlines() if line.endswith(".crt")]
    if not names:
        raise Problem("the package ca-certificates holds no certificates; install it")
    bundle = b""
    for name in sorted(names):
        with open(name, "rb") as file:
            bundle += file.read().rstrip(b"\n") + b"\n"
    tree.put(LIBRARIES, CERTIFICATES, bundle, package="ca-certificates")
    # Where Debian's OpenSSL looks.
    tree.symlink(LIBRARIES, "usr/lib/ssl/cert.pem", "/" + CERTIFICATES)
    tree.symlink(LIBRARIES, "usr/lib/ssl/certs", "/etc/ssl/certs")
    return "ca-certificates"


def add_system(tree):
    """Users, name lookup, folders."""
    tree.put(LIBRARIES, "etc/passwd",
             f"root:x:0:0:root:/root:/sbin/nologin\nmuster:x:{USER}:{USER}:Muster:/var/lib/muster:/sbin/nologin\n"
             .encode())
    tree.put(LIBRARIES, "etc/group", f"root:x:0:\nmuster:x:{USER}:\n".encode())
    tree.put(LIBRARIES, "etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    tree.folder(LIBRARIES, "tmp", 0o1777)
    tree.folder(LIBRARIES, "var/lib/muster", 0o700, USER)


def add_licences(tree, packages):
    """The licences of what is passed on. A copyright file may be a link into another package."""
    for package in sorted(packages):
        name = package.split(":")[0]
        source = f"/usr/share/doc/{name}/copyright"
        if not os.path.exists(source):
            raise Problem(f"{source} is missing: this machine leaves documents of packages out; "
                          f"allow /usr/share/doc/*/copyright in /etc/dpkg/dpkg.cfg.d and reinstall {name}")
        tree.copy(LIBRARIES, source.lstrip("/"), source, package)
        tree.entries[source.lstrip("/")].mode = 0o644
    folder = "/usr/share/common-licenses"
    for path, package in sorted(owners_of([f"{folder}/{name}" for name in os.listdir(folder)]).items()):
        if os.path.islink(path):
            tree.symlink(LIBRARIES, path.lstrip("/"), os.readlink(path), package)
        else:
            tree.copy(LIBRARIES, path.lstrip("/"), path, package)


def add_program(tree, stage):
    """Takes from the installation what a container needs; manual pages and units stay behind."""
    for folder, _, names in sorted(os.walk(stage)):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), stage)
            if not path.startswith(("usr/bin/", "etc/muster/", "usr/share/muster/", "usr/share/doc/muster/LICENSE")):
                continue
            layer = MODEL if path.endswith(".gguf") else PROGRAM
            tree.copy(layer, path, os.path.join(stage, path))


def build(stage, with_model):
    """Returns the tree of the image and the Debian packages that parts of it are from."""
    program = os.path.join(stage, "usr/bin/muster")
    if not os.path.exists(program):
        raise Problem(f"{program} is missing: install with DESTDIR={stage} and the prefix /usr first")
    tree = Tree()
    add_system(tree)
    packages = add_libraries(tree, program)
    packages.add(add_certificates(tree))
    add_licences(tree, packages)
    packages |= {entry.package for entry in tree.entries.values() if entry.package}
    add_program(tree, stage)
    if not with_model:
        tree.entries = {path: entry for path, entry in tree.entries.items() if entry.layer != MODEL}
    return tree, packages


def write(tree, root, layers=LAYERS):
    """Writes the tree to a folder, as a Dockerfile copies it."""
    for path, entry in sorted(tree.entries.items()):
        if entry.layer not in layers:
            continue
        target = os.path.join(root, path)
        if entry.link is not None:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.islink(target):
                os.unlink(target)
            os.symlink(entry.link, target)
            continue
        if entry.data is None:
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(entry.data)
        os.chmod(target, entry.mode)
        if os.geteuid() == 0:
            os.chown(target, entry.owner, entry.owner)
