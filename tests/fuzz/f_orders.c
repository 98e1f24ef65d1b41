/* f_orders.c - reads any bytes as an operator's order to the controller or the routers: it is refused
 * with a sentence, or read in one meaning that survives writing and reading again.
 *
 * The first byte selects the order. An accepted one has each member once, so that another reader
 * of it cannot find another pool, policy or prompt in it. */
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/wire/order.h"
#include "tests/fuzz/fuzz.h"

#define ARENA_BYTES ((size_t)1 << 20)

/* Returns how often the order, a JSON object, has the member. */
static uint32_t times(struct str text, const char *member)
{
    struct json_reader r;
    uint32_t n = 0;
    json_reader_init(&r, text);
    must(json_next(&r) == JSON_OBJECT);
    while (json_next(&r) == JSON_KEY) {
        n += json_key_is(&r, member);
        json_skip(&r);
    }
    must(r.token == JSON_OBJECT_END && json_next(&r) == JSON_END);
    return n;
}

static void as_scale(struct str text, struct arena *arena)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct scale_order a, b;
    struct err err = { 0 };
    int rc = scale_order_decode(text, arena, &a, &err);
    must(rc == 0 || err.text[0]);
    if (rc < 0) return;
    must(a.pool.len > 0 && a.count >= ORDER_BY_POLICY);
    must(times(text, "pool") == 1 && times(text, "count") == 1);
    must(scale_order_encode(&a, &out) == 0);
    must(scale_order_decode(buf_view(&out), arena, &b, &err) == 0);
    must(b.count == a.count && str_eq(a.pool, b.pool));
}

static void as_drain(struct str text, struct arena *arena)
{
    static const char *const members[] = { "instance", "service", "pool", "node", "undo" };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct drain_order a, b;
    struct err err = { 0 };
    int rc = drain_order_decode(text, arena, &a, &err);
    must(rc == 0 || err.text[0]);
    if (rc < 0) return;
    must((a.instance.len > 0) + (a.pool.len > 0) + (a.node.len > 0) == 1);
    must((a.service.len > 0) == (a.pool.len > 0));
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        must(times(text, members[i]) <= 1);
    must(drain_order_encode(&a, &out) == 0);
    must(drain_order_decode(buf_view(&out), arena, &b, &err) == 0);
    must(a.undo == b.undo && str_eq(a.instance, b.instance) && str_eq(a.service, b.service));
    must(str_eq(a.pool, b.pool) && str_eq(a.node, b.node));
}

static void as_route(struct str text, struct arena *arena)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct str a, b;
    struct err err = { 0 };
    int rc = route_order_decode(text, arena, &a, &err);
    must(rc == 0 || err.text[0]);
    if (rc < 0) return;
    must(a.len > 0 && times(text, "policy") == 1);
    must(route_order_encode(a, &out) == 0);
    must(route_order_decode(buf_view(&out), arena, &b, &err) == 0 && str_eq(a, b));
}

static void as_quarantine(struct str text, struct arena *arena)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    uint64_t a, b;
    struct err err = { 0 };
    int rc = quarantine_order_decode(text, arena, &a, &err);
    must(rc == 0 || err.text[0]);
    if (rc < 0) return;
    must(times(text, "fingerprint") == 1);
    must(quarantine_order_encode(a, &out) == 0);
    must(quarantine_order_decode(buf_view(&out), arena, &b, &err) == 0 && a == b);
}

const struct fuzz_cost fuzz_cost = { 20000, 200 };

void fuzz_one(const uint8_t *data, size_t len)
{
    CLEANUP(arena_fini) struct arena arena = { 0 };
    if (len == 0) return;
    struct str text = str_of(data + 1, len - 1);
    arena_init(&arena, ARENA_BYTES);
    if (data[0] == 's') as_scale(text, &arena);
    if (data[0] == 'd') as_drain(text, &arena);
    if (data[0] == 'r') as_route(text, &arena);
    if (data[0] == 'q') as_quarantine(text, &arena);
}
