/* restore.c - reads the controller's records back at its start, and writes them as they change.
 *
 *     intent/ID        one JSON record each (core/intent.h), written by act.c
 *     tenant/NAME      tenants.c
 *     hand/SERVICE     {"v":1,"paused":bool,"manual":{"POOL":N},"drained":["POOL"]}: a service's
 *                      overrides
 *     memory/SERVICE   the state of its policies (core/record.h); ignored when its policies or
 *                      pools have changed
 *     cost             {"v":1,"folded":dollars,"services":[...]}: the cost of forgotten instances, core/bill.h
 *     stock            stocks.c
 *     clock            fleet_clock.c
 *     aside/KEY        a copy of a record that could not be read under KEY (aside.h)
 */
#include "base/core/arena.h"
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/log.h"
#include "base/wire/field.h"
#include "controller/config.h"
#include "controller/control_state.h"
#include "controller/core/record.h"
#include "controller/orders.h"
#include "controller/stocks.h"

#include <string.h>

#define RECORD_ARENA_BYTES ((size_t)64 << 10)
#define OVERRIDE_VERSION 1 /* of these records only; for its rules see core/intent.c */

/* ---- intents ---- */

struct restoring {
    struct control *c;
    int64_t now_us;
    struct err *err;
    uint64_t folded; /* version of a record that the bill has taken; 0: none */
};

void control_place(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    struct detail d = { .service = PLAN_NONE, .pool = PLAN_NONE, .phase_us = now_us };
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        if (strcmp(c->desired.service[s].name, i->service) != 0) continue;
        d.service = s;
        for (uint32_t p = 0; p < c->desired.service[s].pool_count; p++)
            if (strcmp(c->desired.service[s].pool[p].name, i->pool) == 0) d.pool = p;
    }
    c->observed.seen[at] = (struct sighting){ 0 };
    c->observed.detail[at] = d;
    control_first_role(c, at);
}

/* Moves times in the future to now. Fleet time begins anew where its record cannot be read, and may
 * then be behind the times that records hold; a time in the future would put off every proof and
 * deadline until then. */
static void take_as_past(struct intent *i, int64_t now_us)
{
    int64_t *const times[] = { &i->wanted_us,     &i->called_us,       &i->made_us,
                               &i->registered_us, &i->drain_us,        &i->removed_us,
                               &i->ended_us,      &i->state_us,        &i->charge.from_us,
                               &i->charge.to_us,  &i->charge.priced_us };
    for (size_t k = 0; k < COUNT_OF(times); k++)
        if (*times[k] > now_us) *times[k] = now_us;
}

static int restore_intent(void *ctx, const struct store_entry *e)
{
    struct restoring *r = ctx;
    struct control *c = r->c;
    if (c->money.count == SLOTS_MAX)
        return err_set(r->err, -ENOSPC, "the store holds more than %d intents", SLOTS_MAX);
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, RECORD_ARENA_BYTES);
    struct intent i = { .version = e->version };
    struct err why = { 0 };
    int rc = intent_decode(e->value, &arena, &i, &why);
    if (rc == -ENOMEM) return err_set(r->err, rc, "%s", err_text(&why, rc));
    if (rc < 0) {
        control_set_aside(c, e->key, err_text(&why, rc));
        return 0;
    }
    if (bill_has_folded(&c->money.bill, &i)) {
        r->folded = e->version;
        return 0;
    }
    take_as_past(&i, r->now_us);
    uint32_t at = c->money.count++;
    c->money.intent[at] = i;
    control_place(c, at, r->now_us);
    return 0;
}

/* Reports the copy of a damaged record again; the record's own key goes on being written. */
static int restore_aside(void *ctx, const struct store_entry *e)
{
    struct restoring *r = ctx;
    control_set_aside(r->c, e->key, "could not be read; a copy is kept");
    return 0;
}

/* Copies `text`, which cannot be read, to aside/KEY: the record under `key` will be overwritten. */
static int copy_aside(struct control *c, struct str key, struct str text, struct err *err)
{
    CLEANUP(buf_fini) struct buf name = { 0 };
    uint64_t version;
    buf_printf(&name, "aside/" STR_FMT, STR_ARG(key));
    if (name.rc < 0) return err_set(err, name.rc, "no memory");
    return store_put_if(c->setup.store, buf_view(&name), text, STORE_ANY, &version, err);
}

