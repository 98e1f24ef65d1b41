/* kv_pages.h - plays the KV cache of a stand-in: which pages of prompts it holds, and the events of changes.
 *
 * Threads: its owner's
 * Rules:   (1) a page is known by the hash of its tokens and of all before it, and of the salt at the start
 *          (2) at the bound the page goes that was used longest ago; of a prefix the end goes first
 *          (3) only prompts are kept, not what was generated
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/str.h"

#define KV_PAGES_MAX 4096

/* As vLLM or as SGLang writes them. */
enum kv_event_form { KV_EVENT_MAPS, KV_EVENT_ARRAYS };

struct kv_page {
    uint64_t hash, used;
};

struct kv_pages {
    struct kv_page page[KV_PAGES_MAX];
    uint32_t count, max, page_tokens;
    enum kv_event_form form;
    uint64_t clock;
};

void kv_pages_init(struct kv_pages *k, uint32_t max, uint32_t page_tokens, enum kv_event_form form);

/* Takes a prompt in. Returns the tokens of it that were there; appends a batch of events to `out`, or
 * nothing when nothing changed. */
uint32_t kv_pages_take(struct kv_pages *k, const uint32_t *ids, size_t count, struct str salt,
                       struct buf *out);

/* Forgets all, and appends a batch that says so. */
void kv_pages_clear(struct kv_pages *k, struct buf *out);
