/* runpod.c - speaks RunPod's REST API, version 2: an instance is a Pod, which is a container.
 *
 *     create:  GET /pods ──none has the intent──► GET /catalog/gpus, is there stock?
 *                └──► POST /pods, the data centers of the offer as one list ──201──► made
 *     remove:  DELETE /pods/ID ──204──► gone; 404 ──► gone
 *     list:    GET /pods, in one page
 *     prices:  GET /catalog/gpus with availability, once for each number of GPUs
 *
 * There is no idempotency key, and names are not unique (web_keyless.h). Tags are variables of the container. A Pod
 * that is not placed is refused with 400, as is a request that breaks a rule: the catalog is asked first, and what
 * is left counts as want of capacity, with the provider's words.
 *
 * Source: the provider's OpenAPI document of version 2.0.0, whose POST /v2/pods says what each status means. Version
 * 2 sells nothing that can be interrupted. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/web/web_container.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_step.h"

#include <stdio.h>
#include <string.h>

#define GB 1000000000
#define GLOBAL_NETWORK "global"

/* Errors have no codes. These are the statuses that the table of web_step.h has otherwise. */
static const struct {
    int status;
    enum offer_error class;
} of_order[] = {
    { 400, OFFER_CAPACITY }, /* "could not be placed", or a rule is broken */
    { 402, OFFER_QUOTA },    /* the balance is used up */
    { 404, OFFER_INVALID },  /* registry, volume */
    { 422, OFFER_INVALID },  /* the body does not match the contract */
};

enum { STAGE_STOCK = 1, STAGE_ORDER };

static void refuse(const struct web_provider *p, const struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    static const struct web_code codes[] = { { 0 } };
    web_refuse_reply(p, op, r, codes, web_text_at(op->arena, r->body, "title"),
                     web_text_at(op->arena, r->body, "detail"), ret);
    if (op->kind != WEB_CREATE || op->stage != STAGE_ORDER) return;
    for (size_t i = 0; i < COUNT_OF(of_order); i++)
        if (of_order[i].status == r->status) {
            ret->class = of_order[i].class;
            ret->rc = web_class_errno(ret->class);
        }
}

/* ---- machines ---- */

static void ask_page(const struct web_provider *p, struct web_op *op, struct str page,
                     struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    (void)page;
    buf_text(&path, "/pods");
    web_bearer_ask(p, op, "GET", &path, ret);
}

static int take_variable(void *ctx, struct str name, struct str value)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(value, "", &text) == 0) web_container_take(name, buf_view(&text), ctx);
    return 0;
}

/* A Pod that has stopped is billed for its disk on, and its container does not come back by itself. */
static int read_pod(const struct web_moment *at, struct web_op *op, struct str item,
                    struct web_machine *ret)
{
    struct listed *l = &ret->listed;
    int64_t created_us;
    struct str id = web_text_at(op->arena, item, "id");
    struct str status = web_text_at(op->arena, item, "status");
    if (id.len == 0 || id.len >= sizeof l->handle) return -EINVAL;
    web_text_copy(l->handle, sizeof l->handle, id);
    int rc = json_path_each_member(item, "env", take_variable, ret);
    if (rc < 0 && rc != -ENOENT) return rc;
    if (date_parse(web_text_at(op->arena, item, "createdAt"), &created_us) == 0)
        l->created_us = max_i64(1, at->now_us - (at->wall_us - created_us));
    if (json_path_f64(item, "cost", &l->price_h) < 0 || !(l->price_h > 0)) l->price_h = 0;
    l->unreadable = l->unreadable || !l->service[0] || !l->pool[0];
    ret->ended = str_eq(status, STR("TERMINATED"));
    l->gone = ret->ended || str_eq(status, STR("EXITED")) || str_eq(status, STR("ERROR"));
    if (l->gone) snprintf(l->why, sizeof l->why, "the Pod is " STR_FMT, STR_ARG(status));
    return 0;
}

static void ask_remove(const struct web_provider *p, struct web_op *op, struct str handle,
                       struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_text(&path, "/pods/");
    web_url_part(&path, handle);
    web_bearer_ask(p, op, "DELETE", &path, ret);
}

/* ---- stock ---- */

static int64_t gpus_of(const struct web_offer *o)
{
    return max_i64(1, o->section->gpus);
}

