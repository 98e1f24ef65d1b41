/* cmd_drain.c - `muster drain`: let an instance, a pool or a node finish its requests and end, and wait
 * until that is done; or take it back.
 *
 * The controller drains; this command sends the order and watches. An instance counts as empty once the
 * controller ends it or has forgotten it: then its agent has reported that nothing was in flight for a
 * while, or the drain's time was over, which is told as a failure. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "base/wire/order.h"
#include "cli/command.h"
#include "cli/remote.h"

#include <stdio.h>
#include <unistd.h>

#define POLL_US 250000

struct drain_options {
    struct remote_place place;
    struct str instance, pool, node;
    int64_t timeout_us;
    bool undo;
    int output;
};

#define AT(member) .offset = offsetof(struct drain_options, member)
// clang-format off
static const struct config_field rows[] = {
    REMOTE_ROWS(struct drain_options, place),
    { .name = "pool", .letter = 'p', .type = CONFIG_TEXT, AT(pool),
      .about = "SERVICE/POOL, or POOL where one service has it: no instance of it is wanted until --undo." },
    { .name = "node", .type = CONFIG_TEXT, AT(node),
      .about = "All instances that run on this machine now (`muster get instances -o wide`)." },
    { .name = "timeout", .letter = 't', .type = CONFIG_DURATION, .default_text = "5m", .min = 0,
      .max = 864e8, AT(timeout_us),
      .about = "Wait so long until they are empty; 0 sends the order and looks once." },
    { .name = "undo", .type = CONFIG_BOOL, .default_text = "false", AT(undo),
      .about = "Take a drain back; what has ended meanwhile stays ended." },
    REMOTE_TREES_ROW(struct drain_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "INSTANCE", AT(instance), .about = "Id of an instance (`muster get instances`)." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct drain_options, rows);
static const struct opt_command usage = {
    .name = "muster drain",
    .about = "Send no new requests to instances, let them finish, and end them.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes =
        "The exit status is 0 once all of them are empty, 124 if the time is over before, and 1 "
        "if\n"
        "requests were in flight when an instance's own time (`controller.drain`) was over. The\n"
        "drain goes on when this command ends. An instance that is needed is replaced; to keep\n"
        "new ones off a machine, close that machine at its provider.",
};

/* ---- the order ---- */

struct owner {
    struct str pool;
    struct buf services; /* that have it, joined by ", " */
    uint32_t count;
};

static int add_owner(void *ctx, struct str item)
{
    struct owner *o = ctx;
    CLEANUP(buf_fini) struct buf pool = { 0 };
    int rc = json_path_text(item, "pool", &pool);
    if (rc < 0 || !str_eq(buf_view(&pool), o->pool)) return rc;
    if (o->count++ > 0) buf_text(&o->services, ", ");
    return json_path_text(item, "service", &o->services);
}

/* Finds the service of --pool: the text before the slash, or the only one that has the pool. */
static int find_service(const struct remote *api, struct drain_order *order, struct buf *service,
                        struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct str rest = order->pool, first = str_cut(&rest, '/');
    if (rest.data) {
        order->service = first;
        order->pool = rest;
        return 0;
    }
    struct owner o = { .pool = order->pool };
    int rc = remote_get(api, "/api/v1/pools", &reply, err);
    if (rc < 0) return rc;
    rc = json_path_each(buf_view(&reply), "pools", add_owner, &o);
    if (rc < 0)
        rc = err_set(err, -EPROTO, "the controller's list of pools is not understood");
    else if (o.count == 0)
        rc = err_set(err, -ENOENT,
                     "no service has a pool '" STR_FMT "'; `muster get pools` lists them",
                     STR_ARG(o.pool));
    else if (o.count > 1)
        rc = err_set(err, -EINVAL,
                     "several services have a pool " STR_FMT ": name one of " STR_FMT
                     " as SERVICE/" STR_FMT,
                     STR_ARG(o.pool), STR_ARG(buf_view(&o.services)), STR_ARG(o.pool));
    else
        rc = buf_str(service, buf_view(&o.services));
    order->service = buf_view(service);
    buf_fini(&o.services);
    return rc;
}

