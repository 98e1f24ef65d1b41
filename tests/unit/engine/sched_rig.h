/* sched_rig.h - a scheduler under proof, and a load for it.
 *
 * The executor is fake and its KV cache is a proof: each slot of a page holds a hash of all ids up
 * to it. A step reads the slot before its first token through the page table, goes on from there,
 * and the next id is a function of the last hash. A page that was given away too early, written
 * while shared, copied wrongly or matched by mistake changes the answer.
 *
 * Layer:   tests (engine/core)
 * Threads: one
 */
#pragma once
#include "engine/core/scheduler.h"
#include "tests/unit/unit.h"

#define VOCAB 64
#define STEP_US 1000
#define REQUESTS 300
#define PROMPT_MAX 120
#define OUTPUT_MAX 40

extern const struct perf_coef rig_perf;

struct rig {
    struct scheduler *s;
    struct sched_config config;
    uint64_t *slot; /* page-major: what each place of each page was computed from */
    uint64_t *swap; /* the same in the swap space */
    struct sched_result *result;
    int64_t now_us;
    uint64_t steps, tokens_max_seen, copies;
};

void rig_init(struct rig *r, const struct sched_config *config);
void rig_fini(struct rig *r);

/* 64 pages of 16 tokens, 8 sessions, 64 tokens a step, a prefix cache. */
struct sched_config rig_config(void);

uint64_t *rig_slot(struct rig *r, const struct session *session, uint32_t position);
void rig_execute(struct rig *r, const struct sched_batch *batch);

/* Plan, execute, commit. False when nothing could run. */
bool rig_step(struct rig *r);

/* The oracle: no pages, no batch, no scheduler. Returns how many ids follow. */
uint32_t rig_truth(const uint32_t *ids, uint32_t count, uint32_t output_max, uint32_t *ret);

struct load {
    uint32_t ids[REQUESTS][PROMPT_MAX], count[REQUESTS], output_max[REQUESTS];
    struct session *session[REQUESTS];
    uint8_t ended[REQUESTS];
    enum session_end end[REQUESTS];
    bool cut
        [REQUESTS]; /* aborted, given a deadline, refused or displaced: its answer may be a prefix */
    uint32_t output[REQUESTS][OUTPUT_MAX], answer_count[REQUESTS];
};

void load_fill(struct load *l, uint64_t seed);
/* Notes what sched_submit said of request i: one that a full queue refused has ended. */
bool load_took(struct load *l, uint32_t i, int rc);
void load_submit(struct rig *r, struct load *l, uint32_t i, int64_t deadline_us, bool predicted);
void load_collect(struct rig *r, struct load *l); /* what has ended */

/* Every request ended once, and answered what the ids alone give. */
void load_check(struct rig *r, const struct load *l, const char *why);
