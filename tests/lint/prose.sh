#!/bin/sh
# prose.sh ROOT - checks that no comment of the product begins with What, Whether, Who, Whom or Whose: its first
# words are a verb or the noun itself.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/files.sh"
cd "$1"
bad=$(sources . '*.c' '*.h' | grep -v '^tests/' | xargs grep -nE '^ *(/\*|//) *(What|Whether|Who|Whom|Whose)( |$)' /dev/null || true)
[ -z "$bad" ] && exit 0
echo "A comment begins with a verb or a noun, not with What, Whether or Who:"
echo "$bad"
exit 1
