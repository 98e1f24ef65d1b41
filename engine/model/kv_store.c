/* kv_store.c - holds the memory of a KV store's pages in one anonymous mapping, and makes it resident or gives it back.
 *
 * All of it becomes resident at once, not page by page as it is used: a pool that fills up over hours would look like
 * a leak, and a machine that is too small should say so at the start. The first RESIDENT_BYTES are there when the store
 * is; a thread of its own populates the rest, while the engine serves already. Memory that was never written is
 * zero.
 *
 * An elastic store has more pages than memory: whoever hands out pages counts what they take (kv_pool.h), and what is not
 * counted is given back to the system. It has no huge pages, which would be split for that. Reading what was given back
 * takes no memory. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "engine/model/arch.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define RESIDENT_BYTES ((size_t)256 << 20)
#define RESIDENT_PIECE ((size_t)64 << 20) /* the thread looks after each whether it should end */
#define RESIDENT_NICE 10

static const char *const kv_type_names[KV_TYPE_COUNT] = {
    [KV_F16] = "f16", [KV_F32] = "f32", [KV_Q8] = "q8", [KV_Q4] = "q4"
};

const char *kv_type_name(enum kv_type type)
{
    return kv_type_names[type];
}

const char *const kv_dtype_names[] = { "auto", "f16", "f32", "q8", "q4", NULL };

enum kv_type kv_dtype_type(int dtype)
{
    static const enum kv_type types[] = { KV_F16, KV_F16, KV_F32, KV_Q8, KV_Q4 };
    return types[dtype];
}

/* Layers with a window are a part of their own unless aligning the two would waste more than a 16th of a page. */
struct kv_layout kv_layout_of(const struct model *m, uint32_t page_tokens)
{
    const bool encoder = m->info.task != MODEL_GENERATE; /* keeps nothing */
    struct kv_layout l = { .type = m->kv_type,
                           .n_layers = encoder ? 0 : m->info.n_layers,
                           .n_kv_heads = m->info.n_kv_heads,
                           .head_dim = m->info.head_dim,
                           .page_tokens = page_tokens,
                           .latent = m->info.kv_latent };
    const size_t one = kv_page_bytes(&l);
    l.window_layers = encoder ? 0 : m->info.kv_window_layers;
    if (kv_page_bytes(&l) > one + one / 16) l.window_layers = 0;
    return l;
}

/* ---- resident memory ---- */

static size_t bytes_of(const struct kv_store *kv)
{
    return kv->page_bytes * kv->pages;
}

static void *make_resident(void *arg)
{
    struct kv_store *kv = arg;
    size_t bytes = bytes_of(kv);
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), RESIDENT_NICE);
    for (size_t at = RESIDENT_BYTES; at < bytes && !kv->resident_ends; at += RESIDENT_PIECE)
        if (madvise(kv->memory + at, min_size(RESIDENT_PIECE, bytes - at), MADV_POPULATE_WRITE) < 0)
            break; /* what is missing comes when it is written to */
    return NULL;
}

static void end_resident(struct kv_store *kv)
{
    if (!kv->resident_runs) return;
    kv->resident_ends = true;
    (void)pthread_join(kv->resident, NULL);
    kv->resident_runs = false;
}

/* Populates the beginning, and starts the thread for the rest. Returns false where the kernel cannot do that (before
 * Linux 5.14) or has no thread. */
static bool populate(struct kv_store *kv)
{
    size_t bytes = bytes_of(kv);
    (void)madvise(kv->memory, bytes, MADV_HUGEPAGE); /* a hint: all works without it */
    if (madvise(kv->memory, min_size(bytes, RESIDENT_BYTES), MADV_POPULATE_WRITE) < 0) return false;
    if (bytes <= RESIDENT_BYTES) return true;
    kv->resident_runs = pthread_create(&kv->resident, NULL, make_resident, kv) == 0;
    return kv->resident_runs;
}

static int map_pages(struct kv_store *kv, struct err *err)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (kv->elastic ? MAP_NORESERVE : 0);
    size_t bytes;
    void *memory = MAP_FAILED;
    if (mul_fits(kv->page_bytes, kv->pages, &bytes) && !FAULT("kv_store.map"))
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory != MAP_FAILED) {
        kv->memory = memory;
        if (kv->elastic) (void)madvise(memory, bytes, MADV_NOHUGEPAGE);
        if (kv->elastic || populate(kv)) return 0;
        memory =
            mmap(memory, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED | MAP_POPULATE, -1, 0);
    }
    if (memory != MAP_FAILED) return 0;
    return err_set(err, -ENOMEM, "no memory for %u KV pages of %zu bytes", kv->pages,
                   kv->page_bytes);
}

