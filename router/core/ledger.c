/* ledger.c - lists the requests in flight at each endpoint and sums the work that is left of them.
 *
 * Sums are kept as entries change, so a view costs no walk except where slots are full and the
 * next free one has to be foretold.
 */
#include "router/core/ledger.h"

#include "base/core/arena.h"
#include "base/core/bits.h"

#include <stdlib.h>

#define SEQS_FORETOLD_MAX 256 /* running sequences looked at for the next free slot */
#define FORETOLD_US 20000     /* a foretold wait is used again for so long */
#define TENANT_BINS 64        /* two tenants in one bin count as one */

struct account {
    struct list waiting, running;
    struct ledger_sums sums;
    uint32_t heavy;
    uint64_t waiting_prompts; /* whole prompts of those that wait, cached part included */
    double output_left;
    uint32_t tenant_waiting[TENANT_BINS];
    int64_t last_first_us; /* when the last first token came: the head began then at the earliest */

    /* slot_wait_s as it was foretold last */
    double foretold_s;
    int64_t foretold_us;
    uint32_t foretold_in_flight;
};

struct ledger {
    struct pool entries;
    uint32_t slots;
    struct account account[];
};

int ledger_new(uint32_t requests_max, uint32_t slots, struct ledger **ret, struct err *err)
{
    struct ledger *l = calloc(1, sizeof *l + slots * sizeof *l->account);
    if (!l || pool_init(&l->entries, sizeof(struct ledger_entry), requests_max) < 0) {
        free(l);
        return err_set(err, -ENOMEM, "ledger: no memory for %u requests", requests_max);
    }
    l->slots = slots;
    for (uint32_t i = 0; i < slots; i++) {
        list_init(&l->account[i].waiting);
        list_init(&l->account[i].running);
    }
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
    return e->sent.prompt_tokens - e->sent.hit_tokens;
}

/* Every sequence that runs has at least its last token to go. */
static double output_left(const struct ledger_entry *e)
{
    double left = e->output_expected - (double)e->generated;
    return left > 1 ? left : 1;
}

struct ledger_entry *ledger_send(struct ledger *l, uint32_t slot, const struct ledger_sending *s,
                                 int64_t now_us)
{
    must(slot < l->slots && s->hit_tokens < s->prompt_tokens);
    struct ledger_entry *e = pool_take(&l->entries);
    if (!e) return NULL;
    *e = (struct ledger_entry){
        .slot = slot, .sent = *s, .output_expected = s->output_expected, .sent_us = now_us
    };
    struct account *a = &l->account[slot];
    list_push_back(&a->waiting, &e->link);
    a->sums.in_flight++;
    a->sums.waiting++;
    a->sums.prefill_tokens += uncached(e);
    a->sums.uncached_total += uncached(e);
    a->heavy += s->output_expected > ROUTE_HEAVY_TOKENS;
    a->waiting_prompts += s->prompt_tokens;
    a->output_left += output_left(e);
    a->tenant_waiting[s->tenant % TENANT_BINS]++;
    return e;
}

static void leave_waiting(struct account *a, struct ledger_entry *e)
{
    a->sums.waiting--;
    a->sums.prefill_tokens -= uncached(e);
    a->waiting_prompts -= e->sent.prompt_tokens;
    a->tenant_waiting[e->sent.tenant % TENANT_BINS]--;
    list_remove(&e->link);
}

void ledger_tokens(struct ledger *l, struct ledger_entry *e, uint32_t count, int64_t now_us)
{
    struct account *a = &l->account[e->slot];
    if (e->first_us == 0) {
        e->first_us = e->measured_us = max_i64(now_us, 1);
        e->measured_tokens = count;
        a->last_first_us = now_us;
        leave_waiting(a, e);
        list_push_back(&a->running, &e->link);
        a->sums.kv_tokens += e->sent.prompt_tokens;
    }
    a->output_left -= output_left(e);
    e->generated += count;
    a->output_left += output_left(e);
    a->sums.kv_tokens += count;
}

void ledger_expect(struct ledger *l, struct ledger_entry *e, double output_expected)
{
    struct account *a = &l->account[e->slot];
    a->output_left -= output_left(e);
    e->output_expected = output_expected;
    a->output_left += output_left(e);
}

void ledger_end(struct ledger *l, struct ledger_entry *e)
{
    struct account *a = &l->account[e->slot];
    if (e->first_us == 0) {
        leave_waiting(a, e);
    } else {
        a->sums.kv_tokens -= (uint64_t)e->sent.prompt_tokens + e->generated;
        list_remove(&e->link);
    }
    a->sums.in_flight--;
    a->heavy -= e->sent.output_expected > ROUTE_HEAVY_TOKENS;
    /* An empty slot owes nothing: additions and subtractions leave no rest of rounding. */
    a->output_left = a->sums.in_flight > 0 ? a->output_left - output_left(e) : 0;
    pool_give(&l->entries, e);
}

