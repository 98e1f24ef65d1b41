#!/usr/bin/env bash
# image.sh - build Muster's container image without a container daemon, reproducibly.
#
#     scripts/image.sh [--output FILE | --root FOLDER] [--tag NAME] [--no-model] [--build FOLDER]
#
#     --output FILE    OCI archive to write (default: build-image/muster.tar); beside it FILE.spdx.json, the SBOM,
#                      and FILE.digest
#     --root FOLDER    write the root file system there instead of an archive (the Dockerfile does)
#     --tag NAME       name of the image (default: muster:VERSION)
#     --no-model       leave the tiny model out; it is the last layer otherwise
#     --build FOLDER   where it is built (default: build-image)
#     --help           this text
#
# It wants Debian or Ubuntu, whose libraries go into the image. Two builds of one commit on machines with the same
# packages give the same digest, wherever the tree lies. Then, for example:
#
#     ctr -n k8s.io images import build-image/muster.tar
#     podman load -i build-image/muster.tar
#     skopeo copy oci-archive:build-image/muster.tar docker://REGISTRY/muster:VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$(pwd -P)
. scripts/packages.sh

build=build-image output='' rootfs='' tag='' model=()
while [ $# -gt 0 ]; do
    case $1 in
    --output) output=${2:?"--output wants a file"} && shift 2 ;;
    --root) rootfs=${2:?"--root wants a folder"} && shift 2 ;;
    --tag) tag=${2:?"--tag wants a name"} && shift 2 ;;
    --build) build=${2:?"--build wants a folder"} && shift 2 ;;
    --no-model) model=(--no-model) && shift ;;
    --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" && exit 0 ;;
    *) echo "image.sh: no option '$1'; see --help" >&2 && exit 2 ;;
    esac
done
# shellcheck disable=SC2086
need_packages $BUILD_PACKAGES python3 ca-certificates

. scripts/source_date.sh
version=$(sed -n 's/^project(muster VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
revision=$(git rev-parse HEAD 2>/dev/null || true)
if [ -n "$revision" ] && [ -n "$(git status --porcelain 2>/dev/null)" ]; then
    revision=$revision-dirty
fi
mkdir -p "$build"
build=$(cd "$build" && pwd -P)
cmake --preset release -B "$build" -DCMAKE_INSTALL_PREFIX=/usr -DMUSTER_TESTS=OFF -DMUSTER_WERROR=OFF \
    -DCMAKE_C_FLAGS="$(prefix_maps "$root" "$build")" >"$build/configure.log" ||
    { cat "$build/configure.log" >&2 && exit 1; }
cmake --build "$build"
rm -rf "$build/stage"
DESTDIR=$build/stage cmake --install "$build" --strip >"$build/install.log"
to=(--output "${output:-$build/muster.tar}")
if [ -n "$rootfs" ]; then
    to=(--root "$rootfs")
fi
PYTHONDONTWRITEBYTECODE=1 python3 packaging/image/image.py --stage "$build/stage" "${to[@]}" \
    --tag "${tag:-muster:$version}" --version "$version" --revision "$revision" "${model[@]}"
