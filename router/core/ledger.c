/* ledger.c - lists of requests in flight by endpoint, and the work they still owe.
 *
 * Sums are kept as entries change, so a view costs no walk except where slots are full and the
 * next free one has to be foretold.
 */
#include "router/core/ledger.h"

#include "base/core/bits.h"
#include "base/core/pool.h"

#include <stdlib.h>

#define SEQS_FORETOLD_MAX 256 /* running sequences looked at for the next free slot */

struct account {
    struct list entries;
    uint32_t in_flight, decoding;
    uint64_t kv_tokens;
    uint64_t prefill_tokens; /* of entries without a first token */
    int64_t last_first_us; /* when the last first token came: the head began then at the earliest */
};

struct ledger {
    struct pool entries;
    struct account account[ROUTE_INSTANCES_MAX];
};

int ledger_new(uint32_t requests_max, struct ledger **ret, struct err *err)
{
    struct ledger *l = calloc(1, sizeof *l);
    if (!l || pool_init(&l->entries, sizeof(struct ledger_entry), requests_max) < 0) {
        free(l);
        return err_set(err, -ENOMEM, "ledger: no memory for %u requests", requests_max);
    }
    for (uint32_t i = 0; i < ROUTE_INSTANCES_MAX; i++)
        list_init(&l->account[i].entries);
    *ret = l;
    return 0;
}

void ledger_free(struct ledger *l)
{
    if (!l) return;
    pool_fini(&l->entries);
    free(l);
}

static uint32_t uncached(const struct ledger_entry *e)
{
    return e->prompt_tokens - e->hit_tokens;
}

struct ledger_entry *ledger_send(struct ledger *l, uint32_t slot, uint32_t prompt_tokens,
                                 uint32_t hit_tokens, double output_expected, int64_t now_us)
{
    must(slot < ROUTE_INSTANCES_MAX && hit_tokens < prompt_tokens);
    struct ledger_entry *e = pool_take(&l->entries);
    if (!e) return NULL;
    *e = (struct ledger_entry){ .slot = slot,
                                .prompt_tokens = prompt_tokens,
                                .hit_tokens = hit_tokens,
                                .output_expected = output_expected,
                                .sent_us = now_us };
    struct account *a = &l->account[slot];
    list_push_back(&a->entries, &e->link);
    a->in_flight++;
    a->prefill_tokens += uncached(e);
    return e;
}

void ledger_tokens(struct ledger *l, struct ledger_entry *e, uint32_t count, int64_t now_us)
{
    struct account *a = &l->account[e->slot];
    if (e->first_us == 0) {
        e->first_us = max_i64(now_us, 1);
        a->last_first_us = now_us;
        a->prefill_tokens -= uncached(e);
        a->kv_tokens += e->prompt_tokens;
        a->decoding++;
    }
    e->generated += count;
    a->kv_tokens += count;
}

void ledger_end(struct ledger *l, struct ledger_entry *e)
{
    struct account *a = &l->account[e->slot];
    if (e->first_us == 0) {
        a->prefill_tokens -= uncached(e);
    } else {
        a->kv_tokens -= (uint64_t)e->prompt_tokens + e->generated;
        a->decoding--;
    }
    a->in_flight--;
    list_remove(&e->link);
    pool_give(&l->entries, e);
}

/* Tokens of the oldest unanswered prompt that should be computed by now. */
static uint64_t head_progress(const struct account *a, int64_t now_us,
                              const struct route_instance *in)
{
    if (!in->has_perf || a->prefill_tokens == 0) return 0;
    const struct ledger_entry *head = NULL;
    LIST_EACH (&a->entries, node) {
        const struct ledger_entry *e = CONTAINER_OF(node, struct ledger_entry, link);
        if (e->first_us) continue;
        head = e;
        break;
    }
    if (!head) return 0;
    double since_s = (double)(now_us - max_i64(head->sent_us, a->last_first_us)) * 1e-6;
    double step_s =
        in->perf.a + in->perf.c * (double)a->decoding + in->perf.d * (double)a->kv_tokens;
    double token_s = in->perf.b + step_s / (double)in->token_budget;
    if (since_s <= 0 || token_s <= 0) return 0;
    /* One token stays owed: the first token has not come, whatever the estimate says. */
    double done = since_s / token_s, most = (double)uncached(head) - 1;
    return (uint64_t)(done < most ? done : most);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds until one more sequence fits: the nth next of the running ones must end first. */
static double slot_wait_s(const struct account *a, const struct route_instance *in)
{
    if (a->in_flight < in->seqs_max || !in->has_perf) return 0;
    double left[SEQS_FORETOLD_MAX];
    uint32_t count = 0;
    LIST_EACH (&a->entries, node) {
        const struct ledger_entry *e = CONTAINER_OF(node, struct ledger_entry, link);
        double tokens = e->output_expected - (double)e->generated;
        left[count++] = tokens > 1 ? tokens : 1;
        if (count == SEQS_FORETOLD_MAX) break;
    }
    qsort(left, count, sizeof left[0], by_value);
    uint32_t ends = min_u32(a->in_flight - in->seqs_max, count - 1);
    double running = (double)min_u32(a->in_flight, in->seqs_max);
    double tpot_s = in->perf.a + in->perf.c * running + in->perf.d * (double)a->kv_tokens;
    return left[ends] * tpot_s;
}

void ledger_view(const struct ledger *l, uint32_t slot, int64_t now_us, struct route_instance *in)
{
    const struct account *a = &l->account[slot];
    in->in_flight = a->in_flight;
    in->decoding = a->decoding;
    in->kv_tokens = a->kv_tokens;
    in->prefill_tokens = a->prefill_tokens - head_progress(a, now_us, in);
    in->slot_wait_s = slot_wait_s(a, in);
}

double ledger_output_left(const struct ledger *l, uint32_t slot)
{
    double left = 0;
    LIST_EACH (&l->account[slot].entries, node) {
        const struct ledger_entry *e = CONTAINER_OF(node, struct ledger_entry, link);
        double tokens = e->output_expected - (double)e->generated;
        left += tokens > 1 ? tokens : 1;
    }
    return left;
}

uint32_t ledger_in_flight(const struct ledger *l, uint32_t slot)
{
    return l->account[slot].in_flight;
}

uint32_t ledger_total(const struct ledger *l)
{
    return l->entries.used;
}