/* Tokens of the oldest unanswered prompt that should be computed by now. */
static uint64_t head_progress(const struct account *a, int64_t now_us,
                              const struct route_instance *in)
{
    if (!in->has_perf || list_empty(&a->waiting)) return 0;
    const struct ledger_entry *head = CONTAINER_OF(a->waiting.next, struct ledger_entry, link);
    double since_s = (double)(now_us - max_i64(head->sent_us, a->last_first_us)) * 1e-6;
    double step_s = in->perf.step_s +
                    in->perf.decode_seq_s * (double)(a->sums.in_flight - a->sums.waiting) +
                    in->perf.kv_read_s * (double)a->sums.kv_tokens;
    double token_s = in->perf.prefill_token_s + step_s / (double)in->token_budget;
    if (since_s <= 0 || token_s <= 0) return 0;
    /* One token stays owed: the first token has not come, whatever the estimate says. */
    double done = since_s / token_s, most = (double)uncached(head) - 1;
    return (uint64_t)(done < most ? done : most);
}

/* The nth smallest, from 0, by Hoare's partitions: qsort would take memory of the heap. */
static double nth_smallest(double *v, uint32_t count, uint32_t nth)
{
    uint32_t from = 0, to = count - 1;
    while (from < to) {
        double pivot = v[from + (to - from) / 2];
        uint32_t low = from, high = to;
        for (;; low++, high--) {
            while (v[low] < pivot)
                low++;
            while (v[high] > pivot)
                high--;
            if (low >= high) break;
            double kept = v[low];
            v[low] = v[high];
            v[high] = kept;
        }
        /* Up to `high` none is above the pivot, behind it none is below. */
        if (nth <= high) {
            to = high;
        } else {
            from = high + 1;
        }
    }
    return v[nth];
}

static uint32_t collect_left(const struct list *entries, double *left, uint32_t count)
{
    LIST_EACH (entries, node) {
        if (count == SEQS_FORETOLD_MAX) break;
        left[count++] = output_left(CONTAINER_OF(node, struct ledger_entry, link));
    }
    return count;
}

/* Seconds until one more sequence fits: the nth next of the running ones must end first. */
static double slot_wait_s(const struct account *a, const struct route_instance *in)
{
    double left[SEQS_FORETOLD_MAX];
    uint32_t count = collect_left(&a->running, left, 0);
    count = collect_left(&a->waiting, left, count);
    uint32_t ends = min_u32(a->sums.in_flight - in->seqs_max, count - 1);
    double running = (double)min_u32(a->sums.in_flight, in->seqs_max);
    double tpot_s = in->perf.step_s + in->perf.decode_seq_s * running +
                    in->perf.kv_read_s * (double)a->sums.kv_tokens;
    return nth_smallest(left, count, ends) * tpot_s;
}

static double foretold_s(struct account *a, const struct route_instance *in, int64_t now_us)
{
    if (a->sums.in_flight < in->seqs_max || !in->has_perf) return 0;
    if (a->foretold_in_flight != a->sums.in_flight || now_us - a->foretold_us > FORETOLD_US) {
        a->foretold_s = slot_wait_s(a, in);
        a->foretold_us = now_us;
        a->foretold_in_flight = a->sums.in_flight;
    }
    return a->foretold_s;
}

void ledger_view(struct ledger *l, uint32_t slot, uint64_t tenant, int64_t now_us,
                 struct route_instance *in)
{
    struct account *a = &l->account[slot];
    in->in_flight = a->sums.in_flight;
    in->waiting = a->sums.waiting;
    in->tenant_waiting = a->tenant_waiting[tenant % TENANT_BINS];
    in->decoding = a->sums.in_flight - a->sums.waiting;
    in->heavy = a->heavy;
    in->kv_tokens = a->sums.kv_tokens;
    in->active_tokens = a->sums.kv_tokens + a->waiting_prompts;
    in->output_left = a->output_left;
    in->prefill_tokens = a->sums.prefill_tokens - head_progress(a, now_us, in);
    in->slot_wait_s = foretold_s(a, in, now_us);
}

struct ledger_sums ledger_sums(const struct ledger *l, uint32_t slot)
{
    return l->account[slot].sums;
}

uint32_t ledger_in_flight(const struct ledger *l, uint32_t slot)
{
    return l->account[slot].sums.in_flight;
}

uint32_t ledger_total(const struct ledger *l)
{
    return l->entries.used;
}
