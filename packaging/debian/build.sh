#!/usr/bin/env bash
# build.sh - build the Debian package muster_VERSION_ARCH.deb without the tests.
#
#     packaging/debian/build.sh [--output FOLDER] [--build FOLDER]
#
#     --output FOLDER   where the package goes (default: the build folder)
#     --build FOLDER    where it is built (default: build-deb)
#     --help            this text
#
# Two builds of one commit give equal packages: times come from the commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
. scripts/packages.sh

build=build-deb output=
while [ $# -gt 0 ]; do
    case $1 in
    --output) output=${2:?"--output wants a folder"} && shift 2 ;;
    --build) build=${2:?"--build wants a folder"} && shift 2 ;;
    --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" && exit 0 ;;
    *) echo "build.sh: no option '$1'; see --help" >&2 && exit 2 ;;
    esac
done
# shellcheck disable=SC2086
need_packages $BUILD_PACKAGES dpkg-dev

. scripts/source_date.sh
mkdir -p "$build" # an absolute path without links, as the compiler records it
build=$(cd "$build" && pwd -P)
cmake --preset release -B "$build" -DCMAKE_INSTALL_PREFIX=/usr -DMUSTER_TESTS=OFF \
    -DMUSTER_WERROR=OFF -DCMAKE_C_FLAGS="$(prefix_maps "$root" "$build")" >"$build/configure.log" 2>&1 ||
    { cat "$build/configure.log" >&2 && exit 1; }
cmake --build "$build"
(cd "$build" && rm -f ./*.deb && cpack -G DEB >cpack.log 2>&1) || { cat "$build/cpack.log" >&2 && exit 1; }
package=$(ls "$build"/*.deb)
if [ -n "$output" ]; then
    mkdir -p "$output"
    mv "$package" "$output"
    package=$output/${package##*/}
fi
echo "$package"
