/* seed.h - gives the model that this machine has to other agents of the fleet, chunk by chunk.
 *
 * Layer:   agent (base/io, base/wire)
 * Threads: one of its own, with a loop: a slow disk holds up neither probes nor reports. It ends in seed_close
 * Paths:   /internal/weights/SHA256       the seal (base/wire/seal.h)
 *          /internal/weights/SHA256/F/C   chunk C of file F
 * Access:  who signs as weights/OWNER/READER, OWNER being this instance: the controller gives READER the key, which
 *          opens nothing else. Without a key, peers on this machine
 * Bounds:  SEED_STREAMS_MAX chunks at once (503 beyond), `rate` bytes a second of all
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/io/auth/credentials.h"

#define SEED_STREAMS_MAX 16u
#define SEED_PORT_FIRST 8101
#define SEED_PORT_COUNT 99

struct seed;

struct seed_config {
    const char *host; /* where it listens */
    struct str instance;
    const struct credentials *held; /* borrowed, and not changed */
    const char *seal;               /* file */
    /* As the engine's --model has it: a file, the first of several, or a folder. */
    const char *model;
    uint64_t rate; /* 0: any */
};

/* Reads the seal, listens on the first free port, and serves. -ENOENT: there is no seal; -EINVAL: it is of other
 * files than lie there. */
int seed_open(const struct seed_config *config, struct str sha256, struct seed **ret,
              struct err *err);
void seed_close(struct seed *s); /* NULL is fine */
uint16_t seed_port(const struct seed *s);
