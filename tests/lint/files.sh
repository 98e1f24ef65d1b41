# files.sh - defines, for the lints that source it, `sources ROOT NAME-PATTERN ...`: it lists the tree's
# own files that match, relative to ROOT, in name order. Build folders, caches and the state of a fleet
# that was started here are not the tree's own.
sources() {
    sources_root=$1
    shift
    for sources_pattern in "$@"; do
        (cd "$sources_root" && find . \( -name .git -o -name .cache -o -path './build*' -o -path './muster-state*' \) -prune \
            -o -type f -name "$sources_pattern" -print)
    done | sed 's|^\./||' | LC_ALL=C sort
}
