/* t_kv_index.c - tests the KV index: ids prove hits, the policy orders evictions, and events replay
 * to the index's content. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "engine/core/kv_index.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SEED 7
#define TOKENS_MAX 256

struct prompt {
    uint32_t ids[TOKENS_MAX];
    struct block_key salt, keys[TOKENS_MAX / BLOCK_TOKENS];
    uint32_t count;
};

static struct prompt prompt_of(uint32_t count, uint32_t first, const char *tenant)
{
    struct prompt p = { .count = count };
    p.salt = block_salt(SEED, STR("weights"), STR(""), str_from(tenant));
    for (uint32_t i = 0; i < count; i++)
        p.ids[i] = first + i;
    block_keys(SEED, p.salt, p.ids, count, p.keys, COUNT_OF(p.keys));
    return p;
}

struct rig {
    struct kv_pool pool;
    struct kv_index index;
    uint32_t page_tokens;
};

static void rig_init(struct rig *r, uint32_t pages, uint32_t page_tokens, const char *evict,
                     uint32_t events_max)
{
    r->page_tokens = page_tokens;
    assert_int_equal(kv_pool_init(&r->pool, pages, NULL), 0);
    assert_int_equal(
        kv_index_init(&r->index, &r->pool, page_tokens, evict_find(str_from(evict)), events_max),
        0);
}

static void rig_fini(struct rig *r)
{
    kv_index_fini(&r->index);
    kv_pool_fini(&r->pool);
}

/* Takes, fills and names all full pages of the prompt, and holds them. */
static uint32_t fill(struct rig *r, const struct prompt *p, uint32_t *pages)
{
    uint32_t g = r->index.granules, n = p->count / r->page_tokens;
    for (uint32_t i = 0; i < n; i++) {
        pages[i] = kv_index_take(&r->index);
        assert_int_not_equal(pages[i], KV_PAGE_NONE);
        kv_index_seal(&r->index, pages[i], i, i ? p->keys[i * g - 1] : p->salt, p->keys + i * g,
                      p->ids + i * r->page_tokens);
    }
    return n;
}

static void let_go(struct rig *r, const uint32_t *pages, uint32_t n)
{
    while (n > 0)
        kv_index_release(&r->index, pages[--n]);
}

static uint32_t match(struct rig *r, const struct prompt *p, uint32_t *pages)
{
    return kv_index_match(&r->index, p->salt, p->keys, p->ids, p->count / r->page_tokens, pages);
}

static void t_longest_run(void **state)
{
    (void)state;
    const uint32_t sizes[] = { 16, 32, 64 };
    for (size_t k = 0; k < COUNT_OF(sizes); k++) {
        struct rig r;
        uint32_t pages[16], found[16];
        rig_init(&r, 16, sizes[k], "lru", 64);
        struct prompt a = prompt_of(256, 1, ""), b = a, c = prompt_of(256, 1, "another tenant");
        uint32_t n = fill(&r, &a, pages);
        assert_int_equal(match(&r, &a, found), n);
        assert_memory_equal(found, pages, n * sizeof *pages);

        b.ids[3 * sizes[k]] ^= 1; /* differs in its fourth page */
        block_keys(SEED, b.salt, b.ids, b.count, b.keys, COUNT_OF(b.keys));
        assert_int_equal(match(&r, &b, found), 3);
        assert_int_equal(match(&r, &c, found), 0); /* equal ids, another salt */

        /* With a forged key the ids differ, so a collision is a miss and leaks no other tenant's
         * pages. */
        struct prompt forged = a;
        forged.ids[5] ^= 1;
        assert_int_equal(match(&r, &forged, found), 0);

        let_go(&r, pages, n);
        assert_int_equal(match(&r, &a, found), n); /* now cached, without a holder */
        assert_true(kv_pool_check(&r.pool));
        kv_index_clear(&r.index);
        assert_int_equal(match(&r, &a, found), 0);
        assert_int_equal(r.pool.free_count, 16);
        rig_fini(&r);
    }
}

static void t_equal_pages_are_named_once(void **state)
{
    (void)state;
    struct rig r;
    uint32_t one[16], two[16], found[16];
    rig_init(&r, 8, 16, "lru", 64);
    struct prompt a = prompt_of(32, 1, "");
    fill(&r, &a, one);
    fill(&r, &a, two);
    assert_int_equal(match(&r, &a, found), 2);
    assert_memory_equal(found, one, 2 * sizeof *one);
    let_go(&r, two, 2);
    assert_int_equal(r.pool.free_count, 6); /* the copies have no name */
    let_go(&r, one, 2);
    assert_int_equal(r.pool.cached_count, 2);
    rig_fini(&r);
}

