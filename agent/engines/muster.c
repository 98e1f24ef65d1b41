/* muster.c - the engine kind `muster`: our own engine, which says all of itself in one reply.
 *
 * The controller makes its command line whole, because its settings are those of the configuration; the
 * agent adds what it alone knows: address, key and share. */
#include "agent/engines/engine_driver.h"

#include <stdio.h>

static void add(struct engine_command *c, const struct engine_start *start)
{
    const struct launch_spec *s = start->spec;
    char text[256], name[512];
    snprintf(text, sizeof text, STR_FMT ":%u", STR_ARG(s->engine_host), start->port);
    command_flag(c, "--listen", str_from(text));
    command_flag(c, "--secret-file", s->secret_file);
    /* In the environment: a program that is put in the engine's place may not know the flag. */
    snprintf(name, sizeof name, "MUSTER_ENGINE_INSTANCE=" STR_FMT, STR_ARG(s->instance));
    if (s->instance.len > 0) command_env(c, name);
    snprintf(text, sizeof text, "%g", s->share);
    if (s->share > 0) command_flag(c, "--cpu-share", str_from(text));
}

static void command(struct engine_command *c, const struct engine_start *start)
{
    command_make(c, start, add);
}

static int take_info(struct engine_sight *s, struct str body, struct err *err)
{
    struct engine_report r;
    struct arena *next = &s->arena[s->arena_at ^ 1];
    arena_reset(next);
    int rc = engine_report_decode(body, next, &r, err);
    if (rc < 0) return rc;
    s->arena_at ^= 1;
    s->report = r;
    s->report.kind = ENGINE_MUSTER;
    return 0;
}

static const struct engine_ask asks[] = {
    { .path = "/internal/info", .take = take_info },
};

const struct engine_driver engine_muster = {
    .kind = ENGINE_MUSTER,
    .command = command,
    .ask = asks,
    .ask_count = COUNT_OF(asks),
};
