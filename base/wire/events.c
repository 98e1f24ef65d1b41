/* events.c - encodes and decodes block events. One struct serves all kinds, and three tables (hello,
 * load, changes of keys) say which members a kind has on the wire. */
#include "base/wire/events.h"

#include "base/core/bits.h"

static const char *const kind_names[EVENT_KIND_COUNT] = { "hello", "snapshot", "add", "drop",
                                                          "load" };

static const struct field hello_rows[] = {
    FIELD_AS("v", struct block_event, kind, FIELD_VERSION),
    FIELD(struct block_event, kind, FIELD_ENUM, .required = true, .names = kind_names,
          .max = EVENT_KIND_COUNT),
    FIELD(struct block_event, seq, FIELD_U64, .required = true),
    FIELD(struct block_event, boot, FIELD_HEX64, .required = true),
    FIELD(struct block_event, block_tokens, FIELD_U32, .required = true, .min = 1, .max = 65536),
    FIELD(struct block_event, page_tokens, FIELD_U32, .required = true, .min = 1, .max = 65536),
    FIELD(struct block_event, digest, FIELD_STR, .max = 128),
    FIELD(struct block_event, salt_check, FIELD_STR, .max = BLOCK_KEY_HEX),
};
static const struct field_set hello_set = FIELD_SET(struct block_event, hello_rows);

static const struct field change_rows[] = {
    FIELD(struct block_event, kind, FIELD_ENUM, .required = true, .names = kind_names,
          .max = EVENT_KIND_COUNT),
    FIELD(struct block_event, seq, FIELD_U64, .required = true),
    FIELD_ARRAY("keys", struct block_event, keys, key_count, FIELD_KEYS, EVENT_KEYS_MAX),
    FIELD(struct block_event, more, FIELD_BOOL),
};
static const struct field_set change_set = FIELD_SET(struct block_event, change_rows);

static const struct field load_rows[] = {
    FIELD(struct block_event, kind, FIELD_ENUM, .required = true, .names = kind_names,
          .max = EVENT_KIND_COUNT),
    FIELD(struct block_event, seq, FIELD_U64, .required = true),
    FIELD(struct block_event, running, FIELD_U32),
    FIELD(struct block_event, waiting, FIELD_U32),
    FIELD(struct block_event, prefill_tokens, FIELD_U64),
    FIELD(struct block_event, kv_tokens, FIELD_U64),
    FIELD(struct block_event, head_pages, FIELD_U32),
    FIELD(struct block_event, uncached_total, FIELD_U64),
};
static const struct field_set load_set = FIELD_SET(struct block_event, load_rows);

static const struct field_set *set_of(enum event_kind kind)
{
    if (kind == EVENT_HELLO) return &hello_set;
    return kind == EVENT_LOAD ? &load_set : &change_set;
}

int block_event_encode(const struct block_event *ev, struct buf *out)
{
    fields_encode(set_of(ev->kind), ev, out);
    return buf_byte(out, '\n');
}

int block_event_decode(struct str line, struct arena *arena, struct block_event *ret,
                       struct err *err)
{
    struct block_event ev;
    int rc = fields_decode(&change_set, line, arena, &ev, "block event", err);
    if (rc == 0 && set_of(ev.kind) != &change_set)
        rc = fields_decode(set_of(ev.kind), line, arena, &ev, "block event", err);
    if (rc < 0) return rc;
    if (ev.kind == EVENT_HELLO && ev.page_tokens % ev.block_tokens != 0)
        return err_set(err, -EINVAL,
                       "block event: a page of %u tokens is no whole number of blocks",
                       ev.page_tokens);
    *ret = ev;
    return 0;
}
