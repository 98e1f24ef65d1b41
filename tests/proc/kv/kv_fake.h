/* kv_fake.h - a peer that answers every request with the same bytes, or never.
 *
 * Layer:   tests (rig.h)
 * Threads: one of its own; the functions are called by the test's
 */
#pragma once
#include "tests/proc/rig/rig.h"

#include <pthread.h>
#include <stdatomic.h>

#define KV_FAKE_OPEN_MAX 64

struct kv_fake {
    int listener;
    uint16_t port;
    pthread_t thread;
    struct str reply; /* sent to each request, then the connection is closed; empty: never */
    struct str then;  /* from the second request on, when it is not empty */
    atomic_uint asked;
    int open[KV_FAKE_OPEN_MAX]; /* of those that are never answered */
    uint32_t open_count;
};

/* The bytes are borrowed until kv_fake_stop. */
void kv_fake_start(struct kv_fake *f, struct str reply, struct str then);
void kv_fake_stop(struct kv_fake *f);

uint32_t kv_fake_asked(struct kv_fake *f); /* requests that came whole */
void kv_fake_wait(struct kv_fake *f, uint32_t times);
