/* t_kv_pages.c - tests pages read from one engine's cache and adopted by another's, without
 * processes: they are whole, held by no session and in no session's way, and pages that cannot be
 * adopted are left out. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/rng.h"
#include "engine/serve/kv_fetch.h"
#include "tests/unit/engine/tiny_model.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <unistd.h>

#define SEED 11
#define PAGE 16

static struct model *model;
static int64_t now_us;

static int64_t step_clock(void)
{
    return now_us += 1000;
}

static void on_token(void *arg, struct output *output, const struct session *session,
                     const struct sampler_result *got)
{
    uint32_t *last = arg;
    (void)session;
    *last = got->chosen.id;
    buf_clear(&output->text);
}

static void on_end(void *arg, struct output *output, const struct session *session)
{
    (void)arg, (void)session;
    output_fini(output);
}

struct side {
    struct executor *x;
    uint32_t last; /* token drawn last */
    uint64_t number;
};

static void side_open(struct side *s, uint32_t pages, uint32_t page_tokens)
{
    struct err err = { "" };
    *s = (struct side){ 0 };
    struct executor_config config = {
        .sched = { .pages = pages,
                   .page_tokens = page_tokens,
                   .context_max = TINY_CONTEXT,
                   .seqs_max = 2,
                   .batch_tokens_max = 64,
                   .waiting_max = 4,
                   .events_max = 64,
                   .key_seed = SEED,
                   .prefix_cache = true },
        .threads = 1,
    };
    const struct executor_events events = { .on_token = on_token,
                                            .on_end = on_end,
                                            .arg = &s->last };
    config.sched.parts = executor_parts(model, &config.sched);
    if (executor_new(model, &config, &events, &s->x, &err) < 0) fail_msg("%s", err.text);
}

static struct kv_index *index_of(struct side *s)
{
    return sched_index(executor_sched(s->x));
}

static void sound(struct side *s, uint32_t held)
{
    assert_true(sched_check(executor_sched(s->x)));
    assert_int_equal(index_of(s)->pool->held_count, held);
}

static struct block_key salt_of(const char *tenant)
{
    return block_salt(SEED, STR("weights"), (struct str){ 0 }, str_from(tenant));
}

static void ids_of(uint32_t first, uint32_t count, uint32_t *ret)
{
    for (uint32_t i = 0; i < count; i++)
        ret[i] = 6 + (first + i * 13 + i / 16) % 250;
}

static struct kv_prefix prefix_of(uint32_t first, uint32_t count, uint32_t page_tokens)
{
    uint32_t ids[TINY_CONTEXT];
    struct kv_prefix p;
    ids_of(first, count, ids);
    assert_int_equal(kv_prefix_init(&p, SEED, salt_of("t"), ids, count, page_tokens), 0);
    return p;
}

/* Begins a session of `tokens` output tokens, which stays with the scheduler until its end. */
static struct session *submit(struct side *s, struct output *output, uint32_t first, uint32_t count,
                              uint32_t tokens)
{
    uint32_t ids[TINY_CONTEXT];
    struct session *session;
    ids_of(first, count, ids);
    const struct output_spec spec = { .prompt_tokens = count, .ignore_eos = true };
    const struct sched_request req = {
        .id = ++s->number,
        .owner = output,
        .ids = ids,
        .prompt_tokens = count,
        .output_max = tokens,
        .salt = salt_of("t"),
        .arrival_us = (int64_t)s->number,
    };
    assert_int_equal(output_init(output, model_info(model)->vocab, &spec, ids, count), 0);
    assert_int_equal(sched_submit(executor_sched(s->x), &req, &session, NULL), 0);
    return session;
}

static uint64_t hits(struct side *s)
{
    struct sched_counts c;
    sched_counts_get(executor_sched(s->x), &c);
    return c.hit_tokens;
}

/* Runs a request to its end; returns the last sampled token. */
static uint32_t compute(struct side *s, uint32_t first, uint32_t count, uint32_t tokens)
{
    struct output output;
    struct executor_step_info info;
    struct err err = { "" };
    submit(s, &output, first, count, tokens);
    while (sched_has_work(executor_sched(s->x)))
        assert_true(executor_step(s->x, step_clock, &info, &err) >= 0);
    return s->last;
}

