#!/bin/sh
# paths.sh ROOT - checks that no file names a folder of the machine that it was written on: the checkout,
# the folder around it, or a home.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/files.sh"
cd "$1"
root=$(pwd)
around=$(dirname "$root")
patterns=$(mktemp)
trap 'rm -f "$patterns"' EXIT
{
    echo "$root"
    # These exist on every machine and may be named.
    case $around in
        / | /tmp | /var | /var/tmp | /usr | /usr/src | /usr/local | /usr/local/src | /opt | /srv | /home | /root | /mnt) ;;
        *) echo "$around/" ;;
    esac
    for home in home Users; do echo "/$home/"; done
} | sed -e 's/[].[*^$+?(){}|\\]/\\&/g' -e 's/^/(^|[^[:alnum:]_.-])/' >"$patterns"
# A path of the tree may contain such a name further on; a path of the machine starts with it.
found=$(sources . '*' | tr '\n' '\0' | xargs -0 grep -InE -f "$patterns" -- /dev/null || true)
[ -z "$found" ] && exit 0
echo "$found"
exit 1
