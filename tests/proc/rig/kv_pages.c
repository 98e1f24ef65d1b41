/* kv_pages.c - a table of pages that is searched from end to end, and the few forms of MessagePack that the
 * events of vLLM (maps) and SGLang (arrays) are written in. */
#include "tests/proc/rig/kv_pages.h"

#include "base/core/err.h"
#include "base/core/hash.h"
#include "base/core/own.h"

#include <math.h>

/* ---- MessagePack ---- */

static void put_be(struct buf *out, int code, uint64_t value, int bytes)
{
    buf_byte(out, (char)code);
    for (int i = bytes - 1; i >= 0; i--)
        buf_byte(out, (char)(value >> (8 * i)));
}

static void put_u64(struct buf *out, uint64_t v)
{
    put_be(out, 0xcf, v, 8);
}

static void put_nil(struct buf *out)
{
    buf_byte(out, (char)0xc0);
}

static void put_list(struct buf *out, size_t count)
{
    put_be(out, 0xdd, count, 4);
}

static void put_text(struct buf *out, struct str s)
{
    put_be(out, 0xda, s.len, 2);
    buf_str(out, s);
}

/* Names a member, where members have names. */
static void put_key(const struct kv_pages *k, struct buf *out, const char *name)
{
    if (k->form == KV_EVENT_MAPS) put_text(out, str_from(name));
}

static void begin_event(const struct kv_pages *k, struct buf *out, const char *type,
                        uint32_t members)
{
    if (k->form == KV_EVENT_MAPS)
        put_be(out, 0xde, members + 1, 2);
    else
        put_list(out, members + 1);
    put_key(k, out, "type");
    put_text(out, str_from(type));
}

/* One event for `count` pages that follow each other. */
static void put_stored(const struct kv_pages *k, struct buf *out, const uint64_t *hash,
                       uint32_t count, uint64_t parent, const uint32_t *ids, struct str salt)
{
    begin_event(k, out, "BlockStored", k->form == KV_EVENT_MAPS ? 7 : 6);
    put_key(k, out, "block_hashes");
    put_list(out, count);
    for (uint32_t i = 0; i < count; i++)
        put_u64(out, hash[i]);
    put_key(k, out, "parent_block_hash");
    if (parent)
        put_u64(out, parent);
    else
        put_nil(out);
    put_key(k, out, "token_ids");
    put_list(out, (size_t)count * k->page_tokens);
    for (uint32_t i = 0; i < count * k->page_tokens; i++)
        put_u64(out, ids[i]);
    put_key(k, out, "block_size");
    put_u64(out, k->page_tokens);
    put_key(k, out, "lora_id");
    put_nil(out);
    put_key(k, out, "medium");
    put_text(out, STR("GPU"));
    if (k->form == KV_EVENT_ARRAYS) return;
    put_key(k, out, "extra_keys");
    put_list(out, count);
    for (uint32_t i = 0; i < count; i++) {
        bool salted = i == 0 && !parent && salt.len > 0; /* the salt is in the first block's hash */
        if (salted) put_list(out, 1);
        if (salted)
            put_text(out, salt);
        else
            put_nil(out);
    }
}

static void put_removed(const struct kv_pages *k, struct buf *out, uint64_t hash)
{
    begin_event(k, out, "BlockRemoved", 2);
    put_key(k, out, "block_hashes");
    put_list(out, 1);
    put_u64(out, hash);
    put_key(k, out, "medium");
    put_text(out, STR("GPU"));
}

/* Writes [time, events, rank] around events that are written already. */
static void put_batch(struct buf *out, const struct buf *events, uint32_t count)
{
    put_list(out, 3);
    put_be(out, 0xcb, 0x3ff0000000000000, 8); /* 1.0 */
    put_list(out, count);
    buf_str(out, buf_view(events));
    put_u64(out, 0);
}

/* ---- pages ---- */

void kv_pages_init(struct kv_pages *k, uint32_t max, uint32_t page_tokens, enum kv_event_form form)
{
    must(max > 0 && max <= KV_PAGES_MAX && page_tokens > 0);
    *k = (struct kv_pages){ .max = max, .page_tokens = page_tokens, .form = form };
}

static struct kv_page *find(struct kv_pages *k, uint64_t hash)
{
    for (uint32_t i = 0; i < k->count; i++)
        if (k->page[i].hash == hash) return &k->page[i];
    return NULL;
}

/* Makes room for one page among those that this call does not use; returns NULL if there is none. */
static struct kv_page *make_room(struct kv_pages *k, struct buf *events, uint32_t *event_count)
{
    if (k->count < k->max) return &k->page[k->count++];
    struct kv_page *oldest = &k->page[0];
    for (uint32_t i = 1; i < k->count; i++)
        if (k->page[i].used < oldest->used) oldest = &k->page[i];
    if (oldest->used >= k->clock) return NULL;
    put_removed(k, events, oldest->hash);
    ++*event_count;
    return oldest;
}

uint32_t kv_pages_take(struct kv_pages *k, const uint32_t *ids, size_t count, struct str salt,
                       struct buf *out)
{
    CLEANUP(buf_fini) struct buf events = { 0 };
    uint64_t hash[KV_PAGES_MAX], start = salt.len ? hash64(salt.data, salt.len, 1) : 1;
    uint32_t pages = (uint32_t)(count / k->page_tokens), hit = 0, event_count = 0;
    if (pages > k->max) pages = k->max;
    for (uint32_t i = 0; i < pages; i++)
        hash[i] = hash64(ids + (size_t)i * k->page_tokens, k->page_tokens * sizeof *ids,
                         i ? hash[i - 1] : start);
    k->clock += pages + 1;
    for (struct kv_page *p; hit < pages && (p = find(k, hash[hit])); hit++)
        p->used = k->clock + pages - hit; /* the nearer to the start, the later it goes */
    uint32_t kept = hit;
    for (; kept < pages; kept++) {
        struct kv_page *page = make_room(k, &events, &event_count);
        if (!page) break;
        *page = (struct kv_page){ hash[kept], k->clock + pages - kept };
    }
    uint32_t at_once =
        k->form == KV_EVENT_MAPS ? kept - hit : 1; /* SGLang has an event for each page */
    for (uint32_t i = hit; i < kept; i += at_once, event_count++)
        put_stored(k, &events, hash + i, at_once, i ? hash[i - 1] : 0,
                   ids + (size_t)i * k->page_tokens, salt);
    k->clock += pages + 1;
    if (event_count > 0) put_batch(out, &events, event_count);
    return hit * k->page_tokens;
}

void kv_pages_clear(struct kv_pages *k, struct buf *out)
{
    CLEANUP(buf_fini) struct buf events = { 0 };
    k->count = 0;
    begin_event(k, &events, "AllBlocksCleared", 0);
    put_batch(out, &events, 1);
}
