/* pair_rig.c - starts an engine or two and a router, and compares what they reply with what is wanted. */
#include "tests/proc/router/pair_rig.h"

#include "base/core/own.h"

#include <stdio.h>
#include <string.h>

struct pair pair;

void pair_start(const char *const *flags)
{
    pair_start_model(MODEL, flags);
}

void pair_start_model(const char *model, const char *const *flags)
{
    const char *argv[RIG_ARGS_MAX] = { "--model", model, "--served-model-name", "muster-tiny" };
    rig_add_args(argv, 4, flags);
    pair.engine = rig_server("engine", rig_port(), argv);
    pair.router = rig_server("router", rig_port(), ARGS("--endpoints", pair.engine.at));
    rig_wait_endpoints(&pair.router, 1);
}

int pair_end(void **state)
{
    (void)state;
    int engine = rig_stop(&pair.engine), router = rig_stop(&pair.router);
    return engine || router;
}

void pair_must_have(const struct buf *reply, const char *const *text, size_t count)
{
    const char *at = reply->data;
    for (size_t i = 0; i < count; i++) {
        at = at ? strstr(at, text[i]) : NULL;
        if (!at) fail_msg("no %s in %s", text[i], reply->data ? reply->data : "");
    }
}

void pair_expect(const char *path, const char *body, int status, const char *const *text,
                 size_t count)
{
    const uint16_t ports[] = { pair.router.port, pair.engine.port };
    for (size_t i = 0; i < COUNT_OF(ports); i++) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        assert_int_equal(rig_call(ports[i], path, body, &reply), status);
        pair_must_have(&reply, text, count);
    }
}

void pair_killed(const char *script, const char *const *flags)
{
    char url[64], both[128], pid[2][64];
    struct rig_process two[2];
    for (int i = 0; i < 2; i++) {
        /* At a tenth of a core, an output is not at its end before the client has read its beginning. */
        const char *args[RIG_ARGS_MAX] = { "--model",     MODEL,         "--served-model-name",
                                           "muster-tiny", "--cpu-share", "0.1" };
        rig_add_args(args, 6, flags);
        two[i] = rig_server("engine", rig_port(), args);
        snprintf(pid[i], sizeof pid[i], "static-%d=%lld", i, (long long)two[i].proc.id.pid);
    }
    snprintf(both, sizeof both, "%s,%s", two[0].at, two[1].at);
    struct rig_process router = rig_server("router", rig_port(), ARGS("--endpoints", both));
    rig_wait_endpoints(&router, 2);
    snprintf(url, sizeof url, "http://%s", router.at);
    const char *argv[] = { "python3", script, url, pid[0], pid[1], NULL };
    int code = rig_client("killer", argv, 8);
    double continued = rig_metric(router.port, "muster_router_continued_total");
    for (int i = 0; i < 2; i++)
        rig_stop(&two[i]); /* one was killed by the client */
    int router_code = rig_stop(&router);
    assert_int_equal(code, 0);
    assert_int_equal(router_code, 0);
    assert_true(continued >= 1);
}
