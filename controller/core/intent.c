/* intent.c - holds the table of an intent's states and events and its stored form.
 *
 * A provider may report at any time, and late, so nearly every event has a transition in every
 * state. The few empty cells are events that only our own call can raise. */

#include "controller/core/intent.h"

#include "base/core/bits.h"
#include "base/wire/field.h"

#include <stdio.h>

const char *const intent_state_names[INTENT_STATE_COUNT] = {
    [INTENT_WANTED] = "wanted",     [INTENT_CREATING] = "creating",
    [INTENT_CREATED] = "created",   [INTENT_REGISTERED] = "registered",
    [INTENT_DRAINING] = "draining", [INTENT_STOPPING] = "stopping",
    [INTENT_STOPPED] = "stopped",   [INTENT_STARTING] = "starting",
    [INTENT_ENDING] = "ending",     [INTENT_ENDED] = "ended",
};

const char *const intent_event_names[INTENT_EVENT_COUNT] = {
    [INTENT_GO] = "asked of the provider",
    [INTENT_MADE] = "the provider made it",
    [INTENT_REFUSED] = "the provider refused",
    [INTENT_UNSURE] = "the provider's answer was lost",
    [INTENT_LISTED] = "the provider lists it",
    [INTENT_ABSENT] = "the provider does not list it",
    [INTENT_REPORTED] = "its agent reports",
    [INTENT_DRAIN] = "to be drained",
    [INTENT_KEEP] = "wanted after all",
    [INTENT_DRAINED] = "its agent has stopped the engine",
    [INTENT_END] = "to be ended",
    [INTENT_LATE] = "over its deadline",
    [INTENT_PARK] = "drained: its pool keeps it stopped",
    [INTENT_HALTED] = "the provider lists it as stopped",
    [INTENT_WAKE] = "wanted again",
};

// clang-format off
#define TO(next_state, act) { true, INTENT_##next_state, INTENT_##act }
#define STAY(state)         { true, INTENT_##state, INTENT_NOTHING }
#define NEVER               { false, INTENT_WANTED, INTENT_NOTHING }

