/* fleet_time.c - computes fleet time, and encodes its record. */
#include "controller/core/fleet_time.h"

#include "base/core/bits.h"
#include "base/wire/field.h"

#define RECORD_VERSION 1
#define TIME_MAX 9e15 /* microseconds; doubles are exact below */

int64_t fleet_time_ahead(const struct fleet_record *last, const struct fleet_moment *now)
{
    if (!last) return now->wall_us - now->mono_us;
    if (last->boot == now->boot) return last->ahead_us;
    int64_t away_us = max_i64(0, now->wall_us - last->wall_us);
    return last->seen_us + away_us - now->mono_us;
}

struct fleet_record fleet_record_at(int64_t ahead_us, const struct fleet_moment *now)
{
    return (struct fleet_record){ .boot = now->boot,
                                  .ahead_us = ahead_us,
                                  .seen_us = now->mono_us + ahead_us,
                                  .wall_us = now->wall_us };
}

struct record {
    uint32_t v;
    struct fleet_record is;
};

static const struct field record_fields[] = {
    FIELD(struct record, v, FIELD_U32, .required = true, .min = 1, .max = RECORD_VERSION),
    FIELD_AS("boot", struct record, is.boot, FIELD_HEX64, .required = true),
    FIELD_AS("ahead_us", struct record, is.ahead_us, FIELD_I64, .required = true, .min = -TIME_MAX,
             .max = TIME_MAX),
    FIELD_AS("seen_us", struct record, is.seen_us, FIELD_I64, .required = true, .min = -TIME_MAX,
             .max = TIME_MAX),
    FIELD_AS("wall_us", struct record, is.wall_us, FIELD_I64, .required = true, .min = -TIME_MAX,
             .max = TIME_MAX),
};
static const struct field_set record_set = FIELD_SET(struct record, record_fields);

int fleet_record_encode(const struct fleet_record *r, struct buf *out)
{
    struct record record = { RECORD_VERSION, *r };
    return fields_encode(&record_set, &record, out);
}

int fleet_record_decode(struct str text, struct arena *arena, struct fleet_record *ret,
                        struct err *err)
{
    struct record record = { 0 };
    int rc = fields_decode(&record_set, text, arena, &record, "the stored time", err);
    if (rc == 0) *ret = record.is;
    return rc;
}