static void ask_stock(const struct web_provider *p, struct web_op *op, int64_t gpus,
                      struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_printf(&path, "/catalog/gpus?include=AVAILABILITY&product=POD&cloud=SECURE&count=%lld",
               (long long)gpus);
    web_bearer_ask(p, op, "GET", &path, ret);
}

/* Holds the catalog's entry for one offer. */
struct stock {
    const struct web_offer *offer;
    bool found, some; /* the type is known; a data center of the offer has it */
    double price;     /* of one GPU; < 0: not said */
};

static int take_center(void *ctx, struct str item)
{
    struct stock *s = ctx;
    CLEANUP(buf_fini) struct buf id = { 0 };
    if (json_path_text(item, "id", &id) < 0) return 0;
    if (web_text_is(item, "availability", STR("NONE"))) return 0;
    for (uint32_t i = 0; i < s->offer->zone_count; i++)
        s->some = s->some || str_eq(s->offer->zone[i], buf_view(&id));
    return 0;
}

static int take_gpu(void *ctx, struct str item)
{
    struct stock *s = ctx;
    if (!web_text_is(item, "id", s->offer->type)) return 0;
    s->found = true;
    if (json_path_f64(item, "price.secure", &s->price) < 0) s->price = -1;
    if (s->offer->zone_count == 0) {
        s->some = !web_text_is(item, "availability", STR("NONE"));
        return 0;
    }
    int rc = json_path_each(item, "dataCenters", take_center, s);
    return rc == -ENOENT ? 0 : rc; /* unavailable everywhere */
}

static int read_stock(struct str body, const struct web_offer *offer, struct stock *ret)
{
    *ret = (struct stock){ .offer = offer, .price = -1 };
    return json_path_each(body, "gpus", take_gpu, ret);
}

/* ---- order ---- */

static int put_variable(void *ctx, struct str name, struct str value)
{
    char text[64];
    snprintf(text, sizeof text, STR_FMT, STR_ARG(name));
    json_kv_str(ctx, text, value);
    return 0;
}

static int write_pod(const struct web_provider *p, const struct web_op *op, struct buf *out)
{
    const struct web_section *s = p->settings->section;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "name", op->call->intent);
    json_kv_str(&w, "image", s->image);
    json_kv_text(&w, "args", "sh -c \"" WEB_CONTAINER_START "\"");
    json_key(&w, "gpu");
    json_object(&w);
    json_kv_str(&w, "id", op->offer->type);
    json_kv_i64(&w, "count", gpus_of(op->offer));
    json_object_end(&w);
    json_kv_text(&w, "cloud", "SECURE");
    if (op->offer->zone_count > 0) {
        json_key(&w, "dataCenterIds");
        json_array(&w);
        for (uint32_t i = 0; i < op->offer->zone_count; i++)
            json_put_str(&w, op->offer->zone[i]);
        json_array_end(&w);
    }
    if (s->networks.count > 0) json_kv_bool(&w, "globalNetworking", true);
    if (s->disk_bytes > 0) json_kv_i64(&w, "disk", (s->disk_bytes + GB - 1) / GB);
    json_key(&w, "env");
    json_object(&w);
    int rc = web_container_env(op, p->settings->fleet, 0, put_variable, &w);
    json_object_end(&w);
    json_object_end(&w);
    return rc < 0 ? rc : out->rc;
}

static void ask_order(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_text(&path, "/pods");
    int rc = write_pod(p, op, &body);
    op->stage = STAGE_ORDER;
    if (rc < 0) body.rc = rc;
    web_bearer_send(p, op, "POST", &path, &body, ret);
}

static void take_stock(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                       struct web_step *ret)
{
    struct stock s;
    if (r->status != 200)
        refuse(p, op, r, ret);
    else if (read_stock(r->body, op->offer, &s) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "create of runpod: the reply is no list of GPUs");
    else if (!s.some) /* the list leaves types out that no data center has in this number */
        web_refuse(ret, OFFER_CAPACITY, "create of runpod: no data center has %lld " STR_FMT,
                   (long long)gpus_of(op->offer), STR_ARG(op->offer->type));
    else
        ask_order(p, op, ret);
}