static int send_order(const struct remote *api, const struct drain_options *o, struct buf *reply,
                      struct err *err)
{
    CLEANUP(buf_fini) struct buf body = { 0 }, service = { 0 };
    struct drain_order order = {
        .instance = o->instance, .pool = o->pool, .node = o->node, .undo = o->undo
    };
    int rc = o->pool.len > 0 ? find_service(api, &order, &service, err) : 0;
    if (rc < 0) return rc;
    if (drain_order_encode(&order, &body) < 0)
        return err_set(err, body.rc, "no memory for the order");
    return remote_call(api, STR("/api/v1/drain"), buf_view(&body), reply, err);
}

/* ---- watching ---- */

/* One look at the instances that the order is about. */
struct look {
    struct str ordered; /* the reply to the order */
    struct str instances;
    struct str intents; /* read once an instance is gone: they outlive it, and know how it ended */
    bool gone;
    struct json_writer w; /* {"instance":..,"state":..,"in_flight":..,"unfinished":..} each */
    struct buf *said;     /* progress, for people */
    uint32_t left, all;
    double unfinished;
};

struct named {
    const char *key; /* of the id */
    struct str id, item;
};

static int find_item(void *ctx, struct str item)
{
    struct named *n = ctx;
    CLEANUP(buf_fini) struct buf id = { 0 };
    if (json_path_text(item, n->key, &id) < 0) return -EINVAL;
    if (!str_eq(buf_view(&id), n->id)) return 0;
    n->item = item;
    return 1;
}

static double number(struct str item, const char *path)
{
    double v = 0;
    (void)json_path_f64(item, path, &v); /* absent: not reported */
    return v;
}

static void put_one(struct look *l, struct str id, struct str state, double in_flight,
                    double unfinished)
{
    json_object(&l->w);
    json_kv_str(&l->w, "instance", id);
    json_kv_str(&l->w, "state", state);
    json_kv_f64(&l->w, "in_flight", in_flight);
    json_kv_f64(&l->w, "unfinished", unfinished);
    json_object_end(&l->w);
}

static void count_unfinished(struct look *l, double unfinished)
{
    if (unfinished > l->unfinished) l->unfinished = unfinished;
}

static int look_at_gone(struct look *l, struct str id)
{
    struct named n = { .key = "id", .id = id };
    l->gone = true;
    int rc = l->intents.len > 0 ? json_path_each(l->intents, "intents", find_item, &n) : 0;
    if (rc < 0) return rc;
    double unfinished = n.item.data ? number(n.item, "unfinished") : 0;
    count_unfinished(l, unfinished);
    put_one(l, id, STR("gone"), 0, unfinished);
    return 0;
}

static int look_at(void *ctx, struct str text)
{
    struct look *l = ctx;
    CLEANUP(buf_fini) struct buf id = { 0 }, phase = { 0 };
    int rc = json_path_text(text, "", &id);
    if (rc < 0) return rc;
    struct named n = { .key = "instance", .id = buf_view(&id) };
    rc = json_path_each(l->instances, "instances", find_item, &n);
    if (rc < 0) return rc;
    l->all++;
    if (!n.item.data) return look_at_gone(l, n.id);
    rc = json_path_text(n.item, "phase", &phase);
    if (rc < 0) return rc;
    double running = number(n.item, "engine.running") + number(n.item, "engine.waiting");
    double routed = number(n.item, "routed"), unfinished = number(n.item, "unfinished");
    double in_flight = routed > running ? routed : running;
    bool ends = str_eq(buf_view(&phase), STR("ending"));
    put_one(l, n.id, buf_view(&phase), in_flight, unfinished);
    count_unfinished(l, unfinished);
    if (ends) return 0;
    return buf_printf(l->said, "%s" STR_FMT " " STR_FMT " (%.0f in flight)",
                      l->left++ > 0 ? ", " : "", STR_ARG(n.id), STR_ARG(buf_view(&phase)),
                      in_flight);
}

static int look_at_all(struct look *l, struct buf *list)
{
    l->left = l->all = 0;
    buf_clear(l->said);
    buf_clear(list);
    json_writer_init(&l->w, list);
    json_array(&l->w);
    int rc = json_path_each(l->ordered, "instances", look_at, l);
    json_array_end(&l->w);
    return rc;
}

