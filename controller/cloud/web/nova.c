/* nova.c - speaks OpenStack's Compute API (Nova), with a login at Identity (Keystone v3): an instance is a server with
 * the intent's id as its name, and our tags as its metadata.
 *
 *     login:   POST /v3/auth/tokens ──► X-Subject-Token; its catalogue says where Compute is
 *     create:  GET /servers/detail?name=^ID$ ──none──► (GET /flavors once) ──► POST /servers ──202──► made
 *     remove:  DELETE /servers/ID
 *     stop:    POST /servers/ID/action, shelve ──202──► stopped soon; 409 ──► GET /servers/ID, it may be so already
 *     start:   the same with unshelve ──202──► GET /servers/ID until it has a host; no task any more: there is none
 *     list:    GET /servers/detail, page by page
 *     prices:  there are none
 *
 * Names are not unique: what has the intent is looked up first (web_keyless.h). A server without a host is made all
 * the same and comes up as ERROR: it is listed as stuck for want of capacity, and its zone is passed over for a while.
 *
 * A server that is kept stopped is shelved, not switched off: a server that is off holds its host and is billed as one that
 * runs, a shelved one is a disk (or an image of it).
 *
 * Tags are metadata, filtered here, and not Nova's tags of microversion 2.26, which are refused with a create before
 * 2.52, have 60 characters and no '/' or ','. No microversion is asked for: 2.1 has all that is used.
 *
 * Sources: docs.openstack.org/api-ref/compute and /identity/v3, "Faults" of Nova's API guide. */
#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/web/nova_login.h"
#include "controller/cloud/web/provider.h"
#include "controller/cloud/web/web_keyless.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_step.h"
#include "controller/cloud/web/web_tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 100
/* Of a cloud; also the most that a page has unless its operator says otherwise. */
#define FLAVORS_MAX 1000
#define USER_DATA_BYTES 49149 /* 65,535 in base64 */
#define ID_BYTES 64
#define ZONE_TAG "muster-zone" /* the zone that was asked for: a server without a host has none */
#define ZONE_OUT_US ((int64_t)300 * 1000000) /* that a zone without a host is passed over */
#define GIB ((int64_t)1 << 30)
#define TURN_US 2000000 /* between looks at a server that is looking for a host */

/* By the member in which a fault stands. */
static const struct web_code codes[] = {
    { "quota", OFFER_QUOTA, false }, /* ours: a forbidden with such words */
    { "badRequest", OFFER_INVALID, false },
    { "unauthorized", OFFER_AUTH, true },
    { "forbidden", OFFER_AUTH, false },
    { "itemNotFound", OFFER_INVALID, false },
    { "badMethod", OFFER_INVALID, false },
    { "conflictingRequest", OFFER_INVALID, false },
    { "badMediaType", OFFER_INVALID, false },
    { "overLimit", OFFER_THROTTLE, false },
    { "tooManyRequests", OFFER_THROTTLE, false },
    { "computeFault", OFFER_TRANSIENT, false },
    { "serviceUnavailable", OFFER_TRANSIENT, false },
    { 0 },
};

struct own {
    char flavor[CLOUD_PRICES_MAX][ID_BYTES]; /* by offer; empty: not looked up yet */
    struct {
        char name[NAME_BYTES];
        int64_t until_us;
    } out[WEB_ZONES_MAX]; /* zones without a host */
};

/* ---- faults ---- */

struct fault {
    struct arena *arena;
    struct str code, message;
};

static int take_fault(void *ctx, struct str name, struct str value)
{
    struct fault *f = ctx;
    f->code = arena_str(f->arena, name);
    f->message = web_text_at(f->arena, value, "message");
    return 1; /* there is one */
}

static bool has(struct str text, const char *words)
{
    return str_find(text, str_from(words)) != SIZE_MAX;
}

