/* cmd_tokens.c - `muster tokens`: manage credentials of people and programs for the controller. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "cli/command.h"
#include "cli/remote.h"

#include <stdio.h>

struct tokens_options {
    struct remote_place place;
    struct str act, name;
    int role, output;
};

static const char *const roles[] = { "read", "admin", NULL };

#define AT(member) .offset = offsetof(struct tokens_options, member)
static const char *const actions[] = { "create", "list", "revoke", NULL };
// clang-format off
static const struct config_field rows[] = {
    REMOTE_ROWS(struct tokens_options, place),
    { .name = "role", .letter = 'r', .type = CONFIG_ENUM, .default_text = "read", .names = roles,
      AT(role), .about = "create: what the token may do; an admin's does whatever the secret does." },
    REMOTE_OUTPUT_ROW(struct tokens_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "ACTION", .required = true, AT(act), .words = actions, .about = "create, list or revoke." },
    { .name = "NAME", AT(name), .about = "Of the token: letters, digits, '-', '_', '.'." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct tokens_options, rows);
static const struct opt_command usage = {
    .name = "muster tokens",
    .about = "Make, list and revoke tokens with which people and programs use the controller.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes = "A token is printed once; only a digest of it is kept. Commands take it with --token, "
             "the\nconsole asks for it, Prometheus sends a read-only one as `authorization: Bearer "
             "TOKEN`.",
};

static int create(const struct remote *api, const struct tokens_options *o, struct err *err)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf token = { 0 };
    struct json_writer w;
    json_writer_init(&w, &body);
    json_object(&w);
    json_kv_str(&w, "name", o->name);
    json_kv_text(&w, "role", roles[o->role]);
    json_object_end(&w);
    if (body.rc < 0) return err_set(err, body.rc, "no memory for the order");
    int rc = remote_call(api, STR("/api/v1/tokens"), buf_view(&body), &reply, err);
    if (rc < 0) return rc;
    if (o->output == REMOTE_JSON) {
        buf_byte(&reply, '\n');
        return command_print(&reply, err);
    }
    rc = json_path_text(buf_view(&reply), "token", &token);
    if (rc < 0) return err_set(err, -EPROTO, "the controller's answer holds no token");
    fprintf(stderr, "The %s token " STR_FMT ", shown this once.\n", roles[o->role],
            STR_ARG(o->name));
    buf_byte(&token, '\n');
    rc = command_print(&token, err);
    explicit_bzero(token.data, token.len);
    return rc;
}

static int revoke(const struct remote *api, const struct tokens_options *o, struct err *err)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    buf_text(&path, "/api/v1/tokens/");
    remote_segment(&path, o->name);
    int rc = remote_request(api, STR("DELETE"), buf_view(&path), (struct str){ 0 }, &reply, err);
    if (rc < 0) return rc;
    fprintf(stderr, "The token " STR_FMT " is revoked; routers refuse it within a second.\n",
            STR_ARG(o->name));
    return 0;
}

static int list(const struct remote *api, const struct tokens_options *o, struct err *err)
{
    const struct resource *k = resource_find(STR("tokens"));
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct str tokens;
    int rc = remote_get(api, k->path, &reply, err);
    if (rc < 0) return rc;
    if (json_path(buf_view(&reply), k->list, &tokens) < 0)
        return err_set(err, -EPROTO, "the controller's list of tokens is not understood");
    if (o->output == REMOTE_JSON) {
        buf_str(&out, tokens);
        buf_byte(&out, '\n');
    } else if (tokens.len < 3) {
        fprintf(stderr, "%s\n", k->empty);
        return 0;
    } else {
        struct table t = { k->column, k->column_count, clock_wall_us(), colour_wanted(stdout) };
        rc = table_print(&t, tokens, &out);
        if (rc < 0) return err_set(err, rc, "the table cannot be made");
    }
    return command_print(&out, err);
}

static int tokens(const void *options, struct err *err)
{
    const struct tokens_options *o = options;
    bool is_list = str_eq(o->act, STR("list"));
    bool is_create = str_eq(o->act, STR("create"));
    struct remote api;
    if (!is_list && !is_create && !str_eq(o->act, STR("revoke")))
        return err_set(err, COMMAND_MISUSED, "no action '" STR_FMT "': want create, list or revoke",
                       STR_ARG(o->act));
    if (!is_list && o->name.len == 0)
        return err_set(err, COMMAND_MISUSED, "tokens " STR_FMT " wants the token's NAME",
                       STR_ARG(o->act));
    int rc = remote_find(&o->place, &api, err);
    if (rc < 0) return rc;
    if (is_list) return list(&api, o, err);
    return is_create ? create(&api, o, err) : revoke(&api, o, err);
}

static int run(int argc, char *const *argv)
{
    struct tokens_options options;
    return command_run(&usage, argc, argv, &options, tokens);
}

const struct command command_tokens = {
    .name = "tokens",
    .group = "Act",
    .about = "make, list and revoke tokens of people and programs",
    .run = run,
};
