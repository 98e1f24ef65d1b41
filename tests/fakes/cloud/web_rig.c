/* web_rig.c - a cloud over a fake of its provider. */
#include "tests/fakes/cloud/web_rig.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct config_section *const sections[] = { &clouds_section };
static const struct config_schema schema = { sections, COUNT_OF(sections), NULL };

static int load(const char *yaml, struct config **ret, struct err *err)
{
    const struct config_sources sources = { .path = "test.yaml", .text = str_from(yaml) };
    return config_load(&schema, &sources, ret, NULL, err);
}

const char *web_rig_problem(const char *yaml)
{
    static struct err err;
    CLEANUP(config_freep) struct config *config = NULL;
    CLEANUP(arena_fini) struct arena arena;
    struct web_settings *all;
    arena_init(&arena, (size_t)1 << 20);
    err.text[0] = 0;
    if (load(yaml, &config, &err) < 0) return err.text;
    const struct config_records *list = config_section_get(config, clouds_section.name);
    web_settings_make_all(list->items, list->count, &arena, &all, &err);
    return err.text;
}

void web_rig_settings(struct web_rig *r, const char *yaml)
{
    struct err err = { 0 };
    if (load(yaml, &r->config, &err) < 0) fail_msg("%s", err.text);
    arena_init(&r->arena, (size_t)1 << 20);
    const struct config_records *list = config_section_get(r->config, clouds_section.name);
    if (web_settings_make_all(list->items, list->count, &r->arena, &r->settings, &err) < 0)
        fail_msg("%s", err.text);
    r->cloud_count = (uint32_t)list->count;
}

static int read_secret(void *ctx, const char *path, struct buf *out, struct err *err)
{
    const struct web_rig *r = ctx;
    if (r->token && strcmp(path, r->token_path) == 0) return buf_text(out, r->token);
    if (!r->secret || (r->token_path && strcmp(path, r->token_path) == 0))
        return err_set(err, -ENOENT, "%s: there is no such file", path);
    return buf_text(out, r->secret);
}

void web_rig_open(struct web_rig *r, const char *yaml, const struct cloud_fake *fake, void *ctx,
                  const char *const *environ)
{
    struct err err = { 0 };
    *r = (struct web_rig){ .environ = environ, .now_us = RIG_START };
    web_rig_settings(r, yaml);
    r->host = (struct web_host){ .environ = environ, .read_secret = read_secret, .ctx = r };
    if (web_drive_open(&r->drive, &r->settings[0], &r->host, 1, fake->respond, ctx, &err) < 0)
        fail_msg("%s", err.text);
    r->drive.date_us = RIG_DATE_US;
}

void web_rig_close(struct web_rig *r)
{
    web_drive_close(&r->drive);
    arena_fini(&r->arena);
    config_free(r->config);
}

static const struct cloud_event *call(struct web_rig *r, struct cloud_call call)
{
    r->event = (struct cloud_event){ 0 };
    web_drive_call(&r->drive, &call, r->now_us, r->room, &r->event);
    r->now_us = r->drive.ended_us;
    return &r->event;
}

const struct cloud_event *web_rig_create(struct web_rig *r, const char *intent, const char *offer)
{
    static const struct str args[] = { { "muster", 6 }, { "engine", 6 } };
    struct offer o = { 0 };
    snprintf(o.name, sizeof o.name, "%s", offer);
    const struct launch_spec spec = { .instance = str_from(intent),
                                      .service = STR("org/chat model"),
                                      .pool = STR("small"),
                                      .offer = str_from(offer),
                                      .controller_host = STR("10.0.0.1"),
                                      .controller_port = 8090,
                                      .engine_host = STR("127.0.0.1"),
                                      .engine_args = args,
                                      .engine_arg_count = 2 };
    return call(r, (struct cloud_call){ .op = CLOUD_CREATE,
                                        .create = { .intent = intent,
                                                    .offer = &o,
                                                    .spec = &spec,
                                                    .key = STR("key-of-the-instance") } });
}

const struct cloud_event *web_rig_remove(struct web_rig *r, const char *handle, const char *intent)
{
    return call(r, (struct cloud_call){ .op = CLOUD_REMOVE, .handle = handle, .intent = intent });
}

const struct cloud_event *web_rig_turn(struct web_rig *r, const char *handle, const char *intent,
                                       bool on)
{
    return call(r, (struct cloud_call){
                       .op = on ? CLOUD_START : CLOUD_STOP, .handle = handle, .intent = intent });
}

const struct cloud_event *web_rig_list(struct web_rig *r)
{
    return call(r, (struct cloud_call){ .op = CLOUD_LIST });
}

const struct cloud_event *web_rig_prices(struct web_rig *r)
{
    return call(r, (struct cloud_call){ .op = CLOUD_PRICES });
}