/* Copies all pages that `from` has of the prefix to `to`, in parts of `bytes_max`. */
static struct kv_adopted carry(struct side *from, struct side *to, struct kv_prefix *p,
                               size_t bytes_max)
{
    struct kv_adopted now = { .here = kv_prefix_here(to->x, p) }, all = now;
    for (;;) {
        CLEANUP(buf_fini) struct buf bytes = { 0 };
        int n = kv_prefix_read(from->x, p, now.here, bytes_max, &bytes);
        assert_true(n >= 0);
        if (n == 0) return all;
        uint32_t before = now.here;
        now = kv_prefix_adopt(to->x, p, before, bytes.data, (uint32_t)n);
        sound(to, 0);
        all.here = now.here;
        all.came += now.came;
        if (now.here < before + (uint32_t)n) return all;
    }
}

static size_t page_bytes(struct side *s)
{
    return kv_page_bytes(kv_store_layout(executor_kv(s->x)));
}

/* Side a has computed a prompt of `count` tokens; side b may adopt the pages of its prefix. */
struct pair {
    struct side a, b;
    struct kv_prefix p;
};

static void pair_open(struct pair *t, uint32_t pages_of_b, uint32_t count)
{
    side_open(&t->a, 20, PAGE);
    side_open(&t->b, pages_of_b, PAGE);
    compute(&t->a, 1, count, 2);
    t->p = prefix_of(1, count, PAGE);
}

static void pair_close(struct pair *t)
{
    kv_prefix_fini(&t->p);
    executor_free(t->a.x);
    executor_free(t->b.x);
}

static void t_what_comes_is_what_was_there(void **state)
{
    (void)state;
    const size_t most[] = { 1, 0, SIZE_MAX }; /* a page at a time; several; all */
    for (uint32_t i = 0; i < COUNT_OF(most); i++) {
        struct side a, b;
        uint32_t page_tokens = i == 1 ? 32 : PAGE;
        side_open(&a, 20, page_tokens);
        side_open(&b, 20, page_tokens);
        uint32_t want = compute(&a, i, 200, 4);
        struct kv_prefix p = prefix_of(i, 200, page_tokens);
        size_t bytes_max = most[i] ? most[i] : 3 * page_bytes(&a);
        struct kv_adopted got = carry(&a, &b, &p, bytes_max);
        assert_int_equal(got.here, 200 / page_tokens);
        assert_int_equal(got.came, 200 / page_tokens);
        assert_int_equal(index_of(&b)->pool->cached_count, got.here);
        for (uint32_t k = 0; k < p.pages; k++) {
            uint32_t there, here;
            struct block_key parent = k ? p.keys[k * page_tokens / 16 - 1] : p.salt;
            const struct block_key *keys = p.keys + k * page_tokens / 16;
            const uint32_t *ids = p.ids + k * page_tokens;
            assert_int_equal(kv_index_match(index_of(&a), parent, keys, ids, 1, &there), 1);
            assert_int_equal(kv_index_match(index_of(&b), parent, keys, ids, 1, &here), 1);
            assert_memory_equal(kv_store_page(executor_kv(a.x), there),
                                kv_store_page(executor_kv(b.x), here), page_bytes(&a));
        }
        assert_int_equal(compute(&b, i, 200, 4), want);
        assert_int_equal(hits(&b), 200 / page_tokens * page_tokens);
        sound(&b, 0);
        kv_prefix_fini(&p);
        executor_free(a.x);
        executor_free(b.x);
    }
}

