#!/bin/sh
# example.sh ROOT [CC] - checks that the code of docs/policies.md compiles against the headers.
set -eu
cd "$1"
cc=${2:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v to="$work" '/^```c$/ { n++; on = 1; next } /^```/ { on = 0 } on { print >(to "/" n ".c") }' \
    docs/policies.md
count=0
for file in "$work"/*.c; do
    "$cc" -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -I. -fsyntax-only "$file"
    count=$((count + 1))
done
[ "$count" -ge 2 ] || { echo "docs/policies.md: the row and its test are missing"; exit 1; }
