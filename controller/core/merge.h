/* merge.h - merges three witnesses of one fleet: stored intents, the provider's listing, reports of
 * agents.
 *
 * Layer:   controller/core (base/wire, base/core)
 * Threads: pure; the controller's loop or the simulator calls
 * Rules:   (1) a listing may lag: it proves an absence only when it was taken lag_us + settle_us
 *              after the last call about that instance, and after its last report
 *          (2) a listing that is missing or stale proves nothing and ends nothing
 *          (3) a fresh report outweighs a listing that lacks the instance
 *          (4) an orphan is listed under our tag without an intent: the store was lost, or a create
 *              call came through late for an intent that is long forgotten. It is adopted at once
 *              when its service and pool are configured, because a fleet that serves must be
 *              neither doubled nor dropped; otherwise it is ended after orphan_us, because the
 *              configuration may only be on its way
 *          (5) two instances under one intent: the one whose handle is recorded stays (else the
 *              first listed), the others are removed
 */
#pragma once
#include "base/perf/perf.h"
#include "base/wire/report.h"
#include "controller/core/intent.h"

/* One instance as a provider lists it. */
struct listed {
    char handle[NAME_BYTES];
    char intent[NAME_BYTES]; /* our tag; empty when it is missing */
    char service[NAME_BYTES], pool[NAME_BYTES], offer[NAME_BYTES];
    char node
        [NAME_BYTES];   /* the machine that it runs on, as the provider names it; empty: not said */
    int64_t created_us; /* as the provider reports it; 0: it does not */
    int64_t leaves_us;  /* the provider takes it away then; 0: it has not said so */
    bool gone;          /* it ended by itself; remove clears it away */
    bool stopped; /* gone, and its provider would start it again: no more than its disk is billed */
    /* The provider took the order and cannot carry it out, like a refusal that comes late;
     * OFFER_OK: it comes up, or is up. */
    enum offer_error stuck;
    /* Of `gone`, `leaves_us` or `stuck`, in the provider's words; may be empty. */
    char why[INTENT_WHY_BYTES];
    struct lead lead; /* of its launch; a phase is known once it is over */
    bool unreadable;  /* it exists, and of its tags only the intent is known: never removed */
    double price_h;   /* of this one, where its offer has several prices; 0: as its offer */
};

struct listing {
    const char *provider;
    const struct listed *item;
    uint32_t count;
    bool ok;          /* false: there is none, or it is too old to prove anything */
    int64_t taken_us; /* when the call was submitted */
    int64_t lag_us;   /* how old its content may be, as the driver promises */
};

/* An agent's last report, as far as decisions need it. */
struct sighting {
    int64_t heard_us; /* when it came; 0: none since the controller's start */
    enum agent_state state;
    bool engine_ready;
    uint32_t in_flight; /* running and waiting in the engine */
    uint32_t running, waiting;
    uint64_t kv_tokens, kv_tokens_max; /* held by sessions, and room for; max 0: unknown */
    bool prefill_known;                /* the next is reported */
    uint64_t prefill_tokens;           /* of accepted prompts, not computed */
    uint32_t pages_cached;
    uint64_t cached_tokens; /* that they hold */
    bool has_perf;
    struct perf_coef perf;
    uint32_t seqs_max;
};

struct merge_config {
    int64_t fresh_us;  /* a report older than this is stale */
    int64_t boot_us;   /* from the create call to the first report */
    int64_t drain_us;  /* from the drain's beginning to its end */
    int64_t silent_us; /* a registered instance may be silent for so long */
    int64_t retry_us;  /* between remove calls */
    int64_t settle_us; /* on top of a listing's lag */
    int64_t orphan_us; /* before an orphan of no configured pool is ended */
};
#define MERGE_CONFIG_DEFAULT                        \
    ((struct merge_config){ .fresh_us = 3000000,    \
                            .boot_us = 300000000,   \
                            .drain_us = 330000000,  \
                            .silent_us = 600000000, \
                            .retry_us = 5000000,    \
                            .settle_us = 1000000,   \
                            .orphan_us = 60000000 })

/* All that is known of one intent at the moment of a decision. */
struct merge_view {
    const struct intent *intent;
    const struct sighting *seen;
    const struct listing *listing; /* of its provider; NULL: the provider is not configured */
    const struct listed *item;     /* its entry there, or NULL */
    bool may_ask;                  /* its offer is not in back-off */
    bool routed;                   /* a router has requests there, or one may have */
    bool in_parts;                 /* its provider's create makes several things (cloud.h) */
    bool calling;                  /* a call about it is due or under way: no other is wanted */
    int64_t answered_us;  /* when the last call about it completed; 0: none since the start */
    int64_t listening_us; /* since when we listen without a gap: silence before proves nothing */
};

/* Returns the event that this view calls for, or INTENT_EVENT_COUNT. */
enum intent_event merge_event(const struct merge_view *view, const struct merge_config *config,
                              int64_t now_us);

/* Takes the phases of a launch from an agent's report that came launched_us after the create call. *ret is as it was
 * where the report tells none. A machine that had booted before the call was there: no phase is its boot. */
void lead_take(const struct agent_report *r, int64_t launched_us, struct lead *ret);

/* Takes the engine's part of an agent's report. */
void sighting_take(struct sighting *s, const struct engine_report *e);

bool sighting_is_fresh(const struct sighting *s, const struct merge_config *config, int64_t now_us);

/* An instance's phase, as the plan sees it. */
enum phase {
    PHASE_STARTING, /* asked for, or made and not serving yet */
    PHASE_READY,
    PHASE_DRAINING,
    PHASE_ENDING,
    PHASE_STOPPED, /* kept at its provider, to be started again */
    PHASE_COUNT
};
extern const char *const phase_names[PHASE_COUNT];
enum phase merge_phase(const struct intent *intent, const struct sighting *seen,
                       const struct merge_config *config, int64_t now_us);

/* How an entry of a listing belongs to an intent. */
enum claim {
    CLAIM_OWN,       /* of intents[owner] */
    CLAIM_DUPLICATE, /* a second instance of intents[owner]: remove it */
    CLAIM_ADOPT,
    CLAIM_END,  /* an orphan of no configured pool that is old enough to end */
    CLAIM_WAIT, /* one that is not old enough yet; for ever, if it is unreadable */
};
struct claimed {
    enum claim claim;
    uint32_t owner; /* index of the intent, for OWN and DUPLICATE */
};

/* Returns true if a configured service has this pool at this provider. */
typedef bool (*pool_known_fn)(const void *ctx, const char *service, const char *pool,
                              const char *provider);

/* The fleet that a listing is compared with. */
struct merge_fleet {
    const struct intent *intent;
    uint32_t intent_count;
    pool_known_fn known;
    const void *ctx; /* of `known` */
};

/* Writes a claim for each entry of the listing. */
void merge_claims(const struct listing *listing, const struct merge_fleet *fleet,
                  const struct merge_config *config, int64_t now_us, struct claimed *ret);
