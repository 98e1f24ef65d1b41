/* restore.c - what the store remembers: read back at the start, written as it changes.
 *
 *     intent/ID        one JSON record each (core/intent.h), written by act.c
 *     tenant/NAME      tenants.c
 *     hand/SERVICE     {"v":1,"paused":bool,"manual":{"POOL":N}}: what a person has set
 *     memory/SERVICE   a line that says of what, and the bytes of the policies: of use only to the
 *                      same version with the same rows and pools, ignored otherwise
 *     cost             {"v":1,"folded":dollars}: of instances that are forgotten
 */
#include "base/core/arena.h"
#include "base/core/json.h"
#include "base/io/log.h"
#include "controller/config.h"
#include "controller/control_state.h"

#include <string.h>

#define RECORD_ARENA_BYTES ((size_t)64 << 10)

/* ---- intents ---- */

struct restoring {
    struct control *c;
    int64_t now_us;
    struct err *err;
};

static void place_intent(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->intent[at];
    struct detail d = { .service = PLAN_NONE, .pool = PLAN_NONE, .phase_us = now_us };
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        if (strcmp(c->service[s].name, i->service) != 0) continue;
        d.service = s;
        for (uint32_t p = 0; p < c->service[s].pool_count; p++)
            if (strcmp(c->service[s].pool[p].name, i->pool) == 0) d.pool = p;
    }
    c->seen[at] = (struct sighting){ 0 };
    c->detail[at] = d;
    control_first_role(c, at);
}

static int restore_intent(void *ctx, const struct store_entry *e)
{
    struct restoring *r = ctx;
    struct control *c = r->c;
    if (c->count == SLOTS_MAX)
        return err_set(r->err, -ENOSPC, "the store holds more than %d intents", SLOTS_MAX);
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, RECORD_ARENA_BYTES);
    struct intent i = { .version = e->version };
    int rc = intent_decode(e->value, &arena, &i, r->err);
    if (rc < 0) return err_prefix(r->err, rc, "the store's " STR_FMT, STR_ARG(e->key));
    uint32_t at = c->count++;
    c->intent[at] = i;
    place_intent(c, at, r->now_us);
    return 0;
}

/* ---- hands ---- */

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

static int read_hand(struct str text, struct plan_service *s)
{
    struct json_reader r;
    json_reader_init(&r, text);
    if (json_next(&r) != JSON_OBJECT) return -EINVAL;
    while (json_next(&r) == JSON_KEY) {
        int rc = 0;
        if (json_key_is(&r, "paused")) {
            json_next(&r);
            rc = json_bool(&r, &s->paused);
        } else if (json_key_is(&r, "manual")) {
            rc = read_manual(&r, s);
        } else {
            json_skip(&r);
        }
        if (rc < 0) return rc;
    }
    return r.token == JSON_OBJECT_END ? 0 : -EINVAL;
}

static int restore_hand(struct control *c, uint32_t service, struct err *err)
{
    struct plan_service *s = &c->service[service];
    CLEANUP(buf_fini) struct buf key = { 0 }, text = { 0 };
    buf_printf(&key, "hand/%s", s->name);
    int rc = store_get(c->setup.store, buf_view(&key), &text, &c->hand_version[service], err);
    if (rc == -ENOENT) return 0;
    if (rc == 0) rc = read_hand(buf_view(&text), s);
    if (rc < 0) return err_set(err, rc, "the store's %s is damaged; delete it to go on", key.data);
    return 0;
}

static int store_hand(struct control *c, uint32_t service, const struct plan_service *s,
                      struct err *err)
{
    CLEANUP(buf_fini) struct buf key = { 0 }, text = { 0 };
    struct json_writer w;
    buf_printf(&key, "hand/%s", s->name);
    json_writer_init(&w, &text);
    json_object(&w);
    json_kv_u64(&w, "v", 1);
    json_kv_bool(&w, "paused", s->paused);
    json_key(&w, "manual");
    json_object(&w);
    for (uint32_t p = 0; p < s->pool_count; p++)
        json_kv_i64(&w, s->pool[p].name, s->pool[p].manual);
    json_object_end(&w);
    json_object_end(&w);
    if (key.rc < 0 || text.rc < 0) return err_set(err, -ENOMEM, "no memory");
    uint64_t version;
    int rc =
        store_put_if(c->setup.store, buf_view(&key), buf_view(&text), STORE_ANY, &version, err);
    if (rc == 0) c->hand_version[service] = version;
    return rc;
}

