# lib.sh - what the scripts of this folder share; sourced by bash.
#
# A cluster lives in one folder, $dir (--dir):
#
#     state/      mode, kubeconfig, kubeconfig-token, token, addresses (NAME=VALUE), pids/PART, commands/PART
#     pki/ etc/   certificates and keys, configuration files
#     data/       etcd, containerd, kubelet
#     log/        a file a part, and audit.log of the API server
#
# A part is one process of a cluster (etcd, kube-apiserver, ...). Parts of `--node` run in the node's own
# namespaces, the others on the host. pids/PART holds the pid as the host sees it and its start time, so that
# a pid that was given out anew is never signalled.

# Debian packages of all modes; fetch --packages installs them.
KUBE_PACKAGES="etcd-server openssl python3 gcc libc6-dev procps util-linux
    containerd runc containernetworking-plugins iptables ipset conntrack iproute2"

# die SENTENCE: ends the script as failed.
die() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# usage SENTENCE: ends the script because its arguments are wrong.
usage() {
    echo "${0##*/}: $*; --help tells more" >&2
    exit 2
}

# cannot SENTENCE: ends the script because this machine lacks something; tests count that as skipped.
cannot() {
    echo "skipped: ${0##*/}: $*"
    exit 77
}

# help FILE: prints the comment at the top of a script.
help() {
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$1"
}

kube_cache() {
    echo "${MUSTER_KUBE_CACHE:-$HOME/.cache/muster/kube}"
}

# install_packages: installs KUBE_PACKAGES with the tree's own helper, which says what to do where it cannot.
install_packages() {
    . "$here/../../scripts/packages.sh"
    # shellcheck disable=SC2086
    need_packages $KUBE_PACKAGES
}

# need PACKAGE PROGRAM...: ends the script where a program is missing.
need() {
    local package=$1 program
    shift
    for program in "$@"; do
        command -v "$program" >/dev/null || cannot "there is no $program; apt-get install $package, or tests/kube/fetch --packages"
    done
}

# need_cached PROGRAM...: ends the script where the cache lacks one.
need_cached() {
    local program missing=
    for program in "$@"; do [ -x "$bin/$program" ] || missing+=" $program"; done
    [ -z "$missing" ] || cannot "the cache $bin lacks$missing; tests/kube/fetch builds what is missing"
}

# default_dir: prints the folder of a cluster that was given no --dir.
default_dir() {
    echo "${MUSTER_KUBE_DIR:-/tmp/muster-kube-$(id -u)}"
}

# open_cluster: checks that $dir holds a cluster, and sets what the functions below use.
open_cluster() {
    [ -e "$dir/state/mode" ] || die "there is no cluster in $dir; tests/kube/up starts one, --dir names another folder"
    dir=$(realpath "$dir")
    mode=$(cat "$dir/state/mode")
    bin=$(kube_cache)/bin
    name=$(cluster_name)
}

# cluster_name: prints what the network device and the control groups of $dir are called; 15 characters are
# the most that a device's name may have.
cluster_name() {
    echo "mkube-$(printf %s "$dir" | sha256sum | cut -c1-8)"
}

# --- processes ----------------------------------------------------------------------------------------------

# start_time PID: prints when the process started, in ticks since boot; fails if there is none or it has ended.
start_time() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The name, in parentheses, may hold spaces; the state follows it.
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    # A zombie with threads is still on its way out and holds its files and ports.
    [ "$1" != Z ] || [ "${18}" -gt 1 ] || return 1
    echo "${20}"
}

# record PART PID: writes pids/PART.
record() {
    local start
    start=$(start_time "$2") || return 1
    echo "$2 $start" >"$dir/state/pids/$1"
}

# pid_of PART: prints its pid; fails if it does not run.
pid_of() {
    local pid start
    read -r pid start 2>/dev/null <"$dir/state/pids/$1" || return 1
    [ "$(start_time "$pid")" = "$start" ] || return 1
    echo "$pid"
}

# signal_part PART SIGNAL: signals it if it runs.
signal_part() {
    local pid
    pid=$(pid_of "$1") && kill "-$2" "$pid" 2>/dev/null
}

# await SECONDS WHAT COMMAND...: repeats the command until it succeeds; after so many seconds, fails and says what.
await() {
    local limit=$((SECONDS + $1)) what=$2 part
    shift 2
    until "$@" >/dev/null 2>&1; do
        for part in ${watched-}; do
            pid_of "$part" >/dev/null || part_failed "$part"
        done
        [ $SECONDS -lt $limit ] || die "waited in vain for $what; the logs are in $dir/log"
        sleep 0.1
    done
}