static const struct intent_cell table[INTENT_STATE_COUNT][INTENT_EVENT_COUNT] = {
    [INTENT_WANTED] = {
        [INTENT_GO]       = TO(CREATING, CALL_CREATE),
        [INTENT_MADE]     = NEVER,
        [INTENT_REFUSED]  = NEVER,
        [INTENT_UNSURE]   = NEVER,
        [INTENT_LISTED]   = TO(CREATED, NOTHING),
        [INTENT_ABSENT]   = STAY(WANTED),
        [INTENT_REPORTED] = TO(REGISTERED, NOTHING),
        [INTENT_DRAIN]    = TO(ENDED, NOTHING),     /* nothing was asked for: forgotten */
        [INTENT_KEEP]     = STAY(WANTED),
        [INTENT_DRAINED]  = TO(ENDING, CALL_REMOVE),
        [INTENT_END]      = TO(ENDED, NOTHING),
        [INTENT_LATE]     = TO(ENDED, NOTHING),
        [INTENT_PARK]     = NEVER,
        [INTENT_HALTED]   = NEVER,
        [INTENT_WAKE]     = NEVER,
    },
    [INTENT_CREATING] = {
        [INTENT_GO]       = STAY(CREATING),
        [INTENT_MADE]     = TO(CREATED, NOTHING),
        [INTENT_REFUSED]  = TO(ENDED, NOTHING),
        [INTENT_UNSURE]   = STAY(CREATING),
        [INTENT_LISTED]   = TO(CREATED, NOTHING),
        [INTENT_ABSENT]   = TO(CREATING, CALL_CREATE), /* same key: at most one is made */
        [INTENT_REPORTED] = TO(REGISTERED, NOTHING),
        [INTENT_DRAIN]    = TO(ENDING, CALL_REMOVE),   /* it may exist: only a listing can tell */
        [INTENT_KEEP]     = STAY(CREATING),
        [INTENT_DRAINED]  = TO(ENDING, CALL_REMOVE),
        [INTENT_END]      = TO(ENDING, CALL_REMOVE),
        [INTENT_LATE]     = TO(ENDING, CALL_REMOVE),
        [INTENT_PARK]     = NEVER,
        [INTENT_HALTED]   = NEVER,
        [INTENT_WAKE]     = NEVER,
    },
    [INTENT_CREATED] = {
        [INTENT_GO]       = STAY(CREATED),
        [INTENT_MADE]     = STAY(CREATED),
        [INTENT_REFUSED]  = STAY(CREATED),
        [INTENT_UNSURE]   = STAY(CREATED),
        [INTENT_LISTED]   = STAY(CREATED),
        [INTENT_ABSENT]   = TO(ENDED, NOTHING),
        [INTENT_REPORTED] = TO(REGISTERED, NOTHING),
        [INTENT_DRAIN]    = TO(ENDING, CALL_REMOVE),   /* it serves no request yet */
        [INTENT_KEEP]     = STAY(CREATED),
        [INTENT_DRAINED]  = TO(ENDING, CALL_REMOVE),
        [INTENT_END]      = TO(ENDING, CALL_REMOVE),
        [INTENT_LATE]     = TO(ENDING, CALL_REMOVE),
        [INTENT_PARK]     = NEVER,
        [INTENT_HALTED]   = NEVER,
        [INTENT_WAKE]     = NEVER,
    },
    [INTENT_REGISTERED] = {
        [INTENT_GO]       = STAY(REGISTERED),
        [INTENT_MADE]     = STAY(REGISTERED),
        [INTENT_REFUSED]  = STAY(REGISTERED),
        [INTENT_UNSURE]   = STAY(REGISTERED),
        [INTENT_LISTED]   = STAY(REGISTERED),
        [INTENT_ABSENT]   = TO(ENDED, NOTHING),
        [INTENT_REPORTED] = STAY(REGISTERED),
        [INTENT_DRAIN]    = TO(DRAINING, NOTHING),
        [INTENT_KEEP]     = STAY(REGISTERED),
        [INTENT_DRAINED]  = TO(ENDING, CALL_REMOVE),   /* it ended itself: lease, age or failure */
        [INTENT_END]      = TO(ENDING, CALL_REMOVE),
        [INTENT_LATE]     = TO(ENDING, CALL_REMOVE),
        [INTENT_PARK]     = NEVER,
        [INTENT_HALTED]   = NEVER,
        [INTENT_WAKE]     = NEVER,
    },
    [INTENT_DRAINING] = {
        [INTENT_GO]       = STAY(DRAINING),
        [INTENT_MADE]     = STAY(DRAINING),
        [INTENT_REFUSED]  = STAY(DRAINING),
        [INTENT_UNSURE]   = STAY(DRAINING),
        [INTENT_LISTED]   = STAY(DRAINING),
        [INTENT_ABSENT]   = TO(ENDED, NOTHING),
        [INTENT_REPORTED] = STAY(DRAINING),
        [INTENT_DRAIN]    = STAY(DRAINING),
        [INTENT_KEEP]     = TO(REGISTERED, NOTHING),
        [INTENT_DRAINED]  = TO(ENDING, CALL_REMOVE),
        [INTENT_END]      = TO(ENDING, CALL_REMOVE),
        [INTENT_LATE]     = TO(ENDING, CALL_REMOVE),
        [INTENT_PARK]     = TO(STOPPING, CALL_STOP),
        [INTENT_HALTED]   = NEVER,
        [INTENT_WAKE]     = NEVER,
    },
    [INTENT_STOPPING] = {
        [INTENT_GO]       = STAY(STOPPING),
        [INTENT_MADE]     = STAY(STOPPING),
        [INTENT_REFUSED]  = TO(ENDING, CALL_REMOVE),
        [INTENT_UNSURE]   = STAY(STOPPING),
        [INTENT_LISTED]   = TO(STOPPING, CALL_STOP),   /* it runs on: ask again */
        [INTENT_ABSENT]   = TO(ENDED, NOTHING),
        [INTENT_REPORTED] = STAY(STOPPING),
        [INTENT_DRAIN]    = STAY(STOPPING),
        [INTENT_KEEP]     = STAY(STOPPING),
        [INTENT_DRAINED]  = STAY(STOPPING),
        [INTENT_END]      = TO(ENDING, CALL_REMOVE),
        [INTENT_LATE]     = TO(ENDING, CALL_REMOVE),
        [INTENT_PARK]     = STAY(STOPPING),
        [INTENT_HALTED]   = TO(STOPPED, NOTHING),
        [INTENT_WAKE]     = NEVER,
    },
    [INTENT_STOPPED] = {
        [INTENT_GO]       = STAY(STOPPED),
        [INTENT_MADE]     = STAY(STOPPED),
        [INTENT_REFUSED]  = STAY(STOPPED),
        [INTENT_UNSURE]   = STAY(STOPPED),
        [INTENT_LISTED]   = TO(ENDING, CALL_REMOVE),   /* started, and not by us */
        [INTENT_ABSENT]   = TO(ENDED, NOTHING),
        [INTENT_REPORTED] = TO(ENDING, CALL_REMOVE),
        [INTENT_DRAIN]    = TO(ENDING, CALL_REMOVE),
        [INTENT_KEEP]     = STAY(STOPPED),
        [INTENT_DRAINED]  = STAY(STOPPED),
        [INTENT_END]      = TO(ENDING, CALL_REMOVE),
        [INTENT_LATE]     = TO(ENDING, CALL_REMOVE),
        [INTENT_PARK]     = NEVER,
        [INTENT_HALTED]   = STAY(STOPPED),
        [INTENT_WAKE]     = TO(STARTING, CALL_START),
    },
    [INTENT_STARTING] = {
        [INTENT_GO]       = STAY(STARTING),
        [INTENT_MADE]     = STAY(STARTING),
        [INTENT_REFUSED]  = TO(STOPPED, NOTHING),      /* no room for it now */
        [INTENT_UNSURE]   = STAY(STARTING),
        [INTENT_LISTED]   = TO(CREATED, NOTHING),
        [INTENT_ABSENT]   = TO(ENDED, NOTHING),
        [INTENT_REPORTED] = TO(REGISTERED, NOTHING),
        [INTENT_DRAIN]    = TO(ENDING, CALL_REMOVE),
        [INTENT_KEEP]     = STAY(STARTING),
        [INTENT_DRAINED]  = TO(ENDING, CALL_REMOVE),
        [INTENT_END]      = TO(ENDING, CALL_REMOVE),
        [INTENT_LATE]     = TO(ENDING, CALL_REMOVE),
        [INTENT_PARK]     = NEVER,
        [INTENT_HALTED]   = TO(STARTING, CALL_START),  /* the call came to nothing: ask again */
        [INTENT_WAKE]     = NEVER,
    },
    [INTENT_ENDING] = {
        [INTENT_GO]       = STAY(ENDING),
        [INTENT_MADE]     = TO(ENDING, CALL_REMOVE),
        [INTENT_REFUSED]  = STAY(ENDING),
        [INTENT_UNSURE]   = STAY(ENDING),
        [INTENT_LISTED]   = TO(ENDING, CALL_REMOVE),   /* still there: ask again */
        [INTENT_ABSENT]   = TO(ENDED, NOTHING),
        [INTENT_REPORTED] = STAY(ENDING),
        [INTENT_DRAIN]    = STAY(ENDING),
        [INTENT_KEEP]     = STAY(ENDING),              /* too late */
        [INTENT_DRAINED]  = STAY(ENDING),
        [INTENT_END]      = STAY(ENDING),
        [INTENT_LATE]     = TO(ENDING, CALL_REMOVE),
        [INTENT_PARK]     = NEVER,
        [INTENT_HALTED]   = STAY(ENDING),
        [INTENT_WAKE]     = NEVER,
    },
    [INTENT_ENDED] = {
        [INTENT_GO]       = STAY(ENDED),
        [INTENT_MADE]     = TO(ENDING, CALL_REMOVE),
        [INTENT_REFUSED]  = STAY(ENDED),
        [INTENT_UNSURE]   = STAY(ENDED),
        [INTENT_LISTED]   = TO(ENDING, CALL_REMOVE),   /* late success: it was refused or given up */
        [INTENT_ABSENT]   = STAY(ENDED),
        [INTENT_REPORTED] = TO(ENDING, CALL_REMOVE),
        [INTENT_DRAIN]    = STAY(ENDED),
        [INTENT_KEEP]     = STAY(ENDED),
        [INTENT_DRAINED]  = STAY(ENDED),
        [INTENT_END]      = STAY(ENDED),
        [INTENT_LATE]     = STAY(ENDED),
        [INTENT_PARK]     = NEVER,
        [INTENT_HALTED]   = NEVER,
        [INTENT_WAKE]     = NEVER,
    },
};

