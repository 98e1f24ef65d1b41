#!/bin/sh
# fuzz.sh - build the fuzz targets with clang, run them, keep what they found. ./check --fuzz runs it.
#
#     scripts/fuzz.sh MINUTES [TARGET...]     each target that long, AT_ONCE at a time
#     scripts/fuzz.sh 20s [TARGET...]         seconds: a glance, the corpus stays as it is
#
# The seeds are tests/fuzz/corpus/TARGET; what a run adds is kept in build-fuzz/corpus/TARGET, and
# the inputs among it that reach code no seed reaches go to tests/fuzz/corpus/TARGET, the smallest
# first, within GROWN_FILES_MAX and GROWN_BYTES_MAX. They are named by their SHA-1, seeds by words.
# An input that fails is left in build-fuzz/findings; exits 1 when there is one.
set -eu
cd "$(dirname "$0")/.."
. scripts/packages.sh

AT_ONCE=2
GROWN_FILES_MAX=32    # of one target
GROWN_BYTES_MAX=32768 # of one target
INPUT_BYTES_MAX=16384 # that a run tries; a larger seed raises it
RUN_SECONDS_MAX=20    # of one input
MEMORY_MB_MAX=2048

build=build-fuzz
findings=$build/findings

# grow TARGET: what the working corpus adds to the seeds, minimised.
grow() {
    seeds=tests/fuzz/corpus/$1 merged=$build/merged/$1
    rm -rf "$merged"
    mkdir -p "$merged"
    find "$seeds" -type f ! -name "$sha1" -exec cp {} "$merged" \;
    "$build/tests/fuzz/$1" -merge=1 -max_len=$INPUT_BYTES_MAX "$merged" "$seeds" "$build/corpus/$1" \
        >"$build/logs/$1.merge" 2>&1 || { echo "$1: the merge failed, see $build/logs/$1.merge"; return 1; }
    find "$seeds" -type f -name "$sha1" -delete
    files=0 bytes=0
    for name in $(cd "$merged" && find . -type f -name "$sha1" -printf '%s %f\n' | sort -n | cut -d' ' -f2); do
        size=$(wc -c <"$merged/$name")
        files=$((files + 1)) bytes=$((bytes + size))
        [ $files -le $GROWN_FILES_MAX ] && [ $bytes -le $GROWN_BYTES_MAX ] || break
        cp "$merged/$name" "$seeds/$name"
    done
}
sha1=$(printf '%40s' | sed 's/ /[0-9a-f]/g')

# run_one TARGET SECONDS GROW: one line, and a file in findings when it failed.
run_one() {
    log=$build/logs/$1
    mkdir -p "$build/corpus/$1" "$build/logs" "$findings"
    failed=
    # clang 14's sanitizers cannot live with all that newer kernels randomise.
    setarch -R "$build/tests/fuzz/$1" -max_total_time="$2" -timeout=$RUN_SECONDS_MAX \
        -rss_limit_mb=$MEMORY_MB_MAX -max_len=$INPUT_BYTES_MAX -print_final_stats=1 \
        -artifact_prefix="$findings/$1-" "$build/corpus/$1" "tests/fuzz/corpus/$1" \
        >"$log" 2>&1 </dev/null || failed=1
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    cover=$(sed -n 's/^#[0-9].* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    cost=$(sed -n 's/^fuzz: the dearest run took \([0-9]*\) %.*/\1/p' "$log")
    printf '%-16s %10s runs %7s/s  %6s edges  cost %3s %%%s\n' "$1" "${runs:-0}" \
        "$((${runs:-0} / $2))" "${cover:-0}" "${cost:-?}" "${failed:+   FAILED}"
    if [ -n "$failed" ]; then
        grep -aE '^(fuzz:|muster:|SUMMARY)|runtime error|error: Failure|written to' "$log" | sed 's/^/    /' | head -8
        : >"$findings/.$1"
    elif [ -n "$3" ]; then
        grow "$1" || : >"$findings/.$1"
    fi
}

if [ "${1:-}" = --one ]; then
    run_one "$4" "$2" "$3"
    exit 0
fi

case ${1:-} in
*[!0-9s]* | "" | s) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2 ;;
*s) seconds=${1%s} keep= ;;
*) seconds=$(($1 * 60)) keep=yes ;;
esac
shift
need_packages $BUILD_PACKAGES $CHECK_PACKAGES $FUZZ_PACKAGES

cmake --preset fuzz -DMUSTER_TESTS=ON >/dev/null
cmake --build $build --target fuzz_targets
[ $# -gt 0 ] || set -- $(cat $build/fuzz-targets.txt)
for target in "$@"; do
    grep -qx "$target" $build/fuzz-targets.txt || {
        echo "There is no fuzz target $target; there are:" $(cat $build/fuzz-targets.txt) >&2
        exit 2
    }
done
mkdir -p $findings
rm -f $findings/.f_*
printf '%s\n' "$@" | xargs -P $AT_ONCE -I '{}' sh "$0" --one "$seconds" "$keep" '{}'
bad=$(find $findings -name '.f_*' | wc -l)
echo "$# fuzz targets, $seconds seconds each"
echo "$(($# - bad)) passed, $bad failed"
[ "$bad" -eq 0 ]
