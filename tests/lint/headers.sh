#!/bin/sh
# headers.sh ROOT [CC] - checks that every header compiles alone, because it includes what it needs. Files of
# headers.txt are templates, not headers.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/files.sh"
cd "$1"
cc=${2:-cc}
bad=0
# A one-line file includes the header, because the compiler warns of #pragma once in its main file.
# -Wno-psabi: no call in a header passes vectors of an instruction set that is not enabled here.
for header in $(sources . '*.h'); do
    grep -q "^$header\( \|$\)" "$here/headers.txt" && continue
    printf '#include "%s"\n' "$header" |
        "$cc" -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-psabi -I. -fsyntax-only -xc - || {
        echo "$header: does not compile alone"
        bad=1
    }
done
exit $bad
