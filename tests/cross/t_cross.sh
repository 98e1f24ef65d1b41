#!/bin/sh
# t_cross.sh BUILD_DIR NATIVE - builds the kernels and their tests for 64-bit ARM and runs them under qemu; compares the
# bits that NEON computes with those that AVX2 computes here, which NATIVE (kernels_bits) prints.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1 native=$2

for tool in aarch64-linux-gnu-gcc qemu-aarch64 cmake ninja; do
    command -v $tool >/dev/null || {
        echo "skipped: there is no $tool (packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user)"
        exit 77
    }
done
[ -f /usr/aarch64-linux-gnu/include/stdio.h ] || {
    echo "skipped: there are no headers for 64-bit ARM (package libc6-dev-arm64-cross)"
    exit 77
}

cmake -S "$here/target" --preset aarch64 -B "$build" >"$build.log" 2>&1 &&
    cmake --build "$build" >>"$build.log" 2>&1 || {
    cat "$build.log"
    exit 1
}
ctest --test-dir "$build" --output-on-failure

# The first line of kernels_bits says which entry is chosen.
run="qemu-aarch64 -L /usr/aarch64-linux-gnu"
$run "$build/kernels_bits" >"$build/bits"
$run -cpu cortex-a72 "$build/kernels_bits" >"$build/bits-a72"
"$native" >"$build/bits-native"
chosen() {
    [ "$(head -n 1 "$1")" = "best $2" ] || {
        echo "$1: the chosen entry is '$(head -n 1 "$1")', not $2"
        exit 1
    }
}
chosen "$build/bits" neon-dotprod
chosen "$build/bits-a72" neon # no dot products

# bits_of FILE ENTRY: its lines without the name.
bits_of() {
    sed -n "s/^$2 //p" "$1"
}
same() {
    bits_of "$1" "$2" >"$build/one"
    bits_of "$3" "$4" >"$build/other"
    [ -s "$build/one" ] && cmp -s "$build/one" "$build/other" || {
        echo "$2 ($1) and $4 ($3) differ:"
        diff "$build/one" "$build/other" | head -n 10
        exit 1
    }
}
same "$build/bits" neon "$build/bits" neon-dotprod
same "$build/bits-a72" neon "$build/bits" neon
if [ "$(uname -m)" = x86_64 ]; then same "$build/bits" ref "$build/bits-native" ref; fi
if grep -q '^avx2 ' "$build/bits-native"; then
    same "$build/bits" neon "$build/bits-native" avx2
else
    echo "not compared with AVX2, which this processor lacks"
fi
