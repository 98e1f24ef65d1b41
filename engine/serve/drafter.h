/* drafter.h - runs a draft model before each step: it guesses the next tokens of the sequences that decode.
 *
 * Layer:    engine/serve (engine/core, engine/model)
 * Threads:  the device thread; the model's own workers run only inside drafter_run
 * Lifetime: the model outlives it. A sequence's place lasts from its first guess until drafter_leave, or until
 *           another sequence needs the place or its pages
 * Rules:    (1) a guess changes no output (policies/draft/draft.h): what is wrong here costs time only
 *           (2) K and V of the model have pages of their own, `pages` in all; a sequence that finds none is
 *               not guessed for
 *           (3) nothing is kept in step by the outside: what the model has computed of a sequence is compared
 *               with its tokens before each guess, so rejected guesses, tokens that came without one, preempted
 *               sequences and hits in the prefix cache are all one case
 */
#pragma once
#include "engine/core/scheduler.h"
#include "engine/model/model.h"
#include "engine/serve/output.h"
#include "engine/serve/speed.h"

struct drafter_config {
    struct model *model;
    /* Of the target: page size, context, sessions, tokens of a step. */
    const struct sched_config *sched;
    uint32_t pages;            /* of K and V; at least those of one context */
    struct speed_config speed; /* threads included */
};

struct drafter_counts {
    uint64_t guessed;  /* tokens */
    uint64_t computed; /* tokens, those that it caught up on included */
    double seconds;    /* as measured */
    uint32_t pages_free, pages_held;
};

struct drafter;

/* Refuses a draft model that cannot guess for the target. -ENOTSUP: it generates no text or has no tokenizer.
 * -EINVAL: its vocabulary is another; the sentence names the first difference. */
int drafter_check(const struct model_info *draft, const struct model_info *target, struct err *err);

/* The model has passed drafter_check. -ENOMEM, and errors of speed_init. */
int drafter_new(const struct drafter_config *config, const struct model_info *target,
                struct drafter **ret, struct err *err);
void drafter_free(struct drafter *d);

/* Times some passes before the first request, for the estimates: a model whose price was guessed too high would
 * never be asked, and so never be timed. */
void drafter_measure(struct drafter *d, int64_t (*clock)(void));

/* Guesses for the sessions that will decode in the next plan, for as many tokens as the length rule finds worth
 * their seconds (sched_guess_lengths), and gives the scheduler the guesses. Returns the seconds it took.
 * `perf`: of the target, at its present clock. */
double drafter_run(struct drafter *d, struct scheduler *s, const struct perf_coef *perf,
                   int64_t (*clock)(void));
double drafter_predicted_s(const struct drafter *d); /* of the last run */

/* Has the model's estimates learn from the last run, which lasted `stretch` times as long as it measured. */
void drafter_observe(struct drafter *d, double stretch);
void drafter_clock_set(struct drafter *d, double clock);

/* Lets go of what is kept for a session that has ended. */
void drafter_leave(struct drafter *d, struct output *output);

/* As executor_sleep and executor_wake. */
void drafter_sleep(struct drafter *d);
int drafter_wake(struct drafter *d, struct err *err);

void drafter_counts_get(const struct drafter *d, struct drafter_counts *ret);
