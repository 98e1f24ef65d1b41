/* output.h - builds the output of one request: the next token, its text, the end.
 *
 * Layer:    engine/serve (engine/core, engine/model, policies, base/text)
 * Threads:  the device thread
 * Lifetime: what the spec points to lives as long as the output
 * Rules:    (1) no end token before min_tokens; stop strings count from then on as well
 *           (2) text that goes out is whole characters and never part of a stop string
 *           (3) an output that continues on another engine (spec.prompt_tokens < count) is primed
 *               with what was generated: the text goes on where it broke off
 *           (4) with a grammar, only tokens that it allows are chosen, an end token where it may end, and
 *               the output ends where nothing may follow. A grammar goes before min_tokens and ignore_eos:
 *               the first keeps end tokens away, the second does so always, but a whole text ends
 *           (5) with a limit on reasoning, the mark that ends it is chosen behind so many tokens of it, where the
 *               grammar allows that
 *           (6) looks are the hidden states that the engine's predictor read of this output. looks[0] is
 *               the prompt's end; of the later ones a uniform sample is kept, so that an output of any
 *               length takes the same memory
 */
#pragma once
#include "base/core/buf.h"
#include "base/grammar/matcher.h"
#include "base/text/detok.h"
#include "base/text/dialogue/reasoning.h"
#include "engine/core/sampler.h"
#include "engine/model/model.h"
#include "policies/predict/predict.h"

#define PREDICT_LOOKS_MAX 9

struct predict_look {
    float hidden[MODEL_HIDDEN];
    uint32_t generated; /* output tokens that were there */
};

struct predict_looks {
    float now[MODEL_HIDDEN]; /* the step that runs writes here */
    struct predict_look look[PREDICT_LOOKS_MAX];
    uint32_t count, seen;
    struct predict_posterior posterior;
};

/* A stop matcher ends an output at a stop string and never shows a part of one.
 *
 * Threads:  the device thread; one matcher a session
 * Rules:    (1) text that may still become a stop string is held back, at most the longest stop
 *               string less one byte
 *           (2) text comes in whole characters and stop strings are UTF-8, so what goes out is
 *               whole characters too
 *           (3) of several stop strings the one that is complete first ends the output, as if
 *               the text had come byte by byte; of two that end together, the longer
 */

struct stop_matcher {
    const struct str *stop; /* the caller's, as long as the matcher; none is empty */
    uint32_t count;
    struct buf held;
    struct str met; /* the one that ended the output; empty: none has */
};

void stop_init(struct stop_matcher *m, const struct str *stop, uint32_t count);
void stop_fini(struct stop_matcher *m);

/* Appends to `out` the text that can be part of no stop string. Returns 1 if a stop string was met
 * (out has all before it, the rest is gone), 0 if not; -ENOMEM. */
int stop_push(struct stop_matcher *m, struct str text, struct buf *out);

/* Appends the text that was held back; call when the output ended otherwise. Returns out->rc. */
int stop_flush(struct stop_matcher *m, struct buf *out);

#define OUTPUT_STOP_MAX 16
#define OUTPUT_ENDS_MAX (VOCAB_ENDS_MAX + 2) /* with eos and eot */

/* Takes what a session without an output is for: the states of its tokens at the end of the model, added up,
 * or what a cross-encoder's head says of a pair of texts. */
struct embedding {
    double *sum;          /* n_embd numbers, 0 at first; NULL: a score is wanted */
    enum pooling pooling; /* not POOLING_MODEL */
    uint32_t next;        /* of the mean: the tokens before it are in the sum */
    uint32_t second_from; /* of a pair: where its second text begins; 0: there is none */
    float score;
};

struct output_spec {
    struct embedding *embedding;   /* NULL: tokens are generated */
    const struct adapter *adapter; /* NULL: none */
    struct sampler_params sampling;
    uint32_t prompt_tokens; /* of the ids given; the rest was generated elsewhere */
    bool prompt_only;       /* no token is generated */
    uint32_t min_tokens;    /* of the whole output, before an end is allowed */
    bool ignore_eos;
    const struct str *stop;
    uint32_t stop_count;
    struct automaton *automaton; /* of its grammar; NULL: none */
    const struct token_value *bias;
    uint32_t bias_count;
    struct reasoning_limit limit;
    const uint32_t *shown; /* control tokens that are written all the same */
    uint32_t shown_count;
};

struct output {
    struct output_spec spec;
    struct detok detok;
    struct stop_matcher stop;
    struct matcher matcher; /* with spec.automaton */
    struct buf text;        /* certain and not fetched yet; the fetcher clears it */
    struct buf scratch;
    uint32_t generated;         /* elsewhere and here */
    struct reasoning reasoning; /* with spec.limit */
    uint32_t closing;           /* tokens of the mark that ends it so far */
    int failed;                 /* why it ended by itself; 0: it did not */
    uint32_t ends[OUTPUT_ENDS_MAX], end_count;
    struct predict_looks looks; /* of the engine's own predictor, where there is one */
    uint32_t draft_place;       /* of the draft model's places plus 1; 0: none (drafter.c) */
};

/* `ids`: prompt and what was generated elsewhere. -ENOMEM; -EINVAL: the grammar does not allow that;
 * -E2BIG: its tables do not hold it. Call output_fini also then. */
int output_init(struct output *a, const struct vocab *vocab, const struct output_spec *spec,
                const uint32_t *ids, uint32_t count);

void output_fini(struct output *a);

/* Chooses the next token from the logits behind `ids`. Errors: those of sampler_pick; -ENODATA instead of
 * -EDOM with a grammar: no token that it allows can be chosen; those of matcher_mask. */
int output_pick(struct output *a, struct sampler *sampler, const float *logits, const uint32_t *ids,
                uint32_t count, struct sampler_result *ret);

/* Adds the token to the output and appends the text it makes certain. Returns 1 if it ends the
 * output (end token, stop string, end of the grammar), 0 if not; -ENOMEM; those of matcher_advance. */
int output_take(struct output *a, uint32_t id);

/* Appends the text that was held back; call when the output ended otherwise (limit, abort). */
int output_close(struct output *a);
