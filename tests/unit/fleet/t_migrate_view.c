/* t_migrate_view.c - tests what migrate policies see of endpoints and sessions, and which
 * migrations may begin. */
#include "base/core/bits.h"
#include "base/wire/kv_wire.h"
#include "fleet/defaults.h"
#include "fleet/migrate_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SECOND 1000000

static const struct perf_coef perf = { .step_s = 0.01, .decode_seq_s = 0.001, .kv_read_s = 1e-6 };

static struct migrate_endpoint endpoint(void)
{
    return (struct migrate_endpoint){
        .page_tokens = 16, .ready = true, .perf = &perf, .kv_tokens_max = 1600
    };
}

static void pages_are_what_the_engine_says(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        struct reported_load load;
        uint32_t free, queue, running;
    } rows[] = {
        { "nothing runs", { 0 }, 100, 0, 0 },
        { "half is held", { .running = 4, .kv_tokens = 800 }, 50, 0, 4 },
        { "a partial page is a page", { .running = 1, .kv_tokens = 801 }, 49, 0, 1 },
        { "more than there is", { .running = 1, .kv_tokens = UINT64_MAX }, 0, 0, 1 },
        { "one waits",
          { .running = 4, .waiting = 1, .prefill_tokens = 320, .kv_tokens = 1600 },
          0,
          21,
          4 },
        { "three wait",
          { .running = 4, .waiting = 3, .prefill_tokens = 320, .kv_tokens = 1600 },
          0,
          7,
          4 },
        { "who waits computes nothing anew",
          { .running = 4, .waiting = 1, .kv_tokens = 1600 },
          0,
          1,
          4 },
        { "the head is told",
          { .running = 4,
            .waiting = 3,
            .prefill_tokens = 320,
            .kv_tokens = 1600,
            .head_pages = 90 },
          0,
          90,
          4 },
        { "a head that needs no prompt pages",
          { .running = 4, .waiting = 2, .prefill_tokens = 320, .kv_tokens = 1600, .head_pages = 1 },
          0,
          1,
          4 },
        { "who told last had a queue",
          { .running = 4, .kv_tokens = 1600, .head_pages = 90 },
          0,
          0,
          4 },
        { "nonsense of a peer's head", { .waiting = 1, .head_pages = UINT32_MAX }, 100, 101, 0 },
        { "nonsense of a peer", { .waiting = 1, .prefill_tokens = UINT64_MAX }, 100, 101, 0 },
    };
    struct migrate_endpoint ep = endpoint();
    const struct kv_port port = { .incoming_pages = 3, .sending_pages = 5 };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct migrate_instance in = { .id = 7 };
        ep.load = &rows[i].load;
        ep.told_us = SECOND;
        migrate_view_fill(&ep, &port, SECOND, &in);
        if (in.pages_free != rows[i].free || in.queue_pages != rows[i].queue ||
            in.running != rows[i].running || !in.present || !in.accepts || in.id != 7)
            fail_msg("%s: %u %u %u", rows[i].why, in.pages_free, in.queue_pages, in.running);
        assert_true(in.receiving_pages == 3);
        assert_true(in.sending_pages == 5);
        assert_true(in.step_s >= 0.01);
    }
}

