#!/bin/sh
# upgrade.sh OLD NEW - takes a running fleet from one release to another and back, under load.
#
#     tests/bench/upgrade.sh /path/to/old/muster build/muster
#
# The fleet is a controller, two routers and two instances. Each part is ended and started again as the
# other binary, one after the other: controller, routers, instances; then the same way back. Clients send
# requests all the time, whole responses and streams in turn. A router that is being replaced refuses
# the connection or returns 503, and the client retries at the other router; any other response that is
# not whole counts as lost. Prints a line a step and exits with 1 when a request was lost.
set -eu
OLD=$(realpath "$1") NEW=$(realpath "$2")
MODEL=$(realpath models/muster-tiny-q8_0.gguf)
D=$(mktemp -d)
C=18490 R1=18480 R2=18481
CLIENTS=${CLIENTS:-4} TOKENS=${TOKENS:-40}
export MUSTER_AGENT_REPORT=200ms MUSTER_AGENT_SETTLE=200ms

config() { # FILE CONTROLLER-MORE ROUTER-MORE
    cat >"$1" <<YAML
controller: { tick: 200ms, state: $D/state, listen: "127.0.0.1:$C"$2 }
router: { controller: "127.0.0.1:$C", secret_file: $D/state/secret$3 }
local:
  cores: 1
  offers: [ { name: bit, share: 0.3, price_per_hour: 1, launch_delay: 100ms } ]
services:
  - name: tiny
    model: $MODEL
    engine_flags: ["--threads", "1", "--max-num-seqs", "4"]
    pools: [ { name: only, offers: [bit], max: 3 } ]
YAML
}
config "$D/old.yaml" "" ""
# A release that signs must send the secret to one that does not, for as long as both are there.
config "$D/new.yaml" "${NEW_CONTROLLER-, send_secret: true}" "${NEW_ROUTER-, send_secret: true}"

