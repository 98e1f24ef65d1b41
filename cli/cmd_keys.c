/* cmd_keys.c - `muster keys`: manage API keys of tenants and their limits. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "base/wire/sync.h"
#include "cli/command.h"
#include "cli/remote.h"

#include <stdio.h>

struct keys_options {
    struct remote_place place;
    struct str act, name;
    int64_t requests_per_min, tokens_per_min, concurrency;
    double weight;
    int output;
};

#define AT(member) .offset = offsetof(struct keys_options, member)
static const char *const actions[] = { "create", "list", "revoke", "open", NULL };
// clang-format off
static const struct config_field rows[] = {
    REMOTE_ROWS(struct keys_options, place),
    { .name = "requests_per_min", .type = CONFIG_INT, .default_text = "0", .min = 0,
      .max = UINT32_MAX, .unit = "requests", AT(requests_per_min),
      .about = "create: requests a minute; 0 for no limit." },
    { .name = "tokens_per_min", .type = CONFIG_INT, .default_text = "0", .min = 0,
      .max = UINT32_MAX, .unit = "tokens", AT(tokens_per_min),
      .about = "create: prompt and output tokens a minute; 0 for no limit." },
    { .name = "concurrency", .type = CONFIG_INT, .default_text = "0", .min = 0,
      .max = UINT32_MAX, .unit = "requests", AT(concurrency),
      .about = "create: requests at once; 0 for no limit." },
    { .name = "weight", .type = CONFIG_FLOAT, .default_text = "1", .min = TENANT_WEIGHT_MIN,
      .max = TENANT_WEIGHT_MAX, AT(weight),
      .about = "create: share of an engine that serves tenants fairly (engine.fair vtc or dlpm), "
               "beside the weights of the others." },
    REMOTE_OUTPUT_ROW(struct keys_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "ACTION", .required = true, AT(act), .words = actions, .about = "create, list, revoke or open." },
    { .name = "NAME", AT(name), .about = "The tenant: letters, digits, '-', '_', '.'." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct keys_options, rows);
static const struct opt_command usage = {
    .name = "muster keys",
    .about = "Make, list and revoke API keys; each belongs to a tenant with limits of its own.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes =
        "With the first key, requests without one are refused, and stay refused when the last key "
        "is\nrevoked or the store is lost; `muster keys open` serves them again. A key is printed "
        "once; only\na digest of it is kept.",
};

static int create(const struct remote *api, const struct keys_options *o, struct err *err)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf key = { 0 };
    struct json_writer w;
    json_writer_init(&w, &body);
    json_object(&w);
    json_kv_str(&w, "name", o->name);
    json_kv_i64(&w, "requests_per_min", o->requests_per_min);
    json_kv_i64(&w, "tokens_per_min", o->tokens_per_min);
    json_kv_i64(&w, "concurrency", o->concurrency);
    json_kv_f64(&w, "weight", o->weight);
    json_object_end(&w);
    if (body.rc < 0) return err_set(err, body.rc, "no memory for the order");
    int rc = remote_call(api, STR("/api/v1/tenants"), buf_view(&body), &reply, err);
    if (rc < 0) return rc;
    if (o->output == REMOTE_JSON) {
        buf_byte(&reply, '\n');
        return command_print(&reply, err);
    }
    rc = json_path_text(buf_view(&reply), "key", &key);
    if (rc < 0) return err_set(err, -EPROTO, "the controller's answer holds no key");
    fprintf(stderr,
            "The key of " STR_FMT ", shown this once; send it as `authorization: Bearer "
            "KEY`.\n",
            STR_ARG(o->name));
    buf_byte(&key, '\n');
    rc = command_print(&key, err);
    explicit_bzero(key.data, key.len);
    return rc;
}

static int revoke(const struct remote *api, const struct keys_options *o, struct err *err)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    buf_text(&path, "/api/v1/tenants/");
    remote_segment(&path, o->name);
    int rc = remote_request(api, STR("DELETE"), buf_view(&path), (struct str){ 0 }, &reply, err);
    if (rc < 0) return rc;
    fprintf(stderr, "The key of " STR_FMT " is revoked; routers refuse it within a second.\n",
            STR_ARG(o->name));
    return 0;
}

static int open_keys(const struct remote *api, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    int rc =
        remote_request(api, STR("POST"), STR("/api/v1/keys/open"), (struct str){ 0 }, &reply, err);
    if (rc < 0) return rc;
    fprintf(stderr, "Requests without a key are served again, until the next key is made.\n");
    return 0;
}

static int list(const struct remote *api, const struct keys_options *o, struct err *err)
{
    const struct resource *k = resource_find(STR("tenants"));
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct str tenants;
    int rc = remote_get(api, k->path, &reply, err);
    if (rc < 0) return rc;
    if (json_path(buf_view(&reply), k->list, &tenants) < 0)
        return err_set(err, -EPROTO, "the controller's list of tenants is not understood");
    if (o->output == REMOTE_JSON) {
        buf_str(&out, tenants);
        buf_byte(&out, '\n');
    } else if (tenants.len < 3) {
        fprintf(stderr, "%s\n", k->empty);
        return 0;
    } else {
        struct table t = { k->column, k->column_count, clock_wall_us(), colour_wanted(stdout) };
        rc = table_print(&t, tenants, &out);
        if (rc < 0) return err_set(err, rc, "the table cannot be made");
    }
    return command_print(&out, err);
}

static int keys(const void *options, struct err *err)
{
    const struct keys_options *o = options;
    bool is_list = str_eq(o->act, STR("list"));
    bool is_open = str_eq(o->act, STR("open"));
    bool is_create = str_eq(o->act, STR("create"));
    struct remote api;
    if (!is_list && !is_open && !is_create && !str_eq(o->act, STR("revoke")))
        return err_set(err, COMMAND_MISUSED,
                       "no action '" STR_FMT "': want create, list, revoke or open",
                       STR_ARG(o->act));
    if (!is_list && !is_open && o->name.len == 0)
        return err_set(err, COMMAND_MISUSED, "keys " STR_FMT " wants the tenant's NAME",
                       STR_ARG(o->act));
    int rc = remote_find(&o->place, &api, err);
    if (rc < 0) return rc;
    if (is_list) return list(&api, o, err);
    if (is_open) return open_keys(&api, err);
    return is_create ? create(&api, o, err) : revoke(&api, o, err);
}

static int run(int argc, char *const *argv)
{
    struct keys_options options;
    return command_run(&usage, argc, argv, &options, keys);
}

const struct command command_keys = {
    .name = "keys",
    .group = "Act",
    .about = "make, list and revoke API keys",
    .run = run,
};
