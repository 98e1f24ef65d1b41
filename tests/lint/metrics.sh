#!/bin/sh
# metrics.sh ROOT MUSTER - checks that metrics and what uses them agree.
#
# Every metric that `muster docs metrics` lists is used by a dashboard, a rule or a document other than the generated
# page: a number that nobody looks at is a cost without a use. Every metric of ours that dashboards, rules, their unit
# tests and runbooks name is exported: otherwise a panel stays empty and an alert silent for ever.
set -eu
cd "$1"
muster=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$muster" docs metrics | sed -n 's/^| `\([a-z0-9_]*\)` |.*/\1/p' | sort -u >"$work/exported"
[ "$(wc -l <"$work/exported")" -gt 50 ] || { echo "muster docs metrics lists too little"; exit 1; }

# names FILE...: prints the names of our metrics, histograms without their endings.
names() {
    cat "$@" | grep -oE '(muster_(router|controller|engine|agent|metrics)|process)_[a-z0-9_]+' |
        sed -E 's/_(bucket|count|sum)$//' | sort -u
}

documents=$(find README.md CONTRIBUTING.md docs -name '*.md' ! -path docs/metrics.md)
# shellcheck disable=SC2086
names dashboards/*.json dashboards/rules/*.yaml $documents >"$work/used"
names dashboards/*.json dashboards/rules/*.yaml docs/runbooks/*.md tests/dashboards/rules/*.yaml >"$work/named"
# A gauge may end like a histogram's part: both spellings count.
sed -E 's/_(bucket|count|sum)$//' "$work/exported" | sort -u - "$work/exported" >"$work/known"

comm -23 "$work/exported" "$work/used" | sed 's/$/ is exported, and no panel, alert, rule or document uses it/' >"$work/bad"
comm -13 "$work/known" "$work/named" | sed 's/$/ is named by a dashboard, rule or runbook, and not exported/' >>"$work/bad"
[ -s "$work/bad" ] || exit 0
cat "$work/bad"
exit 1
