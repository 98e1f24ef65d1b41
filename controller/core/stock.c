/* stock.c - keeps the memories of stock, and their stored form. */
#include "controller/core/stock.h"

#include "base/core/bits.h"
#include "base/wire/field.h"

#include <math.h>
#include <string.h>

#define VERSION 1

static uint32_t find(const struct stocks *s, const struct offer *o)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const struct stock *at = &s->at[i];
        if (at->spot == o->spot && strcmp(at->provider, o->provider) == 0 &&
            strcmp(at->zone, o->zone) == 0 &&
            strcmp(at->type, o->hardware[0] ? o->hardware : o->name) == 0)
            return i;
    }
    return UINT32_MAX;
}

const struct stock *stock_find(const struct stocks *s, const struct offer *o)
{
    uint32_t at = find(s, o);
    return at == UINT32_MAX ? NULL : &s->at[at];
}

struct stock *stock_of(struct stocks *s, const struct offer *o)
{
    uint32_t at = find(s, o);
    if (at != UINT32_MAX) return &s->at[at];
    at = s->count;
    if (at < STOCKS_MAX) {
        s->count++;
    } else {
        at = 0;
        for (uint32_t i = 1; i < s->count; i++)
            if (s->at[i].seen.seen_us < s->at[at].seen.seen_us) at = i;
    }
    struct stock *n = &s->at[at];
    *n = (struct stock){ .spot = o->spot };
    memcpy(n->provider, o->provider, sizeof n->provider);
    memcpy(n->zone, o->zone, sizeof n->zone);
    memcpy(n->type, o->hardware[0] ? o->hardware : o->name, sizeof n->type);
    return n;
}

bool stock_observe(struct stock *s, const struct stock_seen *seen, double dt_h, int64_t now_us)
{
    const struct place_offer o = { .ready = seen->held,
                                   .lost = seen->lost,
                                   .refused = seen->refused };
    bool down = s->seen.down;
    bool news = o.lost > s->seen.lost || o.refused > s->seen.refused;
    hazard_observe(&s->seen, &o, dt_h, now_us);
    if (news) s->refused_us = now_us;
    return news || down != s->seen.down;
}

double stock_out(const struct stock *s, int64_t now_us)
{
    if (s->refused_us == 0) return 0;
    return fmin(1, fmax(0, 1 - hazard_up(&s->seen, now_us)));
}

/* ---- the stored form ---- */

struct stock_record {
    struct str provider, zone, type;
    bool spot, down;
    double losses, repairs, up_h, down_h;
    int64_t since_us, seen_us, refused_us;
};
#define TIME_MAX 9e15
static const struct field stock_fields[] = {
    FIELD(struct stock_record, provider, FIELD_STR, .required = true, .max = NAME_BYTES - 1),
    FIELD(struct stock_record, zone, FIELD_STR, .max = NAME_BYTES - 1),
    FIELD(struct stock_record, type, FIELD_STR, .required = true, .max = NAME_BYTES - 1),
    FIELD(struct stock_record, spot, FIELD_BOOL),
    FIELD(struct stock_record, down, FIELD_BOOL),
    FIELD(struct stock_record, losses, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct stock_record, repairs, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct stock_record, up_h, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct stock_record, down_h, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct stock_record, since_us, FIELD_I64, .max = TIME_MAX),
    FIELD(struct stock_record, seen_us, FIELD_I64, .max = TIME_MAX),
    FIELD(struct stock_record, refused_us, FIELD_I64, .max = TIME_MAX),
};
static const struct field_set stock_set = FIELD_SET(struct stock_record, stock_fields);

struct record {
    uint32_t v;
    const struct stock_record *stocks;
    uint32_t count;
};
static const struct field record_fields[] = {
    FIELD(struct record, v, FIELD_U32, .required = true, .min = 1, .max = VERSION),
    FIELD_ARRAY("stocks", struct record, stocks, count, FIELD_LIST, STOCKS_MAX, .of = &stock_set),
};
static const struct field_set record_set = FIELD_SET(struct record, record_fields);

/* Only what was refused or lost is worth a record. */
int stocks_encode(const struct stocks *s, struct buf *out)
{
    struct stock_record r[STOCKS_MAX];
    struct record all = { .v = VERSION, .stocks = r };
    for (uint32_t i = 0; i < s->count; i++) {
        const struct stock *at = &s->at[i];
        if (at->refused_us == 0) continue;
        r[all.count++] = (struct stock_record){ .provider = str_from(at->provider),
                                                .zone = str_from(at->zone),
                                                .type = str_from(at->type),
                                                .spot = at->spot,
                                                .down = at->seen.down,
                                                .losses = (double)at->seen.losses,
                                                .repairs = (double)at->seen.repairs,
                                                .up_h = at->seen.up_h,
                                                .down_h = at->seen.down_h,
                                                .since_us = at->seen.since_us,
                                                .seen_us = at->seen.seen_us,
                                                .refused_us = at->refused_us };
    }
    return fields_encode(&record_set, &all, out);
}

int stocks_decode(struct str text, struct arena *arena, struct stocks *ret, struct err *err)
{
    struct record r = { 0 };
    struct stocks s = { 0 };
    int rc = fields_decode(&record_set, text, arena, &r, "the stored memory of stock", err);
    if (rc < 0) return rc;
    for (uint32_t i = 0; i < r.count; i++) {
        const struct stock_record *from = &r.stocks[i];
        struct stock *to = &s.at[s.count++];
        *to = (struct stock){ .spot = from->spot, .refused_us = from->refused_us };
        must(name_copy(to->provider, sizeof to->provider, from->provider) == 0); /* bounded */
        must(name_copy(to->zone, sizeof to->zone, from->zone) == 0);
        must(name_copy(to->type, sizeof to->type, from->type) == 0);
        to->seen = (struct hazard){ .down = from->down,
                                    .losses = (float)from->losses,
                                    .repairs = (float)from->repairs,
                                    .up_h = from->up_h,
                                    .down_h = from->down_h,
                                    .since_us = from->since_us,
                                    .seen_us = from->seen_us };
    }
    *ret = s;
    return 0;
}