static void refuse(const struct web_provider *p, const struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    struct fault f = { .arena = op->arena };
    if (r->status != 0) json_path_each_member(r->body, "", take_fault, &f);
    if (str_eq(f.code, STR("forbidden")) && (has(f.message, "uota") || has(f.message, "limit")))
        f.code = STR("quota");
    web_refuse_reply(p, op, r, codes, f.code, f.message, ret);
}

static int ask(const struct web_provider *p, struct web_op *op, const char *method,
               const struct buf *path, struct web_step *ret)
{
    if (path->rc < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a request");
        return -ENOMEM;
    }
    int rc = web_ask(op, ret, method, "%s" STR_FMT, p->login.endpoint, STR_ARG(buf_view(path)));
    return rc < 0 ? rc : web_ask_header(op, ret, "x-auth-token", "%s", p->login.token);
}

/* ---- zones ---- */

static bool zone_is_out(const struct own *own, struct str zone, int64_t now_us)
{
    for (size_t i = 0; i < WEB_ZONES_MAX; i++)
        if (own->out[i].until_us > now_us && str_eq(str_from(own->out[i].name), zone)) return true;
    return false;
}

/* Remembers a zone without a host in place of the oldest. */
static void note_zone(struct own *own, struct str zone, int64_t now_us)
{
    size_t oldest = 0;
    if (zone.len == 0 || zone_is_out(own, zone, now_us)) return;
    for (size_t i = 1; i < WEB_ZONES_MAX; i++)
        if (own->out[i].until_us < own->out[oldest].until_us) oldest = i;
    web_text_copy(own->out[oldest].name, sizeof own->out[oldest].name, zone);
    own->out[oldest].until_us = now_us + ZONE_OUT_US;
}

/* Returns the first zone that has not failed lately; the first of all where each has. */
static struct str choose_zone(const struct own *own, const struct web_offer *o, int64_t now_us)
{
    for (uint32_t i = 0; i < o->zone_count; i++)
        if (!zone_is_out(own, o->zone[i], now_us)) return o->zone[i];
    return o->zone_count > 0 ? o->zone[0] : (struct str){ 0 };
}

/* ---- servers ---- */

struct reading {
    struct web_machine *machine;
    char zone[NAME_BYTES];
    int rc;
};

static int take_metadata(void *ctx, struct str name, struct str value)
{
    struct reading *r = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(value, "", &text) < 0) return -EINVAL;
    if (str_eq(name, STR(WEB_TAG_FLEET)))
        web_text_copy(r->machine->fleet, sizeof r->machine->fleet, buf_view(&text));
    if (str_eq(name, STR(ZONE_TAG))) web_text_copy(r->zone, sizeof r->zone, buf_view(&text));
    if (web_tag_take(name, buf_view(&text), false, &r->machine->listed) < 0) r->rc = -E2BIG;
    return 0;
}

/* Reads the fault of a server in ERROR. One that never had a host is a refusal that came late. */
static void read_error(const struct web_moment *at, struct web_op *op, struct str item,
                       const struct reading *r, struct own *own)
{
    struct listed *l = &r->machine->listed;
    struct str why = web_text_at(op->arena, item, "fault.message");
    web_text_copy(l->why, sizeof l->why, why.len > 0 ? why : STR("the server is in ERROR"));
    if (has(why, "No valid host") || has(why, "maximum number of retries")) {
        l->stuck = OFFER_CAPACITY;
        note_zone(own, str_from(r->zone), at->now_us);
    } else if (has(why, "uota")) {
        l->stuck = OFFER_QUOTA;
    } else {
        l->gone = true;
    }
}

static bool is_shelved(struct str status)
{
    return str_eq(status, STR("SHELVED")) || str_eq(status, STR("SHELVED_OFFLOADED"));
}

/* True from the moment at which a shelved server has a host again, until it runs. */
static bool is_back(struct str task)
{
    return str_eq(task, STR("spawning")) || str_eq(task, STR("powering-on"));
}

