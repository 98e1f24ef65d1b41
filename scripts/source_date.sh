# source_date.sh - what builds need to be reproducible; sourced by bash scripts in the root of the tree.
# shellcheck shell=bash
#
# Sets and exports SOURCE_DATE_EPOCH: the time of the last commit, unless it is set already; without git the newest
# entry of the tree's root. `prefix_maps ROOT BUILD` prints the compiler's flags that keep both paths out of the binary.

if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
fi
export SOURCE_DATE_EPOCH

prefix_maps() {
    # The last one that matches counts, and the build folder may lie in the tree.
    echo "-ffile-prefix-map=$1=. -ffile-prefix-map=$2=build"
}