// clang-format on

struct intent_cell intent_cell(enum intent_state s, enum intent_event e)
{
    must(s < INTENT_STATE_COUNT && e < INTENT_EVENT_COUNT);
    return table[s][e];
}

static void mark_times(struct intent *i, enum intent_state before, int64_t now_us)
{
    if (i->state != before) i->state_us = now_us;
    switch (i->state) {
    case INTENT_CREATED:
        if (i->made_us == 0) i->made_us = now_us;
        break;
    case INTENT_REGISTERED:
        if (i->made_us == 0) i->made_us = now_us;
        if (i->registered_us == 0) i->registered_us = now_us;
        i->drain_us = 0;
        break;
    case INTENT_DRAINING:
        if (i->drain_us == 0) i->drain_us = now_us;
        break;
    case INTENT_ENDED:
        if (before != INTENT_ENDED) i->ended_us = now_us;
        break;
    case INTENT_ENDING:
        i->ended_us = 0;
        break;
    case INTENT_STARTING: /* another life begins */
        i->made_us = i->registered_us = i->drain_us = 0;
        break;
    case INTENT_WANTED:
    case INTENT_CREATING:
    case INTENT_STOPPING:
    case INTENT_STOPPED:
    case INTENT_STATE_COUNT:
        break;
    }
}

