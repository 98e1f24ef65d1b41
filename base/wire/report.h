/* report.h - the report of an agent to the controller, once a second, and the reply.
 *
 * Layer:    base/wire (base/perf, base/core)
 * Path:     POST /api/v1/agents/report
 * Lifetime: decoded strings live in the arena
 */
#pragma once
#include "base/perf/model_spec.h"
#include "base/perf/perf.h"
#include "base/wire/field.h"

#define REPORT_NAME_BYTES_MAX 128 /* of ids and names */
#define REPORT_TEXT_BYTES_MAX 512 /* of a sentence */

/* Work that an engine has accepted and not done. Optional for other engines. */
struct wire_owed {
    uint64_t prompt_tokens; /* prompt tokens neither computed nor cached */
};

/* Sums over all steps since the engine's start. They only rise, so two reports give the work between
 * them. */
struct wire_work {
    double span_s; /* since the start */
    double busy_s; /* of it, spent in steps, throttling sleep included */
    uint64_t steps;
    uint64_t prefill_tokens, prefill_chunks, decoding_seqs; /* members of perf_shape */
    uint64_t kv_tokens, kv_tokens_decoding;
};

#define WIRE_CLOCK_MIN 0.2 /* the least share of full speed that is asked for */

enum engine_kind { ENGINE_MUSTER, ENGINE_OPENAI, ENGINE_KIND_COUNT };
enum engine_health {
    ENGINE_DOWN,
    ENGINE_LOADING,
    ENGINE_READY,
    ENGINE_FAILING,
    ENGINE_HEALTH_COUNT
};
enum agent_state {
    AGENT_DOWN,     /* no engine, and none is due */
    AGENT_STARTING, /* spawned or adopted, not ready */
    AGENT_UP,
    AGENT_DRAINING, /* no new work */
    AGENT_WAITING,  /* the engine died; backing off before the next try */
    AGENT_STOPPED,  /* drained and stopped: the instance may be removed */
    AGENT_STATE_COUNT
};
extern const char *const engine_kind_names[ENGINE_KIND_COUNT];     /* muster openai */
extern const char *const engine_health_names[ENGINE_HEALTH_COUNT]; /* down loading ready failing */
extern const char *const agent_state_names[AGENT_STATE_COUNT]; /* down starting up draining ... */

/* GET /internal/info of an engine, and its part of a report. */
struct engine_report {
    struct str host; /* where routers reach it */
    uint32_t port;
    bool tls; /* it speaks TLS there */
    enum engine_kind kind;
    enum engine_health health;
    double stalled_s;  /* failing: it holds work and made no step for so long; 0: another reason */
    struct str model;  /* served name */
    struct str digest; /* of weights and tokenizer; empty while loading */
    struct str numerics; /* instruction set and kernels: equal tokens are promised within one */
    uint64_t boot;       /* drawn at each start */
    uint32_t page_tokens, context_tokens;
    uint32_t step_tokens;    /* computed in one step at most; 0: this engine does not say */
    uint32_t kv_token_bytes; /* K and V of one token; 0: this engine does not say */
    uint32_t running, running_max, waiting;
    uint32_t pages_total, pages_free, pages_cached; /* cached: held by no session, reusable */
    bool has_perf; /* false: the model of its steps is not fitted yet */
    struct perf_coef perf;
    bool has_owed; /* false: this engine does not say */
    struct wire_owed owed;
    double clock;            /* share of full speed in force; 0: this engine has none to set */
    double cores;            /* that it may use; 0: this engine does not say */
    struct str hardware;     /* row of the hardware table that it was told; empty: none */
    bool has_work, has_spec; /* false: this engine does not say */
    struct wire_work work;
    struct model_spec spec;
    uint64_t requests_total, prompt_tokens_total, cached_tokens_total,
        generated_tokens_total; /* since boot */
};

struct agent_report {
    struct str instance; /* id given at launch */
    struct str intent;   /* the intent that created it */
    uint64_t boot;       /* of the agent process */
    uint64_t seq;        /* rises by one a report: an old one that arrives late is dropped */
    enum agent_state state;
    uint32_t restarts;  /* of the engine, since boot */
    struct str trouble; /* last failure as a sentence; empty: none */
    bool has_engine;
    struct engine_report engine;
};

int agent_report_encode(const struct agent_report *r, struct buf *out);
int agent_report_decode(struct str text, struct arena *arena, struct agent_report *ret,
                        struct err *err);

int engine_report_encode(const struct engine_report *r, struct buf *out); /* GET /internal/info */
int engine_report_decode(struct str text, struct arena *arena, struct engine_report *ret,
                         struct err *err);

/* POST /internal/clock, and its answer. */
struct engine_clock {
    double clock; /* share of full speed, from WIRE_CLOCK_MIN to 1 */
};

int engine_clock_encode(const struct engine_clock *c, struct buf *out);
int engine_clock_decode(struct str text, struct arena *arena, struct engine_clock *ret,
                        struct err *err);

/* Desired state from the controller. Every reply repeats it in full. */
struct agent_reply {
    bool known;         /* false: the controller has no such intent; keep serving, keep reporting */
    bool drain;         /* take no new work, finish what runs, then stop the engine */
    bool stop;          /* stop now */
    double clock;       /* share of full speed; 0: not said, and it stays what it is */
    uint32_t lease_ms;  /* from arrival; without a newer one the rule of the lease applies */
    uint32_t leaves_ms; /* the provider takes the machine away then; 0: it has not said so */
};

int agent_reply_encode(const struct agent_reply *r, struct buf *out);
int agent_reply_decode(struct str text, struct arena *arena, struct agent_reply *ret,
                       struct err *err);
