/* failure.h - decides when a silent engine is taken for hung, and whether a failed attempt is made again.
 *
 * Layer:   router/core (base/core)
 * Threads: pure; a byte loop calls
 * Rules:   (1) an engine of ours that names a heartbeat sends one while its device makes progress,
 *              so that a long queue is no silence; several beats in a row are missed before it counts
 *          (2) one of ours that names none (an older one) is given the head's limit only
 *          (3) an engine of another make is silent while a request waits in its queue: its limits are
 *              longer and hold for streamed responses only; a whole one comes at once, at its end
 *          (4) bytes that are late because this side was late, or did not read, are no silence
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define SILENCE_BEATS 4        /* heartbeats missed in a row before silence counts, at least */
#define SILENCE_LATE_US 500000 /* a look that comes later than this was late itself */

struct silence_config {
    int64_t head_us;        /* ours: to the head of its reply */
    int64_t gap_us;         /* ours: between bytes of it */
    int64_t other_first_us; /* another's streamed response: to its first byte */
    int64_t other_gap_us;   /* and between bytes */
};

struct silence {
    bool ours, streams;
    bool has_head;    /* the reply's head is there */
    bool has_bytes;   /* and some of its body */
    int64_t beat_us;  /* named by the engine; 0: none */
    int64_t heard_us; /* last byte, or the beginning of the call */
    int64_t look_us; /* when silence_look wants to be asked again; INT64_MAX: not before a change */
};

/* The call begins. */
void silence_begin(struct silence *s, const struct silence_config *c, bool ours, bool streams,
                   int64_t now_us);
void silence_head(struct silence *s, const struct silence_config *c, int64_t beat_us,
                  int64_t now_us);
/* Notes that bytes came, or that none could because this side did not read. */
void silence_heard(struct silence *s, const struct silence_config *c, int64_t now_us);

/* Returns true if the engine was silent for too long. Else look_us is the time of the next look. */
bool silence_look(struct silence *s, const struct silence_config *c, int64_t now_us);

/* Decides after a failed attempt if the request is sent elsewhere or refused.
 *
 * Threads: the decision thread only
 * Rules:   (1) nothing is retried once a byte of the response went to the client, unless the tokens
 *              generated so far are known: then another engine goes on from there
 *          (2) a connection that was dead before the engine saw the request costs no retry
 *          (3) the first engine that a request loses (died, taken, silent or broken) costs no retry either:
 *              all requests of an engine lose it at once, and each of them once
 *          (4) other retries are paid from a budget that begins with RETRY_FLOOR and grows with
 *              the traffic by a tenth of it, so that a failing fleet is not buried under repeats
 *          (5) a request that was being computed when two engines died, and did not come past that
 *              point between, is answered 422: it may be what kills them. A request that only ran
 *              beside such a one clears itself by going on past that point (quarantine.h)
 *
 *     failure        charge   counts as crash   when refused
 *     UNREACHABLE    no       no                503
 *     DIED           (3)      yes               502, second crash 422
 *     TAKEN          (3)      no                502: its provider ended it, not the request
 *     SILENT         (3)      no                502: its network may be what is silent
 *     OVERLOADED     yes      no                503, also for an engine's 429: the limit is not this router's
 *     ERROR          yes      no                502
 *     BROKEN         (3)      no                502: as after a loss, all its requests get it at once
 *     LOCAL          no       no                503: this router ran short, the engine was not asked
 */

#define RETRY_REQUESTS 10    /* new requests that earn one retry */
#define RETRY_FLOOR 3        /* retries that are there before any traffic */
#define RETRY_SAVED_MAX 100  /* retries that a time without failures can save up */
#define RETRY_ATTEMPTS_MAX 8 /* attempts of one request, the free ones included */
#define RETRY_CRASHES_MAX 2  /* in a row, none past the point of the one before */
#define RETRY_DEATHS_MAX 4   /* crashes in all: a prompt may kill at different points */

/* Why a request is refused; the bounds are the dispatch's (dispatch.h). */
enum refusal {
    REFUSAL_NONE,
    REFUSAL_FULL,        /* requests_max are in flight */
    REFUSAL_HELD_FULL,   /* held_max are held, and no tenant gives up a place */
    REFUSAL_HELD_LONG,   /* it was held for hold_us_max */
    REFUSAL_DISPLACED,   /* it gave its place to a tenant that holds less */
    REFUSAL_LATE,        /* the fleet is overloaded, and it is expected to miss its SLO */
    REFUSAL_POLICY,      /* the routing policy rejects it */
    REFUSAL_QUARANTINED, /* its prompt killed two engines */
    REFUSAL_FAILED,      /* its attempts failed, and no other is made */
    REFUSAL_UNSERVED,    /* no instance serves it, and none would be started */
    REFUSAL_COUNT
};
extern const char *const refusal_names[REFUSAL_COUNT]; /* "none", "full", "held_full", ... */

enum retry_failure {
    RETRY_UNREACHABLE, /* refused, or closed before the request was taken */
    RETRY_DIED,        /* the connection broke while the engine had the request */
    RETRY_TAKEN,       /* the same, of an instance that its provider said it takes away */
    RETRY_SILENT,      /* said nothing for longer than it may (silence_look) */
    RETRY_OVERLOADED,  /* answered 429 or 503 */
    RETRY_ERROR,       /* answered 5xx, or nonsense */
    RETRY_BROKEN, /* an engine of another make answered 500: its server outlives what computes */
    RETRY_LOCAL,  /* this router lacks a descriptor, a port, memory or a name's address */
    RETRY_FAILURE_COUNT
};
extern const char *const retry_failure_names[RETRY_FAILURE_COUNT];

struct retry_budget {
    uint32_t saved; /* requests: a retry costs RETRY_REQUESTS of them */
};

struct retry_request {
    uint32_t attempts; /* made so far, the failed one included */
    uint32_t crashes;  /* since the request was last seen to be harmless */
    uint32_t deaths;   /* crashes in all */
    uint32_t losses;   /* engines that died, broke, were taken or fell silent */
    bool answering;    /* a byte has gone to the client, and no engine can go on from it */
};

struct retry_verdict {
    bool again;
    int status; /* for the client when not again; 0 while answering: break the stream */
};

void retry_budget_init(struct retry_budget *b);
void retry_budget_earn(struct retry_budget *b); /* once for each new request */

/* Counts the failure into `r` (attempts are counted by the caller when it sends). */
struct retry_verdict retry_decide(struct retry_budget *b, struct retry_request *r,
                                  enum retry_failure failure);
