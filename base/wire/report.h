/* report.h - defines the report of an agent to the controller, sent once a second, and the reply.
 *
 * Layer:    base/wire (base/perf, base/core)
 * Path:     POST /api/v1/agents/report
 * Lifetime: decoded strings live in the arena
 */
#pragma once
#include "base/perf/model_spec.h"
#include "base/perf/perf.h"
#include "base/wire/engine_kind.h"
#include "base/wire/field.h"
#include "base/wire/machine.h"

extern const struct field_set
    wire_perf_set; /* struct perf_coef, of reports and of what routers are told */

#define REPORT_NAME_BYTES_MAX 128 /* of ids and names */
#define REPORT_TEXT_BYTES_MAX 512 /* of a sentence */
#define REPORT_VERSION_BYTES_MAX 32
#define WIRE_ADAPTERS_MAX 64 /* of one engine */
#define WIRE_ROUTERS_MAX 16

/* Work that an engine has accepted and not done. Engines other than Muster's may leave it out. */
struct wire_owed {
    uint64_t prompt_tokens; /* prompt tokens neither computed nor cached */
};

/* Sums over all steps since the engine's start. They only rise, so the difference of two reports is the
 * work between them. */
struct wire_work {
    double span_s; /* since the start */
    double busy_s; /* the part spent in steps, throttling sleep included */
    uint64_t steps;
    uint64_t prefill_tokens, prefill_chunks, decoding_seqs; /* members of perf_shape */
    uint64_t kv_tokens, kv_tokens_decoding;
};

#define WIRE_CLOCK_MIN 0.2 /* least share of full speed that can be requested */

/* A LoRA adapter that an engine has: requests name it as their model. */
struct wire_adapter {
    struct str name;
    struct str digest; /* of what it computes: block keys are salted by it */
};
extern const struct field_set wire_adapter_set;

enum engine_health {
    ENGINE_DOWN,
    ENGINE_LOADING,
    ENGINE_READY,
    ENGINE_FAILING,
    ENGINE_HEALTH_COUNT
};
enum agent_state {
    AGENT_DOWN,     /* no engine runs, and none is to be started */
    AGENT_STARTING, /* spawned or adopted, not ready */
    AGENT_UP,
    AGENT_DRAINING, /* no new work */
    AGENT_WAITING,  /* the engine died; backing off before the next try */
    AGENT_STOPPED,  /* drained and stopped: the instance may be removed */
    AGENT_STATE_COUNT
};
extern const char *const engine_health_names[ENGINE_HEALTH_COUNT]; /* down loading ready failing */
extern const char *const agent_state_names[AGENT_STATE_COUNT]; /* down starting up draining ... */

/* The state of an engine: the response to GET /internal/info, and part of an agent's report. */
struct engine_report {
    struct str host; /* address at which routers reach it; tunnel:INSTANCE: by its agent's tunnel */
    uint32_t port;
    bool tls; /* it speaks TLS there */
    enum engine_kind kind;
    /* Where its agent serves /internal/info, events and tokenizer for an engine that does not serve them
     * itself; port 0: at the engine's own address. */
    struct str agent_host;
    uint32_t agent_port;
    bool agent_tls;
    /* of an engine that does not serve them itself: they come, so its cache is known */
    bool kv_events;
    enum engine_health health;
    double stalled_s; /* failing: seconds without a step while it has work; 0: another reason */
    struct str model; /* served name */
    /* that it belongs to, where an agent says so; empty: named like the model */
    struct str service;
    struct str digest; /* of weights and tokenizer; empty while loading */
    const struct wire_adapter *adapters;
    uint32_t adapter_count;
    struct str numerics; /* instruction set and kernels: equal ones generate equal tokens */
    uint64_t boot;       /* drawn at each start */
    uint32_t page_tokens, context_tokens;
    uint32_t step_tokens;    /* most tokens of one step; 0: not reported */
    uint32_t kv_token_bytes; /* K and V of one token; 0: not reported, or it keeps none */
    enum model_task task;
    uint32_t running, running_max, waiting;
    uint32_t pages_total, pages_free, pages_cached; /* cached: held by no session, reusable */
    bool has_perf; /* false: the model of its steps is not fitted yet */
    struct perf_coef perf;
    bool has_owed; /* false: not reported */
    struct wire_owed owed;
    double clock;            /* share of full speed in force; 0: this engine has no clock to set */
    double cores;            /* cores it may use; 0: not reported */
    struct str hardware;     /* name in the hardware table, from its options; empty: none */
    bool has_work, has_spec; /* false: not reported */
    struct wire_work work;
    struct model_spec spec;
    /* Since boot. */
    uint64_t requests_total, prompt_tokens_total, cached_tokens_total, generated_tokens_total;
};

