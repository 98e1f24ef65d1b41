/* sched_draft.h - adds guessed tokens to the decoding sessions of a batch, and counts those that came true.
 *
 * Layer:    engine/core, private to the scheduler: include sched_state.h
 * Rules:    (1) sched_draft.c alone writes struct sched_draft
 *           (2) a running session has a place of `state` from its first guess until it stops running
 *           (3) guesses lie behind the session's known tokens, in ids[total ..], and are no part of it
 */
#pragma once
#include "engine/core/session.h"
#include "policies/draft/draft.h"

struct scheduler;
struct sched_item;

struct sched_draft {
    char *state;    /* seqs_max places of the policy's size */
    uint32_t *free; /* places */
    uint32_t free_count;
    struct draft_place *work; /* scratch, one for each item of a batch */
    struct draft_rates all;   /* of all sessions */
    uint32_t idle_steps;      /* with guesses, and none of them computed */
    uint32_t asked_steps; /* a draft model was asked, since it was last asked for a longer guess */
    uint32_t unasked_steps; /* it was not, since it last was */
    uint32_t probe_gap;     /* such steps until it is probed */
    bool probes;            /* the guesses of the next plan are a probe */
};

int sched_draft_init(struct scheduler *s); /* -ENOMEM; call sched_draft_fini also then */
void sched_draft_fini(struct scheduler *s);

/* Lengthens the items of decoding sessions by guesses, within the step's budget and free pages. Call
 * when the batch holds nothing else. */
void sched_draft_extend(struct scheduler *s);

/* Compares the item's guess with the tokens that came: `accepted` of it, then `id`. */
void sched_draft_observe(struct scheduler *s, const struct sched_item *item, uint32_t accepted,
                         uint32_t id);
void sched_draft_leave(struct scheduler *s, struct session *x); /* it stops running */
