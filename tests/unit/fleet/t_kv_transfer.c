/* t_kv_transfer.c - tests every state x event of a KV transfer, its three kinds, and the ports of
 * instances. */
#include "base/core/bits.h"
#include "fleet/kv_transfer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAGE 16
#define PORTS 3

static const char *const state_name[KVT_STATE_COUNT] = { "idle",    "fetching", "prefilling",
                                                         "handoff", "copying",  "stopping",
                                                         "arriving" };

static const char *const event_name[KVT_EVENT_COUNT] = { "fetch",       "prefill",     "migrate",
                                                         "prefilled",   "unplaced",    "copied",
                                                         "stopped",     "tokens",      "lost",
                                                         "source gone", "target gone", "ended" };

/* The expected next state and act; the cell is impossible where `state` is NONE. */
enum { NONE = KVT_STATE_COUNT };
struct next {
    uint32_t state;
    enum kv_transfer_act act;
};

#define NO                \
    {                     \
        NONE, KVT_NOTHING \
    }
#define IS(state, act)         \
    {                          \
        KVT_##state, KVT_##act \
    }

/* The migration wants 100 pages; 90 of them have arrived in states where any have. */
/* clang-format off */
static const struct next expected[KVT_STATE_COUNT][KVT_EVENT_COUNT] = {
    /*                 fetch                prefill                   migrate            prefilled */
    [KVT_IDLE]       = { IS(FETCHING, COPY), IS(PREFILLING, NOTHING), IS(COPYING, COPY), NO,
    /*                 unplaced  copied  stopped  tokens            lost  source  target  ended */
                         NO,      NO,     NO,     IS(IDLE, NOTHING), NO,   NO,    NO,     IS(IDLE, NOTHING) },
    [KVT_FETCHING]   = { NO, NO, NO, NO, NO, IS(IDLE, BEGIN), NO, NO, IS(IDLE, BEGIN), IS(IDLE, BEGIN),
                         IS(IDLE, REROUTE), IS(IDLE, NOTHING) },
    [KVT_PREFILLING] = { NO, NO, NO, IS(HANDOFF, COPY), IS(IDLE, BEGIN), NO, NO, IS(PREFILLING, NOTHING), NO,
                         IS(IDLE, REROUTE), NO, IS(IDLE, NOTHING) },
    [KVT_HANDOFF]    = { NO, NO, NO, NO, NO, IS(WAITING, BEGIN), NO, IS(IDLE, NOTHING), IS(WAITING, BEGIN),
                         IS(WAITING, BEGIN), IS(IDLE, REROUTE), IS(IDLE, NOTHING) },
    [KVT_COPYING]    = { NO, NO, NO, NO, NO, IS(STOPPING, STOP), IS(ARRIVING, COPY), IS(COPYING, NOTHING),
                         IS(IDLE, STAY), IS(IDLE, REROUTE), IS(IDLE, STAY), IS(IDLE, NOTHING) },
    [KVT_STOPPING]   = { NO, NO, NO, NO, NO, NO, IS(ARRIVING, COPY), IS(STOPPING, NOTHING), IS(IDLE, RESUME),
                         IS(IDLE, REROUTE), IS(IDLE, RESUME), IS(IDLE, NOTHING) },
    [KVT_ARRIVING]   = { NO, NO, NO, NO, NO, IS(WAITING, BEGIN), NO, IS(IDLE, NOTHING), IS(WAITING, BEGIN),
                         IS(WAITING, BEGIN), IS(IDLE, REROUTE), IS(IDLE, NOTHING) },
    [KVT_WAITING]    = { NO, NO, NO, NO, NO, NO, NO, IS(IDLE, NOTHING), NO, NO, NO, IS(IDLE, NOTHING) },
};
/* clang-format on */

/* Events that lead from IDLE to each state. */
static const struct {
    uint32_t count;
    enum kv_transfer_event event[4];
} way[KVT_STATE_COUNT] = {
    [KVT_IDLE] = { 0 },
    [KVT_FETCHING] = { 1, { KVT_FETCH } },
    [KVT_PREFILLING] = { 1, { KVT_PREFILL } },
    [KVT_HANDOFF] = { 2, { KVT_PREFILL, KVT_PREFILLED } },
    [KVT_COPYING] = { 1, { KVT_MIGRATE } },
    [KVT_STOPPING] = { 2, { KVT_MIGRATE, KVT_COPIED } },
    [KVT_ARRIVING] = { 3, { KVT_MIGRATE, KVT_COPIED, KVT_STOPPED } },
    [KVT_WAITING] = { 4, { KVT_MIGRATE, KVT_COPIED, KVT_STOPPED, KVT_COPIED } },
};

