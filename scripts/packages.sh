# packages.sh - install the Debian packages that a script needs, or say how; sourced by sh scripts.
#
#     need_packages gcc cmake ...
#
# Does nothing when all are there. As root it installs them, else through sudo; without sudo it
# prints the command and exits 2.

need_packages() {
    command -v dpkg-query >/dev/null 2>&1 || {
        echo "This is not Debian or Ubuntu; please install the like of: $*" >&2
        return 0
    }
    missing=
    for package in "$@"; do
        state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$state" = installed ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0

    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "Missing packages:$missing" >&2
            echo "Run this as root, then try again:" >&2
            echo "    apt-get update && apt-get install -y$missing" >&2
            exit 2
        fi
        as_root=sudo
    fi
    echo "Installing missing packages${as_root:+ through sudo}:$missing"
    # shellcheck disable=SC2086
    $as_root apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends \
            $missing >/dev/null || {
        echo "Could not install:$missing" >&2
        echo "Check the network and the package sources, then try again." >&2
        exit 2
    }
}

BUILD_PACKAGES="gcc libc6-dev cmake ninja-build pkg-config libssl-dev libxxhash-dev libyaml-dev
    libsqlite3-dev libutf8proc-dev libzstd-dev libcurl4-openssl-dev libhiredis-dev
    libexpat1-dev"
CHECK_PACKAGES="libcmocka-dev mold"
FUZZ_PACKAGES="clang libclang-rt-dev"
