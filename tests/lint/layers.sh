#!/bin/sh
# layers.sh ROOT - checks that every #include keeps to the table of layers.txt.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/files.sh"
cd "$1"
sources . '*.c' '*.h' | xargs awk -f "$here/layers.awk" "$here/layers.txt"
