/* control.h - runs the controller without its sockets: it observes, plans and acts over a store and clouds.
 *
 * Layer:    controller (controller/core, controller/cloud, base/io)
 * Threads:  one loop's; calls block for the store's fsync, never for a provider (calls.c)
 * Order:    after a start first restore (control_new), then observe (the first good listing of every
 *           provider), and only then plan: nothing is launched or ended before that
 * Rules:    (1) intents are durable before the calls they stand for (intent.h)
 *           (2) an intent whose record cannot be written is not acted upon; the old state stands
 *           (3) time is an argument: fleet time (core/fleet_time.h), which no step of the date moves; dates that
 *               people read are made from it when they are written
 *           (4) one control is one term of leadership. When the term ends, in the middle of a tick too,
 *               every further write is refused by the store and every call to a provider here; the
 *               object is then dropped, and the next term begins with another one
 *           (5) a tick that came late is no evidence: an agent or router that was unheard meanwhile
 *               counts as unknown until it is heard or its whole limit has passed again
 * Testing:  each step has a fault point (control_steps). Armed, the call returns -ECANCELED and has done nothing
 *           beyond the point, as if the process had been killed there; a test then drops the object and opens a new
 *           one on the same store. `crash_at` does the same to a real process with SIGKILL.
 */
#pragma once
#include "base/core/own.h"
#include "base/io/metrics.h"
#include "base/io/store/store.h"
#include "base/wire/sync.h"
#include "controller/cloud/cloud.h"
#include "controller/core/join.h"
#include "controller/core/plan.h"

#define CONTROL_CLOUDS_MAX 16      /* those of `clouds`, this machine, a cluster, adopted engines */
#define CONTROL_INSTANCES_MAX 1024 /* live intents */
#define CONTROL_TOMBSTONES_MAX 256 /* ended intents that are remembered */
#define CONTROL_ROUTERS_MAX 16
#define CONTROL_TENANTS_MAX 1000

/* The steps of a launch, a drain and an end, in their order; those of a stop and of the start after it. */
extern const char *const control_steps[], *const control_stop_steps[];
extern const uint32_t control_step_count, control_stop_step_count;

/* The term in which a control works. { 0 }: nobody else can lead. */
struct control_term {
    uint64_t epoch;
    bool (*leads)(void *arg); /* NULL: always. Asked right before each call to a provider */
    void *arg;
};

/* How instances of one pool are started. Borrowed for the control's life. */
struct control_launch {
    enum engine_kind kind;
    const struct str *engine_args;
    uint32_t engine_arg_count;
    /* As in struct launch_spec, for engines of other kinds. */
    const struct str *engine_flags;
    uint32_t engine_flag_count;
    struct str model, served_name, device, tokenizer;
    struct str weights_url, weights_endpoint, weights_path, weights_sha256; /* likewise, of all */
    uint64_t weights_max;
    uint32_t context_tokens, seqs_max;
    bool kv_events, tunnel;              /* tunnel: its agent dials the routers */
    struct str tls_certificate, tls_key; /* as the arguments say; empty: it speaks plain HTTP */
};

struct control_setup { /* borrowed for the control's life where not said otherwise */
    const struct plan_service *service; /* copied */
    uint32_t service_count;
    const struct control_launch (*launch)[SCALE_POOLS_MAX]; /* [service][pool] */
    struct cloud *cloud;                                    /* copied; closed by their owner */
    uint32_t cloud_count;
    struct store *store;
    struct control_term term;
    struct metrics *metrics; /* of control_metric_table, kept over terms; NULL: it makes its own */
    struct merge_config merge;
    struct join_config join;
    struct str host;               /* where agents reach the controller */
    const struct str *controllers; /* addresses of all controllers, for agents; may be none */
    uint32_t controller_count, port;
    bool tls;          /* spoken there */
    struct str tls_ca; /* of controller and engines, for agents; empty: the system's */
    struct str secret_file, engine_host;
    struct str secret; /* each instance is given a key of its own from it; empty: secret_file */
    int64_t tick_us;   /* between ticks; 0: irregular, and none of them is late */
    uint32_t lease_ms;
    uint64_t grace_ms, age_ms, drain_ms;
    uint64_t decisions_max; /* kept in the store */
    bool keys_required;     /* even without tenants */
    const char *keys_file;  /* keeps whether keys are required when the store is lost; NULL: none */
    uint64_t seed;          /* of ids and chance; from the system in production */
    const char *crash_at;   /* a step, or NULL */
    const struct offer *offer; /* that clouds sell besides those of control_new: a commit copies */
    uint32_t offer_count;
    /* Hears of agents that adopted an engine (cloud_adopted.h); NULL: they are unknown. */
    void (*adopted)(void *ctx, const struct agent_report *r, int64_t now_us);
    void *adopted_ctx;
};

struct control;

/* Fills the launch document of an instance of this pool, but for its names. */
void control_launch_spec(const struct control_setup *s, const struct control_launch *l,
                         struct launch_spec *ret);