static int look(const struct remote *api, struct look *l, struct buf *list, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 }, intents = { 0 };
    int rc = remote_get(api, "/api/v1/instances", &reply, err);
    if (rc < 0) return rc;
    l->instances = buf_view(&reply);
    l->intents = (struct str){ 0 };
    l->gone = false;
    rc = look_at_all(l, list);
    if (rc == 0 && l->gone) {
        rc = remote_get(api, "/api/v1/intents", &intents, err);
        if (rc < 0) return rc;
        l->intents = buf_view(&intents);
        rc = look_at_all(l, list);
    }
    return rc < 0 ? err_set(err, -EPROTO, "the controller's list of instances is not understood")
                  : 0;
}

static void tell_progress(const struct look *l, struct buf *before)
{
    if (l->left == 0 || str_eq(buf_view(l->said), buf_view(before))) return;
    fprintf(stderr, "%u of %u left: " STR_FMT "\n", l->left, l->all, STR_ARG(buf_view(l->said)));
    buf_clear(before);
    buf_str(before, buf_view(l->said));
}

static int wait_empty(const struct remote *api, const struct drain_options *o, struct look *l,
                      struct buf *list, struct err *err)
{
    CLEANUP(buf_fini) struct buf before = { 0 };
    int64_t until_us = clock_mono_us() + o->timeout_us;
    for (;;) {
        int rc = look(api, l, list, err);
        if (rc < 0 || l->left == 0) return rc;
        tell_progress(l, &before);
        if (clock_mono_us() >= until_us) return 0;
        usleep(POLL_US);
    }
}

/* ---- the end ---- */

static int print_tree(const struct drain_options *o, const struct look *l, struct str list,
                      double seconds, struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object(&w);
    json_kv_bool(&w, "undo", o->undo);
    json_kv_bool(&w, "empty", !o->undo && l->left == 0);
    json_kv_f64(&w, "seconds", seconds);
    json_key(&w, "instances");
    json_put_raw(&w, list);
    json_object_end(&w);
    return remote_print(o->output, &out, err);
}

static int judge(const struct look *l, struct err *err)
{
    if (l->left > 0)
        return err_set(err, -ETIMEDOUT,
                       "%u of %u instances are not empty yet; the drain goes on: `muster get "
                       "instances`, and the same command waits again",
                       l->left, l->all);
    if (l->unfinished > 0)
        return err_set(err, -EIO,
                       "%.0f requests were in flight when an instance's time to drain was over "
                       "(controller.drain); `muster get events` tells of which",
                       l->unfinished);
    return 0;
}

static int check(const struct drain_options *o, struct err *err)
{
    uint32_t named = (o->instance.len > 0) + (o->pool.len > 0) + (o->node.len > 0);
    if (named == 1) return 0;
    return err_set(err, COMMAND_MISUSED, "name one of INSTANCE, --pool and --node");
}

static int drain(const void *options, struct err *err)
{
    const struct drain_options *o = options;
    CLEANUP(buf_fini) struct buf ordered = { 0 }, said = { 0 }, list = { 0 };
    struct remote api;
    int64_t began_us = clock_mono_us();
    int rc = check(o, err);
    if (rc == 0) rc = remote_find(&o->place, &api, err);
    if (rc == 0) rc = send_order(&api, o, &ordered, err);
    if (rc < 0) return rc;
    struct look l = { .ordered = buf_view(&ordered), .said = &said };
    rc = o->undo ? look(&api, &l, &list, err) : wait_empty(&api, o, &l, &list, err);
    if (rc < 0) return rc;
    double seconds = (double)(clock_mono_us() - began_us) / 1e6;
    if (o->output != REMOTE_TABLE) {
        rc = print_tree(o, &l, buf_view(&list), seconds, err);
        if (rc < 0 || o->undo) return rc;
    } else if (o->undo) {
        printf("The drain is taken back; `muster get instances` shows what is there.\n");
        return 0;
    }
    rc = judge(&l, err);
    if (rc == 0 && o->output == REMOTE_TABLE)
        printf("%u instance%s %s empty after %.1f s.\n", l.all, l.all == 1 ? "" : "s",
               l.all == 1 ? "is" : "are", seconds);
    return rc;
}

static int run(int argc, char *const *argv)
{
    struct drain_options options;
    return command_run(&usage, argc, argv, &options, drain);
}

const struct command command_drain = {
    .name = "drain",
    .group = "Act",
    .about = "let instances finish and end, and wait for it",
    .run = run,
};