static void who_does_not_tell_is_not_present(void **state)
{
    (void)state;
    static const struct reported_load busy = { .running = 1, .kv_tokens = 160 }, idle = { 0 };
    static const struct {
        const char *why;
        const struct reported_load *load;
        int64_t told_us, moved_us, now_us;
        bool present;
    } rows[] = {
        { "no stream", NULL, 0, 0, SECOND, false },
        { "just told", &busy, SECOND, 0, SECOND, true },
        { "told long ago", &busy, SECOND, 0, SECOND + TOLD_FRESH_US, false },
        { "had nothing long ago", &idle, SECOND, 0, 100 * SECOND, true },
        { "told before the last move", &busy, SECOND, SECOND + 1, SECOND + 2, false },
        { "told after it", &busy, SECOND + 2, SECOND + 1, SECOND + 2, true },
        { "nothing new since", &idle, SECOND, SECOND + 1, 2 * SECOND + 2, true },
    };
    struct migrate_endpoint ep = endpoint();
    struct kv_port port = { 0 };
    struct migrate_instance in = { 0 };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ep.load = rows[i].load;
        ep.told_us = rows[i].told_us;
        port.moved_us = rows[i].moved_us;
        migrate_view_fill(&ep, &port, rows[i].now_us, &in);
        if (in.present != rows[i].present) fail_msg("%s", rows[i].why);
    }
    ep.load = &busy;
    ep.kv_tokens_max = 0;
    migrate_view_fill(&ep, &port, 1, &in);
    assert_false(in.present); /* unknown is not zero */
}

/* Prefill and draining instances accept no session; draining ones give away all they can. */
static void roles_and_drains_say_who_takes(void **state)
{
    (void)state;
    static const struct reported_load busy = { .running = 2, .kv_tokens = 160 };
    for (uint32_t role = 0; role < ROLE_COUNT; role++) {
        for (uint32_t drains = 0; drains < 2; drains++) {
            struct migrate_endpoint ep = endpoint();
            const struct kv_port port = { 0 };
            struct migrate_instance in = { 0 };
            ep.role = (enum role)role;
            ep.ready = !drains;
            ep.draining = drains;
            ep.load = &busy;
            ep.told_us = 1;
            migrate_view_fill(&ep, &port, 1, &in);
            assert_int_equal(in.accepts, !drains && role != ROLE_PREFILL);
            assert_int_equal(in.draining, drains);
            assert_true(in.present);
            assert_int_equal(migrate_freeness(&in) < 0, drains);
        }
    }
}

/* ---- looks ---- */

#define SLOTS 5
#define SESSIONS 40

/* This policy moves every movable session to another instance, and counts what its views hold. */
static struct seen {
    uint32_t views, instances, sessions, movable;
    double link_bytes_s, page_bytes;
} seen;

static void all_away(void *state, const struct migrate_config *config,
                     const struct migrate_view *view, int64_t now_us, struct rng *rng,
                     struct migrate_verdict *ret)
{
    (void)state, (void)config, (void)rng;
    *ret = (struct migrate_verdict){ .again_us = now_us + 7 };
    seen.views++;
    seen.instances += view->instance_count;
    if (view->instance_count > 1) {
        seen.link_bytes_s = view->link_bytes_s;
        seen.page_bytes = view->page_bytes;
    }
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct migrate_instance *in = &view->instance[i];
        seen.sessions += in->session_count;
        for (uint32_t k = 0; k < in->session_count && view->instance_count > 1; k++) {
            seen.movable += in->session[k].movable;
            if (!in->session[k].movable) continue;
            ret->move[ret->count++] = (struct migrate_move){ .session = in->session[k].id,
                                                             .from = in->id,
                                                             .to = view->instance[!i].id };
        }
    }
}

static const struct migrate_policy away = { .name = "away", .decide = all_away };

struct host {
    struct migrate_look look;
    struct migrate_endpoint ep[SLOTS];
    uint32_t begun, to[SESSIONS];
    struct kv_transfer x[SESSIONS];
};

static bool host_endpoint(void *arg, uint32_t slot, struct migrate_endpoint *ret)
{
    const struct host *h = arg;
    *ret = h->ep[slot];
    return slot != SLOTS - 1;
}

static void host_migrate(void *arg, struct kv_transfer *x, uint32_t to)
{
    struct host *h = arg;
    const struct kv_transfer_input in = { .to = { to, h->look.port[to].serial },
                                          .pages = x->tokens / 16,
                                          .tokens = x->tokens,
                                          .page_tokens = 16 };
    h->to[h->begun++] = to;
    migrate_look_on(&h->look, x, KVT_MIGRATE, in);
}

