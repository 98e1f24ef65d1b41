#!/bin/sh
# power.sh - measures power policies in a running fleet: a light load under max and under mu_serve at the
# same time, then a heavy one under max and under polca.
#
#     tests/bench/power.sh
#
# Four services run one instance each, the first two with half a core, the others with 0.3; both of a pair
# get the same trace at the same time. Watts are the model's (row cpu of base/perf/hardware.c, not fitted to
# a meter), read every five seconds. Needs a built build/muster and about seven minutes.
set -eu
cd "$(dirname "$0")/../.."
muster=${MUSTER_BIN:-build/muster}
trace=traces/mooncake-conversation-4min.jsonl
router=127.0.0.1:${PORT:-8290}
controller=127.0.0.1:${CONTROLLER_PORT:-8291}
power_limit_watts=${POWER_LIMIT_WATTS:-5.5}
work=$(mktemp -d)
trap 'exit 1' INT TERM
trap '"$muster" down --state "$work/state" --now >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

service() {
    cat <<EOF
  - name: $1
    model: models/muster-tiny-q8_0.gguf
    $3
    engine_flags: [--threads, '1', --max-num-seqs, '8']
    pools: [ { name: only, offers: [$2], min: 1, max: 1 } ]
EOF
}
{
    echo "controller: { tick: 500ms }"
    echo "local: { cores: 2, offers: [ { name: half, share: 0.5, price_per_hour: 1 }, { name: third, share: 0.3, price_per_hour: 1 } ] }"
    echo "services:"
    service full half "power: max"
    service lazy half "power: mu_serve"
    service open third "power: max"
    service capped third "power: polca" | sed "s|power: polca|&\n    power_limit_watts: $power_limit_watts|"
} >"$work/muster.yaml"

"$muster" up -f "$work/muster.yaml" --state "$work/state" --listen "$router" \
    --controller-listen "$controller" >/dev/null

# cpu_of SERVICE: prints the CPU seconds of its engine.
cpu_of() {
    for id in "$work"/state/instances/i-*/engine.id; do
        pid=$(sed -n 's/^pid \([0-9]*\).*/\1/p' "$id")
        tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -- "--served-model-name $1 " || continue
        awk -v hz="$(getconf CLK_TCK)" '{ print ($14 + $15) / hz }' "/proc/$pid/stat"
    done
}

# sample SERVICE: appends a line "watts clock" to its file.
sample() {
    watts=$("$muster" get services "$1" --state "$work/state" -o json |
        sed -n 's/.*"watts":\([0-9.]*\).*/\1/p')
    clock=$("$muster" get instances --state "$work/state" -o json | tr '{' '\n' |
        sed -n "s/.*\"service\":\"$1\".*\"clock\":\([0-9.]*\).*/\1/p")
    echo "${watts:-0} ${clock:-1}" >>"$work/samples.$1"
}

figure() {
    sed -n "s/.*\"$2\":{[^}]*\"$3\":\([0-9.e+-]*\).*/\1/p" "$work/report.$1"
}

# pair A B LOAD: sends both services the same load and prints a line of figures for each.
pair() {
    for s in "$1" "$2"; do
        cpu_of "$s" >"$work/cpu.$s"
        # shellcheck disable=SC2086
        "$muster" load --url "http://$router" --model "$s" --trace $trace --tokens-per-word 1.2 \
            -o json $3 >"$work/report.$s" 2>/dev/null &
        eval "load_$s=\$!"
    done
    eval "one=\$load_$1 two=\$load_$2"
    while kill -0 "$one" 2>/dev/null || kill -0 "$two" 2>/dev/null; do
        sample "$1"
        sample "$2"
        sleep 5
    done
    for s in "$1" "$2"; do
        awk -v s="$s" -v a="$(cat "$work/cpu.$s")" -v b="$(cpu_of "$s")" \
            -v n="$(figure "$s" requests ok)" -v sent="$(figure "$s" requests sent)" \
            -v ttft="$(figure "$s" ttft_s p99)" -v tpot="$(figure "$s" tpot_s p99)" \
            -v met="$(figure "$s" slo attainment)" '
            $1 > 0 { looks++; w += $1; if ($1 > max) max = $1 } # 0 before the first reading
            { c += $2; if (least == 0 || $2 < least) least = $2 }
            END { printf "%-7s %4d of %4d answered, %.1f ms of CPU each, TTFT P99 %.3f s, TPOT P99 " \
                  "%.1f ms, %.1f%% within the SLO; clock mean %.2f least %.2f; watts mean %.2f most %.2f\n",
                  s, n, sent, (b - a) / n * 1e3, ttft, tpot * 1e3, met * 100, c / NR, least, w / looks, max }
            ' "$work/samples.$s"
    done
}

pair full lazy "--divide 256 --speed 0.4 -d 240s --max-tokens 32"
pair open capped "--divide 64 --speed 1.5 -d 120s --max-tokens 64"
echo "looks at which capped drew more than $power_limit_watts W: $(curl -sf "http://$controller/metrics" |
    sed -n 's/^muster_controller_breaker_trips_total{service="capped"} //p')"