enum intent_action intent_step(struct intent *i, enum intent_event e, const char *why,
                               int64_t now_us)
{
    struct intent_cell cell = intent_cell(i->state, e);
    must(cell.possible);
    enum intent_state before = i->state;
    i->state = cell.next;
    mark_times(i, before, now_us);
    if (cell.next != before)
        snprintf(i->why, sizeof i->why, "%s", why ? why : intent_event_names[e]);
    if (cell.action == INTENT_CALL_CREATE) {
        i->called_us = now_us;
        i->calls++;
    }
    if (cell.action == INTENT_CALL_START) {
        i->called_us = now_us;
        i->starts += before == INTENT_STOPPED;
    }
    if (cell.action == INTENT_CALL_REMOVE || cell.action == INTENT_CALL_STOP)
        i->removed_us = now_us;
    return cell.action;
}

int name_copy(char *to, size_t size, struct str from)
{
    if (from.len >= size) return -E2BIG;
    if (from.len) memcpy(to, from.data, from.len);
    to[from.len] = 0;
    return 0;
}

/* The version of the stored record; messages have their own. A new member that older releases
 * can do without keeps the number: they skip unknown members. Raise the number only when
 * an older release must not read the record, and translate the previous number in intent_decode. */
#define RECORD_VERSION 1