await() { # WHAT COMMAND...: repeats the command until it succeeds, for two minutes at most
    what=$1
    shift
    i=0
    until "$@" >/dev/null 2>&1; do
        i=$((i + 1))
        [ $i -lt 600 ] || { echo "waited in vain: $what"; tail -5 "$D"/*.log; exit 1; }
        sleep 0.2
    done
}
get() { curl -s --max-time 20 "$@"; }
healthy() { get "http://127.0.0.1:$1/health" | grep -q '"ok"'; }
controller() { # BINARY CONFIG
    "$1" controller --config "$2" >>"$D/controller.log" 2>&1 &
    CPID=$!
    await "the controller" healthy $C
}
router() { # BINARY CONFIG PORT; its pid in RPID
    "$1" router --config "$2" --listen "127.0.0.1:$3" --name "r$3" >>"$D/router$3.log" 2>&1 &
    RPID=$!
    await "router $3" serves "$3"
}
serves() {
    get -H 'content-type: application/json' -d '{"prompt":"a","max_tokens":1}' \
        "http://127.0.0.1:$1/v1/completions" | grep -q '"usage"'
}
engines() { # prints how many serve: "ready" of the only service
    get "http://127.0.0.1:$C/api/v1/services" | grep -o '"ready":[0-9]*' | head -1 | cut -d: -f2
}
two() { [ "$(engines)" = 2 ] && [ "$(ls "$D/state/instances" | grep -c '^i-')" = 2 ]; }
stop() { kill "$1" && wait "$1" 2>/dev/null || true; }

ask() { # CLIENT: sends one request after the other until the file "stop" exists
    n=0
    while [ ! -e "$D/stop" ]; do
        n=$((n + 1))
        stream=false mark='"usage"'
        [ $((n % 2)) = 0 ] && stream=true mark='\[DONE\]'
        body="{\"prompt\":\"$1 $n the king\",\"max_tokens\":$TOKENS,\"ignore_eos\":true,\"stream\":$stream}"
        port=$([ $(((n + $1) % 2)) = 0 ] && echo $R1 || echo $R2)
        result=lost
        for try in $(seq 300); do
            code=$(curl -s --max-time 60 -o "$D/reply$1" -w '%{http_code}' -d "$body" \
                -H 'content-type: application/json' "http://127.0.0.1:$port/v1/completions") && rc=0 || rc=$?
            if [ $rc = 0 ] && [ "$code" = 200 ] && grep -q "$mark" "$D/reply$1" &&
                ! grep -q '"error"' "$D/reply$1"; then
                result=whole
                break
            fi
            # Retried only if not accepted: the connection was refused (7), or the router returned 503.
            [ $rc = 7 ] || [ "$code" = 503 ] || break
            port=$([ "$port" = $R1 ] && echo $R2 || echo $R1)
            echo again >>"$D/again"
            sleep 0.1
        done
        echo "$result" >>"$D/results"
        [ $result = whole ] || { echo "client $1: rc=$rc status=$code"; tail -c 600 "$D/reply$1"; } >>"$D/lost"
    done
}
count() { [ -e "$D/results" ] && grep -c "$1" "$D/results" || true; }
step() { echo "$(date +%T) $*: $(count whole) whole, $(count lost) lost"; }
more() { [ "$(count .)" -ge "$GOAL" ]; }
settle() { GOAL=$(($(count .) + 3 * CLIENTS)) && await "answers" more && step "$@"; }

exchange() { # BINARY CONFIG NAME
    stop $CPID
    controller "$1" "$2"
    settle "controller is $3"
    stop $R1PID
    router "$1" "$2" $R1
    R1PID=$RPID
    settle "first router is $3"
    stop $R2PID
    router "$1" "$2" $R2
    R2PID=$RPID
    settle "second router is $3"
    await "two instances" two
    for at in $(ls "$D/state/instances" | grep '^i-'); do
        kill "$(awk '{print $2; exit}' "$D/state/instances/$at/agent.lock")" # SIGTERM: it drains
        await "$at has ended" test ! -e "$D/state/instances/$at"
        await "two instances" two
        settle "another instance is $3"
    done
    for at in "$D"/state/instances/i-*; do
        pid=$(awk '{print $2; exit}' "$at/engine.id")
        [ "$(readlink "/proc/$pid/exe")" = "$1" ] || { echo "$at is not $3"; exit 1; }
    done
}
leave() {
    touch "$D/stop"
    for f in "$D"/state/instances/i-*/agent.lock "$D"/state/instances/i-*/engine.id; do
        [ -e "$f" ] && kill -9 "$(awk '{print $2; exit}' "$f")" 2>/dev/null || true
    done
    kill $CPID $R1PID $R2PID 2>/dev/null || true
    wait 2>/dev/null || true
    [ -e "$D/lost" ] && echo "logs: $D" || rm -rf "$D"
}
CPID= R1PID= R2PID=
trap leave EXIT

controller "$OLD" "$D/old.yaml"
curl -s -d '{"pool":"only","count":2}' -H 'content-type: application/json' \
    -H "authorization: Bearer $(cat "$D/state/secret")" \
    "http://127.0.0.1:$C/api/v1/services/tiny/scale" >/dev/null
await "two instances" two
router "$OLD" "$D/old.yaml" $R1 && R1PID=$RPID
router "$OLD" "$D/old.yaml" $R2 && R2PID=$RPID
CLIENT_PIDS=
for c in $(seq "$CLIENTS"); do
    ask "$c" &
    CLIENT_PIDS="$CLIENT_PIDS $!"
done
settle "all is old"
exchange "$NEW" "$D/new.yaml" new
exchange "$OLD" "$D/old.yaml" "old again"
touch "$D/stop"
# shellcheck disable=SC2086
wait $CLIENT_PIDS # their last requests end while the fleet still runs
step "end ($([ -e "$D/again" ] && wc -l <"$D/again" || echo 0) times asked again)"
[ -e "$D/lost" ] && cat "$D/lost" && exit 1
exit 0
