/* t_kv_store.c - tests that all memory of a KV store becomes resident, beside its use, and goes when it is dropped. */
#include "base/core/bits.h"
#include "engine/model/arch.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_TOKENS 1024
#define STORE_BYTES ((size_t)300 << 20) /* more than is resident at once */

static struct model *model;

static int setup(void **state)
{
    int rc = model_folder_make(state);
    folder_llama("a.gguf", WEIGHT_F32, false, 1);
    return rc < 0 ? rc : model_load(folder_at("a.gguf"), NULL, &model, NULL);
}

static int teardown(void **state)
{
    model_free(model);
    return model_folder_remove(state);
}

static struct kv_store *store_of(size_t bytes)
{
    struct kv_store *kv = NULL;
    struct err err = { { 0 } };
    size_t page = model_info(model)->kv_bytes_per_token * PAGE_TOKENS;
    if (kv_store_new(model, (uint32_t)(bytes / page), PAGE_TOKENS, &kv, &err) < 0)
        fail_msg("%s", err.text);
    return kv;
}

static size_t resident_bytes(const struct kv_store *kv)
{
    size_t page = (size_t)sysconf(_SC_PAGE_SIZE), bytes = kv->page_bytes * kv->pages, count = 0;
    size_t pages = (bytes + page - 1) / page;
    unsigned char *there = malloc(pages);
    must(there && mincore(kv->memory, bytes, there) == 0);
    for (size_t i = 0; i < pages; i++)
        count += there[i] & 1;
    free(there);
    return count * page;
}

/* Pages are written and read while the memory becomes resident; nothing of them is lost. */
static void all_of_it_becomes_resident_beside_its_use(void **state)
{
    (void)state;
    CLEANUP(kv_store_freep) struct kv_store *kv = store_of(STORE_BYTES);
    const size_t bytes = kv->page_bytes * kv->pages;
    char *page = malloc(kv->page_bytes);
    must(page);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t p = round; p < kv->pages; p += 97) {
            memset(page, (int)(p % 251 + 1), kv->page_bytes);
            kv_store_write_page(kv, p, page);
        }
    }
    while (resident_bytes(kv) < bytes)
        usleep(1000);
    for (uint32_t p = 0; p < kv->pages; p++) {
        const char *at = kv_store_page(kv, p);
        char wanted = p % 97 < 3 ? (char)(p % 251 + 1) : 0;
        assert_true(at[0] == wanted && at[kv->page_bytes - 1] == wanted);
    }
    kv_store_drop(kv);
    assert_int_equal(resident_bytes(kv), 0);
    assert_int_equal(kv_store_page(kv, 0)[0], 0);
    free(page);
}

static void it_may_end_or_be_dropped_at_once(void **state)
{
    (void)state;
    kv_store_free(store_of(STORE_BYTES));
    CLEANUP(kv_store_freep) struct kv_store *kv = store_of(STORE_BYTES);
    kv_store_drop(kv);
    assert_int_equal(resident_bytes(kv), 0);
    CLEANUP(kv_store_freep) struct kv_store *small = store_of((size_t)1 << 20);
    assert_int_equal(resident_bytes(small), small->page_bytes * small->pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_it_becomes_resident_beside_its_use),
        cmocka_unit_test(it_may_end_or_be_dropped_at_once),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
