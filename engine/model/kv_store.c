/* kv_store.c - the memory of all pages, and the names of storage types.
 *
 * One anonymous mapping: pages that were never used cost no memory, and what was never written
 * is zero. */
#include "base/core/fault.h"
#include "engine/model/arch.h"

#include <stdlib.h>
#include <sys/mman.h>

static const char *const kv_type_names[KV_TYPE_COUNT] = { [KV_F16] = "f16", [KV_F32] = "f32" };

const char *kv_type_name(enum kv_type type)
{
    return kv_type_names[type];
}

int kv_store_new(const struct model *m, uint32_t pages, uint32_t page_tokens, struct kv_store **ret,
                 struct err *err)
{
    if (page_tokens == 0 || page_tokens % KV_PAGE_GRANULE != 0 || page_tokens > KV_PAGE_TOKENS_MAX)
        return err_set(err, -EINVAL, "pages of %u tokens; multiples of %d up to %d are possible",
                       page_tokens, KV_PAGE_GRANULE, KV_PAGE_TOKENS_MAX);
    if (pages == 0) return err_set(err, -EINVAL, "a KV store needs at least one page");
    CLEANUP(kv_store_freep) struct kv_store *kv = calloc(1, sizeof *kv);
    if (!kv) return err_set(err, -ENOMEM, "no memory for a KV store");
    kv->layout = (struct kv_layout){ .type = m->kv_type,
                                     .n_layers = m->info.n_layers,
                                     .n_kv_heads = m->info.n_kv_heads,
                                     .head_dim = m->info.head_dim,
                                     .page_tokens = page_tokens };
    kv->page_bytes = kv_page_bytes(&kv->layout);
    must(kv->page_bytes == m->info.kv_bytes_per_token * page_tokens); /* pools are sized by that */
    kv->pages = pages;
    size_t bytes;
    void *memory = MAP_FAILED;
    /* Resident from the start: a pool that fills up later would look like a leak for hours, and a
     * machine that is too small should say so now. */
    if (mul_fits(kv->page_bytes, pages, &bytes) && !FAULT("kv_store.map"))
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        return err_set(err, -ENOMEM, "no memory for %u KV pages of %zu bytes", pages,
                       kv->page_bytes);
    kv->memory = memory;
    *ret = TAKE(kv);
    return 0;
}

void kv_store_free(struct kv_store *kv)
{
    if (!kv) return;
    if (kv->memory) munmap(kv->memory, kv->page_bytes * kv->pages);
    free(kv);
}

void kv_store_copy_page(struct kv_store *dst, uint32_t to, const struct kv_store *src,
                        uint32_t from)
{
    must(to < dst->pages && from < src->pages && (dst != src || to != from));
    must(dst->page_bytes == src->page_bytes);
    memcpy(dst->memory + to * dst->page_bytes, src->memory + from * src->page_bytes,
           dst->page_bytes);
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

void kv_store_write_page(struct kv_store *kv, uint32_t page, const void *bytes)
{
    must(page < kv->pages);
    memcpy(kv->memory + page * kv->page_bytes, bytes, kv->page_bytes);
}
