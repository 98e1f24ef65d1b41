/* flight.h - holds a request under way, as router, engine and tally each keep it, and models the ports
 * through which its KV goes from one instance to another.
 *
 * Layer:    simulator (router/core, engine/core, fleet, base/core)
 * Lifetime: taken when the request arrives, given back when it has ended; buffers are reused
 * Links:    (1) each instance has one port with a way out and a way in, of equal speed; a copy needs
 *               the sender's way out and the receiver's way in, and waits for both in the order in
 *               which copies were asked for
 *           (2) the latency passes before the first byte and occupies nothing
 *           (3) a copy is over when its last byte is there or its time is up; in that case its other
 *               bytes occupy the ports all the same
 */
#pragma once
#include "base/core/block_key.h"
#include "base/core/heap.h"
#include "engine/core/session.h"
#include "router/core/director.h"
#include "simulator/trace.h"

struct kv_link {
    struct heap under_way;             /* by the time at which the copy is over */
    int64_t *out_free_us, *in_free_us; /* by port */
    uint32_t ports;
    double bytes_s;
    int64_t latency_us;
    double bytes; /* asked for so far */
};

struct kv_copy {
    struct heap_node node;
    int64_t first_us, last_us; /* when its first byte comes, and when its last is there */
};

bool kv_link_init(struct kv_link *t, uint32_t ports, double bytes_s,
                  int64_t latency_us); /* false without memory */

void kv_link_fini(struct kv_link *t);

/* Begins a copy, which must not be under way. It is over at until_us at the latest. False without
 * memory. */
bool kv_link_begin(struct kv_link *t, struct kv_copy *copy, uint32_t from, uint32_t to,
                   double bytes, int64_t now_us, int64_t until_us);

void kv_link_drop(struct kv_link *t, struct kv_copy *copy);
void kv_link_port_new(struct kv_link *t, uint32_t port); /* another instance's from now on */
struct kv_copy *kv_link_over(struct kv_link *t, int64_t now_us);  /* takes one that is; NULL */
int64_t kv_link_next_us(const struct kv_link *t);                 /* INT64_MAX: none */
double kv_copy_share(const struct kv_copy *copy, int64_t now_us); /* of its bytes, there by now */

/* The members that every token reads and writes lie together, up to the beginning of `routed`: thousands of flights
 * take turns, and most time goes into fetching them. */
struct flight {
    struct list link;       /* free, or in an instance's queue */
    struct block_key *keys; /* for the router to match; keys_max places */
    uint32_t key_count, keys_max;
    struct block_key salt;
    uint32_t imported_tokens; /* their KV comes with it to its next instance, */
    uint32_t imported_from;   /* from this token on */

    /* A copy of its KV (kv_transfers.c). */
    struct kv_copy copy;
    uint32_t copy_tokens; /* of the copy that is under way */
    uint32_t preemptions; /* its session's, when its migration began */
    int64_t held_us;      /* since when it stands still, or its prompt is done */

    struct list on_instance; /* in the list of its instance's flights */
    struct session *session;
    int64_t due_us;                            /* of its next token, at a serial instance */
    int64_t arrival_us, first_us, last_us;     /* as they happened */
    uint32_t request;                          /* index in the trace */
    uint32_t router, instance, first_instance; /* first_instance: of the first token */
    uint32_t generated, cached_tokens;
    struct director_request routed;
};

struct flights {
    struct list free, all_pages;
    uint32_t taken;
};

void flights_init(struct flights *fs);
void flights_fini(struct flights *fs);

/* Takes a flight, zeroed but for its buffers. NULL without memory. */
struct flight *flight_take(struct flights *fs);
void flight_give(struct flights *fs, struct flight *f);

/* Makes room for `count` keys; false without memory. */
bool flight_keys_reserve(struct flight *f, uint32_t count);

/* Makes the token ids that a trace's blocks stand for, and the keys that a router chains of them.
 *
 * Rule:  equal blocks give equal ids, so that router, index and cache see exactly the sharing that
 *        the trace names; prompts without blocks share nothing and need no ids
 */

/* Fills a prompt's ids; `ret` has room for the request's prompt_tokens. */
void prompt_ids(const struct trace *t, const struct trace_request *r, uint32_t *ret);

/* Fills one key for each block of the trace, chained, for engines with cache pages of that size. */
void prompt_block_keys(const struct trace *t, const struct trace_request *r, uint64_t seed,
                       struct block_key salt, struct block_key *ret);