/* ---- overrides ---- */

static int read_manual(struct json_reader *r, struct plan_service *s)
{
    if (json_next(r) != JSON_OBJECT) return -EINVAL;
    while (json_next(r) == JSON_KEY) {
        struct plan_pool *pool = NULL;
        for (uint32_t p = 0; p < s->pool_count; p++)
            if (json_key_is(r, s->pool[p].name)) pool = &s->pool[p];
        int64_t count;
        json_next(r);
        int rc = json_i64(r, &count);
        if (rc < 0 || count < -1 || count > CONTROL_COUNT_MAX) return -EINVAL;
        if (pool) pool->manual = (int32_t)count; /* a pool of an older configuration is dropped */
    }
    return r->token == JSON_OBJECT_END ? 0 : -EINVAL;
}

static int read_drained(struct json_reader *r, struct plan_service *s)
{
    CLEANUP(buf_fini) struct buf name = { 0 };
    if (json_next(r) != JSON_ARRAY) return -EINVAL;
    while (json_next(r) == JSON_STRING) {
        buf_clear(&name);
        if (json_text(r, &name) < 0) return -ENOMEM;
        for (uint32_t p = 0; p < s->pool_count; p++)
            if (str_eq(buf_view(&name), str_from(s->pool[p].name))) s->pool[p].drained = true;
    }
    return r->token == JSON_ARRAY_END ? 0 : -EINVAL;
}

static int read_override(struct str text, struct plan_service *s)
{
    struct json_reader r;
    json_reader_init(&r, text);
    if (json_next(&r) != JSON_OBJECT) return -EINVAL;
    while (json_next(&r) == JSON_KEY) {
        int rc = 0;
        uint64_t v = OVERRIDE_VERSION;
        if (json_key_is(&r, "v")) {
            json_next(&r);
            rc = json_u64(&r, &v);
            if (v != OVERRIDE_VERSION) rc = -EPROTO;
        } else if (json_key_is(&r, "paused")) {
            json_next(&r);
            rc = json_bool(&r, &s->paused);
        } else if (json_key_is(&r, "manual")) {
            rc = read_manual(&r, s);
        } else if (json_key_is(&r, "drained")) {
            rc = read_drained(&r, s);
        } else {
            json_skip(&r);
        }
        if (rc < 0) return rc;
    }
    return r.token == JSON_OBJECT_END ? 0 : -EINVAL;
}

int control_restore_override(struct control *c, struct plan_service *s, struct err *err)
{
    CLEANUP(buf_fini) struct buf key = { 0 }, text = { 0 };
    buf_printf(&key, "hand/%s", s->name);
    int rc = store_get(c->setup.store, buf_view(&key), &text, NULL, err);
    if (rc == -ENOENT) return 0;
    if (rc < 0) return rc;
    struct plan_service said = *s;
    rc = read_override(buf_view(&text), &said);
    if (rc == 0) {
        *s = said;
        return 0;
    }
    /* An override is lost. Until a person sets it again, the fleet keeps its size. */
    s->paused = true;
    control_set_aside(c, buf_view(&key), "damaged: the service is paused until it is resumed");
    return 0;
}

static int store_override(struct control *c, const struct plan_service *s, struct err *err)
{
    CLEANUP(buf_fini) struct buf key = { 0 }, text = { 0 };
    struct json_writer w;
    buf_printf(&key, "hand/%s", s->name);
    json_writer_init(&w, &text);
    json_object(&w);
    json_kv_u64(&w, "v", OVERRIDE_VERSION);
    json_kv_bool(&w, "paused", s->paused);
    json_key(&w, "manual");
    json_object(&w);
    for (uint32_t p = 0; p < s->pool_count; p++)
        json_kv_i64(&w, s->pool[p].name, s->pool[p].manual);
    json_object_end(&w);
    json_key(&w, "drained");
    json_array(&w);
    for (uint32_t p = 0; p < s->pool_count; p++)
        if (s->pool[p].drained) json_put_text(&w, s->pool[p].name);
    json_array_end(&w);
    json_object_end(&w);
    if (key.rc < 0 || text.rc < 0) return err_set(err, -ENOMEM, "no memory");
    return store_put_if(c->setup.store, buf_view(&key), buf_view(&text), STORE_ANY, NULL, err);
}