/* The stored record, with names as borrowed strings, so that the tables of base/wire serve here too. */
struct record {
    struct str id, service, pool, provider, offer, handle, why, joined, mark;
    uint32_t v, state, calls, starts;
    double price_h;
    int64_t age_limit_us, wanted_us, called_us, made_us, registered_us, drain_us, removed_us,
        ended_us, state_us, joined_us, contested_us;
    bool adopted, let_go;
    /* of its charge */
    int64_t billed_from_us, billed_to_us, priced_us, unsure_us, bill_unit_us, bill_least_us;
    int64_t before_day, before_month;
    double before_in_day, before_in_month, before_total, before_unsure;
    bool price_told, halted;
};

#define TIME_MAX 9e15 /* microseconds; doubles are exact below */
#define TEXT(member, need, longest)                                                    \
    {                                                                                  \
        .name = #member, .type = FIELD_STR, .required = (need), .min = (need) ? 1 : 0, \
        .max = (longest)-1, .offset = offsetof(struct record, member)                  \
    }
#define TIME(member)                                                   \
    {                                                                  \
        .name = #member, .type = FIELD_I64, .min = 0, .max = TIME_MAX, \
        .offset = offsetof(struct record, member)                      \
    }

static const struct field record_fields[] = {
    { .name = "v",
      .type = FIELD_U32,
      .required = true,
      .min = 1,
      .max = RECORD_VERSION,
      .offset = offsetof(struct record, v) },
    TEXT(id, true, INTENT_ID_BYTES),
    TEXT(service, true, NAME_BYTES),
    TEXT(pool, true, NAME_BYTES),
    TEXT(provider, true, NAME_BYTES),
    TEXT(offer, true, NAME_BYTES),
    TEXT(handle, false, NAME_BYTES),
    TEXT(why, false, INTENT_WHY_BYTES),
    TEXT(joined, false, INTENT_MARK_BYTES),
    TEXT(mark, false, INTENT_MARK_BYTES),
    { .name = "state",
      .type = FIELD_ENUM,
      .required = true,
      .max = INTENT_STATE_COUNT,
      .names = intent_state_names,
      .offset = offsetof(struct record, state) },
    { .name = "calls", .type = FIELD_U32, .max = 1e9, .offset = offsetof(struct record, calls) },
    { .name = "starts", .type = FIELD_U32, .max = 1e9, .offset = offsetof(struct record, starts) },
    { .name = "price_h",
      .type = FIELD_F64,
      .min = 0,
      .max = 1e6,
      .offset = offsetof(struct record, price_h) },
    { .name = "adopted", .type = FIELD_BOOL, .offset = offsetof(struct record, adopted) },
    { .name = "let_go", .type = FIELD_BOOL, .offset = offsetof(struct record, let_go) },
    TIME(age_limit_us),
    TIME(wanted_us),
    TIME(called_us),
    TIME(made_us),
    TIME(registered_us),
    TIME(drain_us),
    TIME(removed_us),
    TIME(ended_us),
    TIME(state_us),
    TIME(billed_from_us),
    TIME(billed_to_us),
    TIME(priced_us),
    TIME(unsure_us),
    TIME(bill_unit_us),
    TIME(bill_least_us),
    TIME(before_day),
    TIME(before_month),
    FIELD(struct record, before_in_day, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct record, before_in_month, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct record, before_total, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct record, before_unsure, FIELD_F64, FIELD_POSITIVE),
    { .name = "halted", .type = FIELD_BOOL, .offset = offsetof(struct record, halted) },
    { .name = "price_told", .type = FIELD_BOOL, .offset = offsetof(struct record, price_told) },
    TIME(joined_us),
    TIME(contested_us),
};

static const struct field_set record_set = { record_fields, COUNT_OF(record_fields),
                                             sizeof(struct record) };

