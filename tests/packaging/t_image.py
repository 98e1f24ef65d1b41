"""t_image.py - tests the container image that packaging/image writes of what the build folder holds."""
import atexit
import functools
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import rig

EPOCH = "1700000000"
USER = 65532
WRITER = os.path.join(rig.SOURCE, "packaging/image/image.py")


def write(stage, output, *more, status=0):
    return rig.run(sys.executable, WRITER, "--stage", stage, "--output", output, "--tag", "muster:test", "--version",
                   "0.1.0", "--epoch", EPOCH, *more, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"), status=status)


@functools.lru_cache(maxsize=None)
def shared():
    """The image that all tests look at: (archive, folder of the installation); the program's end removes it."""
    rig.need("dpkg", "ldd")
    place = tempfile.mkdtemp(prefix="muster-packaging-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    stage, output = os.path.join(place, "stage"), os.path.join(place, "muster.tar")
    rig.installed(stage)
    write(stage, output)
    return output, stage


def blobs(archive):
    """{name: bytes} of an archive."""
    with tarfile.open(archive) as tar:
        return {item.name: tar.extractfile(item).read() for item in tar if item.isfile()}


def manifest_of(files):
    index = json.loads(files["index.json"])
    assert len(index["manifests"]) == 1
    entry = index["manifests"][0]
    return entry, json.loads(files["blobs/" + entry["digest"].replace(":", "/")])


def members(files, manifest):
    """{path: (TarInfo, bytes)} of all layers, as a runtime stacks them."""
    found = {}
    for layer in manifest["layers"]:
        data = gzip.decompress(files["blobs/" + layer["digest"].replace(":", "/")])
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for item in tar:
                found[item.name] = (item, tar.extractfile(item).read() if item.isfile() else b"")
    return found


def test_equal_inputs_give_one_digest():
    one, stage = shared()
    with rig.folder() as place:
        # Another folder, another order of creation, other times and modes of the files.
        moved, two = os.path.join(place, "another/folder"), os.path.join(place, "two.tar")
        for folder, _, names in os.walk(stage, topdown=False):
            for name in sorted(names, reverse=True):
                source = os.path.join(folder, name)
                target = os.path.join(moved, os.path.relpath(source, stage))
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy(source, target)
                os.utime(target, (1, 1))
        write(moved, two, "--tag", "registry.example/other:name")
        assert rig.read(one + ".digest") == rig.read(two + ".digest"), "the name in a registry is not in the image"
        assert rig.read(one + ".spdx.json") == rig.read(two + ".spdx.json")
        write(moved, two)
        with open(one, "rb") as first, open(two, "rb") as second:
            assert first.read() == second.read()
        with open(os.path.join(moved, "etc/muster/muster.yaml"), "a", encoding="ascii") as file:
            file.write("# changed\n")
        write(moved, two)
        assert rig.read(one + ".digest") != rig.read(two + ".digest"), "another content, another digest"


def test_the_layout_is_whole():
    archive, _ = shared()
    files = blobs(archive)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    for name, data in files.items():
        if name.startswith("blobs/"):
            assert name == "blobs/sha256/" + hashlib.sha256(data).hexdigest(), name
    entry, manifest = manifest_of(files)
    assert entry["digest"] == rig.read(archive + ".digest").strip()
    assert entry["annotations"]["io.containerd.image.name"] == "docker.io/library/muster:test"
    for item in [entry, manifest["config"]] + manifest["layers"]:
        assert item["size"] == len(files["blobs/" + item["digest"].replace(":", "/")]), item
    config = json.loads(files["blobs/" + manifest["config"]["digest"].replace(":", "/")])
    for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        plain = gzip.decompress(files["blobs/" + layer["digest"].replace(":", "/")])
        assert diff_id == "sha256:" + hashlib.sha256(plain).hexdigest()
    assert config["config"]["User"] == f"{USER}:{USER}"
    assert config["config"]["Entrypoint"] == ["/usr/bin/muster"]
    labels = config["config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == "0.1.0"
    assert labels["org.opencontainers.image.created"] == "2023-11-14T22:13:20Z" == config["created"]
    docker = json.loads(files["manifest.json"])[0]
    assert docker["RepoTags"] == ["muster:test"] and all(name in files for name in docker["Layers"])


def test_nothing_runs_in_it_but_muster():
    archive, _ = shared()
    files = blobs(archive)
    _, manifest = manifest_of(files)
    assert len(manifest["layers"]) == 3, "libraries, program, model"
    found = members(files, manifest)
    programs = [name for name, (item, _) in found.items()
                if item.isfile() and item.mode & 0o111 and not re.search(r"\.so(\.|$)", name)]
    assert programs == ["usr/bin/muster"], programs
    for name in found:
        assert not re.search(r"(^|/)(sh|bash|dash|busybox|apt|dpkg)$", name), name
        assert not name.startswith(("usr/share/man", "usr/lib/systemd", "usr/share/bash-completion")), name
    for name, (item, _) in found.items():
        owned = name == "var/lib/muster"
        assert (item.uid, item.gid) == ((USER, USER) if owned else (0, 0)), name
        assert not item.mode & 0o6000, name
        assert item.isdir() or not item.mode & 0o022 or item.issym(), name
        assert item.mtime == int(EPOCH) and item.uname == item.gname == "", name
    assert found["tmp"][0].mode == 0o1777
    assert f"muster:x:{USER}:{USER}:".encode() in found["etc/passwd"][1]
    bundle = found["etc/ssl/certs/ca-certificates.crt"][1]
    assert bundle.count(b"BEGIN CERTIFICATE") > 50
    local = "/usr/local/share/ca-certificates"
    for name in os.listdir(local) if os.path.isdir(local) else ():
        if name.endswith(".crt"):
            assert rig.read(local, name).split("\n")[1].encode() not in bundle, "a CA of this machine is in it"


def test_the_model_is_a_layer_that_can_be_left_out():
    archive, stage = shared()
    small = archive + ".small"
    write(stage, small, "--no-model")
    _, whole = manifest_of(blobs(archive))
    files = blobs(small)
    _, less = manifest_of(files)
    assert less["layers"][0] == whole["layers"][0] and len(less["layers"]) == 2
    assert not any(name.endswith(".gguf") for name in members(files, less))


def test_wrong_calls_say_why():
    with rig.folder() as place:
        assert "is missing" in write(place, os.path.join(place, "x"), status=1).stderr
        stage = os.path.join(place, "stage")
        os.makedirs(os.path.join(stage, "usr/bin"))
        shutil.copy("/bin/true", os.path.join(stage, "usr/bin/muster"))
        assert write(stage, os.path.join(place, "no/such/folder/x"), status=1).stderr
        strange = os.path.join(place, "libstrange.so")
        source = os.path.join(place, "a.c")
        if shutil.which("cc"):
            with open(source, "w", encoding="ascii") as file:
                file.write("int strange(void);\nint strange(void) { return 0; }\n#ifdef MAIN\n"
                           "int main(void) { return strange(); }\n#endif\n")
            rig.run("cc", "-shared", "-fPIC", "-o", strange, source)
            rig.run("cc", "-DMAIN", "-Wl,-rpath," + place, "-Wl,--no-as-needed", "-o",
                    os.path.join(stage, "usr/bin/muster"), source, strange)
            assert "is from no Debian package" in write(stage, os.path.join(place, "x"), status=1).stderr


# ---- SBOM ----

def test_the_sbom_names_every_file_and_library():
    archive, _ = shared()
    document = json.loads(rig.read(archive + ".spdx.json"))
    files = blobs(archive)
    _, manifest = manifest_of(files)
    found = members(files, manifest)
    assert found["usr/share/doc/muster/sbom.spdx.json"][1].decode() == rig.read(archive + ".spdx.json")
    listed = {entry["fileName"][2:]: {c["algorithm"]: c["checksumValue"] for c in entry["checksums"]}
              for entry in document["files"]}
    in_image = {name for name, (item, _) in found.items() if item.isfile()}
    assert set(listed) == in_image - {"usr/share/doc/muster/sbom.spdx.json"}, set(listed) ^ in_image
    for name, codes in listed.items():
        assert codes["SHA256"] == hashlib.sha256(found[name][1]).hexdigest(), name
        assert codes["SHA1"] == hashlib.sha1(found[name][1], usedforsecurity=False).hexdigest(), name
    packages = {entry["SPDXID"]: entry for entry in document["packages"]}
    file_of = {entry["SPDXID"]: entry["fileName"][2:] for entry in document["files"]}
    holders = {}
    for entry in packages.values():
        for name in entry.get("hasFiles", []):
            assert file_of[name] not in holders, "a file is in two packages"
            holders[file_of[name]] = entry
    linked = set()
    for name in in_image:
        if re.search(r"\.so(\.|$)", name):
            assert holders[name]["versionInfo"] == version_of(holders[name]["name"]), name
            linked.add(holders[name]["SPDXID"])
    assert len(linked) > 5 and {"muster", "libc6", "ca-certificates"} <= {e["name"] for e in packages.values()}
    said = {r["relatedSpdxElement"] for r in document["relationships"] if r["relationshipType"] == "DYNAMIC_LINK"}
    assert said == linked, said ^ linked


@functools.lru_cache(maxsize=None)
def version_of(package):
    return rig.run("dpkg-query", "-W", "-f=${Version}\\n", package).stdout.splitlines()[0]


def test_the_sbom_keeps_the_rules_of_spdx():
    archive, _ = shared()
    document = json.loads(rig.read(archive + ".spdx.json"))
    assert document["spdxVersion"] == "SPDX-2.3" and document["dataLicense"] == "CC0-1.0"
    elements = [entry["SPDXID"] for entry in document["packages"] + document["files"]] + [document["SPDXID"]]
    assert len(elements) == len(set(elements)), "an id is used twice"
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name) for name in elements)
    assert re.fullmatch(r"https://\S+", document["documentNamespace"]) and "#" not in document["documentNamespace"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["creationInfo"]["created"])
    texts = {info["licenseId"] for info in document["hasExtractedLicensingInfos"]}
    assert all(info["extractedText"].strip() for info in document["hasExtractedLicensingInfos"])
    for relation in document["relationships"]:
        assert relation["spdxElementId"] in elements and relation["relatedSpdxElement"] in elements, relation
    sha1 = {entry["SPDXID"]: entry["checksums"][0]["checksumValue"] for entry in document["files"]}
    for package in document["packages"]:
        for name in re.findall(r"LicenseRef-[A-Za-z0-9.-]+", package["licenseDeclared"]):
            assert name in texts, (package["name"], name)
        assert package["filesAnalyzed"] == bool(package.get("hasFiles"))
        if package["filesAnalyzed"]:
            code = hashlib.sha1("".join(sorted(sha1[name] for name in package["hasFiles"])).encode(),
                                usedforsecurity=False).hexdigest()
            assert package["packageVerificationCode"]["packageVerificationCodeValue"] == code, package["name"]


def spdx_python():
    """An interpreter that has the package spdx-tools: this one, or that of the peers' folder."""
    for python in (sys.executable, os.path.join(rig.SOURCE, "build-peers/bin/python3"), shutil.which("python3")):
        if python and os.path.exists(python):
            if rig.run(python, "-c", "import spdx_tools", status=None).returncode == 0:
                return python
    raise rig.Skip("the Python package spdx-tools is not installed")


def test_the_sbom_is_valid_for_spdx_tools():
    python = spdx_python()
    archive, _ = shared()
    check = [python, "-c", "import sys; from spdx_tools.spdx.clitools.pyspdxtools import main; main()", "-i"]
    done = rig.run(*check, archive + ".spdx.json", status=None)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = json.loads(rig.read(archive + ".spdx.json"))
    del wrong["packages"][1]["downloadLocation"]
    with open(archive + ".wrong.spdx.json", "w", encoding="ascii") as file:
        json.dump(wrong, file)
    assert rig.run(*check, archive + ".wrong.spdx.json", status=None).returncode != 0


# ---- running it ----

def unpack(archive, root):
    files = blobs(archive)
    _, manifest = manifest_of(files)
    for layer in manifest["layers"]:
        data = gzip.decompress(files["blobs/" + layer["digest"].replace(":", "/")])
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            tar.extractall(root)
    for name in ("proc", "dev", "sys"):
        os.makedirs(os.path.join(root, name), exist_ok=True)


def test_it_runs_in_a_chroot_without_root():
    rig.need("unshare")
    archive, _ = shared()
    with rig.folder() as root:
        unpack(archive, root)
        os.chmod(root, 0o755)
        inside = ["unshare", "--user", f"--map-user={USER}", f"--map-group={USER}", f"--root={root}"]
        if subprocess.run(inside + ["/usr/bin/muster", "--version"], capture_output=True, check=False).returncode:
            if os.geteuid() != 0:
                raise rig.Skip("this machine gives no user namespaces and we are not root")
            inside = ["chroot", f"--userspec={USER}:{USER}", root]  # a machine without user namespaces
        environment = {"PATH": os.environ["PATH"]}
        out = rig.run(*inside, "/usr/bin/muster", "--version", env=environment).stdout
        assert out.startswith("muster "), out
        rig.run(*inside, "/usr/bin/muster", "config", "check", "/etc/muster/muster.yaml", env=environment)
        out = rig.run(*inside, "/usr/bin/muster", "simulate", "--trace",
                      "/usr/share/muster/traces/mooncake-conversation-4min.jsonl", "--requests", "20", "--fleet",
                      "2xa100", env=environment).stdout
        assert "20 offered, 20 completed" in out, out
        shell = subprocess.run(inside + ["/bin/sh", "-c", "true"], capture_output=True, check=False)
        assert shell.returncode != 0, "there is a shell"


def test_it_runs_in_a_container_that_is_read_only():
    rig.need("runc")
    if os.geteuid() != 0:
        raise rig.Skip("runc is tried as root only")
    archive, _ = shared()
    with rig.folder() as bundle:
        root = os.path.join(bundle, "rootfs")
        unpack(archive, root)
        files = blobs(archive)
        _, manifest = manifest_of(files)
        asked = json.loads(files["blobs/" + manifest["config"]["digest"].replace(":", "/")])["config"]
        rig.run("runc", "spec", cwd=bundle)
        config = json.loads(rig.read(bundle, "config.json"))
        config["root"]["readonly"] = True
        config["process"].update(
            terminal=False, noNewPrivileges=True, cwd=asked["WorkingDir"], env=asked["Env"], capabilities={},
            user={"uid": USER, "gid": USER},
            args=asked["Entrypoint"] + ["run", "/usr/share/muster/models/muster-tiny-q8_0.gguf", "Hello there"])
        config["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs",
                                 "options": ["nosuid", "nodev", "mode=1777"]})
        with open(os.path.join(bundle, "config.json"), "w", encoding="ascii") as file:
            json.dump(config, file)
        name = os.path.basename(bundle)
        try:
            done = rig.run("runc", "--root", bundle + "/state", "run", "-b", bundle, name, stdin=subprocess.DEVNULL,
                           status=None)
        finally:
            rig.run("runc", "--root", bundle + "/state", "delete", "-f", name, status=None)
        text = done.stdout + done.stderr
        if "muster" not in text and "tokens" not in text:
            raise rig.Skip(f"runc cannot start a container here: {text.strip()[-200:]}")
        assert done.returncode == 0 and "generated" in text, text


def test_skopeo_reads_it():
    rig.need("skopeo")
    archive, _ = shared()
    found = json.loads(rig.run("skopeo", "inspect", "oci-archive:" + archive).stdout)
    assert found["Digest"] == rig.read(archive + ".digest").strip()
    assert len(found["Layers"]) == 3


if __name__ == "__main__":
    rig.main(sys.modules[__name__])