static int find_service(const struct control *c, struct str name, uint32_t *ret, struct err *err)
{
    for (uint32_t s = 0; s < c->setup.service_count; s++)
        if (str_eq(str_from(c->desired.service[s].name), name)) {
            *ret = s;
            return 0;
        }
    return err_set(err, -ENOENT, "there is no service '" STR_FMT "'", STR_ARG(name));
}

int control_pause(struct control *c, struct str service, bool paused, struct err *err)
{
    uint32_t s;
    int rc = find_service(c, service, &s, err);
    if (rc < 0) return rc;
    struct plan_service copy = c->desired.service[s];
    copy.paused = paused;
    rc = store_override(c, &copy, err);
    if (rc < 0) return rc;
    c->desired.service[s].paused = paused;
    c->urgent = true;
    log_event(LOG_INFO, paused ? "service_paused" : "service_resumed", "service=%s", copy.name);
    return 0;
}

/* Finds the pool in `copy`, a copy of the service that is about to be changed and stored. */
static int find_pool(struct plan_service *copy, struct str name, struct plan_pool **ret,
                     struct err *err)
{
    for (uint32_t i = 0; i < copy->pool_count; i++)
        if (str_eq(str_from(copy->pool[i].name), name)) {
            *ret = &copy->pool[i];
            return 0;
        }
    return err_set(err, -ENOENT, "service %s has no pool '" STR_FMT "'", copy->name, STR_ARG(name));
}

/* Copies the service and finds its pool in the copy. */
static int copy_pool(struct control *c, struct str service, struct str pool, uint32_t *ret_s,
                     struct plan_service *ret_copy, struct plan_pool **ret, struct err *err)
{
    int rc = find_service(c, service, ret_s, err);
    if (rc < 0) return rc;
    *ret_copy = c->desired.service[*ret_s];
    return find_pool(ret_copy, pool, ret, err);
}

/* Stores the changed copy, which then holds. */
static int keep_copy(struct control *c, uint32_t s, const struct plan_service *copy,
                     struct err *err)
{
    int rc = store_override(c, copy, err);
    if (rc < 0) return rc;
    c->desired.service[s] = *copy;
    c->urgent = true;
    return 0;
}

int control_scale(struct control *c, struct str service, struct str pool, int32_t count,
                  struct err *err)
{
    uint32_t s;
    struct plan_service copy;
    struct plan_pool *p;
    int rc = copy_pool(c, service, pool, &s, &copy, &p, err);
    if (rc < 0) return rc;
    if (count > 0 && (uint32_t)count > p->max)
        return err_set(err, -ERANGE, "%d is over the maximum of pool %s, %u", count, p->name,
                       p->max);
    p->manual = count < 0 ? -1 : count;
    rc = keep_copy(c, s, &copy, err);
    if (rc < 0) return rc;
    log_event(LOG_INFO, "pool_in_hand", "service=%s pool=%s count=%d", copy.name, p->name,
              p->manual);
    return 0;
}

int control_drain_pool(struct control *c, struct str service, struct str pool, bool drained,
                       struct err *err)
{
    uint32_t s;
    struct plan_service copy;
    struct plan_pool *p;
    int rc = copy_pool(c, service, pool, &s, &copy, &p, err);
    if (rc < 0) return rc;
    p->drained = drained;
    rc = keep_copy(c, s, &copy, err);
    if (rc < 0) return rc;
    log_event(LOG_INFO, "pool_drained", "service=%s pool=%s drained=%s", copy.name, p->name,
              drained ? "yes" : "no");
    return 0;
}

/* ---- state of policies ---- */

/* Copies a damaged record aside, because it will be overwritten; the service begins without it. */
int control_restore_memory(struct control *c, const struct plan_service *s, struct plan_memory *ret,
                           struct err *err)
{
    CLEANUP(buf_fini) struct buf key = { 0 }, value = { 0 };
    buf_printf(&key, "memory/%s", s->name);
    if (store_get(c->setup.store, buf_view(&key), &value, NULL, NULL) < 0) return 0;
    switch (policy_memory_decode(s, buf_view(&value), ret)) {
    case POLICY_MEMORY_GOOD:
        break;
    case POLICY_MEMORY_OTHER:
        log_event(LOG_INFO, "memory_of_another", "service=%s", s->name);
        break;
    case POLICY_MEMORY_DAMAGED:
        log_event(LOG_ERROR, "memory_damaged", "service=%s bytes=%zu", s->name, value.len);
        return copy_aside(c, buf_view(&key), buf_view(&value), err);
    }
    return 0;
}