/* Slots 0 and 1 are of one group, slot 2 of another; slot 3 exchanges with none, 4 has no
 * endpoint. */
static void *host_init(struct host *h, uint32_t sessions)
{
    void *memory = calloc(1, migrate_look_bytes(SLOTS, SESSIONS));
    assert_non_null(memory);
    *h = (struct host){ 0 };
    seen = (struct seen){ 0 };
    migrate_look_init(&h->look, &away, SLOTS, SESSIONS, 1, memory);
    for (uint32_t i = 0; i < SLOTS; i++) {
        h->ep[i] = endpoint();
        h->ep[i].group = i < 2 ? 1 : i == 3 ? 0 : 2;
        h->ep[i].link_bytes_s = 100.0 + i;
        h->ep[i].kv_bytes_per_token = 10 + i;
        h->look.port[i].serial = 10 + i;
    }
    for (uint32_t i = 0; i < sessions; i++) {
        kv_transfer_at(&h->x[i], (struct kv_end){ i % 2, 10 + i % 2 });
        h->x[i].tokens = 320 + i;
        migrate_look_tokens(&h->look, &h->x[i]);
        migrate_look_tokens(&h->look, &h->x[i]); /* a second word of it changes nothing */
    }
    return memory;
}

static void sessions_go_within_their_group_and_bound(void **state)
{
    (void)state;
    struct host h;
    void *memory = host_init(&h, SESSIONS);
    const struct migrate_host host = { &h, host_endpoint, host_migrate };
    h.x[4].fixed = true;
    migrate_look_gone(&h.x[6]);
    h.look.port[1].serial = 99; /* a new instance has the slot of the odd sessions */
    assert_int_equal(migrate_look(&h.look, &host, 100), 107);
    assert_int_equal(seen.views, 3); /* one empty view, and one for each group */
    assert_int_equal(seen.instances, 3);
    assert_int_equal(seen.sessions, SESSIONS / 2 - 1);
    assert_int_equal(seen.movable, SESSIONS / 2 - 2);
    assert_true(seen.link_bytes_s == 100); /* the slowest link; the largest page */
    assert_true(seen.page_bytes == 16 * 11);
    assert_int_equal(h.begun, KV_FETCHES_MAX);
    assert_int_equal(h.look.port[1].incoming, KV_FETCHES_MAX);
    for (uint32_t i = 0; i < h.begun; i++)
        assert_int_equal(h.to[i], 1);
    assert_true(h.x[0].state == KVT_COPYING && h.x[4].state == KVT_IDLE);

    /* Sessions under way stay where they are; the end of one makes room for one more. */
    migrate_look_on(&h.look, &h.x[0], KVT_ENDED, (struct kv_transfer_input){ 0 });
    assert_int_equal(h.look.port[1].incoming, KV_FETCHES_MAX - 1);
    migrate_look(&h.look, &host, 200);
    assert_int_equal(h.begun, KV_FETCHES_MAX + 1);
    /* A session whose migration failed is tried again after its next token. */
    migrate_look_on(&h.look, &h.x[2], KVT_LOST, (struct kv_transfer_input){ 0 });
    migrate_look_gone(&h.x[36]); /* the only other movable sessions */
    migrate_look_gone(&h.x[38]);
    migrate_look(&h.look, &host, 300);
    assert_int_equal(h.begun, KV_FETCHES_MAX + 1);
    migrate_look_tokens(&h.look, &h.x[2]);
    migrate_look(&h.look, &host, 400);
    assert_int_equal(h.begun, KV_FETCHES_MAX + 2);
    assert_true(h.x[2].state == KVT_COPYING);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_what_the_engine_says),
        cmocka_unit_test(who_does_not_tell_is_not_present),
        cmocka_unit_test(roles_and_drains_say_who_takes),
        cmocka_unit_test(sessions_go_within_their_group_and_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
