/* vast.c - speaks the API of Vast.ai, a market of hosts: an instance is a container on a host's machine.
 *
 *     create:  GET /v1/instances/, page by page ──none has the intent──► POST /v0/bundles/, what fits, cheapest first
 *                └──► PUT /v0/asks/ID/, one after the other ──200──► made
 *     remove:  DELETE /v0/instances/ID/; 404 ──► gone
 *     list:    GET /v1/instances/, page by page
 *     prices:  POST /v0/bundles/ for each offer: the cheapest, and how many there are
 *
 * There is no idempotency key, and labels are not unique (web_keyless.h). Tags are variables of the container. What
 * can be interrupted is sold by bid, and the bid is what is paid: a little above the least that the host takes, so
 * that not every other bid takes the machine, and never above the offer's spot_price_max.
 *
 * Sources: the provider's OpenAPI documents of these requests (shapes, codes, lengths of values) and its Python
 * library, which sends the environment as an object, where the document has a text of docker's options. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_container.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GB 1000000000
#define PAGE 25         /* the most that the API gives */
#define FOUND_MAX 64    /* of a search */
#define CANDIDATES 4    /* that are tried for one create */
#define BID_ABOVE 1.1   /* of the least bid */
#define VALUE_BYTES 240 /* of a variable: 256 is the limit */

/* The first four are in the document of "create instance"; the last two are from memory, and no document names them. */
static const struct web_code codes[] = {
    { "no_such_ask", OFFER_CAPACITY, false },
    { "invalid_price", OFFER_CAPACITY, false }, /* it changed since the search */
    { "invalid_args", OFFER_INVALID, false },
    { "no_ssh_key_for_vm", OFFER_INVALID, false },
    { "auth_error", OFFER_AUTH, true },
    { "insufficient_credit", OFFER_QUOTA, false },
    { 0 },
};

enum { STAGE_SEARCH = 1, STAGE_ORDER };

/* An ask that another customer has taken is 404 or 410, whatever the code beside it says. */
static void refuse(const struct web_provider *p, const struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    bool taken = op->kind == WEB_CREATE && op->stage == STAGE_ORDER &&
                 (r->status == 404 || r->status == 410);
    web_refuse_reply(p, op, r, codes,
                     taken ? STR("no_such_ask") : web_text_at(op->arena, r->body, "error"),
                     web_text_at(op->arena, r->body, "msg"), ret);
}

static bool is_success(const struct web_reply *r)
{
    bool success = false;
    return r->status == 200 && json_path_bool(r->body, "success", &success) == 0 && success;
}

/* ---- machines ---- */

static void ask_page(const struct web_provider *p, struct web_op *op, struct str page,
                     struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_printf(&path, "/v1/instances/?limit=%d", PAGE);
    if (page.len > 0) buf_text(&path, "&after_token=");
    web_url_part(&path, page);
    web_bearer_ask(p, op, "GET", &path, ret);
}

struct pair {
    struct buf text[2];
    uint32_t count;
};

static int take_half(void *ctx, struct str item)
{
    struct pair *p = ctx;
    if (p->count == COUNT_OF(p->text)) return -EINVAL;
    return json_path_text(item, "", &p->text[p->count++]);
}

/* A variable is a list of its name and its value. Ports are variables of another form, and passed over. */
static int take_variable(void *ctx, struct str item)
{
    struct pair p = { 0 };
    if (json_path_each(item, "", take_half, &p) == 0 && p.count == 2)
        web_container_take(buf_view(&p.text[0]), buf_view(&p.text[1]), ctx);
    buf_fini(&p.text[0]);
    buf_fini(&p.text[1]);
    return 0;
}

static void read_state(struct web_op *op, struct str item, struct web_machine *ret)
{
    struct listed *l = &ret->listed;
    struct str status = web_text_at(op->arena, item, "actual_status");
    struct str message = web_text_at(op->arena, item, "status_msg");
    ret->ended = web_text_is(item, "cur_state", STR("unloaded")); /* the machine was released */
    l->gone = ret->ended || str_eq(status, STR("exited")) || str_eq(status, STR("stopped"));
    if (l->gone)
        snprintf(l->why, sizeof l->why, "the instance is " STR_FMT "%s%.80s", STR_ARG(status),
                 message.len > 0 ? ": " : "", message.len > 0 ? message.data : "");
}

/* One that was outbid is stopped, and its disk is billed on. It may come back; what was bought in its place is there
 * already, so it counts as ended. */
static int read_instance(const struct web_moment *at, struct web_op *op, struct str item,
                         struct web_machine *ret)
{
    struct listed *l = &ret->listed;
    uint64_t id;
    double start_s;
    if (json_path_u64(item, "id", &id) < 0) return -EINVAL;
    snprintf(l->handle, sizeof l->handle, "%llu", (unsigned long long)id);
    int rc = json_path_each(item, "extra_env", take_variable, ret);
    if (rc < 0 && rc != -ENOENT) return rc;
    if (json_path_u64(item, "machine_id", &id) == 0)
        snprintf(l->node, sizeof l->node, "machine %llu", (unsigned long long)id);
    if (json_path_f64(item, "start_date", &start_s) == 0 && start_s > 0 && start_s < 1e11)
        l->created_us = max_i64(1, at->now_us - (at->wall_us - (int64_t)(start_s * 1e6)));
    if (json_path_f64(item, "dph_total", &l->price_h) < 0 || !(l->price_h > 0)) l->price_h = 0;
    l->unreadable = l->unreadable || !l->service[0] || !l->pool[0];
    read_state(op, item, ret);
    return 0;
}

