/* load.h - estimates the load of an endpoint from all routers, and the work that it is sent a second.
 *
 * Layer:    router/core (fleet, policies/route/route.h, base/wire)
 * Threads:  the decision thread only
 * Lifetime: fixed memory within the core
 * Rules:    (1) what the router sent itself comes from its ledger; a report only adds the others'
 *           (2) a report speaks of a moment that is past: it is compared with the ledger of then
 *           (3) absent is not zero: without a fresh report nothing is added
 *
 *     others        = max(0, reported - own at that time), for requests and KV
 *     prefill owed  = max(own now, reported - computed since + own sent since)
 *
 * The load is an average over about LOAD_US of expected machine seconds, own ones when they are
 * sent and others' as the engines' counters show them.
 */
#pragma once
#include "base/wire/events.h"
#include "fleet/defaults.h"
#include "policies/route/overload.h"
#include "router/core/ledger.h"

#define LOAD_US 60000000         /* time constant of a model's average */
#define LOAD_PROMPTS_US 10000000 /* and of the prompts of one instance: about an answer's time */
#define LOAD_US_MIN 5000000      /* a shorter past counts as if it had been so long */
#define LOAD_MOMENTS 32          /* of the own ledger that are remembered, */
#define LOAD_MOMENT_US 50000     /* so far apart */
#define LOAD_MODELS_MAX 64     /* models with a measured load; a further one replaces the stalest */
#define LOAD_STALE_US 15000000 /* from fresh to here a report fades out */

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
    int64_t others_most; /* the most they were seen to have sent, by the engine's counter */
};

/* Work a second, averaged. */
struct load_meter {
    bool started;
    double sum_s; /* decayed to at_us */
    int64_t at_us, since_us;
};

void load_boot(struct load *l);                                         /* its engine began anew */
void load_note(struct load *l, struct ledger_sums own, int64_t now_us); /* the ledger changed */

/* Returns the uncached prompt tokens of others that it shows for the first time. */
uint64_t load_report(struct load *l, const struct reported_load *said, struct ledger_sums own,
                     int64_t as_of_us);

/* Adds the others' part to what the ledger filled. */
void load_view(const struct load *l, struct ledger_sums own, int64_t now_us,
               struct route_instance *in);

/* Uncached tokens of its own that no report has shown yet. */
uint64_t load_unreported(const struct load *l, struct ledger_sums own);

void load_meter_add(struct load_meter *m, int64_t over_us, double work_s, int64_t now_us);
double load_meter_rate(const struct load_meter *m, int64_t over_us,
                       int64_t now_us); /* seconds a second */

/* The work that each model is sent; zeroed bytes: none. */
struct load_model {
    uint64_t name;
    struct load_meter meter;
    struct route_overload overload;
};

struct load_models {
    struct load_model model[LOAD_MODELS_MAX];
    uint32_t count;
};

/* Finds or makes; one beyond LOAD_MODELS_MAX replaces the one that was sent work longest ago. */
struct load_model *load_models_get(struct load_models *m, uint64_t name);
void load_models_add(struct load_models *m, uint64_t name, double work_s, int64_t now_us);
/* Seconds of work a second that the model was sent lately; < 0: none yet. */
double load_models_rate(const struct load_models *m, uint64_t name, int64_t now_us);
