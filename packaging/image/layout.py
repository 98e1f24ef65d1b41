"""layout.py - writes a tree as an OCI image layout in one tar archive, the same bytes for the same tree.

containerd, podman and skopeo read the layout; `docker load` reads it too, older ones by the manifest.json beside it.
Compression is done here because gzip's header depends on the library's version; zlib's stream does not in practice.
"""
import hashlib
import io
import json
import struct
import tarfile
import zlib

OCI = "application/vnd.oci.image"
COMPRESSION = 6  # 9 takes four times as long for a hundredth
GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"  # deflate, no name, no time, best, no system


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def gzip(data):
    packer = zlib.compressobj(COMPRESSION, zlib.DEFLATED, -15)
    body = packer.compress(data) + packer.flush()
    return GZIP_HEADER + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def add(tar, name, epoch, data=None, mode=0o644, kind=tarfile.REGTYPE, link="", owner=0):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname = kind, mode, link
    info.uid = info.gid = owner
    info.mtime = epoch
    info.size = len(data) if data is not None else 0
    tar.addfile(info, io.BytesIO(data) if data is not None else None)


def layer_tar(entries, epoch):
    """Returns the tar of one layer; `entries` are sorted, so a folder comes before what is in it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, entry in entries:
            if entry.link is not None:
                add(tar, path, epoch, kind=tarfile.SYMTYPE, link=entry.link, mode=entry.mode, owner=entry.owner)
            elif entry.data is None:
                add(tar, path + "/", epoch, kind=tarfile.DIRTYPE, mode=entry.mode, owner=entry.owner)
            else:
                add(tar, path, epoch, entry.data, entry.mode, owner=entry.owner)
    return out.getvalue()


def full_name(tag):
    """Returns the name as containerd and Kubernetes complete it: muster:1 is docker.io/library/muster:1."""
    first = tag.split("/")[0]
    if "/" not in tag:
        return "docker.io/library/" + tag
    return tag if "." in first or ":" in first or first == "localhost" else "docker.io/" + tag


class Image:
    """Collects blobs, then writes the archive."""

    def __init__(self, epoch, created):
        self.epoch, self.created = epoch, created
        self.blobs = {}
        self.layers, self.diff_ids, self.history = [], [], []

    def blob(self, data, media_type):
        name = digest(data)
        self.blobs[name] = data
        return {"mediaType": media_type, "digest": name, "size": len(data)}

    def add_layer(self, entries, about):
        tar = layer_tar(entries, self.epoch)
        self.diff_ids.append(digest(tar))
        self.layers.append(self.blob(gzip(tar), OCI + ".layer.v1.tar+gzip"))
        self.history.append({"created": self.created, "created_by": about})

    def finish(self, config, architecture, annotations, tag, out):
        """Writes the archive to the file `out`; returns the manifest's digest, which names the image."""
        config = self.blob(canonical({
            "created": self.created, "architecture": architecture, "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": self.diff_ids}, "history": self.history,
        }), OCI + ".config.v1+json")
        manifest = self.blob(canonical({
            "schemaVersion": 2, "mediaType": OCI + ".manifest.v1+json", "config": config, "layers": self.layers,
            "annotations": annotations,
        }), OCI + ".manifest.v1+json")
        manifest["platform"] = {"architecture": architecture, "os": "linux"}
        manifest["annotations"] = {
            "io.containerd.image.name": full_name(tag),
            "org.opencontainers.image.created": self.created,
            "org.opencontainers.image.ref.name": tag,
        }
        blob_path = lambda item: "blobs/" + item["digest"].replace(":", "/")
        files = {blob_path({"digest": name}): data for name, data in self.blobs.items()}
        files["oci-layout"] = canonical({"imageLayoutVersion": "1.0.0"})
        files["index.json"] = canonical({
            "schemaVersion": 2, "mediaType": OCI + ".index.v1+json", "manifests": [manifest],
        })
        files["manifest.json"] = canonical([{
            "Config": blob_path(config), "RepoTags": [tag], "Layers": [blob_path(layer) for layer in self.layers],
        }])
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for folder in ("blobs/", "blobs/sha256/"):
                add(tar, folder, self.epoch, kind=tarfile.DIRTYPE, mode=0o755)
            for name in sorted(files):
                add(tar, name, self.epoch, files[name])
        return manifest["digest"]
