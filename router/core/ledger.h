/* ledger.h - records the requests that the router has sent to each endpoint and not got back, and adds the
 * load of other routers as engines report it.
 *
 * Layer:    router/core (fleet, policies, base/wire)
 * Threads:  the decision thread only
 * Lifetime: entries come from a pool sized at new; an entry lives from ledger_send to ledger_end
 * Rules:    (1) telemetry never counts as load: losing reports cannot stop dispatch
 *           (2) every entry ends exactly once, and a slot's sums are the sums of its entries
 *
 * The prefill still owed by an endpoint is the sum of the prompts that have no first token yet, less
 * the tokens of the oldest of them that should be computed by now.
 */
#pragma once
#include "base/core/err.h"
#include "base/core/list.h"
#include "base/wire/events.h"
#include "fleet/defaults.h"
#include "policies/predict/predict.h"
#include "policies/route/overload.h"
#include "policies/route/route.h"

struct ledger;

/* A request that is sent, with the router's estimates. */
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
    int64_t first_us;    /* 0 until the first token came back */
    int64_t measured_us; /* TPOT counts from here: the first tokens, a handoff or a migration */
    uint32_t measured_tokens; /* there at measured_us */
};

/* Sums of a slot at one time. */
struct ledger_sums {
    uint32_t in_flight, waiting; /* waiting: no first token yet */
    uint64_t kv_tokens, prefill_tokens;
    uint64_t uncached_total; /* ever sent, ended entries included */
};

/* For slots below `slots`. -ENOMEM. */
int ledger_new(uint32_t requests_max, uint32_t slots, struct ledger **ret, struct err *err);
void ledger_free(struct ledger *l);

/* Adds an entry. NULL when requests_max are in flight: answer 429. */
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
/* Fills `in` as ledger_view does and returns the seconds until all that was sent is done. */
double ledger_queued_s(struct ledger *l, uint32_t slot, int64_t now_us, struct route_instance *in);
struct ledger_sums ledger_sums(const struct ledger *l, uint32_t slot);
/* The same where they lie: they change with every call. */
const struct ledger_sums *ledger_sums_at(const struct ledger *l, uint32_t slot);

uint32_t ledger_in_flight(const struct ledger *l, uint32_t slot);
uint32_t ledger_total(const struct ledger *l);

/* Estimates the load of an endpoint from all routers, and the rate of work that a model is sent.
 *
 * Rules:    (1) the router's own part comes from the entries above; a report only adds the others'
 *           (2) a report describes a past moment and is compared with the ledger of that moment
 *           (3) absent is not zero: without a fresh report nothing is added
 *
 *     others        = max(0, reported - own at that time), for requests and KV
 *     prefill owed  = max(own now, reported - computed since + own sent since)
 *
 * The load is an average over about LOAD_US of expected machine seconds, own ones when they are
 * sent and others' as the engines' counters show them.
 */

#define LOAD_US 60000000         /* time constant of a model's average */
#define LOAD_PROMPTS_US 10000000 /* and of one instance's prompts: about the time of an output */
#define LOAD_US_MIN 5000000      /* a shorter past counts as this long */
#define LOAD_MOMENTS 32          /* past states of the own ledger that are kept, */
#define LOAD_MOMENT_US 50000     /* at this distance */
#define LOAD_MODELS_MAX 64     /* models with a measured load; a further one replaces the stalest */
#define LOAD_STALE_US 15000000 /* a report fades out from TOLD_FRESH_US to this age */

struct load_moment {
    int64_t at_us;
    struct ledger_sums sums;
};

struct load {
    struct load_moment moment[LOAD_MOMENTS]; /* ring */
    uint32_t newest, count;

    bool reported;
    int64_t as_of_us;
    struct reported_load report;
    struct ledger_sums own_then;
    bool counting;       /* others_most is set */
    int64_t others_most; /* highest total of the others' uncached tokens seen so far */
};

/* Work a second, averaged. */
struct load_meter {
    bool started;
    double sum_s; /* decayed to at_us */
    int64_t at_us, since_us;
};

void load_boot(struct load *l); /* its engine restarted */
/* The ledger has changed to `own`. */
void load_note(struct load *l, const struct ledger_sums *own, int64_t now_us);

/* Takes a report. Returns the others' uncached prompt tokens that it shows for the first time. */
uint64_t load_report(struct load *l, const struct reported_load *said, struct ledger_sums own,
                     int64_t as_of_us);

/* Adds the others' part to a view that the ledger filled. */
void load_view(const struct load *l, struct ledger_sums own, int64_t now_us,
               struct route_instance *in);

/* Returns the router's own uncached tokens that no report has shown yet. */
uint64_t load_unreported(const struct load *l, struct ledger_sums own);

void load_meter_add(struct load_meter *m, int64_t over_us, double work_s, int64_t now_us);
double load_meter_rate(const struct load_meter *m, int64_t over_us,
                       int64_t now_us); /* seconds a second */

/* The rate of work that each model is sent; zeroed bytes: none. */
struct load_model {
    uint64_t name;
    struct load_meter meter;
    struct route_overload overload;
};

struct load_models {
    struct load_model model[LOAD_MODELS_MAX];
    uint32_t count;
};

/* Finds a model or adds it; beyond LOAD_MODELS_MAX it replaces the one sent work longest ago. */
struct load_model *load_models_get(struct load_models *m, uint64_t name);
void load_models_add(struct load_models *m, uint64_t name, double work_s, int64_t now_us);
/* Returns the seconds of work a second that the model was sent lately; < 0: none yet. */
double load_models_rate(const struct load_models *m, uint64_t name, int64_t now_us);