/* One session runs while its pages are read, another while pages are adopted. */
static void t_beside_what_runs(void **state)
{
    (void)state;
    struct side a, b;
    struct output source, other;
    struct executor_step_info info;
    side_open(&a, 20, PAGE);
    side_open(&b, 18, PAGE);
    submit(&a, &source, 1, 100, 100);
    submit(&b, &other, 500, 60, 40);
    for (int i = 0; i < 30; i++) {
        assert_true(executor_step(a.x, step_clock, &info, NULL) > 0);
        assert_true(executor_step(b.x, step_clock, &info, NULL) > 0);
    }
    struct kv_prefix p = prefix_of(1, 100, PAGE);
    uint32_t held = index_of(&b)->pool->held_count;
    assert_true(held >= 6 && index_of(&a)->pool->held_count >= 8);
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    assert_int_equal(kv_prefix_read(a.x, &p, 0, SIZE_MAX, &bytes), 6);
    struct kv_adopted got = kv_prefix_adopt(b.x, &p, 0, bytes.data, 6);
    assert_true(got.here == 6 && got.came == 6);
    sound(&b, held);
    assert_true(sched_check(executor_sched(a.x)));
    while (sched_has_work(executor_sched(b.x)))
        assert_true(executor_step(b.x, step_clock, &info, NULL) >= 0);
    sound(&b, 0);
    kv_prefix_fini(&p);
    executor_free(a.x); /* in the middle of its output */
    output_fini(&source);
    executor_free(b.x);
}

/* While other pages are held only a part fits: never more than the free pages, and never in place
 * of the prefix itself. */
static void t_room_ends(void **state)
{
    (void)state;
    struct pair t;
    struct output other;
    struct executor_step_info info;
    pair_open(&t, 16, 240);
    submit(&t.b, &other, 500, 70, 2000); /* to the end of the context */
    for (int i = 0; i < 12; i++)
        assert_true(executor_step(t.b.x, step_clock, &info, NULL) > 0);
    uint32_t held = index_of(&t.b)->pool->held_count;
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    assert_int_equal(kv_prefix_read(t.a.x, &t.p, 0, SIZE_MAX, &bytes), 15);
    struct kv_adopted got = kv_prefix_adopt(t.b.x, &t.p, 0, bytes.data, 15);
    assert_int_equal(got.here, 16 - held);
    assert_int_equal(got.came, 16 - held);
    sound(&t.b, held);
    assert_int_equal(kv_prefix_here(t.b.x, &t.p), 16 - held);
    /* Another page behind them does not fit: all free pages are the prefix's own. */
    size_t at = got.here * page_bytes(&t.b);
    got = kv_prefix_adopt(t.b.x, &t.p, got.here, bytes.data + at, 1);
    assert_true(got.here == 16 - held && got.came == 0);
    sound(&t.b, held);
    pair_close(&t);
    output_fini(&other);
}

static void t_cached_pages_of_others_give_way(void **state)
{
    (void)state;
    struct pair t;
    pair_open(&t, 16, 240);
    compute(&t.b, 500, 200, 2);
    struct kv_prefix old = prefix_of(500, 200, PAGE);
    assert_int_equal(kv_prefix_here(t.b.x, &old), 12);
    struct kv_adopted got = carry(&t.a, &t.b, &t.p, 4 * page_bytes(&t.a));
    assert_true(got.here == 15 && got.came == 15);
    assert_int_equal(kv_prefix_here(t.b.x, &t.p), 15);
    assert_true(kv_prefix_here(t.b.x, &old) <= 1);
    kv_prefix_fini(&old);
    pair_close(&t);
}

