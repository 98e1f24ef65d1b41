#!/bin/sh
# sizes.sh ROOT - checks that a .c file has at most 1,500 lines, a header 200 and a function 80, a folder 60 .c
# files, and that no header is *_part.h: a noun that was cut is one noun still.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/files.sh"
cd "$1"
bad=$(
    sources . '*_part.h' | sed 's/$/: put it where the rest of its noun is/'
    sources . '*.c' | sed 's|[^/]*$||' | LC_ALL=C sort | uniq -c |
        awk '$1 > 60 { print $2 ": " $1 " .c files, the limit of a folder is 60: give them rooms" }'
)
sources . '*.c' '*.h' | xargs awk -f "$here/sizes.awk" "$here/headers.txt" "$here/sizes.txt" || exit 1
[ -z "$bad" ] && exit 0
echo "$bad"
exit 1
