/* executor.h - runs one step of the engine: guess, plan, compute, sample, commit.
 *
 * Layer:    engine/serve (engine/core, engine/model)
 * Threads:  the device thread; the models' own workers run only inside executor_step
 * Lifetime: the models outlive it. Outputs belong to the caller that submitted them, until on_end.
 * Rules:    (1) session->owner is the struct output of that session
 *           (2) executor_step blocks on no thread but the model's workers and the mask thread, and
 *               never allocates, except for text and grammars
 *           (3) an output that fails by itself (no text memory, logits without a number) ends
 *               alone, with output->failed set; a failed forward pass ends its whole batch
 */
#pragma once
#include "engine/core/scheduler.h"
#include "engine/model/model.h"
#include "engine/serve/drafter.h"
#include "engine/serve/masks.h"
#include "engine/serve/output.h"
#include "engine/serve/predict_engine.h"
#include "engine/serve/speed.h"

struct executor_config {
    struct sched_config sched; /* pages and seqs_max included */
    uint32_t threads;
    const struct predict_policy *predict; /* the engine's own predictor; NULL: none */
    struct str predict_file;              /* of its state, NUL-terminated; empty: none */
    uint32_t predict_layer; /* layer whose state it reads, from 1; 0: predict_engine_layer */
    uint32_t predict_every; /* output tokens between two looks at it; 0: only the prompt's end */
    uint32_t lora_rank_max; /* of adapters; 0: outputs have none */
    double cpu_share;       /* what the caller will throttle to, for the first estimates; 0: not */
    const struct perf_policy *perf;  /* NULL: the default for what is known */
    const struct hardware *hardware; /* NULL: not known */
    struct model *draft_model;       /* for a draft policy that asks for one; NULL: none */
    uint32_t draft_pages;            /* of its K and V */
};

/* Callbacks of the outputs' owner, on the device thread. on_token comes right after output_take and
 * before the token is part of session->ids; its text is in output->text. A step that verifies guesses
 * may give a session several tokens; session->total stays what it was until all are there. */
struct executor_events {
    void (*on_token)(void *arg, struct output *output, const struct session *session,
                     const struct sampler_result *got);
    /* A token of the prompt was scored: `got` has its log-probability. In the order of the tokens; optional. */
    void (*on_scored)(void *arg, struct output *output, const struct session *session,
                      const struct sampler_result *got);
    void (*on_end)(void *arg, struct output *output, const struct session *session);
    void (*on_step)(void *arg, double predicted_s); /* before a batch is computed; optional */
    void *arg;
};

struct executor;

/* Returns the parts of this model's pages, for sched_config.parts: of one part where no layer's window is less than
 * context_max. `numbers` follows from pages, if they are known. */
struct kv_parts executor_parts(const struct model *model, const struct sched_config *sched);

/* Gives the memory of weights and pages back to the system, with everything that is cached; between two steps,
 * with no session. No step until executor_wake, whose errors are those of model_wake. */
void executor_sleep(struct executor *x);
int executor_wake(struct executor *x, struct err *err);

int executor_new(struct model *model, const struct executor_config *config,
                 const struct executor_events *events, struct executor **ret, struct err *err);
void executor_free(struct executor *x); /* on_end is not called for what is still open */
CLEANUP_FREEP(executor, struct executor)

/* Times the draft model, if there is one, before the first step: drafter_measure. */
void executor_measure(struct executor *x, int64_t (*clock)(void));

void executor_save(struct executor *x); /* what the predictor learned, at a clean end */
struct scheduler *executor_sched(struct executor *x); /* to submit, abort and pause */
struct kv_store *executor_kv(struct executor *x);     /* the pages' bytes, between steps */
struct masks *executor_masks(struct executor *x);     /* automata of grammars, between steps */
const struct drafter *executor_drafter(const struct executor *x); /* NULL: no draft model */

struct executor_step_info {
    uint32_t tokens, seqs; /* computed */
    struct perf_shape shape;
    uint32_t pages_swapped; /* copied in its time: then it says little of the model's speed */
    double draft_s;         /* of its seconds, those that the draft model took before it */
};

/* Runs one step; `clock` gives microseconds at its begin and end (clock_mono_us). Returns 1
 * if something was computed, 0 if nothing could run, negative if the model failed: the sessions of
 * the batch ended with SESSION_END_ERROR and err says why. */
int executor_step(struct executor *x, int64_t (*clock)(void), struct executor_step_info *ret,
                  struct err *err);

/* Gives the performance model the wall seconds of a step, without the draft model's; sleep for a CPU share counts
 * too. executor_observe_draft gives that of the draft model its own, which lasted `stretch` times as long as was
 * measured, for the same reason. */
void executor_observe(struct executor *x, const struct perf_shape *shape, double seconds);
void executor_observe_draft(struct executor *x, double stretch);
const struct perf_coef *executor_perf(const struct executor *x);

/* Sets the share of full speed that the caller keeps to from now on, (0, 1]: steps are planned by
 * executor_perf_now. Only steps at full speed are to be observed. */
void executor_clock_set(struct executor *x, double clock);
const struct perf_coef *executor_perf_now(const struct executor *x);
const struct perf_policy *executor_perf_policy(const struct executor *x);
