#!/usr/bin/env python3
"""Writes helm/manifests.yaml: the chart's objects with its defaults, which `muster manifests` prints without Helm.

    helm/manifests.py            writes the file
    helm/manifests.py --check    says whether the file is what would be written

Runs helm (HELM, or helm in the path, or the one of tests/kube/fetch). Namespace, image and secret stand there as
words that the command replaces; labels name no Helm.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "manifests.yaml")
NAMESPACE, IMAGE, SECRET = "namespace-of-muster", "image-of-muster", "secret-of-muster"
HEAD = """# manifests.yaml - the objects of the chart helm/muster with its defaults, made by helm/manifests.py.
# `muster manifests` replaces namespace, image and secret. To serve something else, change muster.yaml and the Pod
# template in the first ConfigMap; for everything else there is the chart.
"""


def helm():
    cached = os.path.join(os.environ.get("MUSTER_KUBE_CACHE", os.path.expanduser("~/.cache/muster/kube")), "bin", "helm")
    return os.environ.get("HELM") or (cached if os.access(cached, os.X_OK) else "helm")


def render():
    # A version of Kubernetes that the chart takes: some builds of Helm know none.
    words = [helm(), "template", "muster", os.path.join(HERE, "muster"), "--namespace", NAMESPACE, "--skip-tests",
             "--kube-version", "1.34.0", "--set", f"image.repository={IMAGE},image.tag=x"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(done.stderr.strip())
    text = done.stdout.replace(f"{IMAGE}:x", IMAGE)
    text = re.sub(r"^ *helm\.sh/chart: .*\n", "", text, flags=re.M)
    text = re.sub(r"^# Source: .*\n", "", text, flags=re.M)
    text = text.replace("managed-by: Helm", "managed-by: muster")
    text = re.sub(r"^data:\n  secret: .*$", f"stringData:\n  secret: {SECRET}", text, flags=re.M)
    return HEAD + text


def main():
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"]):
        print(__doc__.strip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    try:
        made = render()
    except OSError as problem:
        print(f"manifests.py: {problem}", file=sys.stderr)
        return 2
    if not arguments:
        with open(OUT, "w", encoding="utf-8") as file:
            file.write(made)
        return 0
    with open(OUT, encoding="utf-8") as file:
        if file.read() == made:
            return 0
    print("helm/manifests.yaml is not what the chart renders; run helm/manifests.py")
    return 1


sys.exit(main())
