#!/usr/bin/env python3
"""Writes a container image with one layer, as an archive that `ctr images import` and `docker load` take.

    image.py OUT.tar NAME:TAG FOLDER ENTRYPOINT [ARGUMENT...]

The folder's files become the image's root. Owner, times and order are fixed, so equal files give equal bytes.
"""
import hashlib
import io
import json
import os
import sys
import tarfile

EPOCH = "1970-01-01T00:00:00Z"


def plain(member):
    """Takes from a tar member what differs between machines."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def layer_of(folder):
    """Returns the folder's files as an uncompressed tar, in name order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for base, folders, files in os.walk(folder):
            folders.sort()
            for entry in sorted(folders + files):
                path = os.path.join(base, entry)
                tar.add(path, arcname=os.path.relpath(path, folder), recursive=False, filter=plain)
    return out.getvalue()


def write_image(out, name, layer, command):
    """Writes the archive: configuration, layer, and the manifest that names both."""
    config = json.dumps(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
            "os": "linux",
            "created": EPOCH,
            "config": {"Entrypoint": command, "Env": ["PATH=/usr/bin:/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
            "history": [{"created": EPOCH}],
        },
        sort_keys=True,
    ).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        for member, content in ((config_name, config), ("layer.tar", layer), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def main():
    if len(sys.argv) < 5 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if len(sys.argv) == 2 else 2
    out, name, folder, *command = sys.argv[1:]
    if ":" not in name.rpartition("/")[2]:
        print(f"image.py: {name} has no tag; write {name}:1, say", file=sys.stderr)
        return 2
    if not os.path.isdir(folder):
        print(f"image.py: there is no folder {folder}", file=sys.stderr)
        return 2
    write_image(out, name, layer_of(folder), command)
    return 0


sys.exit(main())
