/* session.c - makes a session in one allocation: the struct, its ids, keys and page table. */
#include "engine/core/session.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const end_names[SESSION_END_COUNT] = {
    [SESSION_END_NONE] = "none",           [SESSION_END_STOP] = "stop",
    [SESSION_END_LENGTH] = "length",       [SESSION_END_ABORT] = "abort",
    [SESSION_END_DEADLINE] = "deadline",   [SESSION_END_ERROR] = "error",
    [SESSION_END_DISPLACED] = "displaced",
};

const char *session_end_name(enum session_end why)
{
    must(why < SESSION_END_COUNT);
    return end_names[why];
}

struct session *session_new(const struct sched_request *req, uint32_t total_max,
                            uint32_t page_tokens)
{
    size_t keys = total_max / BLOCK_TOKENS;
    size_t pages = ceil_div_u32(total_max, page_tokens);
    size_t key_bytes = keys * sizeof(struct block_key);
    size_t bytes = sizeof(struct session) + key_bytes + (pages + total_max) * sizeof(uint32_t);
    /* Sized by a request, so running out of memory is an error to return. */
    if (FAULT("session.new")) return NULL;
    struct session *s = malloc(bytes);
    if (!s) return NULL;
    /* Only the struct is cleared: keys, pages and ids are written before they are read, and room for the
     * longest output is many times what most outputs need. */
    memset(s, 0, sizeof *s);
    s->keys = (struct block_key *)(s + 1);
    s->pages = (uint32_t *)(s->keys + keys);
    s->ids = s->pages + pages;
    memcpy(s->ids, req->ids, req->prompt_tokens * sizeof *s->ids);
    s->id = req->id;
    s->owner = req->owner;
    s->prompt_tokens = s->total = req->prompt_tokens;
    s->total_max = total_max;
    s->salt = req->salt;
    s->arrival_us = req->arrival_us;
    s->deadline_us = req->deadline_us;
    s->predicted_p50 = req->predicted_p50;
    s->predicted_p90 = req->predicted_p90;
    s->imported_tokens = req->imported_tokens;
    s->imported_from = req->imported_from;
    s->score_next = req->score_from;
    s->score_end = req->score_end;
    s->keep_pages = req->keep_pages;
    s->begun = req->begun;
    s->predicted_mean = req->predicted_mean;
    s->has_rank = req->has_rank && isfinite(req->rank); /* a NaN orders nothing */
    s->rank = req->rank;
    s->tenant = req->tenant;
    s->group = req->group;
    s->waiting_us = req->arrival_us;
    return s;
}

void session_free(struct session *s)
{
    free(s);
}

void session_extend_keys(struct session *s, uint64_t seed)
{
    while ((s->key_count + 1) * BLOCK_TOKENS <= s->total) {
        struct block_key parent = s->key_count ? s->keys[s->key_count - 1] : s->salt;
        const uint32_t *ids = s->ids + (size_t)s->key_count * BLOCK_TOKENS;
        s->keys[s->key_count++] = block_key_next(seed, parent, ids);
    }
}

struct block_key session_parent_key(const struct session *s, uint32_t page, uint32_t granules)
{
    return page ? s->keys[(size_t)page * granules - 1] : s->salt;
}
