/* ledger.h - records the requests that the router has sent to each endpoint and not got back.
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
#include "policies/predict/predict.h"
#include "policies/route/route.h"

struct ledger;

/* What is sent, as the router believes it. */
struct ledger_sending {
    uint32_t prompt_tokens, hit_tokens;
    double output_expected; /* tokens, predicted */
    uint64_t tenant;
    double work_s; /* machine seconds it is expected to take; 0: unknown */
};

struct ledger_entry {
    struct list link; /* waiting or running, in order of sending */
    uint32_t slot;
    uint32_t generated;
    struct ledger_sending sent;
    double output_expected; /* tokens; as predicted at first, refined while it decodes */
    int64_t sent_us;
    int64_t first_us;         /* 0 until the first token came back */
    int64_t measured_us;      /* time per token counts from here: the first tokens, or a move */
    uint32_t measured_tokens; /* that were there then */
};

/* Sums of a slot at one time. */
struct ledger_sums {
    uint32_t in_flight, waiting; /* waiting: no first token yet */
    uint64_t kv_tokens, prefill_tokens;
    uint64_t uncached_total; /* ever sent; ended entries count on */
};

/* For slots below `slots`. -ENOMEM. */
int ledger_new(uint32_t requests_max, uint32_t slots, struct ledger **ret, struct err *err);
void ledger_free(struct ledger *l);

/* NULL when requests_max are in flight: answer 429. */
struct ledger_entry *ledger_send(struct ledger *l, uint32_t slot, const struct ledger_sending *s,
                                 int64_t now_us);
void ledger_tokens(struct ledger *l, struct ledger_entry *e, uint32_t count, int64_t now_us);
void ledger_end(struct ledger *l, struct ledger_entry *e);

/* Updates the expected total output length from the tokens generated so far. */
void ledger_expect(struct ledger *l, struct ledger_entry *e, double output_expected);

/* Fills what the ledger knows of `in` (in_flight, waiting, tenant_waiting of `tenant`, decoding,
 * heavy, tokens, output_left, prefill_tokens, slot_wait_s); its perf, token_budget and seqs_max
 * are read. */
void ledger_view(struct ledger *l, uint32_t slot, uint64_t tenant, int64_t now_us,
                 struct route_instance *in);
struct ledger_sums ledger_sums(const struct ledger *l, uint32_t slot);

uint32_t ledger_in_flight(const struct ledger *l, uint32_t slot);
uint32_t ledger_total(const struct ledger *l);
