/* sched_new.c - a scheduler from its configuration: what is refused, the memory of rows and batch. */
#include "base/core/bits.h"
#include "engine/core/sched_part.h"

#include <stdlib.h>

#define WAITING_SHOWN_MAX 256    /* to the chunk row */
#define OUTPUT_PRIOR_TOKENS 64.0 /* mean answer before any was seen */

static int config_check(const struct sched_config *c, struct err *err)
{
    if (c->page_tokens == 0 || c->page_tokens % BLOCK_TOKENS ||
        c->page_tokens > KV_INDEX_TOKENS_MAX) {
        return err_set(err, -EINVAL, "page size %u tokens: must be a multiple of %d up to %d",
                       c->page_tokens, BLOCK_TOKENS, KV_INDEX_TOKENS_MAX);
    }
    if (c->seqs_max == 0 || c->waiting_max == 0 || c->context_max < 2 || c->events_max == 0) {
        return err_set(err, -EINVAL, "a scheduler needs room for at least one session of 2 tokens");
    }
    if (c->batch_tokens_max < c->seqs_max) {
        return err_set(err, -EINVAL,
                       "%u batched tokens a step are fewer than %u sessions: each needs one",
                       c->batch_tokens_max, c->seqs_max);
    }
    if ((uint64_t)c->pages * c->page_tokens < c->context_max) {
        return err_set(err, -EINVAL,
                       "%u pages of %u tokens cannot hold one context of %u tokens: give the KV "
                       "cache more memory or shorten the context",
                       c->pages, c->page_tokens, c->context_max);
    }
    if (c->swap_pages > KV_PAGES_MAX) {
        return err_set(err, -EINVAL, "a swap space of %u pages; at most %u", c->swap_pages,
                       KV_PAGES_MAX);
    }
    return 0;
}

static void *state_of(uint32_t bytes)
{
    return calloc(1, bytes ? bytes : 1);
}

static int new_rows(struct scheduler *s)
{
    s->fair_state = state_of(s->rows.fair->state_size);
    s->order_state = state_of(s->rows.order->state_size);
    s->admit_state = state_of(s->rows.admit->state_size);
    s->tenant_count = s->rows.fair->pick ? FAIR_TENANTS_MAX : 1;
    s->tenant = calloc(s->tenant_count, sizeof *s->tenant);
    s->watched = s->rows.fair->observe || s->rows.order->observe || s->rows.admit->observe;
    return s->fair_state && s->order_state && s->admit_state && s->tenant ? 0 : -ENOMEM;
}

/* A row that aims needs both promises; without them it does as rows that do not. */
static int new_promises(struct scheduler *s)
{
    const struct sched_config *c = &s->config;
    if (!s->rows.chunk->aim || c->ttft_s_max <= 0 || c->step_s_max <= 0) return 0;
    s->promises_max = c->seqs_max + min_u32(c->waiting_max, WAITING_SHOWN_MAX);
    s->promise = calloc(s->promises_max, sizeof *s->promise);
    return s->promise ? 0 : -ENOMEM;
}

static int new_batch(struct scheduler *s)
{
    const struct sched_config *c = &s->config;
    s->moves_max = c->seqs_max + c->pages + (c->swap_pages ? c->pages : 0);
    if (!c->swap_pages) s->moves_max = c->seqs_max * 2;
    s->batch.item = calloc(c->seqs_max, sizeof *s->batch.item);
    s->batch.move = calloc(s->moves_max, sizeof *s->batch.move);
    s->match = calloc(sched_pages_for(s, c->context_max), sizeof *s->match);
    s->swap_free = calloc((size_t)c->swap_pages + 1, sizeof *s->swap_free);
    if (!s->batch.item || !s->batch.move || !s->match || !s->swap_free) return -ENOMEM;
    for (uint32_t i = c->swap_pages; i-- > 0;)
        s->swap_free[s->swap_free_count++] = i;
    return 0;
}

int sched_new(const struct sched_config *config, struct scheduler **ret, struct err *err)
{
    int rc = config_check(config, err);
    if (rc < 0) return rc;
    CLEANUP(sched_freep) struct scheduler *s = calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    struct list *lists[] = { &s->waiting,  &s->parked,   &s->running, &s->ended,
                             &s->unranked, &s->aborting, &s->probing };
    for (size_t i = 0; i < COUNT_OF(lists); i++)
        list_init(lists[i]);
    s->config = *config;
    s->rows = config->rows;
    preset_fill(config->preset, &s->rows);
    if (s->config.swap_pages == 0 && config->preset) {
        double pages = config->preset->swap_ratio * (double)config->pages;
        s->config.swap_pages = pages < KV_PAGES_MAX ? (uint32_t)pages : KV_PAGES_MAX;
    }
    s->output_mean = OUTPUT_PRIOR_TOKENS;
    s->ranked_batch = -1;
    heap_init(&s->due, (size_t)config->waiting_max + config->seqs_max);
    heap_init(&s->again, (size_t)config->waiting_max + config->seqs_max);
    if (new_rows(s) < 0 || new_promises(s) < 0 || new_batch(s) < 0) return -ENOMEM;
    rc = kv_pool_init(&s->pool, config->pages);
    if (rc < 0) return err_set(err, rc, "KV pool of %u pages", config->pages);
    rc = kv_index_init(&s->index, &s->pool, config->page_tokens, s->rows.evict, config->events_max);
    if (rc < 0) return err_set(err, rc, "index of %u KV pages", config->pages);
    *ret = TAKE(s);
    return 0;
}

static void free_all(struct list *head)
{
    for (struct list *node; (node = list_pop_front(head));)
        session_free(SESSION_OF(node));
}

void sched_free(struct scheduler *s)
{
    if (!s) return;
    heap_fini(&s->due); /* before the sessions, in which their nodes lie */
    heap_fini(&s->again);
    free_all(&s->waiting);
    free_all(&s->parked);
    free_all(&s->running);
    free_all(&s->ended);
    kv_index_fini(&s->index);
    kv_pool_fini(&s->pool);
    for (uint32_t i = 0; s->tenant && i < s->tenant_count; i++)
        wait_queue_fini(&s->tenant[i].queue);
    free(s->tenant);
    free(s->fair_state);
    free(s->order_state);
    free(s->admit_state);
    free(s->promise);
    free(s->batch.item);
    free(s->batch.move);
    free(s->match);
    free(s->swap_free);
    free(s);
}
