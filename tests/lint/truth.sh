#!/bin/sh
# truth.sh ROOT - checks that only the files of truth.txt, which make a simulated world, name the true length
# of an output.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/files.sh"
cd "$1"
found=$(sed 's/#.*//' "$here/truth.txt" | while read -r folder word allowed; do
    [ -n "$folder" ] && [ -d "$folder" ] || continue
    sources "$folder" '*.c' '*.h' | while read -r file; do
        file=$folder/$file
        for pattern in $allowed; do
            # shellcheck disable=SC2254
            case $file in $pattern) continue 2 ;; esac
        done
        grep -Hnw -- "$word" "$file" || true
    done
done)
[ -z "$found" ] && exit 0
echo "These know what only the world may know:"
echo "$found"
exit 1
