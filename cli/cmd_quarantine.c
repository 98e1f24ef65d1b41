/* cmd_quarantine.c - `muster quarantine`: list and clear prompts that killed engines, from each router.
 *
 * Every router finds them by itself; the controller only names the routers. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/wire/order.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "cli/table.h"

#include <stdio.h>

#define SILENT_S 3.0 /* six syncs: a router silent for longer has ended, but stays listed */

#define PATH "/admin/quarantine"

struct quarantine_options {
    struct remote_place place;
    struct str act, prompt;
    int output;
};

#define AT(member) .offset = offsetof(struct quarantine_options, member)
static const char *const actions[] = { "list", "clear", NULL };
// clang-format off
static const struct config_field rows[] = {
    REMOTE_ROWS(struct quarantine_options, place),
    REMOTE_OUTPUT_ROW(struct quarantine_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "ACTION", .required = true, AT(act), .words = actions, .about = "list or clear." },
    { .name = "PROMPT", AT(prompt), .about = "clear: a fingerprint of the list, or all." },
};
static const struct table_column columns[] = {
    { "ROUTER", "router", TABLE_TEXT },     { "PROMPT", "fingerprint", TABLE_TEXT },
    { "STATE", "state", TABLE_STATE },      { "ENGINES", "engines", TABLE_COUNT },
    { "PROVEN", "proven", TABLE_COUNT },    { "REFUSALS", "refusals", TABLE_COUNT },
    { "LEFT", "left_s", TABLE_AGE },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct quarantine_options, rows);
static const struct opt_command usage = {
    .name = "muster quarantine",
    .about = "Show and clear prompts that killed engines.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes =
        "A prompt is refused once two engines died while they computed it, until its time is "
        "over\n(`router.quarantine`). A suspect was there when one died; it is served, apart "
        "from others.\nTold: another router refuses it, or this one did before it started again.",
};

struct walk {
    const struct remote *api;
    const struct quarantine_options *o;
    uint64_t prompt; /* 0: all */
    struct buf list; /* the prompts of all routers */
    struct json_writer w;
    struct str router;
    uint32_t routers, prompts;
    struct err *err;
};

static int put_item(void *ctx, struct str item)
{
    struct walk *walk = ctx;
    CLEANUP(buf_fini) struct buf name = { 0 };
    CLEANUP(buf_fini) struct buf state = { 0 };
    double engines = 0, proven = 0, refusals = 0, left_s = 0;
    if (json_path_text(item, "fingerprint", &name) < 0 ||
        json_path_text(item, "state", &state) < 0 || json_path_f64(item, "engines", &engines) < 0 ||
        json_path_f64(item, "proven", &proven) < 0 ||
        json_path_f64(item, "refusals", &refusals) < 0 ||
        json_path_f64(item, "left_s", &left_s) < 0)
        return err_set(walk->err, -EPROTO, "the router's list is not understood");
    json_object(&walk->w);
    json_kv_str(&walk->w, "router", walk->router);
    json_kv_str(&walk->w, "fingerprint", buf_view(&name));
    json_kv_str(&walk->w, "state", buf_view(&state));
    json_kv_f64(&walk->w, "engines", engines);
    json_kv_f64(&walk->w, "proven", proven);
    json_kv_f64(&walk->w, "refusals", refusals);
    json_kv_f64(&walk->w, "left_s", left_s);
    json_object_end(&walk->w);
    walk->prompts++;
    return 0;
}

static int ask_router(struct walk *walk, const struct remote *router)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    if (str_eq(walk->o->act, STR("list"))) {
        int rc = remote_get(router, PATH, &reply, walk->err);
        return rc < 0 ? rc : json_path_each(buf_view(&reply), "quarantine", put_item, walk);
    }
    if (quarantine_order_encode(walk->prompt, &body) < 0)
        return err_set(walk->err, body.rc, "no memory for the order");
    return remote_call(router, STR(PATH "/clear"), buf_view(&body), &reply, walk->err);
}

