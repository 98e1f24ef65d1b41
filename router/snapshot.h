/* snapshot.h - gives byte loops an immutable view of a router's services: models, tokenizers and API keys.
 *
 * Layer:    router (base/core)
 * Threads:  a snapshot is immutable; the board hands out references under a lock
 * Lifetime: a reference is good until snapshot_unref
 */
#pragma once
#include "base/io/loop/lock.h"
#include "base/wire/sync.h"
#include "router/bundles.h"
#include "router/core/services.h"
#include "router/tenants.h"

struct snapshot_model {
    char name[SERVICE_NAME_MAX];
    uint64_t service;        /* hash, as dispatch_request.model */
    uint32_t context_tokens; /* 0: no instance has said yet */
    enum model_task task;    /* where context_tokens is known */
    /* of an instance now, or of the last one; NULL: not known yet */
    const struct bundle_entry *bundle;
};

/* A LoRA adapter that ready engines of a model have. */
struct snapshot_adapter {
    char name[REPORT_NAME_BYTES_MAX + 1];
    char digest[SHA256_HEX + 1];
    uint64_t id;      /* hash of the digest, as dispatch_request.adapter */
    uint64_t service; /* of the base model */
};

#define SNAPSHOT_ADAPTERS_MAX 1024 /* of all models, by name and model; more are not found */

struct snapshot {
    uint32_t refs; /* under the board's lock */
    bool informed; /* the controller has replied once, or there is none */
    enum keys_need keys;
    struct tenant_keys *tenants; /* NULL: none are known */
    uint64_t pins;               /* of the models' tokenizers */
    uint32_t model_count;
    struct snapshot_model model[SYNC_SERVICES_MAX];
    uint32_t adapter_count;
    struct snapshot_adapter *adapter; /* NULL: there is none */
};

struct snapshot_board {
    struct bundle_pins pins; /* outlives every holder of a pin */
    struct lock lock;
    struct snapshot *current;
};

int snapshot_board_init(struct snapshot_board *b); /* -ENOMEM; starts with an empty snapshot */
void snapshot_board_fini(struct snapshot_board *b);

struct snapshot *snapshot_get(struct snapshot_board *b); /* a reference */
void snapshot_unref(struct snapshot_board *b, struct snapshot *f);
void snapshot_publish(struct snapshot_board *b, struct snapshot *owned);

/* Returns NULL if there is none. */
const struct snapshot_model *snapshot_model_of(const struct snapshot *f, uint64_t service);

/* Finds the model that a client named, by its own name or by that of one of its adapters; an empty name means
 * the only model. *ret_adapter is NULL for a model itself. NULL: there is none. */
const struct snapshot_model *snapshot_find(const struct snapshot *f, struct str name,
                                           const struct snapshot_adapter **ret_adapter);
