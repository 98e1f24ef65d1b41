#!/bin/sh
# prose.sh ROOT - checks that no comment of the product begins with What, Whether, Who, Whom or Whose: its first
# words are a verb or the noun itself; and that no comment is so long that the name or value before it goes to a
# line of its own: such a comment stands above.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/files.sh"
cd "$1"
bad=$(sources . '*.c' '*.h' | grep -v '^tests/' | xargs grep -nE '^ *(/\*|//) *(What|Whether|Who|Whom|Whose)( |$)' /dev/null || true)
parted=$(sources . '*.c' '*.h' | xargs awk '
    FNR > 1 && /^ +\**[A-Za-z_0-9]+(\[[^]]*\])*; *\/\*/ && before ~ /^ +([a-z]+ )*[A-Za-z_0-9]+( \*)?$/ ||
    FNR > 1 && /^ +[^ ].*\/\*/ && !/\\$/ && before ~ /^#define [A-Za-z_0-9]+ *\\$/ { print FILENAME ":" FNR ":" $0 }
    { before = $0 }')
[ -z "$bad$parted" ] && exit 0
[ -z "$bad" ] || echo "A comment begins with a verb or a noun, not with What, Whether or Who:"
[ -z "$bad" ] || echo "$bad"
[ -z "$parted" ] || echo "Put the comment above, so that the declaration is one line:"
[ -z "$parted" ] || echo "$parted"
exit 1
