/* events.c - the ring of events, and the stored log of people's orders. */
#include "controller/events.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/wire/field.h"
#include "controller/control_state.h"
#include "controller/orders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORDER_VERSION 1 /* of these records only; for its rules see core/intent.c */
#define ORDER_ARENA_BYTES ((size_t)16 << 10)

static const struct store_log orders = { "orders", EVENTS_ORDERS_MAX };

void events_init(struct events *e)
{
    *e = (struct events){ .event = calloc(EVENTS_MAX, sizeof *e->event) };
    must(e->event);
}

void events_fini(struct events *e)
{
    free(e->event);
    *e = (struct events){ 0 };
}

static struct fleet_event *push(struct events *e)
{
    if (e->count == EVENTS_MAX) {
        e->first = (e->first + 1) % EVENTS_MAX;
        e->count--;
        e->dropped++;
    }
    struct fleet_event *v = &e->event[(e->first + e->count++) % EVENTS_MAX];
    *v = (struct fleet_event){ 0 };
    return v;
}

static void fill(struct fleet_event *v, const struct event_note *n, int64_t at_us)
{
    const struct {
        char *to;
        size_t size;
        const char *from;
    } texts[] = {
        { v->what, sizeof v->what, n->what },
        { v->by, sizeof v->by, n->by ? n->by : "controller" },
        { v->service, sizeof v->service, n->service },
        { v->pool, sizeof v->pool, n->pool },
        { v->instance, sizeof v->instance, n->instance },
        { v->offer, sizeof v->offer, n->offer },
        { v->text, sizeof v->text, n->text },
    };
    v->at_us = at_us;
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        snprintf(texts[i].to, texts[i].size, "%s", texts[i].from ? texts[i].from : "");
}

void control_note(struct control *c, const struct event_note *note, int64_t now_us)
{
    fill(push(&c->events), note, now_us + c->date_ahead_us);
}

/* ---- orders ---- */

struct order_record {
    uint32_t v;
    int64_t at_us;
    struct str what, by, service, pool, instance, offer, text;
};

#define TEXT(member, size) FIELD(struct order_record, member, FIELD_STR, .max = (size)-1)
static const struct field order_fields[] = {
    FIELD(struct order_record, v, FIELD_U32, .required = true, .min = 1, .max = ORDER_VERSION),
    FIELD(struct order_record, at_us, FIELD_I64, .required = true, .min = 0, .max = 9e15),
    TEXT(what, EVENT_WHAT_BYTES),
    TEXT(by, NAME_BYTES),
    TEXT(service, NAME_BYTES),
    TEXT(pool, NAME_BYTES),
    TEXT(instance, NAME_BYTES),
    TEXT(offer, NAME_BYTES),
    TEXT(text, INTENT_WHY_BYTES),
};
static const struct field_set order_set = FIELD_SET(struct order_record, order_fields);

static void copy_name(struct str from, char to[NAME_BYTES])
{
    size_t n = min_size(from.len, NAME_BYTES - 1);
    if (n) memcpy(to, from.data, n);
    to[n] = 0;
}

/* A record that cannot be written is logged and counted; what was ordered is done all the same. */
void control_order_done(struct control *c, const struct control_order *o, int64_t now_us)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct err err = { 0 };
    uint64_t seq;
    struct fleet_event *v = push(&c->events);
    const struct event_note note = { .what = o->what, .by = o->by, .text = o->text };
    fill(v, &note, now_us + c->date_ahead_us);
    copy_name(o->service, v->service);
    copy_name(o->pool, v->pool);
    copy_name(o->instance, v->instance);
    v->order = true;
    const struct order_record r = { .v = ORDER_VERSION,
                                    .at_us = v->at_us,
                                    .what = str_from(v->what),
                                    .by = str_from(v->by),
                                    .service = str_from(v->service),
                                    .pool = str_from(v->pool),
                                    .instance = str_from(v->instance),
                                    .offer = str_from(v->offer),
                                    .text = str_from(v->text) };
    int rc = fields_encode(&order_set, &r, &text);
    if (rc == 0) rc = store_append(c->setup.store, &orders, buf_view(&text), &seq, &err);
    if (rc < 0) control_store_failed(c, "order_not_written", v->what, err_text(&err, rc));
    log_event(LOG_INFO, "order", "what=%s by=%s service=%s pool=%s instance=%s text=%s", v->what,
              v->by, v->service, v->pool, v->instance, v->text);
}

/* Puts one stored order into the ring. One that cannot be read is left out: it is history. */
static int restore_order(void *ctx, const struct store_record *r)
{
    struct control *c = ctx;
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, ORDER_ARENA_BYTES);
    struct order_record o = { 0 };
    struct err err = { 0 };
    int rc = fields_decode(&order_set, r->value, &arena, &o, "the stored order", &err);
    if (rc < 0) {
        log_event(LOG_WARN, "order_unreadable", "id=%llu error=%s", (unsigned long long)r->seq,
                  err_text(&err, rc));
        return 0;
    }
    const struct event_note note = { .what = o.what.data,
                                     .by = o.by.data,
                                     .service = o.service.data,
                                     .pool = o.pool.data,
                                     .instance = o.instance.data,
                                     .offer = o.offer.data,
                                     .text = o.text.data };
    struct fleet_event *v = push(&c->events);
    fill(v, &note, o.at_us);
    v->order = true;
    return 0;
}

int events_restore(struct control *c, struct err *err)
{
    struct store_log_stat stat = { 0 };
    int rc = store_log_stat(c->setup.store, &orders, &stat, err);
    if (rc < 0 || stat.count == 0) return rc;
    uint64_t from = stat.last >= EVENTS_RESTORED_MAX ? stat.last - EVENTS_RESTORED_MAX + 1 : 1;
    return store_log_read(c->setup.store, &orders, from, EVENTS_RESTORED_MAX, restore_order, c,
                          err);
}

/* ---- showing ---- */

static const struct fleet_event *event_at(const struct events *e, uint32_t i)
{
    return &e->event[(e->first + i) % EVENTS_MAX];
}

static bool is_about(const struct fleet_event *v, struct str name)
{
    const char *const names[] = { v->service, v->pool, v->instance, v->offer };
    for (size_t i = 0; i < COUNT_OF(names) && name.len > 0; i++)
        if (str_eq(str_from(names[i]), name)) return true;
    return name.len == 0;
}

static void put_text(struct json_writer *w, const char *name, const char *text)
{
    json_kv_text(w, name, text[0] ? text : NULL);
}

static void put_event(struct json_writer *w, const struct fleet_event *v)
{
    json_object(w);
    json_kv_i64(w, "at_us", v->at_us);
    put_text(w, "what", v->what);
    put_text(w, "by", v->by);
    json_kv_bool(w, "order", v->order);
    put_text(w, "service", v->service);
    put_text(w, "pool", v->pool);
    put_text(w, "instance", v->instance);
    put_text(w, "offer", v->offer);
    put_text(w, "text", v->text);
    json_object_end(w);
}

int control_events(const struct control *c, struct str name, uint32_t max, struct buf *out)
{
    const struct events *e = &c->events;
    uint32_t from = e->count, found = 0;
    while (from > 0 && found < max)
        found += is_about(event_at(e, --from), name);
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_u64(&w, "dropped", e->dropped);
    json_key(&w, "events");
    json_array(&w);
    for (uint32_t i = from; i < e->count && max > 0; i++)
        if (is_about(event_at(e, i), name)) put_event(&w, event_at(e, i));
    json_array_end(&w);
    json_object_end(&w);
    return out->rc;
}
