#!/bin/sh
# effects.sh - measures techniques of the engine: the same load with each and without it.
#
#     tests/bench/effects.sh [batching|chunks|prefix_cache|order|drafts|draft_model ...]
#
# Each effect compares two engines that differ in one flag. The runs are interleaved, five of each,
# and the medians are compared as a ratio. Needs a built build/muster and two quiet cores.
set -eu
cd "$(dirname "$0")/../.."
muster=${MUSTER_BIN:-build/muster}
model=models/muster-tiny-q8_0.gguf
trace=traces/mooncake-conversation-4min.jsonl
rounds=${ROUNDS:-5}
port=${PORT:-8299}
work=$(mktemp -d)
engine=
trap 'test -z "$engine" || kill "$engine" 2>/dev/null; rm -rf "$work"' EXIT

# start FLAGS: starts an engine with one thread.
start() {
    # shellcheck disable=SC2086
    "$muster" engine --model $model --listen 127.0.0.1:$port --threads 1 --log-level error $1 \
        2>"$work/engine.log" &
    engine=$!
    until curl -sf "http://127.0.0.1:$port/health" >/dev/null 2>&1; do
        kill -0 "$engine" 2>/dev/null || { cat "$work/engine.log" >&2; exit 1; }
        sleep 0.1
    done
}

stop() {
    kill "$engine"
    wait "$engine" 2>/dev/null || true
    engine=
}

# load FLAGS: runs the load generator once; its report goes to $work/report.
load() {
    # shellcheck disable=SC2086
    "$muster" load --url http://127.0.0.1:$port --trace $trace --tokens-per-word 1.2 -o json $1 \
        2>/dev/null >"$work/report" || true
}

# figure OBJECT MEMBER: prints a number of the report.
figure() {
    sed -n "s/.*\"$1\":{[^}]*\"$2\":\([0-9.e+-]*\).*/\1/p" "$work/report"
}

median() {
    sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# compare NAME WITHOUT WITH LOAD OBJECT MEMBER [WARM]: prints both medians of a figure and their ratio; with WARM
# each run has a first, unmeasured pass.
compare() {
    : >"$work/without"
    : >"$work/with"
    for _ in $(seq "$rounds"); do
        for arm in without with; do
            if [ $arm = without ]; then start "$2"; else start "$3"; fi
            [ -z "${7:-}" ] || load "$4"
            load "$4"
            figure "$5" "$6" >>"$work/$arm"
            stop
        done
    done
    a=$(median "$work/without")
    b=$(median "$work/with")
    awk -v n="$1" -v a="$a" -v b="$b" -v w="$2" -v x="$3" -v m="$5 $6" -v r="$rounds" 'BEGIN {
        printf "%-13s %-12s %8.4f -> %8.4f  ratio %5.2f  (%s -> %s, medians of %d)\n",
               n, m, a, b, b / a, w ? w : "default", x ? x : "default", r }'
}

# decode PROMPT TEMPERATURE BATCH: decodes 5 x BATCH outputs of 400 tokens, BATCH at once, each with its seed.
# Prints the tokens a second, and those for a second of the engine's CPU time, which other processes disturb less.
decode() {
    ticks=$(awk '{ print $14 + $15 }' "/proc/$engine/stat")
    from=$(date +%s.%N)
    for pass in 1 2 3 4 5; do
        clients=
        for i in $(seq "$3"); do
            body="{\"model\": \"m\", \"prompt\": \"$i. $1\", \"max_tokens\": 400, \"temperature\": $2"
            curl -sf -H content-type:application/json -o "$work/out.$pass.$i" \
                -d "$body, \"seed\": $pass, \"ignore_eos\": true}" "http://127.0.0.1:$port/v1/completions" &
            clients="$clients $!"
        done
        # shellcheck disable=SC2086
        wait $clients
    done
    to=$(date +%s.%N)
    awk -v n="$((5 * 400 * $3))" -v s="$from" -v e="$to" -v t="$ticks" -v hz="$(getconf CLK_TCK)" \
        '{ print n / (e - s), n * hz / ($14 + $15 - t) }' "/proc/$engine/stat"
}

