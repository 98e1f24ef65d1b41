/* kv_prefix.c - the device's side of a KV transfer: finds pages, copies them out, takes them in.
 *
 * Copying is all that is done between two steps: 8 MiB are some milliseconds, about a step. The
 * bytes travel on the loop's thread.
 *
 * A page that comes in is handled as a session's: taken from the index, filled, named, released
 * from the tail on. The prefix before it is held meanwhile, or taking a page could evict the very
 * one that it stands behind. A page of the same name may be here without being reachable, because
 * one before it was evicted: it is found again, not taken twice.
 */
#include "engine/serve/kv_prefix.h"

#include "base/core/bits.h"
#include "base/core/fault.h"

#include <stdlib.h>

int kv_prefix_init(struct kv_prefix *ret, uint64_t key_seed, struct block_key salt,
                   const uint32_t *ids, uint32_t count, uint32_t page_tokens)
{
    struct kv_prefix p = { .salt = salt, .page_tokens = page_tokens, .pages = count / page_tokens };
    uint32_t tokens = p.pages * page_tokens, keys = tokens / BLOCK_TOKENS;
    *ret = (struct kv_prefix){ 0 };
    if (p.pages > 0 && !FAULT("kv_prefix.init")) {
        p.ids = calloc(tokens, sizeof *p.ids);
        p.keys = calloc(keys, sizeof *p.keys);
        p.found = calloc(p.pages, sizeof *p.found);
    }
    if (p.pages > 0 && (!p.ids || !p.keys || !p.found)) {
        kv_prefix_fini(&p);
        return -ENOMEM;
    }
    if (p.pages > 0) memcpy(p.ids, ids, tokens * sizeof *ids);
    block_keys(key_seed, salt, ids, tokens, p.keys, keys);
    *ret = p;
    return 0;
}

void kv_prefix_fini(struct kv_prefix *p)
{
    free(p->ids);
    free(p->keys);
    free(p->found);
    *p = (struct kv_prefix){ 0 };
}

static struct block_key *keys_of(const struct kv_prefix *p, uint32_t page)
{
    return p->keys + (size_t)page * (p->page_tokens / BLOCK_TOKENS);
}

static uint32_t *ids_of(const struct kv_prefix *p, uint32_t page)
{
    return p->ids + (size_t)page * p->page_tokens;
}

static struct block_key parent_of(const struct kv_prefix *p, uint32_t page)
{
    return page > 0 ? keys_of(p, page)[-1] : p->salt;
}

/* At most `pages_max` are looked at; their numbers are in p->found. */
static uint32_t look(struct executor *x, struct kv_prefix *p, uint32_t pages_max)
{
    if (p->pages == 0) return 0;
    const struct kv_index *index = sched_index(executor_sched(x));
    return kv_index_match(index, p->salt, p->keys, p->ids, min_u32(p->pages, pages_max), p->found);
}

uint32_t kv_prefix_here(struct executor *x, struct kv_prefix *p)
{
    return look(x, p, p->pages);
}

int kv_prefix_read(struct executor *x, struct kv_prefix *p, uint32_t from, size_t bytes_max,
                   struct buf *out)
{
    const struct kv_store *kv = executor_kv(x);
    size_t page_bytes = kv_page_bytes(kv_store_layout(kv));
    uint32_t most = max_u32(1, (uint32_t)(bytes_max / page_bytes));
    if (from >= p->pages) return 0;
    uint32_t upto = look(x, p, from + min_u32(most, p->pages - from));
    if (upto <= from) return 0;
    if (FAULT("kv_serve.read") || buf_reserve(out, (upto - from) * page_bytes) < 0) return -ENOMEM;
    for (uint32_t i = from; i < upto; i++)
        buf_append(out, kv_store_page(kv, p->found[i]), page_bytes);
    return (int)(upto - from);
}

/* Page `at` of the prefix, filled, named and held; false: there is no room for it. */
static bool adopt_one(struct executor *x, struct kv_prefix *p, uint32_t at, const char *bytes)
{
    struct kv_index *index = sched_index(executor_sched(x));
    uint32_t page = kv_index_take(index);
    if (page == KV_PAGE_NONE) return false;
    kv_store_write_page(executor_kv(x), page, bytes);
    kv_index_seal(index, page, at, parent_of(p, at), keys_of(p, at), ids_of(p, at));
    if (!index->pool->indexed[page]) { /* no memory for the name, or another page has it */
        kv_index_release(index, page);
        return false;
    }
    p->found[at] = page;
    return true;
}

struct kv_adopted kv_prefix_adopt(struct executor *x, struct kv_prefix *p, uint32_t from,
                                  const char *bytes, uint32_t count)
{
    struct kv_index *index = sched_index(executor_sched(x));
    size_t page_bytes = kv_page_bytes(kv_store_layout(executor_kv(x)));
    struct kv_adopted ret = { .here = look(x, p, p->pages) };
    if (ret.here < from) return ret; /* evicted meanwhile: nothing can stand behind a gap */
    uint32_t held = 0, upto = min_u32(from + count, p->pages);
    for (; held < ret.here; held++)
        kv_index_hold(index, p->found[held]);
    for (; held < upto; held++) {
        bool found = kv_index_match(index, parent_of(p, held), keys_of(p, held), ids_of(p, held), 1,
                                    &p->found[held]) == 1;
        if (found) {
            kv_index_hold(index, p->found[held]);
            continue;
        }
        if (!adopt_one(x, p, held, bytes + (held - from) * page_bytes)) break;
        ret.came++;
    }
    ret.here = held;
    while (held > 0)
        kv_index_release(index, p->found[--held]);
    return ret;
}
