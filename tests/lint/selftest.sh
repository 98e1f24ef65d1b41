#!/bin/sh
# selftest.sh [CC] - checks that each lint finds its faults: a small tree passes, and fails for every
# fault planted in it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cc=${1:-cc}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
bad=0
# The lints are copied, with an empty sizes.txt: the exceptions of the real tree do not apply here.
cp -r "$here" "$tree/lint"
excuses=$tree/lint/sizes.txt
: >"$excuses"

# fresh: makes the tree without faults.
fresh() {
    rm -rf "$tree/t"
    mkdir -p "$tree/t/base/core" "$tree/t/base/io" "$tree/t/policies" "$tree/t/router/core" \
        "$tree/t/engine" "$tree/t/simulator" "$tree/t/cli" "$tree/t/build/x" "$tree/t/muster-state/x"
    cd "$tree/t"
    cp "$here/../../base/core/banned.h" base/core/
    printf '#pragma once\n#include <stdint.h>\nuint32_t a(void);\n' >base/core/a.h
    printf '#include "base/core/a.h"\n\nuint32_t a(void)\n{\n    return 1; /* rand() */\n}\n' >base/core/a.c
    printf '#include "base/core/a.h"\n' >policies/p.c
    printf '#include "policies/p.h"\n#include "base/io/x.h"\n' >router/r.c
    printf '#include "router/r.h"\n#include "engine/e.h"\n' >cli/c.c
    printf '#include "nowhere.h"\nstrcpy(a, b);\n' >build/x/generated.c
    cp build/x/generated.c muster-state/x/left_behind.c
}

# expect LINT passes|fails WHY: runs LINT on the tree; another result is an error.
expect() {
    if sh "$tree/lint/$1.sh" "$tree/t" "$cc" >"$tree/out" 2>&1; then got=passes; else got=fails; fi
    [ "$got" = "$2" ] && return
    echo "selftest: $1 $got: $3"
    cat "$tree/out"
    bad=1
}

# plant LINT WHY FILE TEXT: appends TEXT to FILE of a fresh tree; LINT must fail.
plant() {
    fresh
    printf "$4" >>"$3"
    expect "$1" fails "$2"
}

fresh
for lint in layers headers banned sizes paths truth windows; do expect $lint passes 'a tree without faults'; done

plant layers 'base may not know policies' base/core/a.c '#include "policies/p.h"\n'
plant layers 'a core may not know its shell' router/core/c.c '#include "router/r.h"\n'
plant layers 'one role may not know another' router/r.c '  #  include "engine/e.h"\n'
plant layers 'policies do no I/O' policies/p.c '#include <stdio.h>\n'
plant layers 'a core reads no clock' router/core/c.c '#include <time.h>\n'
plant layers 'a vendor header has its one place' router/r.c '#include <openssl/evp.h>\n'
plant layers 'a folder that no layer covers' stray.c '#include "base/core/a.h"\n'
plant layers 'a header named from its own folder' base/core/a.c '#include "a.h"\n'
plant truth 'a policy that reads the true length' policies/p.c 'int x = f->truth_tokens;\n'
plant windows 'a second window' router/r.c '#define MEAN_WINDOW_US 15000000\n'
plant windows 'a period of the simulator alone' simulator/s.c '  # define REPORT_US 1000000\n'
plant windows 'a bound of the simulator alone' simulator/s.c '#define WAITING_MAX (1u << 20)\n'
plant headers 'a type that was not included' base/core/a.h 'size_t b(void);\n'
plant banned 'banned everywhere' cli/c.c 'void f(void) { strcpy(a, b); }\n'
plant banned 'banned, with a space' cli/c.c 'int v = atoi (x);\n'
plant banned 'a comment may stand before it' cli/c.c '/* x */ int v = rand();\n'
plant banned 'a lock that does not know its holder' router/r.c 'void f(void) { pthread_mutex_lock(&m); }\n'
plant banned 'a decision may not print' router/core/c.c 'void f(void) { printf("x"); }\n'
plant banned 'a policy owns no memory' policies/p.c 'void *f(void) { return malloc(1); }\n'
plant prose 'a comment that begins with What' cli/c.c '/* What it holds. */\n'
plant prose 'a member whose comment begins with Who' router/r.h '    /* Who asks. */\n'
plant prose 'a member behind its type' router/r.h '    const char\n        *name; /* of it */\n'
plant prose 'a value behind its name' router/r.h '#define LONG_NAME \\\n    32 /* of it */\n'
plant sizes 'a noun that was cut' cli/c_part.h '#pragma once\n'
plant paths 'the checkout itself' cli/c.c "/* $tree/t/cli */\n"
plant paths "somebody's home" cli/c.c "/* /ho""me/x */\n"

fresh
{
    printf 'int f(void)\n{\n'
    seq 81 | sed 's/.*/    g();/'
    printf '}\n'
} >>cli/c.c
expect sizes fails 'a function of 81 lines'
fresh
seq 201 | sed 's/.*/extern int x;/' >cli/long.h
expect sizes fails 'a header of 201 lines'
fresh
mkdir cli/many
for i in $(seq 61); do echo 'extern int x;' >"cli/many/f$i.c"; done
expect sizes fails 'a folder of 61 files'
rm cli/many/f61.c
expect sizes passes 'a folder of 60'
fresh
seq 1501 | sed 's/.*/extern int x;/' >cli/long.c
expect sizes fails 'a file of 1,501 lines'
echo 'cli/long.c 1501' >"$excuses"
expect sizes passes 'an excused file'
echo 'extern int y;' >>cli/long.c
expect sizes fails 'an excused file that grew'
echo 'cli/long.c 1503' >"$excuses"
expect sizes fails 'an excuse that is wider than its file'
echo 'cli/gone.c 1600' >"$excuses"
expect sizes fails 'an excuse for nothing'

# metrics.sh asks the binary; a script stands for it here and exports sixty metrics.
metrics() {
    seq 60 | sed 's/.*/| `muster_router_m&_total` |/'
}
stand_in=$tree/muster
{
    echo '#!/bin/sh'
    metrics | sed "s/.*/echo '&'/"
} >"$stand_in"
chmod +x "$stand_in"
fresh_metrics() {
    fresh
    mkdir -p dashboards/rules docs/runbooks tests/dashboards/rules
    metrics >dashboards/d.json
    touch dashboards/rules/r.yaml docs/runbooks/R.md tests/dashboards/rules/r.yaml README.md CONTRIBUTING.md
}
cc=$stand_in
fresh_metrics
expect metrics passes 'every metric is used and exists'
sed -i '/_m7_/d' dashboards/d.json
expect metrics fails 'a metric that nothing uses'
echo 'muster_router_m7_total' >docs/runbooks/R.md
expect metrics passes 'a document uses it'
echo 'rate(muster_router_gone_total[5m])' >dashboards/rules/r.yaml
expect metrics fails 'an alert on a metric that is gone'
echo 'muster_router_m8_total_bucket' >dashboards/rules/r.yaml
expect metrics passes 'a part of a histogram'

exit $bad
