/* kv_rig.h - starts engines of one fleet that transfer K and V to each other, and calls them as a router.
 *
 * Layer:   tests (rig.h, base/wire, the tiny model of tests/unit/engine)
 * Threads: one
 */
#pragma once
#include "base/io/auth/auth.h"
#include "base/wire/kv_wire.h"
#include "tests/proc/rig/rig.h"

#define KV_RIG_IDS_MAX 4096
#define KV_RIG_PAGE 16 /* tokens */

/* Paths of two models with random weights; and the shipped model. */
extern char kv_tiny[64], kv_wide[64];
#define KV_OTHER_MODEL "models/muster-tiny-q8_0.gguf"

/* Makes the models and a secret. */
void kv_rig_open(void);
void kv_rig_close(void);
const char *kv_rig_header(void); /* "authorization: Bearer ..." */

/* Starts an engine that knows the secret and serves the model, and waits until it is healthy. `more` are
 * further arguments, up to NULL; NULL: none. */
struct rig_process kv_engine(const char *model, const char *const *more);

/* Stops it with SIGTERM and requires an exit code of 0; in a build with leak detection a leak gives
 * another code. */
void kv_engine_stop(struct rig_process *e);

/* Two engines that serve the tiny model; setup and teardown of a test. */
extern struct rig_process kv_a, kv_b;
int kv_two_open(void **state);
int kv_two_close(void **state);

/* The reply of an engine to /internal/generate, all frames together. */
struct kv_answer {
    int status;
    uint32_t ids[KV_RIG_IDS_MAX];
    uint32_t count;
    struct buf text;
    enum finish finish;
    struct usage usage;
};
void kv_answer_fini(struct kv_answer *a);
void kv_generate(const struct rig_process *e, const struct generate_request *req,
                 struct kv_answer *ret);

/* Makes a request with a prompt of `count` ids that differ by `seed`; greedy, exactly four tokens. The ids
 * are static and valid until the next call. */
struct generate_request kv_request(uint32_t count, uint32_t seed);

/* Names the peer to fetch K and V from. */
void kv_from(struct generate_request *req, const struct rig_process *peer);

/* Does the same by the peer's port. The ticket is static and valid until the next call. */
void kv_from_port(struct generate_request *req, uint16_t peer_port);

/* Holds a ticket as a router makes it: with the boot that the engine reports. A peer that is not an engine
 * gets a ticket with boot 1. */
struct kv_ticket {
    char text[AUTH_ID_BYTES_MAX];
    char key[2 * AUTH_KEY_BYTES + 1];
};
void kv_ticket_make(uint16_t peer_port, struct str tenant, struct kv_ticket *ret);
struct str kv_rig_secret(void);

/* Makes engine `e` fetch from the peer (POST /internal/kv/pull), which must succeed. */
struct kv_fetch_reply kv_fetch_now(const struct rig_process *e, const uint32_t *ids, uint32_t count,
                                   const char *tenant, uint16_t peer_port);

/* Makes a POST with the secret and returns the status. */
int kv_post(const struct rig_process *e, const char *path, const struct buf *body,
            struct buf *reply);

/* Returns a sample of /metrics, by name and labels as printed there; -1: there is none. */
double kv_metric(const struct rig_process *e, const char *name);
void kv_wait_metric(const struct rig_process *e, const char *name, double wanted);