int control_flush_memory(struct control *c, int64_t now_us)
{
    bool costly = store_changes(c->setup.store, STR("memory/")) > 0;
    if (now_us - c->memory_us < (costly ? MEMORY_FLUSH_COSTLY_US : MEMORY_FLUSH_US)) return 0;
    c->memory_us = now_us;
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        CLEANUP(buf_fini) struct buf key = { 0 }, value = { 0 };
        struct err err = { 0 };
        buf_printf(&key, "memory/%s", c->desired.service[s].name);
        int rc = policy_memory_encode(&c->desired.service[s], &c->desired.memory[s], &value);
        if (rc == 0) rc = key.rc;
        if (rc == 0)
            rc = store_put_if(c->setup.store, buf_view(&key), buf_view(&value), STORE_ANY, NULL,
                              &err);
        if (rc < 0) {
            control_count(c, CONTROL_M_STORE_FAILURES, NULL);
            log_event(LOG_WARN, "memory_not_written", "service=%s error=%s",
                      c->desired.service[s].name, err_text(&err, rc));
            return rc;
        }
    }
    return 0;
}

/* ---- cost ---- */

int control_store_cost(struct control *c, const struct bill *l)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = bill_encode(l, &text);
    if (rc < 0) return rc;
    return store_put_if(c->setup.store, STR("cost"), buf_view(&text), STORE_ANY,
                        &c->money.cost_version, NULL);
}

static int restore_cost(struct control *c, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = store_get(c->setup.store, STR("cost"), &text, &c->money.cost_version, err);
    if (rc == -ENOENT) return 0;
    if (rc < 0) return rc;
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, RECORD_ARENA_BYTES);
    rc = bill_decode(buf_view(&text), &arena, &c->money.bill, NULL);
    return rc == 0 ? 0 : copy_aside(c, STR("cost"), buf_view(&text), err);
}

/* Deletes the record of the intent that the bill took last, which a crash has left. */
static int finish_fold(struct control *c, uint64_t version, struct err *err)
{
    CLEANUP(buf_fini) struct buf key = { 0 };
    buf_printf(&key, "intent/%s", c->money.bill.last);
    int rc = store_delete_if(c->setup.store, buf_view(&key), version, err);
    return rc == -ENOENT ? 0 : rc;
}

/* ---- all of it ---- */

int control_restore(struct control *c, int64_t now_us, struct err *err)
{
    struct restoring r = { c, now_us, err, 0 };
    int rc = restore_cost(c, err);
    if (rc == 0) rc = control_restore_stock(c, now_us, err);
    if (rc == 0) rc = store_list(c->setup.store, STR("intent/"), restore_intent, &r, err);
    if (rc == 0 && r.folded) rc = finish_fold(c, r.folded, err);
    for (uint32_t s = 0; s < c->setup.service_count && rc == 0; s++)
        rc = control_restore_memory(c, &c->desired.service[s], &c->desired.memory[s], err);
    if (rc == 0) rc = store_list(c->setup.store, STR("aside/"), restore_aside, &r, err);
    for (uint32_t s = 0; s < c->setup.service_count && rc == 0; s++)
        rc = control_restore_override(c, &c->desired.service[s], err);
    if (rc == 0) rc = tenants_restore(c, err);
    if (rc == 0) rc = keys_restore(c, err);
    if (rc == 0) rc = tokens_restore(c, err);
    if (rc == 0) rc = events_restore(c, err);
    struct store_log_stat stat = { 0 };
    if (rc == 0) rc = store_log_stat(c->setup.store, &c->desired.decision_log, &stat, err);
    if (rc < 0) return rc;
    c->desired.decision_last = stat.last;
    log_event(LOG_INFO, "restored", "intents=%u tenants=%u decisions=%llu", c->money.count,
              c->people.tenant_count, (unsigned long long)stat.count);
    return 0;
}