/* A server that is off is billed on and does not come back by itself; a shelved one can be started. */
static void read_status(const struct web_moment *at, struct web_op *op, struct str item,
                        struct web_machine *m)
{
    static const char *const off[] = { "SHUTOFF", "SUSPENDED", "PAUSED" };
    struct listed *l = &m->listed;
    struct str status = web_text_at(op->arena, item, "status");
    struct str task = web_text_at(op->arena, item, "OS-EXT-STS:task_state");
    for (size_t i = 0; i < COUNT_OF(off); i++)
        if (str_eq(status, str_from(off[i]))) l->gone = true;
    l->stopped = is_shelved(status) && !is_back(task);
    l->gone = l->gone || l->stopped;
    m->ended = str_eq(status, STR("DELETED")) || str_eq(status, STR("SOFT_DELETED"));
    if (m->ended || str_eq(task, STR("deleting")) ||
        (!l->stopped && str_starts(task, STR("shelving"))))
        l->leaves_us = at->now_us;
    if (l->gone || l->leaves_us)
        snprintf(l->why, sizeof l->why, "the server is " STR_FMT "%s" STR_FMT, STR_ARG(status),
                 task.len > 0 ? ", " : "", STR_ARG(task));
}

static int read_server_of(struct own *own, const struct web_moment *at, struct web_op *op,
                          struct str item, struct web_machine *ret)
{
    struct reading r = { .machine = ret };
    struct listed *l = &ret->listed;
    int64_t created_us;
    struct str id = web_text_at(op->arena, item, "id");
    if (id.len == 0 || id.len >= sizeof l->handle) return -EINVAL;
    web_text_copy(l->handle, sizeof l->handle, id);
    int rc = json_path_each_member(item, "metadata", take_metadata, &r);
    if (rc < 0 && rc != -ENOENT) return rc;
    web_text_copy(l->node, sizeof l->node, web_text_at(op->arena, item, "name"));
    if (date_parse(web_text_at(op->arena, item, "created"), &created_us) == 0)
        l->created_us = max_i64(1, at->now_us - (at->wall_us - created_us));
    l->unreadable = r.rc < 0 || !l->service[0] || !l->pool[0];
    if (web_text_is(item, "status", STR("ERROR")))
        read_error(at, op, item, &r, own);
    else
        read_status(at, op, item, ret);
    return 0;
}

/* web_keyless hands the moment of a step through to `read`, which has the provider's memory behind it. */
struct moment {
    struct web_moment at; /* the first member, for read_server */
    struct own *own;
};

static int read_server(const struct web_moment *at, struct web_op *op, struct str item,
                       struct web_machine *ret)
{
    return read_server_of(((const struct moment *)at)->own, at, op, item, ret);
}

/* ---- listings ---- */

/* A look-up asks for the servers of the intent's name alone. */
static void ask_page(const struct web_provider *p, struct web_op *op, struct str page,
                     struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_printf(&path, "/servers/detail?limit=%d", PAGE);
    if (op->kind != WEB_LIST) {
        buf_text(&path, "&name=%5E");
        web_url_part(&path, str_from(op->call->intent));
        buf_text(&path, "%24");
    }
    if (page.len > 0) buf_text(&path, "&marker=");
    web_url_part(&path, page);
    ask(p, op, "GET", &path, ret);
}

struct last {
    struct str item;
    bool more;
};

static int take_last(void *ctx, struct str item)
{
    ((struct last *)ctx)->item = item;
    return 0;
}

static int take_link(void *ctx, struct str item)
{
    struct last *l = ctx;
    l->more = l->more || web_text_is(item, "rel", STR("next"));
    return 0;
}

/* Where there is a link to the next page, it begins behind the last server of this one. */
static struct str find_next(struct arena *arena, struct str body)
{
    struct last l = { 0 };
    if (json_path_each(body, "servers_links", take_link, &l) < 0 || !l.more)
        return (struct str){ 0 };
    json_path_each(body, "servers", take_last, &l);
    return web_text_at(arena, l.item, "id");
}

