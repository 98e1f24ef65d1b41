/* hook.c - writes calls and reads replies of the hook protocol.
 *
 * Times are seconds from now (age_s, leaves_in_s), so that no two clocks are compared. Rejected: dates, which a
 * shell cannot subtract and a wrong clock makes wrong. */
#include "controller/cloud/web/hook.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_step.h"
#include "controller/cloud/web/web_tags.h"

#include <string.h>

#define SECONDS_MAX 4e9 /* of age_s, leaves_in_s: 126 years */
#define RETRY_S_MAX 3600

/* ---- calls ---- */

static int put_tag(void *ctx, const char *name, struct str text)
{
    json_kv_str(ctx, name, text);
    return 0;
}

static void put_create(const struct web_settings *s, const struct web_op *op, struct str zone,
                       struct json_writer *w)
{
    const struct web_section *from = s->section;
    json_kv_text(w, "intent", op->call->intent);
    json_kv_text(w, "offer", op->offer->offer.name);
    json_kv_str(w, "type", op->offer->type);
    if (zone.len > 0) json_kv_str(w, "zone", zone);
    if (from->region.len > 0) json_kv_str(w, "region", from->region);
    if (from->image.len > 0) json_kv_str(w, "image", from->image);
    json_kv_i64(w, "gpus", op->offer->section->gpus);
    json_kv_bool(w, "spot", op->offer->offer.spot);
    json_key(w, "tags");
    json_object(w);
    web_tags_each(op, s->fleet, put_tag, w);
    json_object_end(w);
    json_kv_str(w, "user_data", op->user_data);
}

static void put_offers(const struct web_settings *s, struct json_writer *w)
{
    json_key(w, "offers");
    json_array(w);
    for (uint32_t i = 0; i < s->offer_count; i++) {
        const struct web_offer *o = &s->offer[i];
        json_object(w);
        json_kv_text(w, "offer", o->offer.name);
        json_kv_str(w, "type", o->type);
        json_kv_bool(w, "spot", o->offer.spot);
        json_key(w, "zones");
        json_array(w);
        for (uint32_t z = 0; z < o->zone_count; z++)
            json_put_str(w, o->zone[z]);
        json_array_end(w);
        json_object_end(w);
    }
    json_array_end(w);
}

int hook_write(const struct web_settings *s, const struct web_op *op, struct str zone,
               struct buf *out, struct err *err)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_u64(&w, "v", HOOK_VERSION);
    json_kv_text(&w, "call", web_op_names[op->kind]);
    json_kv_str(&w, "cloud", s->name);
    json_kv_str(&w, "fleet", s->fleet);
    if (op->kind == WEB_CREATE) put_create(s, op, zone, &w);
    if (op->kind == WEB_REMOVE) {
        json_kv_text(&w, "intent", op->call->intent);
        json_kv_text(&w, "handle", op->call->handle);
    }
    if (op->kind == WEB_PRICES) put_offers(s, &w);
    json_object_end(&w);
    return out->rc < 0 ? err_set(err, out->rc, "no memory for a call") : 0;
}

/* ---- replies: members ---- */

struct reading {
    const struct web_settings *settings;
    struct web_op *op;
    int64_t now_us;
    struct listed *item;
    bool has_fleet, is_ours; /* what the tags of the item say */
    struct err *err;
};

static int malformed(struct reading *r, const char *what)
{
    return err_set(r->err, -EINVAL, "%s", what);
}

/* Copies an optional text of at most bytes - 1; without it *to stays. */
static int take_text(struct reading *r, struct str json, const char *name, char *to, size_t bytes)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = json_path_text(json, name, &text);
    if (rc == -ENOENT) return 0;
    if (rc == -ENOMEM) return err_set(r->err, rc, "no memory for %s", name);
    if (rc < 0) return err_set(r->err, -EINVAL, "%s is no text", name);
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.data[i] < ' ')
            return err_set(r->err, -EINVAL, "%s has a control character", name);
    if (text.len >= bytes)
        return err_set(r->err, -EINVAL, "%s is longer than %zu bytes", name, bytes - 1);
    web_text_copy(to, bytes, buf_view(&text));
    return 0;
}

/* The same for words to people, which are cut where they are too long. */
static int take_words(struct reading *r, struct str json, const char *name, char *to, size_t bytes)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = json_path_text(json, name, &text);
    if (rc == -ENOENT) return 0;
    if (rc < 0) return err_set(r->err, rc, "%s is no text", name);
    web_text_copy(to, bytes, buf_view(&text));
    return 0;
}

/* Reads an optional number of seconds; below 0: it is not there. */
static int take_seconds(struct reading *r, struct str json, const char *name, double *ret)
{
    *ret = -1;
    int rc = json_path_f64(json, name, ret);
    if (rc == -ENOENT) return 0;
    if (rc < 0 || !(*ret >= 0 && *ret <= SECONDS_MAX))
        return err_set(r->err, -EINVAL, "%s is no number of seconds", name);
    return 0;
}

