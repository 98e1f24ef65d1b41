/* output.h - the output of one request as it grows: the next token, its text, the end.
 *
 * Layer:    engine/serve (engine/core, base/text)
 * Threads:  the device thread
 * Lifetime: what the spec points to lives as long as the answer
 * Rules:    (1) no end token before min_tokens; stop strings count from then on as well
 *           (2) text that goes out is whole characters and never part of a stop string
 *           (3) an answer that continues on another engine (spec.prompt_tokens < count) is primed
 *               with what was generated: the text goes on where it broke off
 */
#pragma once
#include "base/text/detok.h"
#include "engine/core/sampler.h"
#include "engine/core/stop.h"
#include "engine/model/model.h"

#define OUTPUT_STOP_MAX 16
#define OUTPUT_ENDS_MAX 2 /* eos and eot */

struct output_spec {
    struct sampler_params sampling;
    uint32_t prompt_tokens; /* of the ids given; the rest was generated elsewhere */
    uint32_t min_tokens;    /* of the whole answer, before an end is allowed */
    bool ignore_eos;
    const struct str *stop;
    uint32_t stop_count;
};

struct output {
    struct output_spec spec;
    struct detok detok;
    struct stop_matcher stop;
    struct buf text; /* certain and not fetched yet; the fetcher clears it */
    struct buf scratch;
    uint32_t generated; /* elsewhere and here */
    int failed;         /* why it ended by itself; 0: it did not */
    uint32_t ends[OUTPUT_ENDS_MAX], end_count;
    float hidden[MODEL_HIDDEN]; /* the model's state at the prompt's end, where somebody asked */
};

/* `ids`: prompt and what was generated elsewhere. -ENOMEM. Call output_fini also then. */
int output_init(struct output *a, const struct vocab *vocab, const struct output_spec *spec,
                const uint32_t *ids, uint32_t count);
void output_fini(struct output *a);

/* The next token for the logits behind `ids`. Errors of sampler_pick. */
int output_pick(struct output *a, struct sampler *sampler, const float *logits, const uint32_t *ids,
                uint32_t count, struct sampler_result *ret);

/* The token is part of the answer; text it makes certain is appended. 1 when it ends the answer
 * (end token or stop string), 0 when not, -ENOMEM. */
int output_take(struct output *a, uint32_t id);

/* The answer ended otherwise (its limit, an abort): what was held back is text now. */
int output_close(struct output *a);
