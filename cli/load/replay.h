/* replay.h - a slice of a trace as a load run: arrivals sped up, lengths scaled, prompts made.
 *
 * Layer:    cli (base/core, base/io)
 * Lifetime: the replay borrows the trace and must outlive the load run that reads it
 */
#pragma once
#include "cli/load/load_run.h"
#include "cli/load/prompt.h"
#include "cli/target.h"
#include "simulator/trace.h"

struct replay {
    const struct trace *trace;
    uint32_t first, count; /* requests of the trace, from `first` */
    double speed;          /* arrivals come this many times as fast */
    uint32_t divide;       /* prompt lengths are divided by this; a block shrinks alike */
    uint32_t tokens_max;   /* longer prompts are cut to this */
    uint64_t seed;         /* of the texts: another seed shares nothing with this one */
    double tokens_per_word;
    uint32_t cut; /* prompts that tokens_max cut, counted by replay_message */
};

/* How many of the trace's requests, from `first`, arrive within `span_us` of its clock. */
uint32_t replay_count_within(const struct trace *t, uint32_t first, int64_t span_us);

int64_t replay_due_us(const struct replay *r, uint32_t index);
int replay_message(struct replay *r, uint32_t index, struct buf *out);

/* Tokens per word of replayed text in the model behind the server, asked of its /tokenize; again for
 * ten seconds while it answers 503, which a router does that has just come up. */
int replay_calibrate(const struct target *target, struct str api_key, double *ret, struct err *err);
