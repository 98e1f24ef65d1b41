/* ledger.h - what the router has sent to each endpoint and not got back: its own truth of load.
 *
 * Layer:    router/core (base/core, policies)
 * Threads:  the decision thread only
 * Lifetime: entries come from a pool sized at new; an entry lives from ledger_send to ledger_end
 * Rules:    (1) telemetry never counts as load: losing reports cannot stop dispatch
 *           (2) every entry ends exactly once, and a slot's sums are the sums of its entries
 *
 * The prefill still owed by an endpoint is what was sent and has no first token yet, less what the
 * oldest of those should have computed by now.
 */
#pragma once
#include "base/core/err.h"
#include "base/core/list.h"
#include "policies/predict.h"
#include "policies/route.h"

struct ledger;

struct ledger_entry {
    struct list link; /* on its slot's list, in order of sending */
    uint32_t slot;
    uint32_t prompt_tokens;
    uint32_t hit_tokens; /* as believed when it was sent */
    uint32_t generated;
    double output_expected; /* tokens, predicted */
    int64_t sent_us;
    int64_t first_us; /* 0 until the first token came back */
};

int ledger_new(uint32_t requests_max, struct ledger **ret, struct err *err);
void ledger_free(struct ledger *l);

/* NULL when requests_max are in flight: answer 429. */
struct ledger_entry *ledger_send(struct ledger *l, uint32_t slot, uint32_t prompt_tokens,
                                 uint32_t hit_tokens, double output_expected, int64_t now_us);
void ledger_tokens(struct ledger *l, struct ledger_entry *e, uint32_t count, int64_t now_us);
void ledger_end(struct ledger *l, struct ledger_entry *e);

/* Fills in_flight, decoding, kv_tokens, prefill_tokens and slot_wait_s of `in`; its perf,
 * token_budget and seqs_max are read. */
void ledger_view(const struct ledger *l, uint32_t slot, int64_t now_us, struct route_instance *in);

/* Tokens that the requests in flight there are expected still to generate. */
double ledger_output_left(const struct ledger *l, uint32_t slot);

uint32_t ledger_in_flight(const struct ledger *l, uint32_t slot);
uint32_t ledger_total(const struct ledger *l);
