/* pull_seed.h - knows the agents of the fleet that have a model, and what they say of its chunks.
 *
 * Layer:   cli (base/io/auth, base/wire)
 * Threads: one, with the loop of `muster pull`
 * File:    {"seeds":[{"host","port","tls","id","key"},...]}, which the agent rewrites while the pull runs. It is read
 *          again when it has changed; an agent that is no longer in it stays until it fails
 * Trust:   none in what they say but the digests of whole files (base/wire/seal.h)
 * Bound:   PULL_SEEDS_MAX agents
 */
#pragma once
#include "base/io/auth/signed_call.h"
#include "base/wire/seal.h"

#define PULL_SEEDS_MAX 16u

enum pull_seed_state { PULL_SEED_ASKED, PULL_SEED_READY, PULL_SEED_GONE };

struct pull_seed {
    enum pull_seed_state state;
    bool liar; /* it gave, or claimed, what the file does not have */
    char host[129], id[AUTH_ID_BYTES_MAX];
    uint32_t port;
    struct auth_key key;
    struct peer_call call; /* for the seal */
    struct arena arena;
    struct seal seal;
    uint32_t busy, failures; /* chunks under way; failures in a row */
    int64_t quiet_until_us;
    uint64_t bytes; /* that it gave */
};

struct pull_seeds {
    struct loop *loop;
    const char *path;
    struct str sha256; /* of the model */
    struct http_client *client;
    struct signer *signer;
    struct pull_seed list[PULL_SEEDS_MAX];
    uint32_t count;
    int64_t changed_ns; /* of the file, as it was read */
};

/* `sha256` is borrowed. On failure, too, the caller closes it. */
int pull_seeds_open(struct pull_seeds *s, struct loop *loop, const char *path, struct str sha256,
                    struct err *err);
void pull_seeds_close(struct pull_seeds *s);

/* Reads the file if it has changed, and asks new agents for their seals. */
void pull_seeds_look(struct pull_seeds *s);

/* True while an agent's seal is awaited. */
bool pull_seeds_wait(const struct pull_seeds *s);

/* Returns an agent with a seal that is no liar, from `first` on; PULL_SEEDS_MAX: there is none. */
uint32_t pull_seeds_next(const struct pull_seeds *s, uint32_t first);

/* Starts a call for a chunk, with the callbacks and the deadline of `req`, which gets host, port and path. NULL: it
 * cannot be made now. */
struct signed_call *pull_seeds_ask(struct pull_seeds *s, uint32_t seed, uint32_t file,
                                   uint32_t chunk, struct http_call_request *req);

/* Calls an agent a liar, once, on stderr. */
void pull_seeds_blame(struct pull_seeds *s, uint32_t seed, const char *why);
