"""image.py - writes the container image of an installation: an OCI archive, its SBOM, its digest.

    python3 packaging/image/image.py --stage DIR --output FILE --tag NAME
    python3 packaging/image/image.py --stage DIR --root DIR     the root file system only, for the Dockerfile

scripts/image.sh builds and installs, then calls this. Exit status: 0 done, 1 failed, 2 called wrongly.
"""
import argparse
import datetime
import json
import os
import sys

import layout
import rootfs
import sbom

SBOM = "usr/share/doc/muster/sbom.spdx.json"
ABOUT = {
    rootfs.LIBRARIES: "libraries of Debian packages, loader, CA certificates, users",
    rootfs.PROGRAM: "muster, its configuration, its SBOM",
    rootfs.MODEL: "the tiny model",
}
CONFIG = {
    "User": f"{rootfs.USER}:{rootfs.USER}",
    "Entrypoint": ["/usr/bin/muster"],
    "Cmd": ["--help"],
    "WorkingDir": "/var/lib/muster",
    "Env": ["PATH=/usr/bin", "HOME=/var/lib/muster", f"SSL_CERT_FILE=/{rootfs.CERTIFICATES}"],
    "ExposedPorts": {"8080/tcp": {}, "8090/tcp": {}, "8100/tcp": {}, "8200/tcp": {}},
    "StopSignal": "SIGTERM",
}


def labels(arguments, created):
    prefix = "org.opencontainers.image."
    found = {
        "title": "muster", "description": "Serves language models on a fleet that grows and shrinks with its load",
        "version": arguments.version, "revision": arguments.revision, "created": created,
        "licenses": "Apache-2.0", "vendor": "Muster",
    }
    return {prefix + name: value for name, value in found.items() if value}


def write_image(arguments, tree, text, created, architecture):
    image = layout.Image(arguments.epoch, created)
    for name in rootfs.LAYERS:
        entries = tree.layer(name)
        if entries:
            image.add_layer(entries, ABOUT[name])
    found = labels(arguments, created)
    with open(arguments.output + ".part", "wb") as out:
        name = image.finish(dict(CONFIG, Labels=found), architecture, found, arguments.tag, out)
    os.replace(arguments.output + ".part", arguments.output)
    with open(arguments.output + ".spdx.json", "wb") as out:
        out.write(text)
    with open(arguments.output + ".digest", "w", encoding="ascii") as out:
        out.write(name + "\n")
    print(f"image   {arguments.output} ({os.path.getsize(arguments.output) / 1e6:.1f} MB, {len(image.layers)} layers)")
    print(f"sbom    {arguments.output}.spdx.json")
    print(f"name    {arguments.tag}")
    print(f"digest  {name}")


def parse(words):
    parser = argparse.ArgumentParser(prog="image.py", description=__doc__.splitlines()[0])
    parser.add_argument("--stage", required=True, metavar="DIR", help="what `DESTDIR=DIR cmake --install` made")
    parser.add_argument("--output", metavar="FILE", help="archive to write; FILE.spdx.json and FILE.digest beside it")
    parser.add_argument("--root", metavar="DIR", help="write the root file system there instead of an archive")
    parser.add_argument("--tag", default="muster:latest", metavar="NAME", help="name of the image")
    parser.add_argument("--version", default="0", help="version for labels and SBOM")
    parser.add_argument("--revision", default="", help="commit for the labels")
    parser.add_argument("--epoch", type=int, default=int(os.environ.get("SOURCE_DATE_EPOCH", "0")),
                        help="seconds for all times in the image; by default SOURCE_DATE_EPOCH")
    parser.add_argument("--no-model", action="store_true", help="leave the tiny model out")
    arguments = parser.parse_args(words)
    if bool(arguments.output) == bool(arguments.root):
        parser.error("want one of --output and --root")
    return arguments


def main(words):
    arguments = parse(words)
    moment = datetime.datetime.fromtimestamp(arguments.epoch, datetime.timezone.utc)
    created = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        tree, packages = rootfs.build(arguments.stage, not arguments.no_model)
        described = sbom.document(tree, packages, arguments.version, created)
        text = json.dumps(described, indent=1, sort_keys=True).encode() + b"\n"
        tree.put(rootfs.PROGRAM, SBOM, text)
        if arguments.root:
            rootfs.write(tree, arguments.root)
        else:
            architecture = rootfs.run("dpkg", "--print-architecture").strip()
            write_image(arguments, tree, text, created, architecture)
    except (rootfs.Problem, OSError) as problem:
        print(f"image.py: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