static void take_order(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                       const struct web_moment *at, struct web_step *ret)
{
    struct web_machine m = { 0 };
    if (r->status != 201) {
        refuse(p, op, r, ret);
    } else if (read_pod(at, op, r->body, &m) < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "create of runpod: the reply is no Pod");
    } else {
        op->made = m.listed;
        op->made.unreadable = false;
        web_succeed(ret);
    }
}

static void order(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                  const struct web_moment *at, struct web_step *ret)
{
    if (op->stage == 0) {
        op->stage = STAGE_STOCK;
        ask_stock(p, op, gpus_of(op->offer), ret);
    } else if (op->stage == STAGE_STOCK) {
        take_stock(p, op, r, ret);
    } else {
        take_order(p, op, r, at, ret);
    }
}

/* ---- prices ---- */

static bool is_priced(const struct web_op *op, uint32_t offer)
{
    return op->price[offer].offer[0] != 0;
}

/* Asks for the number of GPUs of the first offer that has no price yet. */
static void ask_prices(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    const struct web_settings *s = p->settings;
    for (uint32_t i = 0; i < s->offer_count; i++)
        if (!is_priced(op, i)) {
            op->stage = i;
            ask_stock(p, op, gpus_of(&s->offer[i]), ret);
            return;
        }
    op->count = s->offer_count;
    web_succeed(ret);
}

static int read_prices(const struct web_provider *p, struct web_op *op, struct str body)
{
    const struct web_settings *settings = p->settings;
    int64_t gpus = gpus_of(&settings->offer[op->stage]);
    for (uint32_t i = 0; i < settings->offer_count; i++) {
        const struct web_offer *o = &settings->offer[i];
        struct stock s;
        if (is_priced(op, i) || gpus_of(o) != gpus) continue;
        int rc = read_stock(body, o, &s);
        if (rc < 0) return rc;
        struct cloud_price *c = &op->price[i];
        *c = (struct cloud_price){ .known = o->price_given, .price_h = o->offer.price_h };
        must(name_copy(c->offer, sizeof c->offer, str_from(o->offer.name)) == 0);
        web_text_copy(c->hardware, sizeof c->hardware, o->type);
        if (!c->known && s.price >= 0)
            c->known = web_dollars(settings, STR("USD"), s.price * (double)gpus, &c->price_h);
        /* LOW, MEDIUM and HIGH are no numbers; NONE is. */
        c->room_known = s.found && !s.some;
    }
    return 0;
}

static void prices(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    if (!r) {
        memset(op->price, 0, p->settings->offer_count * sizeof *op->price);
        ask_prices(p, op, ret);
    } else if (r->status != 200) {
        refuse(p, op, r, ret);
    } else if (read_prices(p, op, r->body) < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "prices of runpod: the reply is no list of GPUs");
    } else {
        ask_prices(p, op, ret);
    }
}

/* ---- the kind ---- */

static const struct web_keyless keyless = { .ask_page = ask_page,
                                            .list = "pods",
                                            .read = read_pod,
                                            .ask_remove = ask_remove,
                                            .order = order,
                                            .refuse = refuse,
                                            .prices = prices };

static void step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                 int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    const struct web_moment at = { now_us, wall_us };
    web_keyless_serve(&keyless, p, op, reply, &at, ret);
}

static int open_kind(struct web_provider *p, struct err *err)
{
    const struct config_texts *n = &p->settings->section->networks;
    if (n->count == 0 || (n->count == 1 && str_eq(n->items[0], STR(GLOBAL_NETWORK)))) return 0;
    return err_set(err, -EINVAL, "networks: runpod has one, " GLOBAL_NETWORK);
}

static const char *const takes[] = { "image",       "disk",         "networks",
                                     "offers.gpus", "offers.zones", NULL };
static const char *const wants[] = { "image", NULL };

const struct web_kind web_kind_runpod = {
    .name = "runpod",
    .about = "RunPod: containers with GPUs in its data centers",
    .endpoint = "https://api.runpod.io/v2",
    .credentials_env = "RUNPOD_API_KEY",
    .lag_us = 10000000,
    .poll_us = 10000000,
    .billing = { 1000000, 0 }, /* docs.runpod.io/accounts-billing/billing: by the second */
    .calls_per_s = 1,
    /* base64 of it is one variable, and Linux bounds one to 128 KiB */
    .user_data_bytes = (size_t)64 << 10,
    .is_container = true,
    .takes = takes,
    .wants = wants,
    .open = open_kind,
    .step = step,
};
