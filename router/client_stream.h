/* client_stream.h - holds a request's part on its byte loop: the client, its engine, the output so far.
 *
 * Layer:   router
 * Threads: the byte loop's; while `at_text` a text worker has all members above it but x and deadline
 */
#pragma once
#include "base/core/arena.h"
#include "base/io/auth/signed_call.h"
#include "base/io/http/http_server.h"
#include "base/io/loop/text_pool.h"
#include "base/text/dialogue/reasoning.h"
#include "base/text/tokenizer.h"
#include "base/wire/openai_calls.h"
#include "base/wire/openai_logprobs.h"
#include "base/wire/sse.h"
#include "fleet/kv_transfer.h"
#include "router/core/failure.h"
#include "router/target.h"

#define REQUEST_ARENA_BYTES_MAX ((size_t)32 << 20) /* of one parsed request */

struct fan;
struct fan_prompt;
struct request;
struct request_trace;
struct trace_passed;

/* How a request ended, for usage, windows and the predictor. */
struct outcome {
    bool ok, cut;      /* answered whole; ended by its limit or by a client that left */
    bool cached_known; /* the engine said how much of the prompt it had cached */
    bool traced;       /* its spans are on their way */
    struct usage usage;
    int64_t ttft_us, tpot_us, e2e_us; /* 0: not measured */
};

/* A migration that is under way, on the byte loop (migrate_request.c). */
struct request_migrate {
    struct kv_transfer kv; /* the stages, as this thread sees them */
    struct target to;
    struct signed_call *call; /* of a stage */
    struct buf reply;
    int status;
};

struct client_stream {
    struct list link;        /* of the byte loop's live requests */
    struct http_exchange *x; /* NULL once answered, or when the client has left */
    struct arena arena;
    struct openai_request api;
    enum reply_style style;      /* of the client's API */
    struct str repeated;         /* of a response: members of its request (openai_reply) */
    bool rewritten;              /* `body` is a chat's by now, in the arena */
    struct openai_error problem; /* the response when it is refused */
    struct openai_reply reply;
    struct str body;        /* of the client or rewritten, until the exchange is answered */
    struct str salt;        /* of the tenant's cache blocks */
    struct str adapter;     /* digest of its adapter; empty: none */
    struct str echo;        /* text that the output begins with */
    struct ids ids;         /* of the prompt, then of the output so far */
    uint32_t prompt_tokens; /* the first of them */
    bool ids_lost;          /* some generated ids are missing: no engine can go on */
    uint64_t fingerprint;   /* of model and prompt (quarantine.h) */
    uint64_t pins;          /* of the tokenizers that `ids` were made with */
    const struct bundle_entry *bundle; /* that `ids` were made with; NULL: not yet */
    struct block_key *keys;
    struct turn turn;              /* how the output is parsed; its texts are in the arena */
    struct dialogue_parser parser; /* with turn.parses */
    struct reasoning reasoning;    /* likewise */
    struct openai_message message; /* likewise: the parts so far */
    int64_t arrived_us, first_us, last_us, deadline_us;
    struct loop_timer deadline; /* at deadline_us, whether held, sent or between attempts */
    struct target target;
    uint32_t leg_from;  /* tokens of the output that were there when this leg began */
    uint32_t leg_slice; /* tokens after which this leg ends and another goes on; 0: to its end */
    bool leg_prefills;  /* this leg ends with its first token */
    bool broken;        /* the last leg failed */
    bool cached_known;  /* usage.cached_tokens is the engine's word */
    struct request_migrate migrate;
    struct text_job text; /* of a large body */
    bool at_text;         /* a text worker has all members above but x and deadline */
    int text_rc;
    struct snapshot *snapshot;          /* for the text worker that reads the body; else NULL */
    const struct snapshot_model *model; /* of that snapshot */
    struct http_exchange *pinned;       /* the exchange with the bytes that the worker reads */
    struct signed_call *call;
    struct silence silence; /* of the engine that `call` is to */
    struct loop_timer silence_timer;
    struct loop_timer ping;   /* of a stream that has begun */
    int64_t written_us;       /* when the client was last sent bytes */
    struct line_reader lines; /* of an internal reply */
    struct sse_reader events; /* of another engine's streamed reply */
    struct buf output;        /* the text so far, of a response that is sent whole */
    struct openai_logprobs logprobs;
    /* tokens of the prompt whose log-probabilities are there; with an echo of them */
    uint32_t scored;
    double logprob_sum;      /* of its tokens, where best_of needs them */
    struct fan *fan;         /* with other outputs for the same client; NULL: it is alone */
    uint32_t fan_index;      /* there */
    struct fan_prompt *more; /* further prompts of a client's request */
    uint32_t more_count;
    bool said_end;      /* of the whole stream: usage and [DONE] are rendered */
    struct buf refusal; /* body of an engine's reply with another status than 200 */
    struct buf out;     /* bytes being rendered */
    struct openai_text_form form;
    struct usage usage;
    enum finish finish;
    struct str stopped; /* the stop string that ended it, of api.stop; empty: none, or not known */
    int upstream_status;
    bool headed;              /* the head of a stream is sent, so that its status is 200 */
    bool began;               /* a byte of the output is on its way to the client */
    bool paused;              /* the client reads slower than the engine writes */
    bool ending;              /* the response is rendered to its end */
    bool over;                /* ASK_OVER was said */
    struct request *question; /* about this request, still open */
    struct request *asker; /* of a question: the request that waits for it; NULL: none any more */
    struct outcome outcome;
    struct trace_passed *passed; /* trace context of calls to engines; NULL: none */
    struct request_trace *trace; /* NULL: no record is kept */
};
