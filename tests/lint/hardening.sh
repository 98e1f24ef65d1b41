#!/bin/sh
# hardening.sh CC MUSTER COMMANDS - checks that the binary has the protections that the build asks for.
#
# The ELF file shows the linker's flags; calls of checked functions, the stack guard and the command line of
# every source show the compiler's. A program that is built without them must fail the check, or this test
# could not fail.
set -eu
cc=$1 muster=$2 commands=$3
command -v readelf >/dev/null 2>&1 || { echo "skipped: readelf is not installed (package binutils)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# faults FILE: prints a line for each protection that FILE lacks.
faults() {
    readelf -Wh "$1" | grep -q 'Type: *DYN' || echo "not position independent"
    readelf -Wd "$1" >"$work/dynamic"
    readelf -Wl "$1" >"$work/segments"
    readelf -W --dyn-syms "$1" >"$work/symbols"
    grep -q 'BIND_NOW\|Flags:.*NOW' "$work/dynamic" || echo "symbols are bound lazily"
    grep -q 'TEXTREL' "$work/dynamic" && echo "code is relocated at run time"
    grep -q 'RPATH\|RUNPATH' "$work/dynamic" && echo "libraries come from a path in the binary"
    grep -q 'GNU_RELRO' "$work/segments" || echo "relocations stay writable"
    grep 'GNU_STACK' "$work/segments" | grep -q 'RW ' || echo "no stack segment, or an executable one"
    grep -q 'LOAD.* RWE ' "$work/segments" && echo "memory that is writable and executable"
    grep -q '__stack_chk_fail' "$work/symbols" || echo "no stack guard"
    grep -q '_chk@' "$work/symbols" || echo "no checked library calls"
    return 0
}

faults "$muster" >"$work/found"

# The command line of every source has the compiler's flags.
grep '"command":' "$commands" >"$work/lines"
[ "$(wc -l <"$work/lines")" -gt 300 ] || echo "$commands names too few sources" >>"$work/found"
want="-fstack-protector-strong -D_FORTIFY_SOURCE=[23] -fstack-clash-protection"
if "$cc" -Werror -ftrivial-auto-var-init=zero -x c -c /dev/null -o "$work/null.o" 2>/dev/null; then
    want="$want -ftrivial-auto-var-init=zero"
fi
case $("$cc" -dumpfullversion 2>/dev/null || echo 0) in
1[2-9].* | [2-9][0-9].*) want=$(echo "$want" | sed 's/\[23\]/3/') ;;
esac
for flag in $want; do
    grep -qv -e " $flag " "$work/lines" && echo "a source is compiled without $flag" >>"$work/found"
done

# The check must find a program that is built without protections.
printf '#include <string.h>\nint main(int c, char **v) { char b[9]; strcpy(b, v[0]); return b[c]; }\n' \
    >"$work/weak.c"
"$cc" -w -O2 -U_FORTIFY_SOURCE -fno-stack-protector -no-pie -Wl,-z,lazy,-z,norelro,-z,execstack \
    "$work/weak.c" -o "$work/weak" 2>/dev/null
[ "$(faults "$work/weak" | wc -l)" -ge 6 ] || {
    echo "a program without protections passes:" >>"$work/found"
    faults "$work/weak" >>"$work/found"
}

[ -s "$work/found" ] || exit 0
cat "$work/found"
exit 1