static void t_no_gap_and_nothing_twice(void **state)
{
    (void)state;
    struct pair t;
    pair_open(&t, 20, 160);
    struct kv_prefix half = prefix_of(1, 80, PAGE);
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    assert_int_equal(kv_prefix_read(t.a.x, &t.p, 4, SIZE_MAX, &bytes), 6);
    struct kv_adopted got = kv_prefix_adopt(t.b.x, &t.p, 4, bytes.data, 6);
    assert_true(got.here == 0 && got.came == 0); /* the pages before them are missing */
    assert_int_equal(index_of(&t.b)->pool->cached_count, 0);
    got = carry(&t.a, &t.b, &half, SIZE_MAX);
    assert_int_equal(got.here, 5);
    /* The read began at page 4, which has come meanwhile. */
    got = kv_prefix_adopt(t.b.x, &t.p, 4, bytes.data, 6);
    assert_true(got.here == 10 && got.came == 5);
    got = kv_prefix_adopt(t.b.x, &t.p, 4, bytes.data, 6);
    assert_true(got.here == 10 && got.came == 0);
    sound(&t.b, 0);
    /* Reads nothing behind the end, for other ids, or for a page that is not full. */
    buf_clear(&bytes);
    assert_int_equal(kv_prefix_read(t.a.x, &t.p, 10, SIZE_MAX, &bytes), 0);
    assert_int_equal(kv_prefix_read(t.a.x, &t.p, 1000, SIZE_MAX, &bytes), 0);
    struct kv_prefix other = prefix_of(2, 160, PAGE), none = prefix_of(1, 15, PAGE);
    assert_int_equal(kv_prefix_read(t.a.x, &other, 0, SIZE_MAX, &bytes), 0);
    assert_int_equal(kv_prefix_read(t.a.x, &none, 0, SIZE_MAX, &bytes), 0);
    assert_int_equal(kv_prefix_here(t.a.x, &none), 0);
    assert_int_equal(bytes.len, 0);
    kv_prefix_fini(&half);
    kv_prefix_fini(&other);
    kv_prefix_fini(&none);
    pair_close(&t);
}

/* A page that lost the one before it keeps its name; once that is back, both are reachable. */
static void t_a_tail_without_its_head_is_found_again(void **state)
{
    (void)state;
    struct pair t;
    pair_open(&t, 20, 64);
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    assert_int_equal(kv_prefix_read(t.a.x, &t.p, 0, SIZE_MAX, &bytes), 4);
    struct kv_index *index = index_of(&t.b);
    uint32_t page = kv_index_take(index);
    kv_store_write_page(executor_kv(t.b.x), page, bytes.data + 2 * page_bytes(&t.b));
    kv_index_seal(index, page, 2, t.p.keys[1], t.p.keys + 2, t.p.ids + 2 * PAGE);
    kv_index_release(index, page);
    assert_int_equal(kv_prefix_here(t.b.x, &t.p), 0);
    struct kv_adopted got = kv_prefix_adopt(t.b.x, &t.p, 0, bytes.data, 4);
    assert_true(got.here == 4 && got.came == 3);
    assert_int_equal(index->pool->cached_count, 4);
    sound(&t.b, 0);
    pair_close(&t);
}

static void t_memory_may_end(void **state)
{
    (void)state;
    struct side a;
    uint32_t ids[64];
    struct kv_prefix p = { .pages = 9 };
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    ids_of(1, 64, ids);
    fault_arm("kv_prefix.init", 1);
    assert_int_equal(kv_prefix_init(&p, SEED, salt_of("t"), ids, 64, PAGE), -ENOMEM);
    fault_disarm();
    assert_true(p.pages == 0 && !p.ids && !p.keys && !p.found);
    side_open(&a, 20, PAGE);
    compute(&a, 1, 64, 2);
    p = prefix_of(1, 64, PAGE);
    fault_arm("kv_serve.read", 1);
    assert_int_equal(kv_prefix_read(a.x, &p, 0, SIZE_MAX, &bytes), -ENOMEM);
    fault_disarm();
    bytes.max = page_bytes(&a); /* less than the read needs */
    assert_int_equal(kv_prefix_read(a.x, &p, 0, SIZE_MAX, &bytes), -ENOMEM);
    sound(&a, 0);
    kv_prefix_fini(&p);
    executor_free(a.x);
}

/* Two sides compute, copy pages to each other and forget: both stay consistent, and tokens never
 * differ. */