static void t_evicts_tails_of_the_oldest(void **state)
{
    (void)state;
    struct rig r;
    uint32_t pages[16], found[16], taken[8];
    rig_init(&r, 8, 16, "lru", 64);
    struct prompt a = prompt_of(64, 1, ""), b = prompt_of(64, 1000, "");
    let_go(&r, pages, fill(&r, &a, pages));
    let_go(&r, pages, fill(&r, &b, pages));
    assert_int_equal(kv_index_available(&r.index), 8);
    taken[0] = kv_index_take(&r.index);
    taken[1] = kv_index_take(&r.index);
    assert_int_equal(match(&r, &a, found), 2); /* a lost its last two */
    assert_int_equal(match(&r, &b, found), 4);
    for (uint32_t i = 0; i < 2; i++)
        kv_index_hit(&r.index, found[i]); /* holds b's first two */
    for (uint32_t i = 2; i < 6; i++)
        taken[i] = kv_index_take(&r.index);
    assert_int_equal(kv_index_take(&r.index), KV_PAGE_NONE); /* held pages are never evicted */
    assert_int_equal(match(&r, &b, found), 2);
    assert_int_equal(r.index.evictions, 6);
    for (uint32_t i = 0; i < 6; i++) {
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(taken[i], taken[k]);
        kv_index_release(&r.index, taken[i]);
    }
    assert_int_equal(r.pool.free_count, 6); /* taken and never named */
    assert_true(kv_pool_check(&r.pool));
    rig_fini(&r);
}

/* Under any policy a page outlives those behind it, which are unreachable without it. */
static void t_heads_outlive_tails(void **state)
{
    (void)state;
    for (uint32_t row = 0; row < evict_count; row++) {
        struct rig r;
        uint32_t pages[16], found[16], taken[4];
        rig_init(&r, 4, 16, evict_table[row]->name, 64);
        r.index.depth_cost = 1; /* the last page costs 49 times the first */
        struct prompt a = prompt_of(64, 1, "");
        let_go(&r, pages, fill(&r, &a, pages));
        for (uint32_t left = 4; left > 0; left--) {
            assert_int_equal(match(&r, &a, found), left);
            taken[left - 1] = kv_index_take(&r.index);
        }
        let_go(&r, taken, 4);
        rig_fini(&r);
    }
}

static void t_probation_keeps_what_was_hit(void **state)
{
    (void)state;
    const char *const rows[] = { "lru", "probation_2hit" };
    const uint32_t kept[] = { 0, 2 };
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        struct rig r;
        uint32_t pages[16], found[16];
        rig_init(&r, 8, 16, rows[k], 64);
        struct prompt shared = prompt_of(32, 1, "");
        uint32_t n = fill(&r, &shared, pages);
        let_go(&r, pages, n);
        for (uint32_t i = 0; i < n; i++)
            kv_index_hit(&r.index, pages[i]);
        let_go(&r, pages, n);
        for (uint32_t i = 0; i < 4; i++) { /* 8 pages that no prompt asks for again */
            struct prompt once = prompt_of(32, 5000 + 100 * i, "");
            uint32_t other[16];
            let_go(&r, other, fill(&r, &once, other));
        }
        assert_int_equal(match(&r, &shared, found), kept[k]);
        for (uint32_t i = 0; i < 8; i++) { /* after a whole turnover it leaves too */
            struct prompt once = prompt_of(32, 9000 + 100 * i, "");
            uint32_t other[16];
            let_go(&r, other, fill(&r, &once, other));
        }
        assert_int_equal(match(&r, &shared, found), 0);
        rig_fini(&r);
    }
}

/* Holding a page without a hit does not count as a second use. */
static void t_holding_is_no_hit(void **state)
{
    (void)state;
    struct rig r;
    uint32_t pages[16], found[16], other[16];
    rig_init(&r, 8, 16, "probation_2hit", 64);
    struct prompt seen = prompt_of(32, 1, "");
    uint32_t n = fill(&r, &seen, pages);
    let_go(&r, pages, n);
    for (uint32_t i = 0; i < n; i++)
        kv_index_hold(&r.index, pages[i]);
    assert_int_equal(r.pool.held_count, n);
    for (uint32_t i = 0; i < 5; i++) { /* others are evicted: these are held */
        struct prompt once = prompt_of(32, 5000 + 100 * i, "");
        let_go(&r, other, fill(&r, &once, other));
    }
    assert_int_equal(match(&r, &seen, found), n);
    let_go(&r, pages, n);
    for (uint32_t i = 0; i < 4; i++) {
        struct prompt once = prompt_of(32, 7000 + 100 * i, "");
        let_go(&r, other, fill(&r, &once, other));
    }
    assert_int_equal(match(&r, &seen, found), 0);
    assert_true(kv_pool_check(&r.pool));
    rig_fini(&r);
}

