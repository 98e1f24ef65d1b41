/* up_rig.c - runs commands against a fleet of `muster up`. */
#include "tests/proc/rig/up_rig.h"

#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"

#include <stdio.h>
#include <unistd.h>

struct places places;

int places_make(void **state)
{
    (void)state;
    struct places *p = &places;
    p->router_port = rig_port();
    p->controller_port = rig_port();
    snprintf(p->router_at, sizeof p->router_at, "127.0.0.1:%u", p->router_port);
    snprintf(p->controller_at, sizeof p->controller_at, "127.0.0.1:%u", p->controller_port);
    snprintf(p->state, sizeof p->state, "%s/state", rig_folder());
    snprintf(p->config, sizeof p->config, "%s/muster.yaml", rig_folder());
    return 0;
}

void places_config(const char *yaml)
{
    assert_int_equal(file_write_atomic(places.config, str_from(yaml), 0600, NULL), 0);
}

int places_end(void **state)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    (void)state;
    return MUSTER(&out, "down", STATE, "--now") == 0 ? 0 : -1;
}

void up_want(int status, const char *says, const char *const *args)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    int got = rig_run(&out, args);
    if (got != status || !strstr(out.data, says))
        fail_msg("muster %s %s: exit %d, want %d and '%s':\n%s", args[0], args[1] ? args[1] : "",
                 got, status, says, out.data);
}

void up_await(const char *says, const char *const *args)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    int64_t until_us = clock_mono_us() + 2 * (int64_t)RIG_WAIT_US;
    do {
        if (rig_run(&out, args) == 0 && strstr(out.data, says)) return;
        usleep(100000);
    } while (clock_mono_us() < until_us);
    fail_msg("muster %s %s never said '%s':\n%s", args[0], args[1], says, out.data);
}
