#!/bin/sh
# banned.sh ROOT - checks that no code calls a function that base/core/banned.h or banned.txt bans.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/files.sh"
cd "$1"
sources . '*.c' '*.h' | grep -v '^base/core/banned\.h$' | xargs awk -f "$here/strip.awk" |
    awk -f "$here/banned.awk" "$here/layers.txt" base/core/banned.h "$here/banned.txt" -