/* A reader of the events ends with exactly the named keys. */
static void t_events_replay(void **state)
{
    (void)state;
    struct rig r;
    struct rng rng;
    struct map known;
    rng_seed(&rng, 3);
    rig_init(&r, 12, 32, "lru", 8);
    map_init(&known, sizeof(struct block_key), 1, 1000, MAP_OWN);
    uint64_t seen = 0;
    uint32_t gaps = 0;
    for (int round = 0; round < 400; round++) {
        struct prompt p = prompt_of(32 * (1 + (uint32_t)rng_below(&rng, 4)),
                                    1000 * (uint32_t)rng_below(&rng, 9), "");
        uint32_t pages[16];
        uint32_t hits = match(&r, &p, pages);
        for (uint32_t i = 0; i < hits; i++)
            kv_index_hit(&r.index, pages[i]);
        for (uint32_t i = hits; i < p.count / 32; i++) {
            pages[i] = kv_index_take(&r.index);
            kv_index_seal(&r.index, pages[i], i, i ? p.keys[i * 2 - 1] : p.salt, p.keys + i * 2,
                          p.ids + i * 32);
        }
        let_go(&r, pages, p.count / 32);
        if (rng_below(&rng, 3) == 0) continue; /* sometimes the reader is late */

        struct kv_event ev[4];
        int n;
        while ((n = kv_index_events(&r.index, seen, ev, 4)) > 0) {
            for (int i = 0; i < n; i++) {
                assert_true(ev[i].seq == seen + 1);
                seen = ev[i].seq;
                for (uint32_t k = 0; k < ev[i].key_count; k++) {
                    if (ev[i].add) {
                        assert_non_null(map_put(&known, &ev[i].key[k], NULL));
                    } else {
                        assert_true(map_remove(&known, &ev[i].key[k]));
                    }
                }
            }
        }
        if (n == -ESTALE) { /* too late: it reads a snapshot */
            gaps++;
            map_fini(&known);
            map_init(&known, sizeof(struct block_key), 1, 1000, MAP_OWN);
            uint32_t cursor = 0;
            for (struct kv_event e; kv_index_next(&r.index, &cursor, &e); seen = e.seq) {
                for (uint32_t k = 0; k < e.key_count; k++)
                    map_put(&known, &e.key[k], NULL);
            }
        }
        uint32_t cursor = 0, named = 0;
        for (struct kv_event e; kv_index_next(&r.index, &cursor, &e);) {
            named += e.key_count;
            for (uint32_t k = 0; k < e.key_count; k++)
                assert_non_null(map_get(&known, &e.key[k]));
        }
        assert_int_equal(known.count, named);
    }
    assert_true(gaps > 0); /* the ring of 8 has overflowed */
    map_fini(&known);
    rig_fini(&r);
}

/* Pages of which the windowed layers take four units of five: 10 fit whole, and 30 numbers are there. */
static void parts_init(struct rig *r)
{
    const struct kv_parts parts = { .window_tokens = 40, .full = 1, .window = 4, .numbers = 30 };
    r->page_tokens = 16;
    assert_int_equal(kv_pool_init(&r->pool, 10, &parts), 0);
    assert_int_equal(kv_index_init(&r->index, &r->pool, 16, evict_find(STR("lru")), 64), 0);
    assert_int_equal(r->pool.units, 50);
}