static void ask_remove(const struct web_provider *p, struct web_op *op, struct str handle,
                       struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_text(&path, "/v0/instances/");
    web_url_part(&path, handle);
    buf_byte(&path, '/');
    web_bearer_ask(p, op, "DELETE", &path, ret);
}

/* ---- the market ---- */

static void put_test(struct json_writer *w, const char *field, const char *operator)
{
    json_key(w, field);
    json_object(w);
    json_key(w, operator);
}

/* RTX_4090 and "RTX 4090" are one, as in the provider's own command. */
static void put_gpu(struct json_writer *w, struct str type)
{
    char name[128];
    snprintf(name, sizeof name, STR_FMT, STR_ARG(type));
    for (char *c = name; *c; c++)
        if (*c == '_') *c = ' ';
    put_test(w, "gpu_name", "eq");
    json_put_text(w, name);
    json_object_end(w);
}

static double disk_gb(const struct web_provider *p)
{
    return ceil((double)p->settings->section->disk_bytes / GB);
}

static void write_search(const struct web_provider *p, const struct web_offer *o, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_i64(&w, "limit", FOUND_MAX);
    json_kv_text(&w, "type", o->offer.spot ? "bid" : "ondemand");
    put_test(&w, "verified", "eq");
    json_put_bool(&w, true);
    json_object_end(&w);
    put_test(&w, "rentable", "eq");
    json_put_bool(&w, true);
    json_object_end(&w);
    put_gpu(&w, o->type);
    put_test(&w, "num_gpus", "eq");
    json_put_i64(&w, max_i64(1, o->section->gpus));
    json_object_end(&w);
    if (o->zone_count > 0) {
        put_test(&w, "geolocation", "in");
        json_array(&w);
        for (uint32_t i = 0; i < o->zone_count; i++)
            json_put_str(&w, o->zone[i]);
        json_array_end(&w);
        json_object_end(&w);
    }
    if (disk_gb(p) > 0) json_kv_f64(&w, "allocated_storage", disk_gb(p));
    json_key(&w, "order");
    json_put_raw(&w, STR("[[\"dph_total\",\"asc\"]]"));
    json_object_end(&w);
}

static void ask_search(const struct web_provider *p, struct web_op *op, const struct web_offer *o,
                       struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_text(&path, "/v0/bundles/");
    write_search(p, o, &body);
    if (web_bearer_send(p, op, "POST", &path, &body, ret) == 0) ret->ask.reads = true;
}

/* Holds the findings of a search for an offer. */
struct market {
    const struct web_offer *offer;
    struct web_op *op; /* of an order: its note gets the asks to try, "ID" or "ID:BID" */
    uint32_t count;
    double price; /* an hour of the cheapest, disk included */
};

/* The bid for an ask; 0: the least that it takes is above what may be paid. */
static double bid_of(const struct web_offer *o, double min_bid)
{
    double most = o->section->spot_price_max_h;
    double bid = ceil(min_bid * BID_ABOVE * 1e4) / 1e4;
    if (most > 0 && min_bid > most) return 0;
    return most > 0 ? fmin(bid, most) : bid;
}

static int take_ask(void *ctx, struct str item)
{
    struct market *m = ctx;
    char word[64];
    uint64_t id;
    double total, min_bid = 0, bid = 0;
    if (json_path_u64(item, "id", &id) < 0 || json_path_f64(item, "dph_total", &total) < 0)
        return -EINVAL;
    snprintf(word, sizeof word, "%llu", (unsigned long long)id);
    if (m->offer->offer.spot) {
        if (json_path_f64(item, "min_bid", &min_bid) < 0) return 0;
        bid = bid_of(m->offer, min_bid);
        if (!(bid > 0)) return 0;
        snprintf(word, sizeof word, "%llu:%.4f", (unsigned long long)id, bid);
    }
    double price = total + bid - min_bid;
    m->price = m->count == 0 ? price : fmin(m->price, price);
    m->count++;
    return m->op && m->count <= CANDIDATES ? web_note_push(m->op, str_from(word)) : 0;
}

/* ---- order ---- */

static int put_variable(void *ctx, struct str name, struct str value)
{
    char text[64];
    snprintf(text, sizeof text, STR_FMT, STR_ARG(name));
    json_kv_str(ctx, text, value);
    return 0;
}