# part_failed PART: ends the script with the last lines of the part's log.
part_failed() {
    tail -n 15 "$dir/log/$1.log" >&2
    die "$1 ended; $dir/log/$1.log has its output"
}

# gone PART: has it ended?
gone() {
    ! pid_of "$1"
}

# inside COMMAND...: becomes the command in the cluster's namespaces and control groups; with no node, on the host.
inside() {
    if [ "$mode" = node ]; then
        local init
        init=$(pid_of node) || die "the node in $dir does not run"
        join_cgroups
        exec nsenter -t "$init" --mount --pid --net --uts --ipc --cgroup "$@"
    fi
    exec "$@"
}

# start_part PART PROGRAM ARGUMENT...: keeps the command line for later starts, then starts it.
start_part() {
    local part=$1
    shift
    printf '%s\0' "$@" >"$dir/state/commands/$part"
    launch_part "$part"
}

# launch_part PART: starts a process from its kept command line, detached from this script.
launch_part() {
    local -a command
    mapfile -d '' command <"$dir/state/commands/$1"
    local file=$dir/state/pids/$1.inner
    rm -f "$file"
    # The shell in the middle ends at once: the part's parent is then PID 1 of its namespace, which reaps it.
    # shellcheck disable=SC2016
    (inside env -i PATH="$bin:/usr/sbin:/usr/bin:/sbin:/bin" HOME="$dir/data" bash -c '
        pid_file=$1 log=$2
        shift 2
        setsid bash -c "echo \$\$ >\"\$1.new\"; mv \"\$1.new\" \"\$1\"; shift; exec \"\$@\"" bash "$pid_file" "$@" \
            </dev/null >>"$log" 2>&1 &' bash "$file" "$dir/log/$1.log" "${command[@]}") </dev/null 9>&-
    local tries=0
    until [ -e "$file" ]; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || die "$1 did not start"
        sleep 0.02
    done
    record "$1" "$(host_pid "$(cat "$file")")" || part_failed "$1"
    rm -f "$file"
}

# host_pid PID: prints the host's pid for a pid as it is inside; the pid itself where there is no node.
host_pid() {
    [ "$mode" = node ] || { echo "$1" && return; }
    local init namespace status
    init=$(pid_of node)
    namespace=$(readlink "/proc/$init/ns/pid")
    # NSpid lists the pid in each namespace, the host's first.
    for status in $(grep -lsE "^NSpid:.*[[:space:]]$1\$" /proc/[0-9]*/status); do
        status=${status%/status}
        [ "$(readlink "$status/ns/pid" 2>/dev/null)" != "$namespace" ] || { echo "${status#/proc/}" && return; }
    done
    return 1
}

# --- control groups -----------------------------------------------------------------------------------------

# cgroup_mounts: prints "MOUNT-POINT OPTIONS" of each hierarchy that has controllers, and of systemd's.
cgroup_mounts() {
    if [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ]; then
        echo "/sys/fs/cgroup v2"
    else
        # Fields after the dash: type, source, the hierarchy's options.
        awk '{ for (i = 7; $i != "-"; i++); if ($(i + 1) == "cgroup") { sub(/^rw,?/, "", $(i + 3)); print $5, $(i + 3) } }' \
            /proc/self/mountinfo | sort -u
    fi
}

# make_cgroups: makes the cluster's group in each hierarchy.
make_cgroups() {
    local at options
    cgroup_mounts | while read -r at options; do
        mkdir -p "$at/$name"
        # A new group of cpuset has no processors and no memory, and takes no process until it has.
        if [ -e "$at/$name/cpuset.cpus" ] && [ "$options" != v2 ]; then
            cat "$at/cpuset.cpus" >"$at/$name/cpuset.cpus"
            cat "$at/cpuset.mems" >"$at/$name/cpuset.mems"
        fi
    done
}

# join_cgroups: moves this shell into the cluster's groups.
join_cgroups() {
    local at options group
    while read -r at options; do
        group=$at/$name
        # In version 2, a group whose children have controllers holds no process itself; node-init makes `init`.
        [ ! -d "$group/init" ] || group=$group/init
        echo "$BASHPID" >"$group/cgroup.procs"
    done < <(cgroup_mounts)
}

# cgroup_pids: prints the host's pids of all processes in the cluster's groups: parts, shims and pods.
cgroup_pids() {
    find /sys/fs/cgroup -path "*/$name*" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -un
}

# remove_cgroups: removes them, which fails until their processes have ended.
remove_cgroups() {
    local at options bad=0
    while read -r at options; do
        [ ! -d "$at/$name" ] || find "$at/$name" -depth -type d -exec rmdir {} + || bad=1
    done < <(cgroup_mounts)
    return $bad
}