static int find_service(const struct control *c, struct str name, uint32_t *ret, struct err *err)
{
    for (uint32_t s = 0; s < c->setup.service_count; s++)
        if (str_eq(str_from(c->service[s].name), name)) {
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
    struct plan_service copy = c->service[s];
    copy.paused = paused;
    rc = store_hand(c, s, &copy, err);
    if (rc < 0) return rc;
    c->service[s].paused = paused;
    c->urgent = true;
    log_event(LOG_INFO, paused ? "service_paused" : "service_resumed", "service=%s", copy.name);
    return 0;
}

int control_scale(struct control *c, struct str service, struct str pool, int32_t count,
                  struct err *err)
{
    uint32_t s;
    int rc = find_service(c, service, &s, err);
    if (rc < 0) return rc;
    struct plan_service copy = c->service[s];
    struct plan_pool *p = NULL;
    for (uint32_t i = 0; i < copy.pool_count; i++)
        if (str_eq(str_from(copy.pool[i].name), pool)) p = &copy.pool[i];
    if (!p)
        return err_set(err, -ENOENT, "service %s has no pool '" STR_FMT "'", copy.name,
                       STR_ARG(pool));
    if (count > 0 && (uint32_t)count > p->max)
        return err_set(err, -ERANGE, "%d is over the maximum of pool %s, %u", count, p->name,
                       p->max);
    p->manual = count < 0 ? -1 : count;
    rc = store_hand(c, s, &copy, err);
    if (rc < 0) return rc;
    c->service[s] = copy;
    c->urgent = true;
    log_event(LOG_INFO, "pool_in_hand", "service=%s pool=%s count=%d", copy.name, p->name,
              p->manual);
    return 0;
}

/* ---- what policies remember ---- */

/* Everything that the bytes' meaning hangs on: they are structs, with pools by number. */
static void put_memory_head(const struct plan_service *s, struct buf *out)
{
    buf_printf(out, "%s %s:%u %s:%u %s:%u", MUSTER_VERSION, s->policy->name, s->policy->state_size,
               s->shaper ? s->shaper->name : "", s->shaper ? s->shaper->state_size : 0,
               s->place ? s->place->name : "", s->place ? s->place->state_size : 0);
    for (uint32_t p = 0; p < s->pool_count; p++)
        buf_printf(out, " %s", s->pool[p].name);
    buf_printf(out, "\n");
}

static void restore_memory(struct control *c, uint32_t service)
{
    const struct plan_service *s = &c->service[service];
    CLEANUP(buf_fini) struct buf key = { 0 }, value = { 0 }, head = { 0 };
    buf_printf(&key, "memory/%s", s->name);
    put_memory_head(s, &head);
    if (store_get(c->setup.store, buf_view(&key), &value, NULL, NULL) < 0) return;
    bool same = value.len == head.len + sizeof c->memory[service] &&
                memcmp(value.data, head.data, head.len) == 0;
    if (same) memcpy(&c->memory[service], value.data + head.len, sizeof c->memory[service]);
}

int control_flush_memory(struct control *c, int64_t now_us)
{
    if (now_us - c->memory_us < MEMORY_FLUSH_US) return 0;
    c->memory_us = now_us;
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        CLEANUP(buf_fini) struct buf key = { 0 }, value = { 0 };
        struct err err = { 0 };
        buf_printf(&key, "memory/%s", c->service[s].name);
        put_memory_head(&c->service[s], &value);
        buf_append(&value, &c->memory[s], sizeof c->memory[s]);
        int rc = value.rc ? value.rc : key.rc;
        if (rc == 0)
            rc = store_put_if(c->setup.store, buf_view(&key), buf_view(&value), STORE_ANY,
                              &c->memory_version[s], &err);
        if (rc < 0) {
            control_count(c, CONTROL_M_STORE_FAILURES, NULL);
            log_event(LOG_WARN, "memory_not_written", "service=%s error=%s", c->service[s].name,
                      err_text(&err, rc));
            return rc;
        }
    }
    return 0;
}

/* ---- cost ---- */

int control_store_cost(struct control *c, double folded)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct json_writer w;
    json_writer_init(&w, &text);
    json_object(&w);
    json_kv_u64(&w, "v", 1);
    json_kv_f64(&w, "folded", folded);
    json_object_end(&w);
    if (text.rc < 0) return text.rc;
    return store_put_if(c->setup.store, STR("cost"), buf_view(&text), STORE_ANY, &c->cost_version,
                        NULL);
}

static int restore_cost(struct control *c, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = store_get(c->setup.store, STR("cost"), &text, &c->cost_version, err);
    if (rc == -ENOENT) return 0;
    if (rc < 0) return rc;
    struct json_reader r;
    json_reader_init(&r, buf_view(&text));
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the store's cost");
    while (json_next(&r) == JSON_KEY) {
        if (!json_key_is(&r, "folded")) {
            json_skip(&r);
            continue;
        }
        json_next(&r);
        rc = json_f64(&r, &c->folded_cost);
        if (rc < 0) return json_fail(&r, err, "the store's cost");
    }
    return r.token == JSON_OBJECT_END ? 0 : json_fail(&r, err, "the store's cost");
}

double control_cost_total(const struct control *c, int64_t now_us)
{
    double sum = c->folded_cost;
    for (uint32_t i = 0; i < c->count; i++)
        sum += intent_cost(&c->intent[i], now_us);
    return sum;
}

/* ---- all of it ---- */

int control_restore(struct control *c, int64_t now_us, struct err *err)
{
    struct restoring r = { c, now_us, err };
    int rc = store_list(c->setup.store, STR("intent/"), restore_intent, &r, err);
    if (rc == 0) rc = restore_cost(c, err);
    for (uint32_t s = 0; s < c->setup.service_count && rc == 0; s++) {
        rc = restore_hand(c, s, err);
        restore_memory(c, s);
    }
    if (rc == 0) rc = tenants_restore(c, err);
    struct store_log_stat stat = { 0 };
    if (rc == 0) rc = store_log_stat(c->setup.store, &c->decision_log, &stat, err);
    if (rc < 0) return rc;
    c->decision_last = stat.last;
    log_event(LOG_INFO, "restored", "intents=%u tenants=%u decisions=%llu", c->count,
              c->tenant_count, (unsigned long long)stat.count);
    return 0;
}
