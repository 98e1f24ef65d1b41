/* damage.c - damages one record of the store, chosen by chance. */
#include "tests/sim/damage.h"

#include "tests/sim/world.h"

#include <stdio.h>

struct choice {
    struct world *w;
    uint32_t seen;
    char key[80];
};

static bool is_mine(const struct world *w, struct str key)
{
    for (uint32_t i = 0; i < w->damage.count; i++)
        if (str_eq(str_from(w->damage.record[i].key), key)) return true;
    return false;
}

/* Draws among the intents and the records that the controller can do without. A `hand` (the overrides of
 * a service) is left whole: a damaged one pauses its service until a person acts. */
static int choose(void *ctx, const struct store_entry *e)
{
    struct choice *c = ctx;
    bool wanted = str_starts(e->key, STR("intent/")) || str_starts(e->key, STR("memory/")) ||
                  str_eq(e->key, STR("cost")) || str_eq(e->key, STR("clock"));
    if (!wanted || e->key.len >= sizeof c->key || is_mine(c->w, e->key)) return 0;
    if (rng_below(&c->w->rng_nodes, ++c->seen) == 0)
        snprintf(c->key, sizeof c->key, STR_FMT, STR_ARG(e->key));
    return 0;
}

static void put(struct world *w, const char *key, struct str value)
{
    uint64_t version;
    must(store_put_if(w->controller->store, str_from(key), value, STORE_ANY, &version, NULL) == 0);
}

/* Writes a readable but wrong record, for the mutant that shows what undetected damage would do. */
static void forge_end(struct world *w, const char *key, struct str text)
{
    CLEANUP(arena_fini) struct arena arena;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct intent i = { 0 };
    arena_init(&arena, (size_t)64 << 10);
    if (intent_decode(text, &arena, &i, NULL) < 0) return;
    i.state = INTENT_ENDED;
    i.ended_us = controller_now_us(w);
    must(intent_encode(&i, &out) == 0);
    put(w, key, buf_view(&out));
}

void damage_one(struct world *w)
{
    struct choice c = { .w = w };
    must(store_list(w->controller->store, STR(""), choose, &c, NULL) == 0);
    if (!c.seen || w->damage.count == DAMAGE_MAX) return;
    struct damaged_record *r = &w->damage.record[w->damage.count];
    *r = (struct damaged_record){ 0 };
    must(store_get(w->controller->store, str_from(c.key), &r->whole, NULL, NULL) == 0);
    timeline_note(&w->time, "damaged", c.key, 0);
    if (w->mutant == MUTANT_FORGED_RECORD) {
        forge_end(w, c.key, buf_view(&r->whole));
        buf_fini(&r->whole);
        return;
    }
    uint64_t how = rng_below(&w->rng_nodes, 3);
    if (how == 0) {
        must(store_delete_if(w->controller->store, str_from(c.key), STORE_ANY, NULL) == 0);
        buf_fini(&r->whole);
        return;
    }
    size_t keep = (size_t)rng_below(&w->rng_nodes, r->whole.len);
    memcpy(r->key, c.key, sizeof r->key);
    w->damage.count++;
    put(w, c.key, how == 1 ? str_of(r->whole.data, keep) : STR("\x7f\x01 other bytes"));
}

void damage_repair(struct world *w)
{
    if (w->damage.count == 0) return;
    for (uint32_t i = 0; i < w->damage.count; i++) {
        struct damaged_record *r = &w->damage.record[i];
        bool intent = str_starts(str_from(r->key), STR("intent/"));
        if (intent) put(w, r->key, buf_view(&r->whole)); /* the others are written anew by now */
        buf_fini(&r->whole);
    }
    w->damage.count = 0;
    controller_dies(w, SECOND);
}

uint32_t damage_of_intents(const struct world *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->damage.count; i++)
        n += str_starts(str_from(w->damage.record[i].key), STR("intent/"));
    return n;
}

void damage_end(struct world *w)
{
    for (uint32_t i = 0; i < w->damage.count; i++)
        buf_fini(&w->damage.record[i].whole);
}

bool damage_hides(const struct world *w, const struct agent *a)
{
    char key[80];
    snprintf(key, sizeof key, "intent/%s", a->id);
    return is_mine(w, str_from(key));
}
