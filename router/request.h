/* request.h - one client request as the router holds it, on both of its threads.
 *
 * Layer:    router
 * Threads:  three parts, each with one owner: the byte loop's, the decision thread's (`core`,
 *           `tenant`), and the mail between them, under the lane it goes through
 * Lifetime: taken from the byte loop's pool when it arrives, given back when TELL_DONE came.
 *           ASK_OVER is the byte loop's last word and is said exactly once after ASK_ARRIVE;
 *           TELL_DONE is the answer to it and the decision thread's last word.
 *
 *     byte loop            decision thread
 *     ASK_ARRIVE  ──────►  place, hold or refuse
 *                 ◄──────  TELL_SEND (target) | TELL_REFUSE (status)
 *     ASK_TOKENS  ──────►  ledger
 *     ASK_FAILED  ──────►  elsewhere, hold or refuse
 *                 ◄──────  TELL_SEND | TELL_REFUSE
 *     ASK_PREFILLED ────►  the first token is there: who decodes?
 *                 ◄──────  TELL_SEND
 *                 ◄──────  TELL_MOVE (target): the answer goes on there when most of its K and V are
 *     ASK_MOVED   ──────►  it counts there now; or ASK_STAYS: it was dropped
 *     ASK_OVER    ──────►  end: predictor, usage, limits
 *                 ◄──────  TELL_DONE
 */
#pragma once
#include "base/core/arena.h"
#include "base/io/http_server.h"
#include "base/io/lane.h"
#include "base/io/text_pool.h"
#include "base/text/tokenizer.h"
#include "base/wire/generate.h"
#include "base/wire/openai_reply.h"
#include "base/wire/sse.h"
#include "router/bundles.h"
#include "router/core/core.h"
#include "router/core/silence.h"
#include "router/fleet_link.h"

#define REQUEST_ID_MAX 64
#define TARGET_HOST_MAX 64
#define REQUEST_ARENA_BYTES_MAX ((size_t)32 << 20) /* of one parsed request */

enum request_ask {
    ASK_ARRIVE = 1,
    ASK_TOKENS = 2,
    ASK_FAILED = 4,
    ASK_OVER = 8,
    ASK_PREFILLED = 16,
    ASK_MOVED = 32,
    ASK_STAYS = 64,
    ASK_ENTER = 128,
};

enum request_tell {
    TELL_SEND = 1,
    TELL_REFUSE = 2,
    TELL_DONE = 4,
    TELL_MOVE = 8,
    TELL_TEXT = 16,
};

/* Where a leg goes: one call to one engine. An answer that goes on elsewhere has several. */
struct target {
    char instance[CORE_NAME_MAX];
    char host[TARGET_HOST_MAX];
    uint16_t port;
    bool tls;
    enum engine_kind kind;
    uint32_t context_tokens, page_tokens;
    const struct bundle_entry *bundle; /* NULL for engines that take the client's JSON */
    double length_p50, length_p90,
        length_mean;               /* tokens foretold for the request that goes there */
    uint32_t hit_tokens;           /* of its prompt, expected in the engine's cache */
    bool hands_over;               /* only the first token is wanted of it */
    char kv_host[TARGET_HOST_MAX]; /* the engine that has K and V of the beginning; "": none */
    uint16_t kv_port;
    char kv_instance[CORE_NAME_MAX];
    bool kv_tls;
};

/* How it ended, for usage, windows and the predictor. */
struct outcome {
    bool ok, cut; /* answered whole; ended by its limit or by a client that left */
    struct usage usage;
    int64_t ttft_us, tpot_us, e2e_us; /* 0: not measured */
};

struct tenant;
struct byte_loop;

/* A move that is under way, on the byte loop (move.c). */
struct request_move {
    struct target to;
    struct signed_call *call; /* of a stage */
    struct buf reply;
    int status;
    uint32_t stage, copied_tokens;
};

/* The same as the decision thread knows it (migration.h). */
enum request_moves { MOVES_NOT, MOVES_COPYING, MOVES_ARRIVING };

