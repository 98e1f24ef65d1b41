/* usage.h - counts the tokens of a request, and names how it ended.
 *
 * Layer: base/wire (base/core). Plain values that several messages share.
 */
#pragma once
#include <stdint.h>

struct usage {
    uint32_t prompt_tokens;
    uint32_t cached_tokens; /* of the prompt: found in the KV cache */
    uint32_t generated_tokens;
    uint32_t reasoning_tokens; /* of the generated: of a chat's reasoning */
};

enum finish {
    FINISH_NONE,    /* still running */
    FINISH_STOP,    /* end token or stop string */
    FINISH_LENGTH,  /* max_tokens or the end of the context */
    FINISH_ABORT,   /* cancelled or past its deadline */
    FINISH_ERROR,   /* the engine failed; the error says why */
    FINISH_REFUSED, /* it lost its place in the engine's queue and never ran: becomes a 429 */
    FINISH_COUNT
};

extern const char *const finish_names[FINISH_COUNT]; /* "none", "stop", ... as on the wire */