int intent_encode(const struct intent *i, struct buf *out)
{
    struct record r = {
        .v = RECORD_VERSION,
        .id = str_from(i->id),
        .service = str_from(i->service),
        .pool = str_from(i->pool),
        .provider = str_from(i->provider),
        .offer = str_from(i->offer),
        .handle = str_from(i->handle),
        .why = str_from(i->why),
        .joined = str_from(i->joined),
        .mark = str_from(i->mark),
        .state = i->state,
        .calls = i->calls,
        .starts = i->starts,
        .price_h = i->price_h,
        .age_limit_us = i->age_limit_us,
        .wanted_us = i->wanted_us,
        .called_us = i->called_us,
        .made_us = i->made_us,
        .registered_us = i->registered_us,
        .drain_us = i->drain_us,
        .removed_us = i->removed_us,
        .ended_us = i->ended_us,
        .state_us = i->state_us,
        .joined_us = i->joined_us,
        .contested_us = i->contested_us,
        .adopted = i->adopted,
        .let_go = i->let_go,
        .billed_from_us = i->charge.from_us,
        .billed_to_us = i->charge.to_us,
        .priced_us = i->charge.priced_us,
        .unsure_us = i->charge.unsure_us,
        .bill_unit_us = i->charge.billing.unit_us,
        .bill_least_us = i->charge.billing.least_us,
        .before_day = i->charge.before.day,
        .before_month = i->charge.before.month,
        .before_in_day = i->charge.before.in_day,
        .before_in_month = i->charge.before.in_month,
        .before_total = i->charge.before.total,
        .before_unsure = i->charge.before_unsure,
        .price_told = i->charge.told,
        .halted = i->charge.halted,
    };
    return fields_encode(&record_set, &r, out);
}

int intent_decode(struct str text, struct arena *arena, struct intent *ret, struct err *err)
{
    struct record r = { 0 };
    int rc = fields_decode(&record_set, text, arena, &r, "the stored intent", err);
    if (rc < 0) return rc;

    struct intent i = { .state = (enum intent_state)r.state,
                        .calls = r.calls,
                        .starts = r.starts,
                        .price_h = r.price_h,
                        .age_limit_us = r.age_limit_us,
                        .wanted_us = r.wanted_us,
                        .called_us = r.called_us,
                        .made_us = r.made_us,
                        .registered_us = r.registered_us,
                        .drain_us = r.drain_us,
                        .removed_us = r.removed_us,
                        .ended_us = r.ended_us,
                        .state_us = r.state_us,
                        .joined_us = r.joined_us,
                        .contested_us = r.contested_us,
                        .adopted = r.adopted,
                        .let_go = r.let_go,
                        .charge = { .from_us = r.billed_from_us,
                                    .to_us = r.billed_to_us,
                                    .priced_us = r.priced_us,
                                    .unsure_us = r.unsure_us,
                                    .before = { r.before_day, r.before_month, r.before_in_day,
                                                r.before_in_month, r.before_total },
                                    .billing = { r.bill_unit_us, r.bill_least_us },
                                    .before_unsure = r.before_unsure,
                                    .told = r.price_told,
                                    .halted = r.halted },
                        .version = ret->version };
    /* The table bounds each length below its field's size. */
    must(name_copy(i.id, sizeof i.id, r.id) == 0);
    must(name_copy(i.service, sizeof i.service, r.service) == 0);
    must(name_copy(i.pool, sizeof i.pool, r.pool) == 0);
    must(name_copy(i.provider, sizeof i.provider, r.provider) == 0);
    must(name_copy(i.offer, sizeof i.offer, r.offer) == 0);
    must(name_copy(i.handle, sizeof i.handle, r.handle) == 0);
    must(name_copy(i.why, sizeof i.why, r.why) == 0);
    must(name_copy(i.joined, sizeof i.joined, r.joined) == 0);
    must(name_copy(i.mark, sizeof i.mark, r.mark) == 0);
    *ret = i;
    return 0;
}
