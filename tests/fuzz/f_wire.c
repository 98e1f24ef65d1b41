/* f_wire.c - reads any text as a message between our processes; the first byte selects which. A message
 * that a decoder accepts can be encoded, and what it encodes to decodes and encodes the same again. */
#include "base/core/own.h"
#include "base/wire/events.h"
#include "base/wire/generate.h"
#include "base/wire/sync.h"
#include "tests/fuzz/fuzz.h"

#define ARENA_BYTES ((size_t)1 << 20)

#define GO_ROUND(name, type)                                                     \
    static void name##_round(struct str text, struct arena *arena)               \
    {                                                                            \
        CLEANUP(buf_fini) struct buf first = { 0 };                              \
        CLEANUP(buf_fini) struct buf second = { 0 };                             \
        struct type m;                                                           \
        if (name##_decode(text, arena, &m, NULL) < 0) return;                    \
        must(name##_encode(&m, &first) == 0);                                    \
        if (name##_decode(buf_view(&first), arena, &m, NULL) == -ENOMEM) return; \
        must(name##_encode(&m, &second) == 0);                                   \
        must(str_eq(buf_view(&first), buf_view(&second)));                       \
    }
GO_ROUND(generate, generate_request)
GO_ROUND(generate_frame, generate_frame)
GO_ROUND(block_event, block_event)
GO_ROUND(engine_report, engine_report)
GO_ROUND(agent_report, agent_report)
GO_ROUND(agent_reply, agent_reply)
GO_ROUND(engine_clock, engine_clock)
GO_ROUND(router_sync, router_sync)
GO_ROUND(router_rules, router_rules)

const struct fuzz_cost fuzz_cost = { 100000, 200 };

void fuzz_one(const uint8_t *data, size_t len)
{
    static void (*const rounds[])(struct str, struct arena *) = {
        generate_round,      generate_frame_round, block_event_round,
        engine_report_round, agent_report_round,   agent_reply_round,
        router_sync_round,   router_rules_round,   engine_clock_round,
    };
    if (len == 0 || data[0] < '0' || data[0] > '8') return;
    CLEANUP(arena_fini) struct arena arena = { 0 };
    arena_init(&arena, ARENA_BYTES);
    rounds[data[0] - '0'](str_of(data + 1, len - 1), &arena);
}
