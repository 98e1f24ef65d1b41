/* http_api_embed.h - serves one request for vectors of texts: an embedding, a score or a ranking.
 *
 *     texts ── EMBED_AT_ONCE of them at the device ──► a vector each ──► one reply
 *
 * A text is a session of the scheduler like any other, which ends with its prompt: it shares steps with
 * sessions that generate, and the pages of equal beginnings. With pooling "mean" no page is shared, because
 * the states of tokens found in the prefix cache are not known. With a cross-encoder a text is a pair, and its
 * score is the head's number instead of a cosine.
 *
 * Layer:    engine/serve, private to http_api*.c
 * Threads:  the loop's; a vector is the device thread's between device_submit and the mail with `ended`
 * Lifetime: from embed_start until its last job came back
 * Rules:    (1) the first failure ends the request, and its other jobs with it
 *           (2) it counts as EMBED_AT_ONCE calls of the API, or as many as it has texts
 */
#pragma once
#include "engine/serve/http_api_call.h"

#define EMBED_AT_ONCE 16u /* texts of a request at the device; at most as many as may wait there */
#define EMBED_REPLY_BYTES_MAX ((size_t)48 << 20) /* of the vectors in a reply; 413 beyond */

struct embed_ask {
    const struct openai_request *r; /* copied; what it points to is in the arena or the body */
    struct arena *arena;            /* taken, with `prompts` */
    struct prompt_made *prompts;    /* r->prompt_count, of which embed_texts are made */
    const struct request_id *id;
    int64_t deadline_us; /* 0: the longest allowed */
    bool entered;        /* before a drain began, which then waits for it */
};

/* Checks what the model bounds: dimensions, and the bytes of the reply. Any thread. */
int embed_check(const struct http_api *api, const struct openai_request *r, struct openai_error *e);

/* Returns true if the model judges pairs of texts instead of making vectors; how many texts, or pairs, a
 * request has the device compute. Any thread. */
bool embed_pairs(const struct http_api *api);
uint32_t embed_texts(const struct http_api *api, const struct openai_request *r);

/* Starts a request; it replies in any case, at once or later. */
void embed_start(struct http_api *api, struct http_exchange *x, const struct embed_ask *ask);

void embed_mail(struct job *job);         /* device_events.on_mail, of a job with an embedding */
void embeds_let_go(struct http_api *api); /* the device has stalled: their clients get an error */
void embeds_free(struct http_api *api);   /* after the device has gone */
