/* quarantine_board.c - publishes a copy of the quarantine under a lock; the table itself stays with the
 * decision thread. */
#include "router/quarantine_board.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/log.h"
#include "router/decide.h"

#include <stdio.h>
#include <stdlib.h>

int quarantine_board_init(struct quarantine_board *b)
{
    *b = (struct quarantine_board){ 0 };
    b->item = calloc(QUARANTINE_MAX, sizeof *b->item);
    if (!b->item) return -ENOMEM;
    lock_init(&b->lock);
    return 0;
}

void quarantine_board_fini(struct quarantine_board *b)
{
    if (!b->item) return;
    lock_fini(&b->lock);
    free(b->item);
    b->item = NULL;
}

void quarantine_board_publish(struct quarantine_board *b, const struct quarantine *q,
                              int64_t now_us)
{
    if (quarantine_changes(q) == b->changes) return; /* written by this thread only */
    lock_take(&b->lock);
    b->count = quarantine_list(q, now_us, b->item, QUARANTINE_MAX);
    b->as_of_us = now_us;
    b->changes = quarantine_changes(q);
    lock_drop(&b->lock);
}

uint32_t quarantine_board_orders(struct quarantine_board *b, struct quarantine *q)
{
    uint32_t cleared = 0;
    lock_take(&b->lock);
    for (uint32_t i = 0; i < b->order_count; i++)
        cleared += quarantine_clear(q, b->order[i]);
    b->order_count = 0;
    lock_drop(&b->lock);
    return cleared;
}

int quarantine_board_render(struct quarantine_board *b, int64_t now_us, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_key(&w, "quarantine");
    json_array(&w);
    lock_take(&b->lock);
    for (uint32_t i = 0; i < b->count; i++) {
        const struct quarantine_item *item = &b->item[i];
        int64_t left_us = item->left_us - (now_us - b->as_of_us);
        char name[17];
        if (left_us <= 0) continue;
        snprintf(name, sizeof name, "%016llx", (unsigned long long)item->fingerprint);
        json_object(&w);
        json_kv_text(&w, "fingerprint", name);
        json_kv_text(&w, "state", item->told ? "told" : item->refused ? "refused" : "suspect");
        json_kv_u64(&w, "engines", item->blames);
        json_kv_u64(&w, "proven", item->proven);
        json_kv_u64(&w, "refusals", item->refusals);
        json_kv_f64(&w, "left_s", (double)left_us * 1e-6);
        json_object_end(&w);
    }
    lock_drop(&b->lock);
    json_array_end(&w);
    json_object_end(&w);
    return out->rc;
}

/* Drops cleared fingerprints from the copy too, so that the next reader does not see them. The caller has
 * the lock. */
static void drop(struct quarantine_board *b, uint64_t fingerprint)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->count; i++)
        if (fingerprint != 0 && b->item[i].fingerprint != fingerprint) b->item[kept++] = b->item[i];
    b->count = kept;
}

int quarantine_board_ask(struct quarantine_board *b, uint64_t fingerprint)
{
    int rc = -EAGAIN;
    lock_take(&b->lock);
    if (b->order_count < QUARANTINE_ORDERS_MAX) {
        b->order[b->order_count++] = fingerprint;
        drop(b, fingerprint);
        rc = 0;
    }
    lock_drop(&b->lock);
    return rc;
}

/* ---- on the decision thread ---- */

void decide_quarantine_tell(struct decide *d)
{
    const struct quarantine *q = dispatch_quarantine(d->dispatch);
    struct quarantine_counts now, *told = &d->quarantine_told;
    int64_t now_us = loop_now_us(d->loop);
    quarantine_counts_get(q, now_us, &now);
    const struct str refused = STR("refused"), suspect = STR("suspect");
    metric_set(metric_series(d->metrics, RM_QUARANTINED, &refused), now.refused_now);
    metric_set(metric_series(d->metrics, RM_QUARANTINED, &suspect), now.suspects);
    metric_add(metric_of(d->metrics, RM_QUARANTINE_REFUSED),
               (double)(now.refusals - told->refusals));
    metric_add(metric_of(d->metrics, RM_QUARANTINE_FORGOTTEN),
               (double)(now.forgotten - told->forgotten));
    if (now.caught > told->caught) {
        log_event(LOG_WARN, "prompts_quarantined", "new=%lu now=%u",
                  (unsigned long)(now.caught - told->caught), now.refused_now);
    }
    *told = now;
    quarantine_board_publish(&d->quarantine, q, now_us);
}

static void clear_from_ask(void *arg)
{
    struct decide *d = arg;
    uint32_t cleared = quarantine_board_orders(&d->quarantine, dispatch_quarantine(d->dispatch));
    log_event(LOG_INFO, "quarantine_cleared", "prompts=%u", cleared);
    d->quarantine_cleared = true;
    decide_quarantine_tell(d);
    decide_held_again(d);
}

int decide_quarantine_clear(struct decide *d, uint64_t fingerprint)
{
    int rc = quarantine_board_ask(&d->quarantine, fingerprint);
    return rc < 0 ? rc : loop_post(d->loop, clear_from_ask, d);
}

uint32_t decide_quarantine_list(struct decide *d, struct refused_prompt *ret)
{
    struct quarantine_item item[QUARANTINE_MAX];
    uint32_t items = quarantine_list(dispatch_quarantine(d->dispatch), loop_now_us(d->loop), item,
                                     QUARANTINE_MAX);
    uint32_t count = 0;
    for (uint32_t i = 0; i < items && count < SYNC_REFUSED_MAX; i++) {
        if (!item[i].refused || item[i].told) continue;
        ret[count++] =
            (struct refused_prompt){ item[i].fingerprint, (uint32_t)(item[i].left_us / 1000) };
    }
    return count;
}

void decide_quarantine_told(struct decide *d, const struct router_rules *rules)
{
    struct quarantine_item item[SYNC_ELSEWHERE_MAX];
    if (d->quarantine_cleared) return; /* the reply may be older than that */
    for (uint32_t i = 0; i < rules->refused_count; i++)
        item[i] = (struct quarantine_item){ .fingerprint = rules->refused[i].fingerprint,
                                            .left_us = rules->refused[i].left_ms * INT64_C(1000) };
    quarantine_told(dispatch_quarantine(d->dispatch), item, rules->refused_count,
                    loop_now_us(d->loop));
    decide_quarantine_tell(d);
}