/* What windows leave behind makes room, in the order in which it was left; a page that is held keeps its other part. */
static void t_parts_left_behind_make_room(void **state)
{
    (void)state;
    struct rig r;
    struct prompt p = prompt_of(160, 1, "t");
    uint32_t pages[30], found[30], page, count = 0;
    bool whole;
    parts_init(&r);
    assert_int_equal(fill(&r, &p, pages), 10);
    assert_int_equal(kv_index_take(&r.index), KV_PAGE_NONE); /* windows cover all */
    assert_int_equal(kv_index_available(&r.index), 0);
    const uint32_t order[] = { 2, 0, 1, 3, 4 };
    for (size_t i = 0; i < COUNT_OF(order); i++)
        kv_pool_leave(&r.pool, pages[order[i]]);
    assert_int_equal(kv_index_available(&r.index), 4); /* 20 units */
    assert_int_equal(match(&r, &p, found), 10);
    assert_int_equal(kv_index_usable(&r.index, found, 10), 10); /* nothing is gone yet */
    assert_int_equal(kv_pool_pages(&r.pool).held, 6);
    assert_int_equal(kv_pool_pages(&r.pool).cached, 4);
    page = kv_index_take(&r.index); /* 5 units: two parts go */
    assert_true(page != KV_PAGE_NONE && kv_pool_check(&r.pool));
    assert_false(kv_pool_is_whole(&r.pool, pages[2]) || kv_pool_is_whole(&r.pool, pages[0]));
    assert_true(kv_pool_is_whole(&r.pool, pages[1]));
    while (kv_pool_next_stale(&r.pool, &found[0], &whole)) {
        assert_true(!whole && (found[0] == pages[0] || found[0] == pages[2]));
        count++;
    }
    assert_int_equal(count, 2);
    /* A part that is found again is held, and is the last to go when it is left once more. */
    kv_pool_enter(&r.pool, pages[1]);
    kv_pool_leave(&r.pool, pages[1]);
    assert_true(kv_pool_drop_left(&r.pool));
    assert_true(kv_pool_is_whole(&r.pool, pages[1]) && !kv_pool_is_whole(&r.pool, pages[3]));
    /* What lacks its part gets it back while there is memory. */
    assert_true(kv_index_regain(&r.index, pages[0]));
    assert_true(kv_pool_is_whole(&r.pool, pages[0]) && kv_pool_check(&r.pool));
    kv_pool_leave(&r.pool, pages[0]);
    kv_index_release(&r.index, page); /* it has no name: it is free */
    assert_true(kv_pool_next_stale(&r.pool, &found[0], &whole) && whole == (found[0] == page));
    for (uint32_t i = 10; i-- > 0;)
        (i < 5 ? kv_index_release_full : kv_index_release)(&r.index, pages[i]);
    assert_true(r.pool.held_units == 0 && kv_pool_check(&r.pool));
    kv_index_clear(&r.index);
    assert_true(r.pool.used_units == 0 && list_empty(&r.pool.left) && kv_pool_check(&r.pool));
    rig_fini(&r);
}

/* A hit ends where a window of whole pages is behind it: 40 tokens are three pages, or up to four. */
static void t_a_hit_needs_its_last_window(void **state)
{
    (void)state;
    static const struct {
        uint32_t gone, usable; /* bits of pages that lack the part */
    } rows[] = { { 0, 10 },     { 1 << 0, 10 }, { 0x3f, 10 },  { 0x7f, 10 },   { 0xff, 0 },
                 { 1 << 9, 9 }, { 1 << 8, 8 },  { 1 << 7, 7 }, { 1 << 6, 10 }, { 0x210, 9 },
                 { 0x284, 7 },  { 0x2a4, 2 },   { 0x3ff, 0 } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct rig r;
        struct prompt p = prompt_of(160, 1, "t");
        uint32_t pages[10];
        parts_init(&r);
        fill(&r, &p, pages);
        for (uint32_t k = 0; k < 10; k++) {
            if (rows[i].gone >> k & 1) kv_pool_leave(&r.pool, pages[k]);
        }
        while (kv_pool_drop_left(&r.pool))
            ;
        assert_int_equal(kv_index_usable(&r.index, pages, 10), rows[i].usable);
        for (uint32_t k = 10; k-- > 0;)
            (rows[i].gone >> k & 1 ? kv_index_release_full : kv_index_release)(&r.index, pages[k]);
        assert_true(kv_pool_check(&r.pool));
        rig_fini(&r);
    }
}

static void t_refusals(void **state)
{
    (void)state;
    struct kv_pool pool;
    struct kv_index x;
    assert_int_equal(kv_pool_init(&pool, 4, NULL), 0);
    const uint32_t bad[] = { 0, 8, 24, 80 };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(kv_index_init(&x, &pool, bad[i], evict_find(STR("lru")), 8), -EINVAL);
    }
    assert_int_equal(kv_index_init(&x, &pool, 16, evict_find(STR("lru")), 0), -EINVAL);
    kv_pool_fini(&pool);
}

/* ---- pages are conserved under all operations ---- */