static void ask_remove(const struct web_provider *p, struct web_op *op, struct str handle,
                       struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_text(&path, "/servers/");
    web_url_part(&path, handle);
    ask(p, op, "DELETE", &path, ret);
}

/* ---- create ---- */

enum { STAGE_FLAVORS = 1, STAGE_SERVER };

static char *flavor_of(const struct web_provider *p, const struct web_op *op)
{
    struct own *own = p->own;
    return own->flavor[op->offer - p->settings->offer];
}

static int put_tag(void *ctx, const char *name, struct str text)
{
    json_kv_str(ctx, name, text);
    return 0;
}

/* With a disk of its own the server boots from a volume, which is deleted with it. */
static void put_image(struct json_writer *w, const struct web_section *s)
{
    if (s->disk_bytes == 0) {
        json_kv_str(w, "imageRef", s->image);
        return;
    }
    json_key(w, "block_device_mapping_v2");
    json_array(w);
    json_object(w);
    json_kv_i64(w, "boot_index", 0);
    json_kv_str(w, "uuid", s->image);
    json_kv_text(w, "source_type", "image");
    json_kv_text(w, "destination_type", "volume");
    json_kv_i64(w, "volume_size", (s->disk_bytes + GIB - 1) / GIB);
    json_kv_bool(w, "delete_on_termination", true);
    json_object_end(w);
    json_array_end(w);
}

static void put_named(struct json_writer *w, const char *list, const char *key,
                      const struct config_texts *texts)
{
    if (texts->count == 0) return;
    json_key(w, list);
    json_array(w);
    for (size_t i = 0; i < texts->count; i++) {
        json_object(w);
        json_kv_str(w, key, texts->items[i]);
        json_object_end(w);
    }
    json_array_end(w);
}

static void write_server(const struct web_provider *p, const struct web_op *op, struct str zone,
                         struct buf *out)
{
    const struct web_section *s = p->settings->section;
    CLEANUP(buf_fini) struct buf user_data = { 0 };
    struct json_writer w;
    base64_put(&user_data, op->user_data);
    json_writer_init(&w, out);
    json_object(&w);
    json_key(&w, "server");
    json_object(&w);
    json_kv_text(&w, "name", op->call->intent);
    json_kv_text(&w, "flavorRef", flavor_of(p, op));
    put_image(&w, s);
    put_named(&w, "networks", "uuid", &s->networks);
    put_named(&w, "security_groups", "name", &s->firewalls);
    if (s->ssh_keys.count > 0) json_kv_str(&w, "key_name", s->ssh_keys.items[0]);
    if (zone.len > 0) json_kv_str(&w, "availability_zone", zone);
    json_kv_str(&w, "user_data", buf_view(&user_data));
    json_key(&w, "metadata");
    json_object(&w);
    web_tags_each(op, p->settings->fleet, put_tag, &w);
    if (zone.len > 0) json_kv_str(&w, ZONE_TAG, zone);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    if (user_data.rc < 0) out->rc = user_data.rc;
    if (user_data.data) explicit_bzero(user_data.data, user_data.len);
}

static void ask_server(const struct web_provider *p, struct web_op *op, int64_t now_us,
                       struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    op->stage = STAGE_SERVER;
    buf_text(&path, "/servers");
    write_server(p, op, choose_zone(p->own, op->offer, now_us), &body);
    if (ask(p, op, "POST", &path, ret) == 0) web_ask_body(op, ret, "application/json", &body);
    if (body.data) explicit_bzero(body.data, body.len);
}

static void ask_flavors(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    op->stage = STAGE_FLAVORS;
    buf_printf(&path, "/flavors?limit=%d", FLAVORS_MAX);
    ask(p, op, "GET", &path, ret);
}

struct flavor {
    struct str want;
    char *id;
};

static int take_flavor(void *ctx, struct str item)
{
    struct flavor *f = ctx;
    CLEANUP(buf_fini) struct buf id = { 0 };
    bool is_it = web_text_is(item, "name", f->want) || web_text_is(item, "id", f->want);
    if (f->id[0] || !is_it || json_path_text(item, "id", &id) < 0) return 0;
    if (id.len >= ID_BYTES) return -E2BIG;
    web_text_copy(f->id, ID_BYTES, buf_view(&id));
    return 0;
}