static int write_order(const struct web_provider *p, const struct web_op *op, struct str bid,
                       struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "client_id", "me");
    json_kv_str(&w, "image", p->settings->section->image);
    json_kv_text(&w, "label", op->call->intent);
    if (disk_gb(p) > 0) json_kv_f64(&w, "disk", disk_gb(p));
    if (bid.len > 0) {
        json_key(&w, "price");
        json_put_raw(&w, bid);
    }
    json_kv_bool(&w, "cancel_unavail", true);
    json_kv_text(&w, "runtype", "args");
    json_key(&w, "args");
    json_array(&w);
    json_put_text(&w, "sh");
    json_put_text(&w, "-c");
    json_put_text(&w, WEB_CONTAINER_START);
    json_array_end(&w);
    json_key(&w, "env");
    json_object(&w);
    int rc = web_container_env(op, p->settings->fleet, VALUE_BYTES, put_variable, &w);
    json_object_end(&w);
    json_object_end(&w);
    return rc < 0 ? rc : out->rc;
}

/* Orders the next ask of the note. */
static void ask_order(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct str bid;
    if (!web_note_pop(op, &bid)) {
        web_refuse(ret, OFFER_CAPACITY, "create of vast: nobody sells " STR_FMT,
                   STR_ARG(op->offer->type));
        return;
    }
    struct str id = str_cut(&bid, ':');
    op->stage = STAGE_ORDER;
    buf_printf(&path, "/v0/asks/" STR_FMT "/", STR_ARG(id));
    int rc = write_order(p, op, bid, &body);
    if (rc < 0) body.rc = rc;
    web_bearer_send(p, op, "PUT", &path, &body, ret);
}

static void take_search(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                        struct web_step *ret)
{
    struct market m = { .offer = op->offer, .op = op };
    if (r->status != 200)
        refuse(p, op, r, ret);
    else if (json_path_each(r->body, "offers", take_ask, &m) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "create of vast: the reply is no list of offers");
    else
        ask_order(p, op, ret);
}

static void take_order(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                       struct web_step *ret)
{
    uint64_t id;
    if (is_success(r) && json_path_u64(r->body, "new_contract", &id) == 0) {
        snprintf(op->made.handle, sizeof op->made.handle, "%llu", (unsigned long long)id);
        web_succeed(ret);
        return;
    }
    refuse(p, op, r, ret);
    if (ret->class == OFFER_CAPACITY && op->note[0]) ask_order(p, op, ret);
}

static void order(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                  const struct web_moment *at, struct web_step *ret)
{
    (void)at;
    if (op->stage == 0) {
        op->stage = STAGE_SEARCH;
        ask_search(p, op, op->offer, ret);
    } else if (op->stage == STAGE_SEARCH) {
        take_search(p, op, r, ret);
    } else {
        take_order(p, op, r, ret);
    }
}

/* ---- prices ---- */

static void put_price(const struct web_provider *p, struct web_op *op, const struct market *m)
{
    const struct web_offer *o = m->offer;
    struct cloud_price *c = &op->price[op->count++];
    *c = (struct cloud_price){ .known = o->price_given,
                               .price_h = o->offer.price_h,
                               .room_known = true,
                               .nodes = m->count,
                               .room = m->count };
    must(name_copy(c->offer, sizeof c->offer, str_from(o->offer.name)) == 0);
    web_text_copy(c->hardware, sizeof c->hardware, o->type);
    if (!c->known && m->count > 0)
        c->known = web_dollars(p->settings, STR("USD"), m->price, &c->price_h);
}

static void prices(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    const struct web_settings *s = p->settings;
    struct market m = { .offer = &s->offer[op->count] };
    if (r && r->status != 200) {
        refuse(p, op, r, ret);
        return;
    }
    if (r && json_path_each(r->body, "offers", take_ask, &m) < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "prices of vast: the reply is no list of offers");
        return;
    }
    if (r) put_price(p, op, &m);
    if (op->count == s->offer_count)
        web_succeed(ret);
    else
        ask_search(p, op, &s->offer[op->count], ret);
}

/* ---- the kind ---- */

static const struct web_keyless keyless = { .ask_page = ask_page,
                                            .list = "instances",
                                            .next_page = "next_token",
                                            .read = read_instance,
                                            .ask_remove = ask_remove,
                                            .is_removed = is_success,
                                            .order = order,
                                            .refuse = refuse,
                                            .prices = prices };

static void step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                 int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    const struct web_moment at = { now_us, wall_us };
    web_keyless_serve(&keyless, p, op, reply, &at, ret);
}

static const char *const takes[] = {
    "image", "disk", "offers.gpus", "offers.zones", "offers.spot", "offers.spot_price_max", NULL
};
static const char *const wants[] = { "image", NULL };

const struct web_kind web_kind_vast = {
    .name = "vast",
    .about = "Vast.ai: containers on a market of hosts, on demand and by bid",
    .endpoint = "https://console.vast.ai/api",
    .credentials_env = "VAST_API_KEY",
    .lag_us = 10000000,
    .poll_us = 15000000,
    .billing = { 1000000, 0 }, /* docs.vast.ai/documentation/reference/billing: by the second */
    .calls_per_s = 0.5,        /* the limits are for each endpoint, and not published as rates */
    .user_data_bytes = (size_t)20 << 10, /* with base64 and names within 32 KiB of environment */
    .is_container = true,
    .takes = takes,
    .wants = wants,
    .step = step,
};
