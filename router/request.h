/* request.h - one client request on both of its threads, and the messages between them.
 *
 * Layer:    router
 * Threads:  one id, three structs: client_stream belongs to the byte loop, placement to the decision
 *           thread, request_mail goes between them under the mailboxes' locks. No member has two owners
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
 *     ASK_PREFILLED ────►  the first token is there: pick a decode instance
 *                 ◄──────  TELL_SEND
 *     ASK_SLICED  ──────►  the slice is over: place, hold or refuse
 *                 ◄──────  TELL_SEND | TELL_REFUSE
 *                 ◄──────  TELL_MIGRATE (target): the output goes on there once most of its KV is there
 *     ASK_MIGRATED   ──────►  it counts there now; or ASK_STAYS: it was dropped
 *     ASK_OVER    ──────►  end: predictor, usage, limits
 *                 ◄──────  TELL_DONE
 */
#pragma once
#include "base/io/loop/mailbox.h"
#include "router/client_stream.h"
#include "router/placement.h"
#include "router/request_trace.h"

#define REQUEST_ID_MAX 64

enum request_ask {
    ASK_ARRIVE = 1,
    ASK_TOKENS = 2,
    ASK_FAILED = 4,
    ASK_OVER = 8,
    ASK_PREFILLED = 16,
    ASK_MIGRATED = 32,
    ASK_STAYS = 64,
    ASK_ENTER = 128,
    ASK_SLICED = 256,
};

enum request_tell {
    TELL_SEND = 1,
    TELL_REFUSE = 2,
    TELL_DONE = 4,
    TELL_MIGRATE = 8,
    TELL_TEXT = 16,
    TELL_HELD = 32,
};

struct byte_loop;

/* A request as the decision thread is told of it. `keys` live as long as the request. */
struct request_arrival {
    char tenant_name[DISPATCH_NAME_MAX];
    uint64_t model, adapter; /* as in dispatch_request */
    uint32_t prompt_tokens, key_count;
    const struct block_key *keys;
    struct predict_features features;
    uint64_t fingerprint;
};

/* The mail between both threads: each half is read and written under the lock of its receiver's mailbox. */
struct request_mail {
    struct mailbox_item ask_item; /* to the decision thread */
    uint32_t ask, ask_tokens;
    enum retry_failure ask_failure;
    bool ask_answering;
    /* With ASK_FAILED and ASK_SLICED. */
    uint32_t ask_generated;         /* output tokens that the next leg goes on from */
    uint64_t ask_fingerprint;       /* ids may have come since it arrived */
    struct request_arrival arrival; /* not changed after ASK_ARRIVE; ASK_ENTER: the tenant only */
    struct outcome outcome;         /* with ASK_OVER */

    struct mailbox_item tell_item; /* to the byte loop */
    uint32_t tell;
    struct target tell_target, tell_migrate;
    struct route_told tell_route; /* of a traced request, with TELL_SEND */
    int tell_status;
    double tell_retry_after_s;
    bool tell_rate_limited; /* refused by the tenant's limits, not for want of instances */
    double tell_eta_s; /* until another instance is expected; 0: not known; with REFUSE and HELD */
    bool tell_late;    /* refused as late for its SLO in an overloaded fleet */
};

struct request {
    /* These are set before the first mail and constant from then on. */
    struct byte_loop *home;
    char id[REQUEST_ID_MAX + 1];
    bool traced, sampled;            /* a trace is recorded; and is kept in any case */
    char trace_id[TRACE_ID_HEX + 1]; /* with `traced` */
    bool is_question;                /* asks how long an output will be (question.h); no client */

    struct client_stream client;
    struct request_mail mail;
    struct placement placed;
};

/* Takes a request from the pool; NULL: all are in use. `on_deadline` is called with the request. */
struct request *request_take(struct byte_loop *b, int64_t deadline_us, void (*on_deadline)(void *));
void request_release(struct request *r); /* gives it back; x and call are NULL */

void request_enter(struct request *r);                              /* ASK_ENTER */
void request_arrive(struct request *r);                             /* ASK_ARRIVE */
void request_tokens(struct request *r, uint32_t count);             /* ASK_TOKENS, and times */
void request_failed(struct request *r, enum retry_failure failure); /* ASK_FAILED */
void request_prefilled(struct request *r);                          /* ASK_PREFILLED */
void request_sliced(struct request *r);                             /* ASK_SLICED */
void request_migrated(struct request *r);                           /* ASK_MIGRATED */
void request_stays(struct request *r);                              /* ASK_STAYS */

/* Sends ASK_OVER, once, and ends a question that is still open. The caller has set ok and cut of
 * r->client.outcome; the rest of it is filled here. */
void request_over(struct request *r);
