/* order.c - reads and writes orders by hand and not by tables: here null has a meaning, and unknown
 * members are refused. */
#include "base/wire/order.h"

#include "base/core/hash.h"
#include "base/core/json.h"

#include <stdio.h>

static int unknown(const struct json_reader *r, const char *members, struct err *err)
{
    return err_set(err, -EINVAL,
                   "the order has no member '" STR_FMT "', or has it twice; known: %s",
                   STR_ARG(r->raw), members);
}

/* Checks that the text ends behind the last member. */
static int finish(struct json_reader *r, struct err *err)
{
    bool whole = r->token == JSON_OBJECT_END && json_next(r) == JSON_END;
    return whole ? 0 : json_fail(r, err, "the order");
}

/* Reads an object that has one member, a text. */
static int read_text(struct str text, const char *member, struct arena *arena, struct str *ret,
                     struct err *err)
{
    struct json_reader r;
    *ret = (struct str){ 0 };
    json_reader_init(&r, text);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the order");
    while (json_next(&r) == JSON_KEY) {
        if (!json_key_is(&r, member) || ret->data) return unknown(&r, member, err);
        json_next(&r);
        if (json_text_arena(&r, arena, ret) < 0) return json_fail(&r, err, member);
    }
    if (finish(&r, err) < 0) return -EINVAL;
    return ret->len > 0 ? 0 : err_set(err, -EINVAL, "want {\"%s\": TEXT}", member);
}

static int write_text(const char *member, struct str text, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_str(&w, member, text);
    json_object_end(&w);
    return out->rc;
}

static int read_count(struct json_reader *r, int64_t *ret, struct err *err)
{
    *ret = ORDER_BY_POLICY;
    if (json_next(r) == JSON_NULL) return 0;
    if (json_i64(r, ret) < 0) return json_fail(r, err, "count");
    return *ret >= 0 ? 0 : err_set(err, -EINVAL, "count: want 0 or more, or null for the policy's");
}

int scale_order_decode(struct str text, struct arena *arena, struct scale_order *ret,
                       struct err *err)
{
    struct json_reader r;
    bool has_count = false;
    *ret = (struct scale_order){ 0 };
    json_reader_init(&r, text);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the order");
    while (json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, "pool") && !ret->pool.data) {
            json_next(&r);
            if (json_text_arena(&r, arena, &ret->pool) < 0) return json_fail(&r, err, "pool");
        } else if (json_key_is(&r, "count") && !has_count) {
            has_count = true;
            int rc = read_count(&r, &ret->count, err);
            if (rc < 0) return rc;
        } else {
            return unknown(&r, "pool, count", err);
        }
    }
    if (finish(&r, err) < 0) return -EINVAL;
    if (ret->pool.len == 0 || !has_count)
        return err_set(err, -EINVAL, "want {\"pool\": NAME, \"count\": NUMBER or null}");
    return 0;
}

int scale_order_encode(const struct scale_order *order, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_str(&w, "pool", order->pool);
    json_key(&w, "count");
    if (order->count == ORDER_BY_POLICY)
        json_put_null(&w);
    else
        json_put_i64(&w, order->count);
    json_object_end(&w);
    return out->rc;
}

static int read_drain_member(struct json_reader *r, struct arena *arena, struct drain_order *ret,
                             bool *has_undo, struct err *err)
{
    const struct {
        const char *name;
        struct str *to;
    } texts[] = { { "instance", &ret->instance },
                  { "service", &ret->service },
                  { "pool", &ret->pool },
                  { "node", &ret->node } };
    if (json_key_is(r, "undo") && !*has_undo) {
        *has_undo = true;
        json_next(r);
        return json_bool(r, &ret->undo) < 0 ? json_fail(r, err, "undo") : 0;
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (!json_key_is(r, texts[i].name) || texts[i].to->data) continue;
        json_next(r);
        if (json_text_arena(r, arena, texts[i].to) < 0) return json_fail(r, err, texts[i].name);
        return 0;
    }
    return unknown(r, "instance, service, pool, node, undo", err);
}

int drain_order_decode(struct str text, struct arena *arena, struct drain_order *ret,
                       struct err *err)
{
    struct json_reader r;
    bool has_undo = false;
    *ret = (struct drain_order){ 0 };
    json_reader_init(&r, text);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the order");
    while (json_next(&r) == JSON_KEY) {
        int rc = read_drain_member(&r, arena, ret, &has_undo, err);
        if (rc < 0) return rc;
    }
    if (finish(&r, err) < 0) return -EINVAL;
    uint32_t named = (ret->instance.len > 0) + (ret->pool.len > 0) + (ret->node.len > 0);
    if (named == 1 && (ret->pool.len > 0) == (ret->service.len > 0)) return 0;
    return err_set(err, -EINVAL,
                   "want one of {\"instance\": ID}, {\"service\": NAME, \"pool\": NAME} and "
                   "{\"node\": NAME}");
}

int drain_order_encode(const struct drain_order *order, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    if (order->instance.len) json_kv_str(&w, "instance", order->instance);
    if (order->service.len) json_kv_str(&w, "service", order->service);
    if (order->pool.len) json_kv_str(&w, "pool", order->pool);
    if (order->node.len) json_kv_str(&w, "node", order->node);
    if (order->undo) json_kv_bool(&w, "undo", true);
    json_object_end(&w);
    return out->rc;
}

int route_order_decode(struct str text, struct arena *arena, struct str *ret, struct err *err)
{
    return read_text(text, "policy", arena, ret, err);
}

int route_order_encode(struct str policy, struct buf *out)
{
    return write_text("policy", policy, out);
}

int order_fingerprint(struct str text, uint64_t *ret)
{
    uint8_t bytes[sizeof *ret];
    uint64_t value = 0;
    *ret = 0;
    if (str_eq(text, STR(ORDER_ALL))) return 0;
    if (hex_to(text, bytes, sizeof bytes) < 0) return -EINVAL;
    for (size_t i = 0; i < sizeof bytes; i++)
        value = value << 8 | bytes[i];
    *ret = value;
    return value != 0 ? 0 : -EINVAL;
}

int quarantine_order_decode(struct str text, struct arena *arena, uint64_t *ret, struct err *err)
{
    struct str name;
    int rc = read_text(text, "fingerprint", arena, &name, err);
    if (rc < 0) return rc;
    if (order_fingerprint(name, ret) == 0) return 0;
    return err_set(err, -EINVAL,
                   "fingerprint: want 16 hexadecimal digits, not all 0, or \"" ORDER_ALL "\"");
}

int quarantine_order_encode(uint64_t fingerprint, struct buf *out)
{
    char name[17] = ORDER_ALL;
    if (fingerprint != 0) snprintf(name, sizeof name, "%016llx", (unsigned long long)fingerprint);
    return write_text("fingerprint", str_from(name), out);
}
