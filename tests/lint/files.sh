# files.sh - sourced by the lints: `sources ROOT NAME-PATTERN ...` lists the tree's own files that
# match, relative to ROOT, in name order. Build folders and caches are not the tree's, nor is what a
# fleet that was started here leaves behind.
sources() {
    sources_root=$1
    shift
    for sources_pattern in "$@"; do
        (cd "$sources_root" && find . \( -name .git -o -name .cache -o -path './build*' -o -path './muster-state*' \) -prune \
            -o -type f -name "$sources_pattern" -print)
    done | sed 's|^\./||' | LC_ALL=C sort
}
