/* quarantine_board.c - a copy under a lock: the table itself stays the decision thread's own. */
#include "router/quarantine_board.h"

#include "base/core/bits.h"
#include "base/core/json.h"

#include <stdio.h>
#include <stdlib.h>

int quarantine_board_init(struct quarantine_board *b)
{
    *b = (struct quarantine_board){ 0 };
    b->item = calloc(QUARANTINE_MAX, sizeof *b->item);
    if (!b->item) return -ENOMEM;
    pthread_mutex_init(&b->lock, NULL);
    return 0;
}

void quarantine_board_fini(struct quarantine_board *b)
{
    if (!b->item) return;
    pthread_mutex_destroy(&b->lock);
    free(b->item);
    b->item = NULL;
}

void quarantine_board_publish(struct quarantine_board *b, const struct quarantine *q,
                              int64_t now_us)
{
    if (quarantine_changes(q) == b->changes) return; /* written by this thread only */
    pthread_mutex_lock(&b->lock);
    b->count = quarantine_list(q, now_us, b->item, QUARANTINE_MAX);
    b->as_of_us = now_us;
    b->changes = quarantine_changes(q);
    pthread_mutex_unlock(&b->lock);
}

uint32_t quarantine_board_orders(struct quarantine_board *b, struct quarantine *q)
{
    uint32_t cleared = 0;
    pthread_mutex_lock(&b->lock);
    for (uint32_t i = 0; i < b->order_count; i++)
        cleared += quarantine_clear(q, b->order[i]);
    b->order_count = 0;
    pthread_mutex_unlock(&b->lock);
    return cleared;
}

int quarantine_board_render(struct quarantine_board *b, int64_t now_us, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_key(&w, "quarantine");
    json_array(&w);
    pthread_mutex_lock(&b->lock);
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
    pthread_mutex_unlock(&b->lock);
    json_array_end(&w);
    json_object_end(&w);
    return out->rc;
}

/* With the lock. Whoever looks next does not find what was just cleared. */
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
    pthread_mutex_lock(&b->lock);
    if (b->order_count < QUARANTINE_ORDERS_MAX) {
        b->order[b->order_count++] = fingerprint;
        drop(b, fingerprint);
        rc = 0;
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}