static const struct kv_end source = { 0, 7 }, target = { 2, 9 };

static void ports_init(struct kv_port *port)
{
    memset(port, 0, PORTS * sizeof *port);
    port[0].serial = 7;
    port[1].serial = 8;
    port[2].serial = 9;
}

static enum kv_transfer_act feed(struct kv_transfer *x, enum kv_transfer_event event,
                                 struct kv_port *port)
{
    const struct kv_transfer_input in = { .from = source,
                                          .to = target,
                                          .pages = 100,
                                          .copied = event == KVT_COPIED ? 90 : 0,
                                          .tokens = 100 * PAGE + 3,
                                          .page_tokens = PAGE,
                                          .port = port,
                                          .now_us = 500 };
    return kv_transfer_on(x, event, &in);
}

static struct kv_transfer in_state(enum kv_transfer_state state, struct kv_port *port)
{
    struct kv_transfer x = { 0 };
    ports_init(port);
    kv_transfer_at(&x, source);
    for (uint32_t i = 0; i < way[state].count; i++)
        feed(&x, way[state].event[i], port);
    assert_int_equal(x.state, state);
    return x;
}

static void every_state_and_event_has_its_next(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < KVT_STATE_COUNT; s++) {
        for (uint32_t e = 0; e < KVT_EVENT_COUNT; e++) {
            struct kv_port port[PORTS];
            struct kv_transfer x = in_state((enum kv_transfer_state)s, port);
            const struct next *next = &expected[s][e];
            if (kv_transfer_takes(x.state, (enum kv_transfer_event)e) != (next->state != NONE))
                fail_msg("%s x %s: a cell where none is expected, or none", state_name[s],
                         event_name[e]);
            if (next->state == NONE) continue;
            enum kv_transfer_act act = feed(&x, (enum kv_transfer_event)e, port);
            if (x.state != next->state || act != next->act)
                fail_msg("%s x %s: %s and act %d", state_name[s], event_name[e],
                         state_name[x.state], act);
        }
    }
}

/* A transfer that any event ends in IDLE leaves nothing at a port. */
static void what_is_over_holds_no_port(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < KVT_STATE_COUNT; s++) {
        for (uint32_t e = 0; e < KVT_EVENT_COUNT; e++) {
            struct kv_port port[PORTS];
            struct kv_transfer x = in_state((enum kv_transfer_state)s, port);
            bool migrates = s >= KVT_COPYING; /* here WAITING follows a migration */
            bool leaves = s == KVT_FETCHING || s == KVT_HANDOFF || migrates;
            assert_int_equal(port[2].incoming, leaves);
            assert_int_equal(port[2].incoming_pages, migrates ? 101 : 0);
            assert_int_equal(port[0].sending_pages, migrates && s != KVT_WAITING ? 101 : 0);
            if (expected[s][e].state != KVT_IDLE) continue;
            feed(&x, (enum kv_transfer_event)e, port);
            for (uint32_t i = 0; i < PORTS; i++) {
                if (port[i].incoming || port[i].incoming_pages || port[i].sending_pages)
                    fail_msg("%s x %s: port %u", state_name[s], event_name[e], i);
            }
            /* Loads reported before a session left or arrived are out of date. */
            bool left = s == KVT_ARRIVING || s == KVT_WAITING, runs = left && e == KVT_TOKENS;
            assert_int_equal(port[0].moved_us, left ? 500 : 0);
            assert_int_equal(port[2].moved_us, runs ? 500 : 0);
            bool stays = expected[s][e].act == KVT_STAY || expected[s][e].act == KVT_RESUME;
            assert_int_equal(x.stayed, stays);
        }
    }
}