/* Returns the class that a word names; OFFER_OK: none. */
static enum offer_error class_named(const char *word)
{
    for (int c = OFFER_OK + 1; c < OFFER_ERROR_COUNT; c++)
        if (strcmp(word, offer_error_names[c]) == 0) return (enum offer_error)c;
    return OFFER_OK;
}

/* ---- replies: an instance ---- */

static int take_tag(void *ctx, struct str name, struct str value)
{
    struct reading *r = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(value, "", &text) < 0)
        return err_set(r->err, -EINVAL, "tags." STR_FMT " is no text", STR_ARG(name));
    if (str_eq(name, STR(WEB_TAG_FLEET))) {
        r->has_fleet = true;
        r->is_ours = str_eq(buf_view(&text), r->settings->fleet);
    }
    if (web_tag_take(name, buf_view(&text), false, r->item) < 0)
        return err_set(r->err, -EINVAL, "tags." STR_FMT " is longer than ours", STR_ARG(name));
    return 0;
}

static int take_state(struct reading *r, struct str json)
{
    struct listed *l = r->item;
    char state[16] = "up", class[16] = "";
    int rc = take_text(r, json, "state", state, sizeof state);
    if (rc == 0) rc = take_text(r, json, "class", class, sizeof class);
    if (rc < 0) return rc;
    l->gone = strcmp(state, "gone") == 0;
    if (strcmp(state, "stuck") == 0) {
        l->stuck = class_named(class);
        if (l->stuck == OFFER_OK)
            return malformed(r, "class of a stuck instance is none of the error classes");
    } else if (!l->gone && strcmp(state, "up") != 0) {
        return malformed(r, "state is neither up, gone nor stuck");
    }
    return 0;
}

static int read_instance(struct reading *r, struct str json)
{
    struct listed *l = r->item;
    double age_s, leaves_s;
    *l = (struct listed){ 0 };
    r->has_fleet = r->is_ours = false;
    int rc = take_text(r, json, "handle", l->handle, sizeof l->handle);
    if (rc == 0 && !l->handle[0]) rc = malformed(r, "handle is missing");
    if (rc == 0) rc = take_text(r, json, "node", l->node, sizeof l->node);
    if (rc == 0) rc = take_words(r, json, "why", l->why, sizeof l->why);
    if (rc == 0) rc = take_state(r, json);
    if (rc == 0) rc = take_seconds(r, json, "age_s", &age_s);
    if (rc == 0) rc = take_seconds(r, json, "leaves_in_s", &leaves_s);
    if (rc < 0) return rc;
    if (age_s >= 0) l->created_us = max_i64(1, r->now_us - (int64_t)(age_s * 1e6));
    if (leaves_s >= 0) l->leaves_us = r->now_us + (int64_t)(leaves_s * 1e6);
    rc = json_path_each_member(json, "tags", take_tag, r);
    if (rc == -ENOENT) return 0;
    if (rc < 0 && !r->err->text[0]) return malformed(r, "tags is no object");
    return rc;
}

/* ---- replies: calls ---- */

static int read_made(struct reading *r, struct str json)
{
    struct web_op *op = r->op;
    struct str instance;
    r->item = &op->made;
    if (json_path(json, "instance", &instance) < 0) return malformed(r, "instance is missing");
    int rc = read_instance(r, instance);
    if (rc < 0) return rc;
    if (op->made.intent[0] && strcmp(op->made.intent, op->call->intent) != 0)
        return malformed(r, "the instance is another intent's");
    web_text_copy(op->made.intent, sizeof op->made.intent, str_from(op->call->intent));
    web_text_copy(op->made.service, sizeof op->made.service, op->spec->service);
    web_text_copy(op->made.pool, sizeof op->made.pool, op->spec->pool);
    web_text_copy(op->made.offer, sizeof op->made.offer, op->spec->offer);
    return 0;
}

static int take_listed(void *ctx, struct str item)
{
    struct reading *r = ctx;
    struct web_op *op = r->op;
    if (op->count == CLOUD_LIST_MAX)
        return err_set(r->err, -E2BIG, "more than %d instances", CLOUD_LIST_MAX);
    r->item = &op->item[op->count];
    int rc = read_instance(r, item);
    if (rc == 0 && !r->has_fleet)
        rc = err_set(r->err, -EINVAL, "the instance %s has no tag " WEB_TAG_FLEET, r->item->handle);
    if (rc < 0 || !r->is_ours) return rc;
    r->item->unreadable = !r->item->service[0] || !r->item->pool[0];
    op->count++;
    return 0;
}

static int read_list(struct reading *r, struct str json)
{
    int rc = json_path_each(json, "instances", take_listed, r);
    if (rc < 0 && !r->err->text[0]) return malformed(r, "instances is no list");
    return rc;
}

static struct cloud_price *find_price(struct web_op *op, const char *offer)
{
    for (uint32_t i = 0; i < op->count; i++)
        if (strcmp(op->price[i].offer, offer) == 0) return &op->price[i];
    return NULL;
}