static int store_new(const struct model *m, uint32_t pages, uint32_t page_tokens, bool elastic,
                     struct kv_store **ret, struct err *err)
{
    if (page_tokens == 0 || page_tokens % KV_PAGE_GRANULE != 0 || page_tokens > KV_PAGE_TOKENS_MAX)
        return err_set(err, -EINVAL, "pages of %u tokens; multiples of %d up to %d are possible",
                       page_tokens, KV_PAGE_GRANULE, KV_PAGE_TOKENS_MAX);
    if (pages == 0) return err_set(err, -EINVAL, "a KV store needs at least one page");
    CLEANUP(kv_store_freep) struct kv_store *kv = calloc(1, sizeof *kv);
    if (!kv) return err_set(err, -ENOMEM, "no memory for a KV store");
    kv->layout = kv_layout_of(m, page_tokens);
    kv->page_bytes = kv_page_bytes(&kv->layout);
    kv->pages = pages;
    kv->elastic = elastic;
    /* An encoder's pages have no bytes: they only count what is at work. */
    int rc = kv->page_bytes > 0 ? map_pages(kv, err) : 0;
    if (rc == 0) *ret = TAKE(kv);
    return rc;
}

int kv_store_new(const struct model *m, uint32_t pages, uint32_t page_tokens, struct kv_store **ret,
                 struct err *err)
{
    return store_new(m, pages, page_tokens, false, ret, err);
}

int kv_store_new_elastic(const struct model *m, uint32_t pages, uint32_t page_tokens,
                         struct kv_store **ret, struct err *err)
{
    return store_new(m, pages, page_tokens, true, ret, err);
}

void kv_store_free(struct kv_store *kv)
{
    if (!kv) return;
    end_resident(kv);
    if (kv->memory) munmap(kv->memory, bytes_of(kv));
    free(kv);
}

void kv_store_drop(struct kv_store *kv)
{
    end_resident(kv);
    must(!kv->memory || madvise(kv->memory, bytes_of(kv), MADV_DONTNEED) == 0);
}

void kv_store_discard(struct kv_store *kv, uint32_t page, bool whole)
{
    must(kv->elastic && page < kv->pages && kv->layout.window_layers > 0);
    const size_t from = whole ? 0 : kv_full_bytes(&kv->layout);
    must(madvise(kv->memory + page * kv->page_bytes + from, kv->page_bytes - from, MADV_DONTNEED) ==
         0);
}

/* ---- pages ---- */

static void copy(struct kv_store *dst, uint32_t to, const struct kv_store *src, uint32_t from,
                 size_t bytes)
{
    must(to < dst->pages && from < src->pages && (dst != src || to != from));
    must(dst->page_bytes == src->page_bytes);
    memcpy(dst->memory + to * dst->page_bytes, src->memory + from * src->page_bytes, bytes);
}

void kv_store_copy_page(struct kv_store *dst, uint32_t to, const struct kv_store *src,
                        uint32_t from)
{
    copy(dst, to, src, from, dst->page_bytes);
}

void kv_store_copy_full(struct kv_store *dst, uint32_t to, const struct kv_store *src,
                        uint32_t from)
{
    copy(dst, to, src, from, kv_full_bytes(&dst->layout));
}

const struct kv_layout *kv_store_layout(const struct kv_store *kv)
{
    return &kv->layout;
}

const char *kv_store_page(const struct kv_store *kv, uint32_t page)
{
    must(page < kv->pages);
    return kv->memory + page * kv->page_bytes;
}

static void write_part(struct kv_store *kv, uint32_t page, size_t from, size_t upto,
                       const char *bytes)
{
    must(page < kv->pages);
    memcpy(kv->memory + page * kv->page_bytes + from, bytes, upto - from);
}

void kv_store_write_page(struct kv_store *kv, uint32_t page, const void *bytes)
{
    write_part(kv, page, 0, kv->page_bytes, bytes);
}

void kv_store_write_full(struct kv_store *kv, uint32_t page, const void *bytes)
{
    write_part(kv, page, 0, kv_full_bytes(&kv->layout), bytes);
}

void kv_store_write_window(struct kv_store *kv, uint32_t page, const void *bytes)
{
    write_part(kv, page, kv_full_bytes(&kv->layout), kv->page_bytes, bytes);
}
