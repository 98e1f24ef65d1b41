/* sched_rig.h - runs a scheduler over a fake executor that proves its pages, and a load for it.
 *
 * In the executor's KV cache each slot of a page holds a hash of all ids up to it. A step reads the
 * slot before its first token through the page table and goes on from there; the next id is a
 * function of the last hash. A page that was given away too early, written while shared, copied
 * wrongly or matched by mistake therefore changes the output. Of layers with a window a second slot holds the
 * same hash; a step checks those that its first token sees, and memory that pages lost is overwritten.
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
extern const struct draft_policy rig_draft; /* guesses rightly three times in four */

struct rig {
    struct scheduler *s;
    struct sched_config config;
    uint64_t *slot;                 /* page-major: the hash of what each slot was computed from */
    uint64_t *swap;                 /* the same in the swap space */
    uint64_t *window, *window_swap; /* the same of the layers with a window */
    uint64_t discarded;             /* parts of pages */
    struct sched_result *result;
    int64_t now_us;
    uint64_t steps, tokens_max_seen, stored; /* stored: of the items */
};

void rig_init(struct rig *r, const struct sched_config *config);
void rig_fini(struct rig *r);

/* Returns 64 pages of 16 tokens, 8 sessions, 64 tokens a step, and a prefix cache. */
struct sched_config rig_config(void);

uint64_t *rig_slot(struct rig *r, const struct session *session, uint32_t position);
void rig_execute(struct rig *r, const struct sched_batch *batch);

/* Plans, executes and commits one step. Returns false when nothing could run. */
bool rig_step(struct rig *r);

/* Computes the output without pages, batches or scheduler. Returns the number of ids in it. */
uint32_t rig_truth(const uint32_t *ids, uint32_t count, uint32_t output_max, uint32_t *ret);

struct load {
    uint32_t ids[REQUESTS][PROMPT_MAX], count[REQUESTS], output_max[REQUESTS];
    struct session *session[REQUESTS];
    uint8_t ended[REQUESTS];
    enum session_end end[REQUESTS];
    /* aborted, given a deadline, refused or displaced: output may be a prefix */
    bool cut[REQUESTS];
    uint32_t output[REQUESTS][OUTPUT_MAX], answer_count[REQUESTS];
};

void load_fill(struct load *l, uint64_t seed);
/* Records sched_submit's result for request i: a request that a full queue refused has ended. */
bool load_took(struct load *l, uint32_t i, int rc);
void load_submit(struct rig *r, struct load *l, uint32_t i, int64_t deadline_us, bool predicted);
void load_collect(struct rig *r, struct load *l); /* collects ended sessions */

/* Checks that every request ended once, with the output that its ids alone give. */
void load_check(struct rig *r, const struct load *l, const char *why);
