/* pair_rig.c - starts an engine and a router, and compares what both reply with what is wanted. */
#include "tests/proc/router/pair_rig.h"

#include "base/core/own.h"

#include <string.h>

struct pair pair;

void pair_start(const char *const *flags)
{
    const char *argv[RIG_ARGS_MAX] = { "--model", MODEL, "--served-model-name", "muster-tiny" };
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
