#!/bin/sh
# exec-example.sh - sells processes of this machine to Muster: a driver of kind exec (docs/clouds/exec.md). Needs jq.
#
# An instance is a folder below $SELLER_FOLDER, named by its intent, and the processes that have its mark in their
# environment: those that its user data starts. Replace start, processes and end to sell something else.
set -eu
cd "$SELLER_FOLDER"
exec 8>lock && flock 8 # one call at a time: two creates of one intent cannot race
call=$(cat)
get() { printf '%s' "$call" | jq -r ".$1"; }

processes() { grep -lsxz "SELLER_INSTANCE=$PWD/$1" /proc/[0-9]*/environ | cut -d/ -f3; }
start() {
    touch "$1/started"
    (cd "$1" && SELLER_INSTANCE=$PWD setsid -f sh ./user_data </dev/null >log 2>&1 8>&-)
}
end() { # asks them to end, and a minute later makes them
    signal=TERM
    [ -e "$1/removed" ] || touch "$1/removed"
    [ -z "$(find "$1/removed" -mmin +1)" ] || signal=KILL
    kill -s $signal $(processes "$1") 2>/dev/null || true
}

show() { # prints an instance as Muster reads it
    state=up
    [ ! -e "$1/started" ] || [ -n "$(processes "$1")" ] || state=gone
    age=$(($(date +%s) - $(stat -c %Y "$1/tags")))
    [ "$age" -ge 0 ] || age=0
    jq -c --arg handle "$1" --arg state $state --argjson age $age \
        '{handle: $handle, tags: ., state: $state, age_s: $age}' "$1/tags"
}

case $(get call) in
create)
    id=$(get intent)
    if [ ! -e "$id/tags" ]; then
        if [ "$(find . -maxdepth 2 -name tags | wc -l)" -ge "${SELLER_MAX:-8}" ]; then
            echo '{"error":{"class":"capacity","message":"this machine is full"}}'
            exit 0
        fi
        mkdir -p "$id"
        (umask 077 && get user_data >"$id/user_data")
        get tags >"$id/tags.new"
        mv "$id/tags.new" "$id/tags" # from here on it is listed
    fi
    [ -e "$id/started" ] || start "$id"
    show "$id" | jq -c '{instance: .}'
    ;;
list)
    for tags in i-*/tags; do
        [ ! -e "$tags" ] || show "${tags%/tags}"
    done | jq -cs '{instances: .}'
    ;;
remove)
    id=$(get intent)
    if [ -n "$(processes "$id")" ]; then
        end "$id" # listed until it has ended; Muster then asks again
    else
        rm -rf "./$id"
    fi
    echo '{"removed":true}'
    ;;
prices)
    printf '%s' "$call" | jq -c '{prices: [.offers[] | {offer, per_hour: 0.01}]}'
    ;;
*)
    echo '{"error":{"class":"invalid","message":"no such call"}}'
    ;;
esac