# draft_flags ARM: prints the flags of a policy by its name, or of a draft model that make_pair has made.
draft_flags() {
    case $1 in
    right | wrong) echo "--draft model --draft-model $work/$1.gguf" ;;
    *) echo "--draft $1" ;;
    esac
}

# make_pair: makes a random model of which the first of 12 layers alone adds anything, and as draft models that
# layer, which is always right, and another, which never is.
make_pair() {
    shape="--width 512 --ff 1536 --heads 8 --kv-heads 4 --context 1024 --tied --tokenizer $model"
    # shellcheck disable=SC2086
    "$muster" model make-random $shape --layers 12 --idle-layers 11 "$work/large.gguf" >/dev/null
    # shellcheck disable=SC2086
    "$muster" model make-random $shape --layers 1 "$work/right.gguf" >/dev/null
    # shellcheck disable=SC2086
    "$muster" model make-random $shape --layers 1 --seed 2 "$work/wrong.gguf" >/dev/null
}

# compare_drafts ARMS NAME PROMPT TEMPERATURE BATCH: prints the medians of decode of each arm, and their ratios to the
# first, which has no drafts. The texts must be equal.
compare_drafts() {
    arms=$1
    shift
    rm -f "$work"/tokens.*
    for _ in $(seq "$rounds"); do
        for draft in $arms; do
            start "--served-model-name m $(draft_flags "$draft")"
            decode "$2" "$3" "$4" >>"$work/tokens.$draft"
            stop
            sed 's/.*"text"://; s/,"usage".*//' "$work"/out.* >"$work/texts"
            [ $draft != none ] || cp "$work/texts" "$work/texts.none"
            cmp -s "$work/texts" "$work/texts.none" || { echo "$draft: other texts" >&2; exit 1; }
        done
    done
    for column in 1 2; do
        for draft in $arms; do
            cut -d ' ' -f $column "$work/tokens.$draft" >"$work/column"
            b=$(median "$work/column")
            [ $draft != none ] || a=$b
            awk -v n="$1" -v k="$4" -v d=$draft -v c=$column -v a="$a" -v b="$b" -v r="$rounds" 'BEGIN {
                printf "drafts  %-10s batch %d  %-6s  %6.0f tok/%-5s  ratio %5.2f  (medians of %d)\n",
                       n, k, d, b, c == 1 ? "s" : "cpu-s", b / a, r }'
        done
    done
}

[ $# -gt 0 ] || set -- batching chunks prefix_cache order drafts draft_model
for effect in "$@"; do
    case $effect in
    batching)
        compare batching "--max-num-seqs 1" "--max-num-seqs 16" \
            "--divide 256 --speed 40 -d 3s --max-tokens 200" e2e_s p99
        ;;
    chunks)
        compare chunks "--max-num-batched-tokens 2048" "--max-num-batched-tokens 256" \
            "--divide 16 --speed 2.5 -d 8s --max-tokens 100" itl_s p99
        ;;
    prefix_cache)
        compare prefix_cache "--no-enable-prefix-caching" "" \
            "--divide 16 --speed 1 -n 20 --max-tokens 8" ttft_s mean warm
        ;;
    order)
        compare order "--order fcfs --max-num-seqs 4" "--order response_ratio --max-num-seqs 4" \
            "--divide 16 --speed 5 -d 8s --max-tokens 200" e2e_s mean
        ;;
    drafts)
        king="the king came with the queen. the prince came with the queen."
        for batch in 1 8; do
            compare_drafts "none ngram suffix" repeated "List the guests. $king $king $king the king came with" 0 $batch
            compare_drafts "none ngram suffix" sampled "In the morning the old man" 1 $batch
        done
        ;;
    draft_model)
        make_pair
        shipped=$model
        model=$work/large.gguf
        for batch in 1 8; do
            compare_drafts "none right wrong" greedy "In the morning the old man" 0 $batch
        done
        model=$shipped
        ;;
    *)
        echo "effects.sh: no effect '$effect'; there are batching chunks prefix_cache order drafts draft_model" >&2
        exit 2
        ;;
    esac
done