static void take_flavors(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                         int64_t now_us, struct web_step *ret)
{
    struct flavor f = { .want = op->offer->type, .id = flavor_of(p, op) };
    if (r->status != 200)
        refuse(p, op, r, ret);
    else if (json_path_each(r->body, "flavors", take_flavor, &f) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "create of nova: the reply is no list of flavors");
    else if (!f.id[0])
        web_refuse(ret, OFFER_INVALID, "create of nova: there is no flavor " STR_FMT,
                   STR_ARG(f.want));
    else
        ask_server(p, op, now_us, ret);
}

static void take_server(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                        struct web_step *ret)
{
    if (r->status != 202) {
        refuse(p, op, r, ret);
        if (ret->class == OFFER_INVALID) flavor_of(p, op)[0] = 0; /* it may be another by now */
        return;
    }
    struct str id = web_text_at(op->arena, r->body, "server.id");
    web_text_copy(op->made.handle, sizeof op->made.handle, id);
    if (id.len > 0 && id.len < sizeof op->made.handle)
        web_succeed(ret);
    else
        web_refuse(ret, OFFER_TRANSIENT, "create of nova: the reply names no server");
}

static void order(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                  const struct web_moment *at, struct web_step *ret)
{
    if (op->stage == STAGE_FLAVORS)
        take_flavors(p, op, r, at->now_us, ret);
    else if (op->stage == STAGE_SERVER)
        take_server(p, op, r, ret);
    else if (flavor_of(p, op)[0])
        ask_server(p, op, at->now_us, ret);
    else
        ask_flavors(p, op, ret);
}

/* ---- stop and start ---- */

enum { STAGE_TURN = STAGE_SERVER + 1, STAGE_TAKEN, STAGE_REFUSED };

static void ask_turn(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_text(&path, "/servers/");
    web_url_part(&path, str_from(op->call->handle));
    buf_text(&path, "/action");
    buf_printf(&body, "{\"%s\":null}", op->kind == WEB_STOP ? "shelve" : "unshelve");
    op->stage = STAGE_TURN;
    if (ask(p, op, "POST", &path, ret) == 0) web_ask_body(op, ret, "application/json", &body);
}

static void ask_one(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_text(&path, "/servers/");
    web_url_part(&path, str_from(op->call->handle));
    ask(p, op, "GET", &path, ret);
}

/* Judges a server by what it is now: a stop and a start that were asked for are under way, done, or came to nothing. */
static void take_turned(struct web_op *op, const struct web_reply *r, struct web_step *ret)
{
    struct str status = web_text_at(op->arena, r->body, "server.status");
    struct str task = web_text_at(op->arena, r->body, "server.OS-EXT-STS:task_state");
    bool shelved = is_shelved(status);
    bool looks = shelved && str_eq(task, STR("unshelving")); /* for a host */
    bool rests = (shelved && !looks && !is_back(task)) || str_starts(task, STR("shelving"));
    bool runs = shelved ? is_back(task) : str_eq(status, STR("ACTIVE")) && !rests;
    if (op->kind == WEB_STOP ? rests : runs)
        web_succeed(ret);
    else if (op->kind == WEB_START && looks)
        *ret = (struct web_step){ .next = WEB_WAIT, .wait_us = TURN_US };
    else if (op->kind == WEB_START && op->stage == STAGE_TAKEN && shelved && task.len == 0)
        web_refuse(ret, OFFER_CAPACITY, "start of nova: there is no host for the server");
    else
        web_refuse(ret, OFFER_TRANSIENT, "%s of nova: the server is " STR_FMT "%s" STR_FMT,
                   web_op_names[op->kind], STR_ARG(status), task.len > 0 ? ", " : "",
                   STR_ARG(task));
}

