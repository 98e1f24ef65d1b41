#!/bin/sh
# sizes.sh ROOT - checks that a .c file has at most 1,500 lines, a header 200 and a function 80.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/files.sh"
cd "$1"
sources . '*.c' '*.h' | xargs awk -f "$here/sizes.awk" "$here/headers.txt" "$here/sizes.txt"