struct request {
    /* The byte loop's. */
    struct byte_loop *home;
    struct list link;        /* of the byte loop's live requests */
    struct http_exchange *x; /* NULL once answered, or when the client has left */
    struct arena arena;
    char id[REQUEST_ID_MAX + 1];
    struct openai_request api;
    struct openai_error problem; /* the answer when it is refused */
    struct openai_reply reply;
    struct str body;        /* of the client, until the exchange is answered */
    struct str salt;        /* of the tenant's cache blocks */
    struct ids ids;         /* of the prompt, and what was generated so far */
    uint32_t prompt_tokens; /* of them */
    bool ids_lost;          /* some of what was generated is not among them: nobody can go on */
    uint64_t fingerprint;   /* of model and prompt (quarantine.h) */
    uint64_t pins;          /* of the tokenizers that it was made with, */
    const struct bundle_entry *bundle; /* that `ids` were made with; NULL: not yet */
    struct block_key *keys;
    int64_t arrived_us, first_us, last_us, deadline_us;
    struct loop_timer deadline; /* at deadline_us, whether held, sent or between attempts */
    struct target target;
    uint32_t leg_from; /* tokens of the answer that were there when this leg began */
    bool leg_hands;    /* this leg ends with its first token */
    bool broken;       /* the last leg failed */
    struct request_move move;
    struct text_job text; /* of a large body */
    bool at_text;         /* a worker has the request: all above but x and deadline is its */
    int text_rc;
    struct face *face;              /* that it is read by, while a worker does; else NULL */
    const struct face_model *model; /* of that face */
    struct http_exchange *pinned;   /* whose bytes it reads */
    struct signed_call *call;
    struct silence silence; /* of the engine that `call` is to */
    struct loop_timer silence_timer;
    struct line_reader lines; /* of an internal reply */
    struct sse_reader events; /* of another engine's streamed reply */
    struct arena frame_arena;
    struct buf answer;  /* text of a whole reply */
    struct buf refusal; /* an engine's words with another status than 200 */
    struct buf out;     /* what is being rendered */
    struct usage usage;
    enum finish finish;
    int upstream_status;
    bool began;               /* a byte of the answer is on its way to the client */
    bool paused;              /* the client reads slower than the engine writes */
    bool ending;              /* the answer is rendered to its end */
    bool over;                /* ASK_OVER was said */
    bool is_question;         /* of how long an answer will be (question.h); no client */
    struct request *question; /* asked for this one and still open */
    struct request *asker;    /* of a question: who waits for it; NULL: nobody any more */
    struct outcome outcome;

    /* Mail to the decision thread, under its lane. */
    struct lane_item ask_item;
    uint32_t ask;
    uint32_t ask_tokens;
    enum retry_failure ask_failure;
    bool ask_answering;
    uint32_t ask_generated;   /* with ASK_FAILED: of these the next leg goes on */
    uint64_t ask_fingerprint; /* with ASK_FAILED: ids may have come since it arrived */

    /* Mail to the byte loop, under its lane. */
    struct lane_item tell_item;
    uint32_t tell;
    struct target tell_target, tell_move;
    int tell_status;
    double tell_retry_after_s;
    bool tell_rate_limited; /* refused by the tenant's limits, not for want of instances */

    /* The decision thread's. */
    struct core_request core;
    char tenant_name[CORE_NAME_MAX]; /* set by the byte loop before ASK_ARRIVE */
    struct tenant *tenant;
    bool counted; /* in its tenant's concurrency and requests */
    bool arrived; /* ASK_ARRIVE was heard */
    bool queued;  /* in its service's lengths of what waits, with the next two */
    double told_prompt, told_output;
    bool handing;         /* it was sent where it shall not stay */
    struct list decoding; /* of the migration's */
    enum request_moves moves;
    uint64_t told_pins;              /* and of those that it was told of */
    uint32_t move_to, move_pages;    /* slot, unless MOVES_NOT; with the next one */
    uint64_t move_serial, at_serial; /* of the endpoints it moves to and is at */
};

/* NULL: all are out. `on_deadline` is called with the request. */
struct request *request_take(struct byte_loop *b, int64_t deadline_us, void (*on_deadline)(void *));
void request_release(struct request *r); /* gives it back; x and call are NULL */

void request_enter(struct request *r);                              /* ASK_ENTER */
void request_arrive(struct request *r);                             /* ASK_ARRIVE */
void request_tokens(struct request *r, uint32_t count);             /* ASK_TOKENS, and times */
void request_failed(struct request *r, enum retry_failure failure); /* ASK_FAILED */
void request_prefilled(struct request *r);                          /* ASK_PREFILLED */
void request_moved(struct request *r);                              /* ASK_MOVED */
void request_stays(struct request *r);                              /* ASK_STAYS */

/* Says ASK_OVER, once, and ends a question that is still open. r->outcome is filled. */
void request_over(struct request *r);
