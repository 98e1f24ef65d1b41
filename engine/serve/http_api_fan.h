/* http_api_fan.h - serves one request for several outputs: a call for each, one exchange for all.
 *
 *     first output of a prompt ── its first token ──► its other outputs are submitted
 *
 * The others wait for the first one's prompt: its pages are in the prefix cache then, so that all outputs
 * share them, and only the tokens behind the last whole page are computed again.
 *
 * Layer:    engine/serve, private to http_api*.c
 * Threads:  the loop's
 * Lifetime: from call_fan_start until its last call is freed
 * Rules:    (1) the first failure ends the request, and the other calls with it
 *           (2) a stream has the chunks of all outputs as they come, with their index; its end comes
 *               when the last output ends
 *           (3) of best_of outputs the n with the highest mean log-probability of a token are sent, the
 *               best first
 */
#pragma once
#include "engine/serve/http_api_call.h"

struct call_output {
    struct call *call; /* NULL: it has ended */
    struct buf text, logprobs, prompt_logprobs;
    struct turn_output *turn; /* the parts of the text; NULL: it is not parsed */
    enum finish finish;
    double mean; /* log-probability of a token; with best_of above n */
};

struct call_fan {
    struct http_api *api;
    uint32_t count, open; /* outputs; those that have not ended */
    uint32_t n, best_of;
    bool begun; /* the head of a stream is sent */
    bool held;  /* not to be freed now */
    struct usage usage;
    struct call_output output[];
};

/* Starts the outputs of a request, with each of its prompts, which are copied; replies in any
 * case. `ask` is that of each output but for prompt, seed and index; its turn is taken. */
void call_fan_start(struct http_api *api, struct http_exchange *x, const struct openai_request *r,
                    const struct prompt_made *prompts, const struct call_ask *ask);

/* The head of its stream is about to be sent; false if it was already. */
bool call_fan_begin(struct call_fan *f);
bool call_fan_is_last(const struct call *c);
void call_fan_go_on(struct call *c); /* the prompt of its call is computed */
void call_fan_count(struct call *c, const struct job_mail *mail); /* its tokens, at its end */

/* The exchange is gone: ends all calls but `c`. */
void call_fan_leave(struct call *c);

/* Keeps the end of a call's output, and replies with all of them if it is the last. */
void call_fan_keep(struct call *c, const struct job_mail *mail, enum finish finish);
void call_fan_forget(struct call *c); /* it is freed */
