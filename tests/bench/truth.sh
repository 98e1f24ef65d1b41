#!/bin/sh
# truth.sh - tests the simulator against the real engine: it is fitted on one run and tested on another, at three
# loads.
#
#     tests/bench/truth.sh [SPEED ...]     default 0.5 1 1.5 times the trace's
#
# Each load takes three runs of 300 requests with the shipped model: one to fit, one to test, and the
# tested one again for the engine's own spread. Needs build/muster, build/tests/bench/bench_truth
# (cmake --build build -t bench_truth) and two quiet cores.
set -eu
cd "$(dirname "$0")/../.."
muster=${MUSTER_BIN:-build/muster}
truth=${TRUTH_BIN:-build/tests/bench/bench_truth}
model=models/muster-tiny-q8_0.gguf
port=${PORT:-8298} seqs=16 batch=256 requests=${REQUESTS:-300}
work=$(mktemp -d)
engine=
trap 'test -z "$engine" || kill "$engine" 2>/dev/null; rm -rf "$work"' EXIT

# run NAME FIRST SPEED: starts a fresh engine and sends it 300 requests from FIRST on.
run() {
    "$muster" engine --model $model --listen 127.0.0.1:$port --threads 1 --log-level error \
        --no-enable-prefix-caching --max-num-seqs $seqs --max-num-batched-tokens $batch --seed 1 \
        --step-log "$work/$1.csv" 2>"$work/engine.log" &
    engine=$!
    until curl -sf "http://127.0.0.1:$port/health" >/dev/null 2>&1; do
        kill -0 "$engine" 2>/dev/null || { cat "$work/engine.log" >&2; exit 1; }
        sleep 0.1
    done
    "$muster" load --url http://127.0.0.1:$port --trace traces/mooncake-conversation-4min.jsonl \
        --divide 16 --first "$2" --requests "$requests" --speed "$3" --tokens-per-word 1.2 \
        --record "$work/$1.jsonl" -o json >/dev/null 2>&1
    kill "$engine"
    wait "$engine" 2>/dev/null || true
    engine=
}

for speed in "${@:-0.5 1 1.5}"; do
    for s in $speed; do
        run fit 0 "$s"
        run test 350 "$s"
        run again 350 "$s"
        echo "== speed $s"
        "$truth" "$work/fit.csv" "$work/fit.jsonl" "$work/test.jsonl" "$work/again.jsonl" $seqs $batch
    done
done
