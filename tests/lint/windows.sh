#!/bin/sh
# windows.sh ROOT - checks that no window, period or bound is defined beside those of fleet/ (windows.txt).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/files.sh"
cd "$1"
found=$(sed 's/#.*//' "$here/windows.txt" | while read -r folder pattern names; do
    [ -n "$folder" ] && [ -d "$folder" ] || continue
    sources "$folder" '*.c' '*.h' | while read -r file; do
        sed -nE 's/^[[:space:]]*#[[:space:]]*define[[:space:]]+([A-Z0-9_]+)([[:space:]].*)?$/\1/p' \
            "$folder/$file" | grep -xE -- "$pattern" | while read -r name; do
            case " $names " in *" $name "*) continue ;; esac
            echo "$folder/$file: $name"
        done
    done
done)
[ -z "$found" ] && exit 0
echo "Windows, periods and bounds belong in fleet/ (tests/lint/windows.txt says why):"
echo "$found"
exit 1