/* Restores what the store has. A record that cannot be read is set aside (aside.h). */
int control_new(const struct control_setup *setup, int64_t now_us, struct control **ret,
                struct err *err);
void control_free(struct control *c); /* writes nothing: all that matters is durable already */
CLEANUP_FREEP(control, struct control)

/* Changes services, pools and times in a running controller, in two steps: between them the caller makes
 * the change durable. `setup` is as for control_new, and replaces the one that holds; what it points to is
 * borrowed from the commit on, until the next commit. Instances, overrides, demand and, where its policies
 * and pools are the same, the policies' state of a service stay; instances of what is not configured any
 * more are drained. prepare changes nothing; commit cannot fail. */
struct control_next;
int control_prepare(struct control *c, const struct control_setup *setup, struct control_next **ret,
                    struct err *err);
void control_commit(struct control *c, struct control_next *next_owned);
void control_next_free(struct control_next *next); /* of one that is not committed */
CLEANUP_FREEP(control_next, struct control_next)

/* Returns the offers in the order in which pools name them (struct plan_pool): those of control_new, then those
 * that were added. */
const struct offer *control_offers(const struct control *c, uint32_t *ret_count);

/* Gives the controller to the calling thread, the only one to use it from now on; debug builds check. */
void control_claim(struct control *c);

/* Sets the date less fleet time, before a tick: for times that people are shown. A step of the date is
 * logged and counted, nothing else. */
void control_date(struct control *c, int64_t ahead_us);

/* Observes, plans and acts once. 0, or -ECANCELED at an armed step; every other failure is logged,
 * counted and tried again at the next tick. */
int control_tick(struct control *c, int64_t now_us);

/* Takes completions of calls to providers and submits calls that are due; a tick does so too. 0, or
 * -ECANCELED at an armed step. */
int control_calls(struct control *c, int64_t now_us);

/* Calls fn, from any thread, when a provider has completed a call: then control_calls has work. */
void control_watch_clouds(struct control *c, void (*fn)(void *arg), void *arg);

/* Returns true if an event should not wait for the next second. Reading clears it. */
bool control_is_urgent(struct control *c);

void control_report(struct control *c, const struct agent_report *r, int64_t now_us,
                    struct agent_reply *ret);

/* Adds to the reply of control_report the agents that have the model which this one fetches; texts live in `arena`. */
void control_seeds(const struct control *c, const struct agent_report *r, int64_t now_us,
                   struct arena *arena, struct agent_reply *ret);

/* Takes a router's sync and returns its rules, whose lists live in `arena`. -ENOSPC: more than
 * CONTROL_ROUTERS_MAX routers; -ENOMEM. */
int control_sync(struct control *c, const struct router_sync *s, int64_t now_us,
                 struct arena *arena, struct router_rules *ret, struct err *err);

/* Overrides. -ENOENT: no such service or pool; -ERANGE: over the pool's maximum. count < 0 gives the
 * pool back to its policy. Durable on return. */
int control_pause(struct control *c, struct str service, bool paused, struct err *err);
int control_scale(struct control *c, struct str service, struct str pool, int32_t count,
                  struct err *err);

/* Forgets prompts that killed engines, as routers told; 0: all. Each router is cleared on its own. */
void control_quarantine_clear(struct control *c, uint64_t fingerprint);

/* Appends a view as JSON to `out`. */
enum control_view {
    CONTROL_STATUS, /* all that the console draws */
    CONTROL_SERVICES,
    CONTROL_POOLS,
    CONTROL_INSTANCES,
    CONTROL_INTENTS,
    CONTROL_OFFERS,
    CONTROL_COST,
    CONTROL_TENANTS,
    CONTROL_TOKENS,
    CONTROL_HISTORY, /* the last hour, for charts */
    CONTROL_VIEW_COUNT
};
int control_view(struct control *c, enum control_view view, int64_t now_us, struct buf *out);

/* Appends the engines and routers that answer GET /metrics, as Prometheus' HTTP service discovery reads
 * them: [{"targets":["HOST:PORT"],"labels":{"job":..,"instance":..,"service":..,"pool":..}},..]. */
int control_targets(const struct control *c, struct buf *out);

/* Appends decisions with id >= from, oldest first, as {"decisions":[...],"first":N,"last":N}. */
int control_decisions(struct control *c, uint64_t from, uint64_t max, struct buf *out,
                      struct err *err);
int control_decision(struct control *c, uint64_t id, struct buf *out, struct err *err);
uint64_t control_decision_last(const struct control *c); /* 0: none */

struct metrics *control_metrics(struct control *c);

/* Returns the epoch of a later term that a provider has seen, 0: none. Another term is needed then, of a
 * higher epoch. */
uint64_t control_epoch_seen(const struct control *c);
bool control_has_observed(const struct control *c); /* every provider was listed: ready to plan */
bool control_is_degraded(const struct control *c);  /* something stored cannot be read */
bool control_is_complete(
    const struct control *c); /* observed, and every serving instance was heard */
