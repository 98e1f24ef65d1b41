#!/bin/sh
# headers.sh ROOT [CC] - every header compiles alone: it includes what it needs and nothing is
# expected to stand before it. Files of headers.txt are templates, not headers.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/files.sh"
cd "$1"
cc=${2:-cc}
bad=0
# Through a one-line file: the compiler warns on #pragma once in what it is given itself.
# -Wno-psabi: vectors of an instruction set that is not enabled here cross no call in a header.
for header in $(sources . '*.h'); do
    grep -q "^$header\( \|$\)" "$here/headers.txt" && continue
    printf '#include "%s"\n' "$header" |
        "$cc" -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-psabi -I. -fsyntax-only -xc - || {
        echo "$header: does not compile alone"
        bad=1
    }
done
exit $bad
