#!/bin/sh
# routing.sh - compares the default routing policy, as it ships, with the least predicted TTFT: on four traces,
# at five SLOs and four speeds, with paired seeds in the simulator.
#
#     tests/bench/routing.sh [mooncake|azure|conversations|shared_prompts ...]
#
# Each world prints a line: the difference of attainment in points and the relative difference of mean and P99
# TTFT, each with its 95 % interval. "BELOW" marks a line whose whole interval has lower attainment, or more than
# 1.01 times the mean TTFT. Needs a built build/muster and python3; the environment sets SEEDS (5) and JOBS (one a
# core).
set -eu
cd "$(dirname "$0")/../.."
muster=${MUSTER_BIN:-build/muster}
seeds=${SEEDS:-5}
[ $# -gt 0 ] || set -- mooncake azure conversations shared_prompts

world() {
    case $1 in
    mooncake) echo "--trace mooncake-conversation.jsonl --preset ref --fleet 8xref8000" ;;
    azure) echo "--trace azure-2023-conv.csv --model llama-3-8b --fleet 2xa100" ;;
    conversations)
        echo "--trace gen:poisson,rate=8,prompt=lognormal(600,1),output=lognormal(200,1),n=1500,turns=4,think=30" \
            "--model llama-3-8b --fleet 4xa100"
        ;;
    shared_prompts)
        echo "--trace gen:poisson,rate=7,prompt=lognormal(2000,1),output=lognormal(100,1),n=3000,tenants=40,zipf=0.8,system=12000,systems=40" \
            "--model llama-3-8b --fleet 6xa100"
        ;;
    *) echo "routing.sh: no world is called $1" >&2; exit 2 ;;
    esac
}

show() {
    python3 -c '
import json, sys
base, ours = json.load(sys.stdin)["arms"]
d = ours["difference"]
def share(name):
    of, by = base["mean"][name]["mean"], d[name]["mean"]
    if of is None or by is None:
        return float("nan"), float("nan")  # a run had refusals only
    return 100 * by / of, 100 * d[name]["ci95"] / of
kept, half = (100 * d["slo.attainment"][k] for k in ("mean", "ci95"))
mean, p99 = share("ttft_s.mean"), share("ttft_s.p99")
row = "%-15s %5s %10s  %6.1f %% %+6.2f +-%4.2f  %+6.1f +-%4.1f %%  %+6.1f +-%5.1f %%" % (
    *sys.argv[1:], 100 * base["mean"]["slo.attainment"]["mean"], kept, half, *mean, *p99)
print(row + ("  BELOW" if kept + half < 0 or mean[0] - mean[1] > 1 else ""), flush=True)
' "$@"
}

echo "world           speed        SLO    kept by shortest_ttft; completion: points, mean TTFT, P99 TTFT"
for name in "$@"; do
    with=$(world "$name")
    for speed in 0.5 1 1.6 2.2; do
        for slo in 2s 5s 10s 30s none; do
            ttft=$slo
            [ "$slo" != none ] || ttft=1000000s
            # shellcheck disable=SC2086
            "$muster" simulate $with --speed $speed --slo-ttft $ttft --seeds "$seeds" -j "${JOBS:-0}" \
                --compare route=shortest_ttft,completion -o json | show "$name" $speed $slo
        done
    done
done
