/* face.h - what byte loops may know without asking: models, tokenizers, API keys.
 *
 * Layer:    router (base/core)
 * Threads:  a face is immutable; the board hands out references under a lock
 * Lifetime: a reference is good until face_unref
 */
#pragma once
#include "router/bundles.h"
#include "router/keys.h"
#include "router/services.h"
#include "router/tenants.h"

#include <pthread.h>

struct face_model {
    char name[SERVICE_NAME_MAX];
    uint64_t service;                  /* hash, as core_request.model */
    uint32_t context_tokens;           /* 0: no instance has said yet */
    const struct bundle_entry *bundle; /* NULL: not known yet */
};

struct face {
    uint32_t refs; /* under the board's lock */
    enum keys_need keys;
    struct tenant_keys *tenants; /* NULL: none are known */
    uint64_t pins;               /* of the models' tokenizers */
    uint32_t model_count;
    struct face_model model[SYNC_SERVICES_MAX];
};

struct face_board {
    struct bundle_pins pins; /* outlives everybody who holds one */
    pthread_mutex_t lock;
    struct face *current;
};

int face_board_init(struct face_board *b); /* -ENOMEM; starts with an empty face */
void face_board_fini(struct face_board *b);

struct face *face_get(struct face_board *b); /* a reference */
void face_unref(struct face_board *b, struct face *f);
void face_publish(struct face_board *b, struct face *owned);

/* The model a client named; an empty name means the only one. NULL: there is none. */
const struct face_model *face_model_find(const struct face *f, struct str name);
