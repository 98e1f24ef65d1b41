#!/bin/sh
# docs.sh ROOT MUSTER - checks that the documents name only what exists.
#
# The generated pages are what the binary prints; docs/systems.md names every policy that `muster policies`
# lists; cells of tables stay short; links, files, tests and benches that documents name exist; the commands
# that they show have these options, and a shell can parse them.
set -eu
. "$(cd "$(dirname "$0")" && pwd)/files.sh"
cd "$1"
muster=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=$work/bad
: >"$bad"
pages="README.md CONTRIBUTING.md $(echo docs/*.md docs/*/*.md)"
readmes=$(sources . README.md)

for page in configuration metrics; do
    "$muster" docs "$page" | cmp -s - "docs/$page.md" ||
        echo "docs/$page.md is not what muster docs $page prints" >>"$bad"
done

"$muster" policies | awk 'NR > 1 { print $1, $2 }' >"$work/rows"
[ "$(wc -l <"$work/rows")" -gt 100 ] || echo "muster policies lists too little" >>"$bad"
while read -r kind name; do
    grep -qE "(^|[^a-z_])(${kind}_)?$name([^a-z_]|\$)" docs/systems.md ||
        echo "docs/systems.md does not name the $kind policy $name" >>"$bad"
done <"$work/rows"

for page in $pages; do
    grep -oE '\]\([^)#]+' "$page" | sed 's/^](//' | while read -r link; do
        case $link in *://*) continue ;; esac
        [ -e "$(dirname "$page")/$link" ] || echo "$page links to $link"
    done
done >>"$bad"

# Tables stay readable: cells are short, figures of docs/systems.md shorter, and every technique with a
# figure links to a heading that exists.
# shellcheck disable=SC2086
awk -F' *[|] *' '
    /^\|/ { for (i = 2; i < NF; i++) if (length($i) > 200)
        print FILENAME ":" FNR ": a cell of " length($i) " characters, 200 at most" }
    /^\|/ && FILENAME == "docs/systems.md" && NF == 7 && length($5) > 80 {
        print FILENAME ":" FNR ": a figure of " length($5) " characters, 80 at most" }
' $pages $readmes >>"$bad"

# One word, one idea.
sed -n 's/^| \([a-z][^|]*\) |.*/\1/p' docs/words.md | tr ',' '\n' | sed 's/^ *//; s/ *$//' | sort | uniq -d |
    sed 's/^/docs\/words.md has two meanings of /' >>"$bad"

# slugs FILE: prints the anchors of its headings.
slugs() {
    sed -n 's/^##* //p' "$1" | tr 'A-Z' 'a-z' | sed "s/[^a-z0-9 _-]//g; s/ /-/g"
}
grep -oE 'systems/[a-z-]+\.md#[^)]+' docs/systems.md | sort -u | while IFS='#' read -r page anchor; do
    slugs "docs/$page" | grep -qxF -- "$anchor" || echo "docs/systems.md links to $page#$anchor"
done >>"$bad"

# The line "Code:" of a technique names files or folders that exist: `folder/one, folder/two`.
awk 'BEGIN { RS = "" } /^Code: /' docs/systems/*.md | sed 's/^Code: //; s/`[^`]*`//g; s/([^)]*)//g' |
    tr ' ,;' '\n\n\n' | sed 's/\.$//' | grep -E '^[a-z_]+/' | sort -u | while read -r path; do
    # shellcheck disable=SC2086
    set -- $path*
    [ -e "$1" ] || echo "docs/systems says that something lives in $path"
done >>"$bad"

# shellcheck disable=SC2086
grep -ohE 'build/tests/[a-z_]+(/[a-z_]+)*/(t|sim|bench)_[a-z0-9_]+' $pages | sort -u |
    while read -r program; do
        source=${program#build/}
        bench=$(echo "$source" | sed 's|/bench_|/|')
        [ -e "$source.c" ] || [ -e "$bench.c" ] ||
            echo "the documents run $program, which is no test"
    done >>"$bad"

# Commands stand in `` or alone on an indented or fenced line; --help lists each of their options.
# shellcheck disable=SC2086
cat $pages | awk '
    /\\$/ { held = held substr($0, 1, length($0) - 1); next }
    { line = held $0; held = ""
      n = split(line, part, "`")
      for (i = 2; i <= n; i += 2) if (part[i] ~ /^(build\/)?muster [a-z]/) print part[i]
      if (line ~ /^ *(build\/)?muster [a-z]/) print line }' |
    sed 's|^ *\(build/\)\{0,1\}muster ||; s/ #.*//' | sort -u >"$work/commands"
[ "$(wc -l <"$work/commands")" -gt 40 ] || echo "the documents show too few commands" >>"$bad"
while read -r line; do
    printf 'muster %s\n' "$line" | sh -n 2>/dev/null || echo "a shell does not take: muster $line"
done <"$work/commands" >>"$bad"
while read -r one two rest; do
    case "$two" in [a-z]*) "$muster" "$one" "$two" --help 2>/dev/null |
        grep -q "^Usage: muster $one $two" || { rest="$two $rest" two=; } ;;
    *) rest="$two $rest" two= ;; esac
    # shellcheck disable=SC2086
    "$muster" $one $two --help >"$work/help" 2>/dev/null || {
        echo "no command is muster $one${two:+ $two}"
        continue
    }
    for word in $(echo "$rest" | tr -d "'\"" | tr ' ' '\n' | grep -E '^--?[a-z]' || true); do
        grep -qE -- "(^|[ ,])$word([ ,]|\$)" "$work/help" ||
            echo "muster $one${two:+ $two} has no option $word"
    done
done <"$work/commands" >>"$bad"

[ -s "$bad" ] || exit 0
sort -u "$bad"
exit 1