static void t_to_and_fro(void **state)
{
    (void)state;
    struct side side[2], truth;
    struct rng rng;
    rng_seed(&rng, 23);
    side_open(&side[0], 24, PAGE);
    side_open(&side[1], 17, PAGE);
    uint32_t came = 0;
    for (int round = 0; round < 150; round++) {
        uint32_t from = (uint32_t)rng_below(&rng, 2), first = (uint32_t)rng_below(&rng, 5);
        uint32_t count = 20 + (uint32_t)rng_below(&rng, 210);
        uint64_t how = rng_below(&rng, 8);
        if (how == 0) kv_index_clear(index_of(&side[from]));
        if (how < 4) compute(&side[from], first, count, 2);
        struct kv_prefix p = prefix_of(first, count, PAGE);
        came += carry(&side[from], &side[1 - from], &p, (1 + rng_below(&rng, 6)) * 4096).came;
        kv_prefix_fini(&p);
        if (round % 10 == 0) {
            side_open(&truth, 24, PAGE);
            uint32_t want = compute(&truth, first, count, 3);
            assert_int_equal(compute(&side[1 - from], first, count, 3), want);
            executor_free(truth.x);
        }
        sound(&side[0], 0);
        sound(&side[1], 0);
    }
    assert_true(came > 100);
    executor_free(side[0].x);
    executor_free(side[1].x);
}

/* Of layers with a window only the last pages come whole, and they suffice: the prefix is a hit. What the other side
 * has without its window part is made whole. */
static void t_the_last_window_suffices(void **state)
{
    (void)state;
    for (int parts = 0; parts < 2; parts++) {
        struct side a, b;
        side_open(&a, 40, PAGE);
        side_open(&b, 40, PAGE);
        const struct kv_layout *l = kv_store_layout(executor_kv(a.x));
        if (parts) { /* b has the beginning, of which its window has left the most behind; the parts go */
            compute(&b, 1, 96, 120);
            struct kv_pool *pool = sched_index(executor_sched(b.x))->pool;
            while (kv_pool_drop_left(pool))
                ;
        }
        uint32_t want = compute(&a, 1, 200, 4);
        struct kv_prefix p = prefix_of(1, 200, PAGE);
        CLEANUP(buf_fini) struct buf bytes = { 0 };
        const uint32_t window = model_info(model)->kv_window;
        assert_int_equal(kv_prefix_read(a.x, &p, 0, SIZE_MAX, &bytes), 12);
        assert_int_equal(p.whole_from, (192 - window) / PAGE);
        assert_int_equal(bytes.len,
                         p.whole_from * kv_full_bytes(l) + (12 - p.whole_from) * kv_page_bytes(l));
        if (parts) assert_true(kv_prefix_here(b.x, &p) < 6);
        struct kv_adopted got = carry(&a, &b, &p, 3 * page_bytes(&a));
        assert_int_equal(got.here, 12);
        assert_int_equal(kv_prefix_here(b.x, &p), 12);
        assert_int_equal(compute(&b, 1, 200, 4), want);
        assert_int_equal(hits(&b), 192);
        sound(&a, 0);
        sound(&b, 0);
        kv_prefix_fini(&p);
        executor_free(a.x);
        executor_free(b.x);
    }
}

static int run_with_windows(void)
{
    int failed = 0;
    for (uint32_t period = 0; period <= 2; period += 2) {
        char path[64];
        int fd = windowed_model_path(40, period, path);
        const struct model_load_options opt = { 0 };
        if (model_load(path, &opt, &model, NULL) < 0) return 1;
        const struct CMUnitTest tests[] = { cmocka_unit_test(t_the_last_window_suffices),
                                            cmocka_unit_test(t_to_and_fro) };
        failed += cmocka_run_group_tests_name(
            period ? "a window in every other layer" : "a window in all layers", tests, NULL, NULL);
        model_free(model);
        close(fd);
    }
    return failed;
}

int main(void)
{
    char path[64];
    int fd = tiny_model_path(TINY_CONTEXT, path);
    const struct model_load_options opt = { 0 };
    if (model_load(path, &opt, &model, NULL) < 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_what_comes_is_what_was_there),
        cmocka_unit_test(t_beside_what_runs),
        cmocka_unit_test(t_room_ends),
        cmocka_unit_test(t_cached_pages_of_others_give_way),
        cmocka_unit_test(t_no_gap_and_nothing_twice),
        cmocka_unit_test(t_a_tail_without_its_head_is_found_again),
        cmocka_unit_test(t_memory_may_end),
        cmocka_unit_test(t_to_and_fro),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_free(model);
    close(fd);
    return failed + run_with_windows();
}
