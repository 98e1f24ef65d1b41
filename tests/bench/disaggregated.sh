#!/bin/sh
# disaggregated.sh - compares a pair of real engines that both serve whole requests with a pair of which one
# prefills and one decodes.
#
#     tests/bench/disaggregated.sh [ROUNDS [SPEED]]     default 5 rounds at the trace's own speed
#
# Each round replays the same requests in both arms, one after the other, with fresh engines that may
# use .8 of a core each; figures are medians over the rounds. Needs build/muster and two quiet cores.
set -eu
cd "$(dirname "$0")/../.."
muster=${MUSTER_BIN:-build/muster}
model=models/muster-tiny-q8_0.gguf
rounds=${1:-5} speed=${2:-1} port=${PORT:-8290} requests=${REQUESTS:-100}
work=$(mktemp -d)
pids=
trap 'test -z "$pids" || kill $pids 2>/dev/null; rm -rf "$work"' EXIT

# wait_for PORT PATH TEXT: waits until the response contains TEXT.
wait_for() {
    until curl -sf "http://127.0.0.1:$1$2" 2>/dev/null | grep -q "$3"; do
        for p in $pids; do kill -0 "$p" 2>/dev/null || { cat "$work"/*.log >&2; exit 1; }; done
        sleep 0.1
    done
}

# run ARM FIRST-ROLE SECOND-ROLE: appends the report of one replay to ARM.jsonl.
run() {
    for i in 1 2; do
        "$muster" engine --model $model --listen 127.0.0.1:$((port + i)) --secret-file "$work/secret" \
            --threads 1 --cpu-share 0.8 --log-level error --seed 1 2>"$work/engine$i.log" &
        pids="$pids $!"
        wait_for $((port + i)) /health ok
    done
    "$muster" router --listen 127.0.0.1:$port --secret-file "$work/secret" \
        --endpoints "127.0.0.1:$((port + 1))/$2,127.0.0.1:$((port + 2))/$3" 2>"$work/router.log" &
    pids="$pids $!"
    wait_for $port /v1/models muster
    "$muster" load --url http://127.0.0.1:$port --trace traces/mooncake-conversation-4min.jsonl \
        --divide 8 --requests "$requests" --speed "$speed" --tokens-per-word 1.2 -o json \
        2>"$work/load.log" | tr -d '\n' >>"$work/$1.jsonl"
    echo >>"$work/$1.jsonl"
    kill $pids
    wait $pids 2>/dev/null || true
    pids=
}

for round in $(seq "$rounds"); do
    run whole both both
    run split prefill decode
    echo "round $round of $rounds" >&2
done
python3 - "$work/whole.jsonl" "$work/split.jsonl" <<'PY'
import json, statistics, sys
arms = [[json.loads(line) for line in open(path)] for path in sys.argv[1:]]
rows = [("TTFT p50 s", "ttft_s", "p50"), ("TTFT p99 s", "ttft_s", "p99"), ("TPOT p50 s", "tpot_s", "p50"),
        ("TPOT p99 s", "tpot_s", "p99"), ("ITL p99 s", "itl_s", "p99")]
print(f"{'':12}{'whole':>10}{'split':>10}{'ratio':>8}")
for name, key, quantile in rows:
    both = [[r[key][quantile] for r in arm] for arm in arms]
    ratio = statistics.median(p / w for w, p in zip(*both))
    print(f"{name:12}{statistics.median(both[0]):10.4f}{statistics.median(both[1]):10.4f}{ratio:8.2f}")
for name, arm in zip(("whole", "split"), arms):
    print(f"{name}: {sum(r['requests']['ok'] for r in arm)} answered, "
          f"{sum(r['requests']['failed'] for r in arm)} failed")
PY
