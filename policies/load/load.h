/* load.h - the interface of load policies, which choose the machine at which a model is loaded.
 *
 * Layer:   policies (base/core)
 * Threads: pure
 * Rules:   planner-only: no driver loads weights by machine yet; `muster plan load` asks
 */
#pragma once
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

#define LOAD_SERVERS_MAX 64
#define LOAD_NONE UINT32_MAX

/* Tiers at which a machine may have a model, the nearest first. */
enum load_tier {
    LOAD_MEMORY,
    LOAD_DISK,
    LOAD_STORE, /* shared by all machines; has every model */
    LOAD_TIER_COUNT
};

/* A machine at which the model may be loaded. */
struct load_server {
    bool usable;
    double queued_bytes[LOAD_TIER_COUNT]; /* queued loads, by the tier they come from */
    enum load_tier tier;                  /* the nearest tier that has the model */
};

struct load_problem {
    struct load_server server[LOAD_SERVERS_MAX];
    uint32_t server_count;
    double model_bytes;
    double bytes_s[LOAD_TIER_COUNT]; /* of loading from each tier; > 0 */
    double start_s;                  /* of an engine, without its weights */
};

struct load_verdict {
    uint32_t server;             /* LOAD_NONE: none is usable */
    double ready_s, runner_up_s; /* < 0: there is none */
};

struct load_policy {
    const char *name;
    const char *about;  /* --help and the documents */
    const char *source; /* paper or system of the rule */
    void (*choose)(const struct load_problem *problem, struct load_verdict *ret);
};

#define POLICY(name) extern const struct load_policy load_##name;
#include "policies/load/load.def"
#undef POLICY

extern const struct load_policy *const load_table[];
extern const uint32_t load_count;
#define LOAD_DEFAULT "serverlessllm"

const struct load_policy *load_find(struct str name); /* NULL when there is none */

/* Functions that policies share (load.c): seconds until the queue of loads at the machine is over,
 * and until its engine would be ready. */
double load_queue_s(const struct load_problem *problem, uint32_t server);
double load_ready_s(const struct load_problem *problem, uint32_t server);

/* Chooses the usable server of the least score; on equal scores the first listed. */
void load_least(const struct load_problem *problem,
                double (*score)(const struct load_problem *problem, uint32_t server),
                struct load_verdict *ret);