/* Nova refuses both where they are so already, and tells of a server without a host only by what the server is then. */
static void turn(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                 struct web_step *ret)
{
    if (!r && op->stage == 0) {
        ask_turn(p, op, ret);
    } else if (!r) {
        ask_one(p, op, ret);
    } else if (op->stage != STAGE_TURN) {
        if (r->status == 200)
            take_turned(op, r, ret);
        else
            refuse(p, op, r, ret);
    } else if (r->status == 202 && op->kind == WEB_STOP) {
        web_succeed(ret);
    } else if (r->status == 202 || r->status == 409) {
        op->stage = r->status == 202 ? STAGE_TAKEN : STAGE_REFUSED;
        ask_one(p, op, ret);
    } else {
        refuse(p, op, r, ret);
    }
}

/* ---- prices ---- */

static void prices(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    for (uint32_t i = 0; i < p->settings->offer_count; i++) {
        const struct web_offer *o = &p->settings->offer[i];
        struct cloud_price *c = &op->price[op->count++];
        *c = (struct cloud_price){ .known = o->price_given, .price_h = o->offer.price_h };
        must(name_copy(c->offer, sizeof c->offer, str_from(o->offer.name)) == 0);
        web_text_copy(c->hardware, sizeof c->hardware, o->type);
    }
    web_succeed(ret);
}

/* ---- the kind ---- */

static const struct web_keyless keyless = {
    .ask_page = ask_page,
    .list = "servers",
    .find_next = find_next,
    .read = read_server,
    .ask_remove = ask_remove,
    .order = order,
    .refuse = refuse,
};

static void step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                 int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    const struct moment m = { .at = { now_us, wall_us }, .own = p->own };
    if (op->kind == WEB_LOGIN)
        nova_login(p, op, reply, &m.at, ret);
    else if (op->kind == WEB_PRICES)
        prices(p, op, ret);
    else if (op->kind == WEB_STOP || op->kind == WEB_START)
        turn(p, op, reply, ret);
    else
        web_keyless_step(&keyless, p, op, reply, &m.at, ret);
}

static int open_nova(struct web_provider *p, struct err *err)
{
    p->own = calloc(1, sizeof(struct own));
    return p->own ? 0 : err_set(err, -ENOMEM, "no memory for a cloud");
}

static void close_nova(struct web_provider *p)
{
    free(p->own);
    p->own = NULL;
}

static bool is_uuid(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
        if (dash ? c != '-' : !hex) return false;
    }
    return s.len == 36;
}

static int check(const struct web_settings *s, struct err *err)
{
    const struct web_section *from = s->section;
    if (!is_uuid(from->image))
        return err_set(err, -EINVAL,
                       "image: '" STR_FMT "': want its id: openstack image show -c id",
                       STR_ARG(from->image));
    for (size_t i = 0; i < from->networks.count; i++)
        if (!is_uuid(from->networks.items[i]))
            return err_set(err, -EINVAL,
                           "networks: '" STR_FMT "': want its id: openstack network show -c id",
                           STR_ARG(from->networks.items[i]));
    if (from->ssh_keys.count > 1)
        return err_set(err, -EINVAL, "ssh_keys: a server of nova has one key");
    return 0;
}

static const char *const takes[] = { "region",   "image", "networks",     "firewalls",
                                     "ssh_keys", "disk",  "offers.zones", NULL };
static const char *const wants[] = { "image", NULL };
static const char *const reply_headers[] = { "x-subject-token", NULL };

const struct web_kind web_kind_nova = {
    .name = "nova",
    .about = "OpenStack Compute, with a login at Identity v3",
    .credentials_env = "OS_AUTH_URL",
    .lag_us = 5000000,
    .poll_us = 10000000,
    .calls_per_s = 5,
    .user_data_bytes = USER_DATA_BYTES,
    .stops = true,
    .takes = takes,
    .wants = wants,
    .reply_headers = reply_headers,
    .check = check,
    .open = open_nova,
    .close = close_nova,
    .step = step,
};