static void t_bounds(void **state)
{
    (void)state;
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 0, NULL), -EINVAL);
    assert_int_equal(kv_pool_init(&p, KV_PAGES_MAX + 1, NULL), -EINVAL);
    assert_int_equal(kv_pool_init(&p, 3, NULL), 0);
    assert_int_equal(kv_pool_take(&p, true), 0);
    assert_int_equal(kv_pool_take(&p, true), 1);
    assert_int_equal(kv_pool_take(&p, true), 2);
    assert_int_equal(kv_pool_take(&p, true), KV_PAGE_NONE);
    assert_true(kv_pool_unref(&p, 1, true));
    assert_int_equal(kv_pool_take(&p, true), 1);
    kv_pool_fini(&p);
}

static void t_shared(void **state)
{
    (void)state;
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 2, NULL), 0);
    uint32_t page = kv_pool_take(&p, true);
    assert_false(kv_pool_shared(&p, page));
    kv_pool_ref(&p, page);
    assert_true(kv_pool_shared(&p, page)); /* two holders */
    assert_false(kv_pool_unref(&p, page, true));
    kv_pool_set_indexed(&p, page, true);
    assert_true(kv_pool_shared(&p, page)); /* one holder, but others may find it */
    assert_true(kv_pool_unref(&p, page, true));
    assert_int_equal(p.cached_count, 1);
    kv_pool_ref(&p, page);
    assert_int_equal(p.held_count, 1);
    kv_pool_set_indexed(&p, page, false);
    assert_true(kv_pool_unref(&p, page, true));
    assert_int_equal(p.free_count, 2);
    kv_pool_fini(&p);
}

/* A model counts the holders by hand. */
static void t_random_walk(void **state)
{
    (void)state;
    enum { PAGES = 17 };
    struct kv_pool p;
    struct rng rng;
    rng_seed(&rng, 1);
    assert_int_equal(kv_pool_init(&p, PAGES, NULL), 0);
    uint32_t holders[PAGES] = { 0 };
    bool named[PAGES] = { false };
    for (int i = 0; i < 20000; i++) {
        uint32_t page = (uint32_t)rng_below(&rng, PAGES);
        switch (rng_below(&rng, 5)) {
        case 0: {
            uint32_t got = kv_pool_take(&p, true);
            if (got == KV_PAGE_NONE) break;
            assert_true(holders[got] == 0 && !named[got]);
            holders[got] = 1;
            break;
        }
        case 1:
            if (holders[page] == 0 && !named[page]) break;
            kv_pool_ref(&p, page);
            holders[page]++;
            break;
        case 2:
            if (holders[page] > 0 && !named[page]) {
                kv_pool_set_indexed(&p, page, named[page] = true);
            } else if (named[page]) {
                kv_pool_set_indexed(&p, page, named[page] = false);
            }
            break;
        default:
            if (holders[page] == 0) break;
            assert_int_equal(kv_pool_unref(&p, page, true), --holders[page] == 0);
        }
        uint32_t held = 0, cached = 0;
        for (int k = 0; k < PAGES; k++) {
            held += holders[k] > 0;
            cached += holders[k] == 0 && named[k];
        }
        assert_int_equal(p.held_count, held);
        assert_int_equal(p.cached_count, cached);
        assert_int_equal(p.free_count, PAGES - held - cached);
        assert_true(kv_pool_check(&p));
    }
    kv_pool_fini(&p);
}

static void t_check_sees_damage(void **state)
{
    (void)state;
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 4, NULL), 0);
    uint32_t page = kv_pool_take(&p, true);
    assert_true(kv_pool_check(&p));
    p.refs[page] = 0; /* neither held nor free */
    assert_false(kv_pool_check(&p));
    p.refs[page] = 1;
    p.free_stack[0] = page; /* a held page among the free ones */
    assert_false(kv_pool_check(&p));
    kv_pool_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_longest_run),
        cmocka_unit_test(t_equal_pages_are_named_once),
        cmocka_unit_test(t_evicts_tails_of_the_oldest),
        cmocka_unit_test(t_heads_outlive_tails),
        cmocka_unit_test(t_probation_keeps_what_was_hit),
        cmocka_unit_test(t_holding_is_no_hit),
        cmocka_unit_test(t_events_replay),
        cmocka_unit_test(t_parts_left_behind_make_room),
        cmocka_unit_test(t_a_hit_needs_its_last_window),
        cmocka_unit_test(t_refusals),
        cmocka_unit_test(t_bounds),
        cmocka_unit_test(t_shared),
        cmocka_unit_test(t_random_walk),
        cmocka_unit_test(t_check_sees_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