struct agent_report {
    struct str instance; /* id given at launch */
    struct str intent;   /* the intent that created it */
    /* Where an engine belongs that somebody else started and the agent adopted; empty: an intent made it. */
    struct str service, pool;
    uint64_t boot; /* of the agent process */
    uint64_t seq;  /* rises by one each report: an old one that arrives late is dropped */
    enum agent_state state;
    uint32_t restarts;  /* of the engine, since boot */
    struct str trouble; /* sentence about the last failure; empty: none */
    struct str version; /* of the agent's program; empty: not reported */
    /* its wall clock when it wrote this, so that clocks can be compared; 0: not reported */
    int64_t date_us;
    uint32_t unfinished; /* requests in flight when a drain's time was over */
    /* time until the provider takes the machine away, as the machine itself was told; 0: it was not */
    uint32_t leaves_ms;
    struct str leaves_why; /* the provider's words, of it or of the next; may be empty */
    bool at_risk; /* the provider may take the machine away sooner than others; it names no time */
    bool has_weights; /* the launch document names where its model comes from */
    struct wire_weights weights;
    enum machine_health machine;
    struct str machine_code; /* of the fault that made it so, as in `faults`; empty: none */
    struct str machine_why;  /* a sentence about it; empty: it is well */
    const struct wire_gpu *gpus;
    uint32_t gpu_count;
    const struct wire_fault *faults;
    uint32_t fault_count;
    /* Of a machine's first start, time since it booted, its user data began, the agent started, the engine took
     * requests; 0: not reported, not yet, or before the launch */
    uint64_t booted_ms, begun_ms, started_ms, loaded_ms;
    bool has_engine;
    struct engine_report engine;
};

int agent_report_encode(const struct agent_report *r, struct buf *out);
int agent_report_decode(struct str text, struct arena *arena, struct agent_report *ret,
                        struct err *err);

int engine_report_encode(const struct engine_report *r, struct buf *out); /* GET /internal/info */
int engine_report_decode(struct str text, struct arena *arena, struct engine_report *ret,
                         struct err *err);

/* The body of POST /internal/clock and of its response. */
struct engine_clock {
    double clock; /* share of full speed, from WIRE_CLOCK_MIN to 1 */
};

int engine_clock_encode(const struct engine_clock *c, struct buf *out);
int engine_clock_decode(struct str text, struct arena *arena, struct engine_clock *ret,
                        struct err *err);

/* The desired state of an instance, from the controller. Every reply repeats it in full. */
struct agent_reply {
    bool known;         /* false: the controller has no such intent; keep serving and reporting */
    bool drain;         /* take no new work, finish what runs, then stop the engine */
    bool stop;          /* stop now */
    double clock;       /* share of full speed; 0: leave it as it is */
    uint32_t lease_ms;  /* length of the lease from arrival, unless a newer reply renews it */
    uint32_t leaves_ms; /* time until the provider takes the machine away; 0: not announced */
    uint64_t epoch;     /* of the controller's term; 0: not given */
    /* [https://]HOST:PORT of the routers, for an agent whose engine is reached by tunnel */
    const struct str *routers;
    uint32_t router_count;
    const struct wire_seed *seeds; /* agents that have the model which this one fetches */
    uint32_t seed_count;
};

int agent_reply_encode(const struct agent_reply *r, struct buf *out);
int agent_reply_decode(struct str text, struct arena *arena, struct agent_reply *ret,
                       struct err *err);

/* The body of a 503 by a controller that stands by, beside the error. Where no leader is known, because the
 * store is away, an agent gets a lease all the same: nobody can say that its instance is not wanted. */
struct standby_reply {
    struct str leader; /* [https://]HOST:PORT; empty: it knows none */
    uint32_t lease_ms; /* 0: none */
};

int standby_reply_decode(struct str text, struct arena *arena, struct standby_reply *ret);
