/* generate.h - defines the router's call to an engine: token ids in; frames of ids and text out.
 *
 * Layer:    base/wire (base/core)
 * Path:     POST /internal/generate; the reply is lines of JSON, one frame each (sse.h cuts lines)
 * Lifetime: decoded strings and ids live in the arena
 *
 * A stream that broke on one engine continues on another: `ids` then hold the prompt and the output
 * generated so far, prompt_tokens says where the prompt ends, and only new tokens come back. The
 * seed is always set, so that the sampler's numbers, keyed by (seed, position), go on as before.
 *
 * A request may also move between engines on purpose. The first engine computes the prompt with `goes_on`
 * and a max_tokens of 1 (a handoff), or its stream is ended while it decodes (a migration). kv_host and
 * kv_port name the engine from which the next one fetches the K and V that it lacks. Pages that do not
 * arrive are computed.
 */
#pragma once
#include "base/grammar/grammar.h"
#include "base/wire/field.h"
#include "base/wire/sampling.h"
#include "base/wire/usage.h"

#define GENERATE_VERSION 2         /* of the call: version 1 wrote the ids in decimal digits */
#define GENERATE_GRAMMAR_VERSION 3 /* with a grammar: an engine that knows none refuses the call */
#define GENERATE_VALUES_VERSION 4 /* with logprobs or logit_bias, and perhaps a grammar; likewise */
#define GENERATE_MARKS_VERSION 5  /* with marks, and perhaps all that; likewise */
#define GENERATE_SCORES_VERSION 6 /* with prompt_logprobs_from or prompt_only; likewise */
#define GENERATE_ADAPTER_VERSION 7 /* with an adapter, and perhaps all that; likewise */
#define GENERATE_THINK_VERSION 8   /* with think_max, and perhaps all that; likewise */
#define GENERATE_IDS_MAX (1u << 20)
#define GENERATE_STOP_MAX 16
#define GENERATE_STOP_BYTES_MAX 256
#define GENERATE_HOST_BYTES_MAX 255
#define GENERATE_TICKET_BYTES_MAX 640 /* as in auth.h */
#define GENERATE_KEY_HEX 64
#define GENERATE_RANK_MAX 1e18         /* largest magnitude of a rank */
#define GENERATE_FRAME_IDS_MAX 4096    /* new tokens in one frame */
#define GENERATE_FRAME_BYTES_MAX 65536 /* of one line: bound of the reader */
#define GENERATE_BIASES_MAX 512        /* tokens in logit_bias */
#define GENERATE_LOGPROBS_MAX 20       /* alternatives of a token */
#define GENERATE_FRAME_VALUES_MAX 4096 /* log-probabilities in one frame */

/* An engine that makes progress but has nothing else to send writes an empty line every beat, as its
 * heartbeat. It announces the interval in milliseconds in this header of its response; without the
 * header, silence means nothing. */
#define GENERATE_BEAT_HEADER "x-muster-beat"
#define GENERATE_BEAT_US 1000000
#define GENERATE_BEAT_MS "1000"

/* Set in a response whose engine makes spans of the request, as the call's traceparent asked. */
#define GENERATE_TRACED_HEADER "x-muster-traced"

struct generate_request {
    struct str id; /* x-request-id */
    const uint32_t *ids;
    uint32_t id_count;
    uint32_t prompt_tokens; /* 1..id_count; the ids behind them were generated before */
    struct sampling sampling;
    struct grammar_spec grammar;          /* of the whole output; GRAMMAR_NONE: none */
    const struct token_value *logit_bias; /* added to the logits, before penalties */
    uint32_t bias_count;
    bool logprobs;         /* frames bring them */
    uint32_t top_logprobs; /* of the likeliest tokens, beside the chosen one; needs logprobs */
    /* Frames bring those of the prompt's tokens from this one on, too, before the first generated token;
     * at least 1, because the first token has none; needs logprobs. 0: none */
    uint32_t prompt_logprobs_from;
    bool prompt_only;    /* no token is generated; max_tokens is 1 */
    bool marks;          /* write control tokens that are marks of dialects (dialect_is_mark) */
    struct str adapter;  /* digest of the LoRA adapter that it is computed with; empty: none */
    uint32_t max_tokens; /* still to generate; at least 1 */
    uint32_t min_tokens; /* of the whole output, before it may end */
    uint32_t think_max;  /* tokens of the whole output's reasoning (reasoning.h); 0: no limit */
    const struct str *stop;
    uint32_t stop_count;
    bool ignore_eos;
    struct str tenant;      /* salt of its cache blocks; empty: the fleet's common salt */
    uint32_t deadline_ms;   /* from now on; 0: none. Relative, because clocks differ */
    uint32_t predicted_p50; /* tokens this request will generate; 0: not predicted */
    uint32_t predicted_p90, predicted_mean;
    bool has_rank; /* the predictor orders requests: `rank` is its score, lower is shorter */
    double rank;
    uint64_t group;     /* of requests that share the beginning of their prompts; 0: not given */
    double weight;      /* the tenant's share of the engine; 0 means 1 */
    bool goes_on;       /* another engine continues after max_tokens; text held back is not sent */
    struct str kv_host; /* an engine that may hold K and V of the ids' beginning; empty: none */
    uint32_t kv_port;
    /* Credential for reading the pages there, in a fleet with a secret. */
    struct str kv_ticket, kv_key;
    bool kv_tls; /* the engine speaks TLS there */
};

int generate_encode(const struct generate_request *req, struct buf *out);
int generate_decode(struct str text, struct arena *arena, struct generate_request *ret,
                    struct err *err);

/* Holds one line of the response. Frames with tokens come first; exactly one frame, the last, has
 * finish != FINISH_NONE. */
struct generate_frame {
    const uint32_t *ids; /* new tokens */
    uint32_t id_count;
    struct str text; /* their text; lags the ids where a character is not complete yet */
    /* With logprobs: for each id 1 + top_logprobs values, its own first, then those of the likeliest tokens,
     * best first, filled up with LOGPROB_NONE. Of the model's own distribution, before any sampling
     * parameter, mask or bias. */
    const struct token_value *logprobs;
    uint32_t logprob_count;
    /* Likewise of the prompt's next tokens, from prompt_logprobs_from on. */
    const struct token_value *prompt_logprobs;
    uint32_t prompt_logprob_count;
    enum finish finish;
    bool has_usage; /* on the first frame with tokens (cached_tokens is known) and on the last */
    struct usage usage;
    struct str stopped; /* the stop string that ended it, with FINISH_STOP; empty: none did */
    struct str error;   /* a sentence, with FINISH_ERROR, FINISH_ABORT and FINISH_REFUSED */
};

int generate_frame_encode(const struct generate_frame *frame, struct buf *out); /* ends in \n */
int generate_frame_decode(struct str line, struct arena *arena, struct generate_frame *ret,
                          struct err *err);