static int each_router(void *ctx, struct str item)
{
    struct walk *walk = ctx;
    struct remote router = *walk->api;
    CLEANUP(buf_fini) struct buf name = { 0 };
    CLEANUP(buf_fini) struct buf host = { 0 };
    uint64_t port = 0;
    double age_s = 0;
    if (json_path_text(item, "router", &name) < 0 || json_path_text(item, "host", &host) < 0 ||
        json_path_u64(item, "port", &port) < 0 || json_path_f64(item, "sync_age_s", &age_s) < 0 ||
        port == 0 || port > UINT16_MAX || host.len >= sizeof router.host)
        return err_set(walk->err, -EPROTO, "the controller's list of routers is not understood");
    memcpy(router.host, host.data, host.len);
    router.host[host.len] = 0;
    router.port = (uint16_t)port;
    router.is_router = true;
    walk->router = buf_view(&name);
    int rc = ask_router(walk, &router);
    if (rc < 0 && age_s > SILENT_S) {
        fprintf(stderr, "Router " STR_FMT ", silent for %.0f s, is left out: %s\n",
                STR_ARG(walk->router), age_s, walk->err->text);
        *walk->err = (struct err){ 0 };
        return 0;
    }
    walk->routers++;
    return rc < 0 ? err_prefix(walk->err, rc, "router " STR_FMT, STR_ARG(walk->router)) : 0;
}

/* Clears the prompt at the controller, which passes refusals on to other routers and restarted ones. */
static int clear_told(const struct walk *walk)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    if (quarantine_order_encode(walk->prompt, &body) < 0)
        return err_set(walk->err, body.rc, "no memory for the order");
    return remote_call(walk->api, STR("/api/v1/quarantine/clear"), buf_view(&body), &reply,
                       walk->err);
}

static int show(struct walk *walk, struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    if (walk->o->output == REMOTE_JSON) {
        buf_str(&out, buf_view(&walk->list));
        buf_byte(&out, '\n');
    } else if (walk->prompts == 0) {
        fprintf(stderr, "No prompt is in quarantine.\n");
        return 0;
    } else {
        struct table t = { columns, COUNT_OF(columns), 0, colour_wanted(stdout) };
        int rc = table_print(&t, buf_view(&walk->list), &out);
        if (rc < 0) return err_set(err, rc, "the table cannot be made");
    }
    return command_print(&out, err);
}

static int check(const struct quarantine_options *o, uint64_t *ret_prompt, struct err *err)
{
    bool is_list = str_eq(o->act, STR("list"));
    if (!is_list && !str_eq(o->act, STR("clear")))
        return err_set(err, COMMAND_MISUSED, "no action '" STR_FMT "': want list or clear",
                       STR_ARG(o->act));
    *ret_prompt = 0;
    if (!is_list && order_fingerprint(o->prompt, ret_prompt) < 0)
        return err_set(err, COMMAND_MISUSED,
                       "quarantine clear wants a PROMPT as `muster quarantine list` shows it, or "
                       "all");
    return 0;
}

static int quarantine(const void *options, struct err *err)
{
    const struct quarantine_options *o = options;
    struct remote api;
    CLEANUP(buf_fini) struct buf status = { 0 };
    uint64_t prompt;
    int rc = check(o, &prompt, err);
    if (rc != 0) return rc;
    rc = remote_find(&o->place, &api, err);
    if (rc == 0) rc = remote_get(&api, "/api/v1/status", &status, err);
    if (rc < 0) return rc;
    struct walk walk = { .api = &api, .o = o, .prompt = prompt, .err = err };
    json_writer_init(&walk.w, &walk.list);
    json_array(&walk.w);
    bool clears = str_eq(o->act, STR("clear"));
    /* Before the routers, which would be told again at once; and behind them, whose own words may have come
     * in between. */
    if (clears) rc = clear_told(&walk);
    if (rc == 0) rc = json_path_each(buf_view(&status), "routers", each_router, &walk);
    json_array_end(&walk.w);
    if (rc == 0 && !clears) rc = show(&walk, err);
    if (rc == 0 && clears) rc = clear_told(&walk);
    if (rc == 0 && clears)
        fprintf(stderr, "Cleared at %u router%s.\n", walk.routers, walk.routers == 1 ? "" : "s");
    buf_fini(&walk.list);
    return rc;
}

static int run(int argc, char *const *argv)
{
    struct quarantine_options options;
    return command_run(&usage, argc, argv, &options, quarantine);
}

const struct command command_quarantine = {
    .name = "quarantine",
    .group = "Act",
    .about = "show and clear prompts that killed engines",
    .run = run,
};