/* A new instance in a slot does not inherit the transfers of the one before it. */
static void a_new_instance_inherits_nothing(void **state)
{
    (void)state;
    for (uint32_t s = KVT_FETCHING; s < KVT_STATE_COUNT; s++) {
        struct kv_port port[PORTS];
        struct kv_transfer x = in_state((enum kv_transfer_state)s, port);
        port[0] = (struct kv_port){ .serial = 17 };
        port[2] = (struct kv_port){ .serial = 19 };
        assert_null(kv_port_of(port, target));
        feed(&x, KVT_ENDED, port);
        assert_int_equal(port[0].sending_pages, 0);
        assert_int_equal(port[2].incoming, 0);
        assert_int_equal(port[2].incoming_pages, 0);
    }
}

/* ---- migrations ---- */

struct stage {
    uint32_t pages, copied; /* pages at the source at the stage's end; pages at the target */
    enum kv_transfer_act act;
    uint32_t left; /* pages to copy next */
};

static void stages_copy_what_was_added(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        uint32_t pages;
        enum kv_transfer_act first;
        struct stage stage[3];
        uint32_t stages;
    } rows[] = {
        { "little there is stops at once", 16, KVT_STOP, { { 0 } }, 0 },
        { "much is copied, then what was added", 100, KVT_COPY, { { 104, 100, KVT_STOP, 4 } }, 1 },
        { "a source that is quicker than the link ends after three stages",
          100,
          KVT_COPY,
          { { 160, 100, KVT_COPY, 60 }, { 220, 160, KVT_STOP, 60 } },
          2 },
        { "half of a stage came in time", 100, KVT_COPY, { { 104, 50, KVT_COPY, 54 } }, 1 },
        { "nothing came", 100, KVT_COPY, { { 104, 0, KVT_STAY, 0 } }, 1 },
        { "nothing more came",
          100,
          KVT_COPY,
          { { 160, 100, KVT_COPY, 60 }, { 170, 100, KVT_STAY, 0 } },
          2 },
        { "a target that says too much", 100, KVT_COPY, { { 104, 4000, KVT_STOP, 0 } }, 1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kv_transfer x = { 0 };
        kv_transfer_at(&x, source);
        struct kv_transfer_input in = { .to = target,
                                        .pages = rows[i].pages,
                                        .tokens = rows[i].pages * PAGE,
                                        .page_tokens = PAGE };
        if (kv_transfer_on(&x, KVT_MIGRATE, &in) != rows[i].first) fail_msg("%s", rows[i].why);
        for (uint32_t k = 0; k < rows[i].stages; k++) {
            const struct stage *s = &rows[i].stage[k];
            in.pages = s->pages;
            in.copied = s->copied;
            if (kv_transfer_on(&x, KVT_COPIED, &in) != s->act)
                fail_msg("%s: stage %u", rows[i].why, k);
            if (s->act == KVT_STAY) continue;
            uint32_t left = x.wanted - min_u32(x.copied, x.wanted);
            if (left != s->left) fail_msg("%s: %u pages left", rows[i].why, left);
        }
    }
}

/* A request is at exactly one end at any time, and records which. */
static void it_is_at_its_target_from_the_begin_on(void **state)
{
    (void)state;
    struct kv_port port[PORTS];
    struct kv_transfer x = in_state(KVT_ARRIVING, port);
    assert_int_equal(x.from.slot, source.slot);
    feed(&x, KVT_COPIED, port);
    assert_int_equal(x.from.slot, target.slot);
    assert_int_equal(x.from.serial, target.serial);
    assert_int_equal(x.copied, 90);
    x = in_state(KVT_HANDOFF, port);
    feed(&x, KVT_LOST, port);
    assert_int_equal(x.from.slot, target.slot); /* the target computes the prompt itself */
    assert_int_equal(x.copied, 0);
    x = in_state(KVT_PREFILLING, port);
    assert_int_equal(feed(&x, KVT_UNPLACED, port), KVT_BEGIN);
    assert_true(x.from.slot == source.slot && x.to.slot == source.slot && x.copied == 100);
    x = in_state(KVT_COPYING, port);
    feed(&x, KVT_TARGET_GONE, port);
    assert_int_equal(x.from.slot, source.slot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_and_event_has_its_next),
        cmocka_unit_test(what_is_over_holds_no_port),
        cmocka_unit_test(a_new_instance_inherits_nothing),
        cmocka_unit_test(stages_copy_what_was_added),
        cmocka_unit_test(it_is_at_its_target_from_the_begin_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