static int take_price(void *ctx, struct str item)
{
    struct reading *r = ctx;
    char name[NAME_BYTES] = "", currency[WEB_CURRENCY_BYTES] = "USD";
    double per_hour;
    int rc = take_text(r, item, "offer", name, sizeof name);
    if (rc == 0) rc = take_text(r, item, "currency", currency, sizeof currency);
    if (rc < 0) return rc;
    const struct web_offer *o = web_settings_offer(r->settings, str_from(name));
    struct cloud_price *p = find_price(r->op, name);
    if (!o || !p) return 0;
    rc = take_words(r, item, "hardware", p->hardware, sizeof p->hardware);
    if (rc < 0 || o->price_given) return rc;
    rc = json_path_f64(item, "per_hour", &per_hour);
    if (rc == -ENOENT) return 0;
    if (rc < 0 || !(per_hour >= 0)) return malformed(r, "per_hour is no price");
    p->known = web_dollars(r->settings, str_from(currency), per_hour, &p->price_h);
    return 0;
}

static int read_prices(struct reading *r, struct str json)
{
    const struct web_settings *s = r->settings;
    for (uint32_t i = 0; i < s->offer_count; i++) {
        const struct web_offer *o = &s->offer[i];
        struct cloud_price *p = &r->op->price[r->op->count++];
        *p = (struct cloud_price){ .known = o->price_given, .price_h = o->offer.price_h };
        must(name_copy(p->offer, sizeof p->offer, str_from(o->offer.name)) == 0);
        web_text_copy(p->hardware, sizeof p->hardware, o->type);
    }
    int rc = json_path_each(json, "prices", take_price, r);
    if (rc < 0 && !r->err->text[0]) return malformed(r, "prices is no list");
    return rc;
}

static int read_removed(struct reading *r, struct str json)
{
    bool removed = false;
    if (json_path_bool(json, "removed", &removed) == 0 && removed) return 0;
    return malformed(r, "removed is not true");
}

/* ---- replies ---- */

static int check_json(struct str reply, struct err *err)
{
    struct json_reader r;
    json_reader_init(&r, reply);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "no JSON object");
    if (json_skip_rest(&r) != JSON_OBJECT_END || json_next(&r) != JSON_END)
        return json_fail(&r, err, "no JSON object");
    return 0;
}

static int check_version(struct str reply, struct err *err)
{
    uint64_t v = HOOK_VERSION;
    int rc = json_path_u64(reply, "v", &v);
    if (rc == -ENOENT || (rc == 0 && v == HOOK_VERSION)) return 0;
    return err_set(err, -EINVAL, "v is not %d, the version that this release speaks", HOOK_VERSION);
}

bool hook_is_error(struct str reply)
{
    struct str error;
    return check_json(reply, NULL) == 0 && json_path(reply, "error", &error) == 0;
}

static void end_with_error(struct reading *r, struct str error, struct web_step *ret)
{
    char word[16] = "", message[INTENT_WHY_BYTES] = "";
    double retry_s = -1;
    const char *op = web_op_names[r->op->kind];
    struct str name = r->settings->name;
    int rc = take_text(r, error, "class", word, sizeof word);
    if (rc == 0) rc = take_words(r, error, "message", message, sizeof message);
    if (rc == 0) rc = take_seconds(r, error, "retry_after_s", &retry_s);
    enum offer_error class = rc == 0 ? class_named(word) : OFFER_OK;
    if (rc < 0)
        web_refuse(ret, OFFER_TRANSIENT, "%s of " STR_FMT ": error.%s", op, STR_ARG(name),
                   r->err->text);
    else if (class == OFFER_OK)
        web_refuse(ret, OFFER_TRANSIENT,
                   "%s of " STR_FMT ": error.class '%s' is none of the error classes%s%s", op,
                   STR_ARG(name), word, message[0] ? ": " : "", message);
    else
        web_refuse(ret, class, "%s of " STR_FMT ": %s%s%s", op, STR_ARG(name), word,
                   message[0] ? ": " : "", message);
    if (class == OFFER_THROTTLE && retry_s > 0)
        ret->wait_us = min_i64((int64_t)retry_s, RETRY_S_MAX) * 1000000;
    ret->login_refused = class == OFFER_AUTH;
}

void hook_read(const struct web_settings *s, struct web_op *op, struct str reply, int64_t now_us,
               struct web_step *ret)
{
    static int (*const readers[WEB_OP_COUNT])(struct reading * r, struct str json) = {
        [WEB_CREATE] = read_made,
        [WEB_REMOVE] = read_removed,
        [WEB_LIST] = read_list,
        [WEB_PRICES] = read_prices,
    };
    struct err err = { 0 };
    struct reading r = { .settings = s, .op = op, .now_us = now_us, .err = &err };
    struct str error;
    int rc = check_json(reply, &err);
    if (rc == 0) rc = check_version(reply, &err);
    if (rc == 0 && json_path(reply, "error", &error) == 0) {
        end_with_error(&r, error, ret);
        return;
    }
    op->count = 0;
    if (rc == 0) rc = readers[op->kind](&r, reply);
    if (rc == 0) {
        web_succeed(ret);
        return;
    }
    op->made = (struct listed){ 0 };
    op->count = 0;
    web_refuse(ret, OFFER_TRANSIENT, "%s of " STR_FMT ": the reply cannot be read: %s",
               web_op_names[op->kind], STR_ARG(s->name), err.text);
}
