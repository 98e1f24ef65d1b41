/* feed.h - block events on their way from engines to routers, all equally late.
 *
 * Layer: simulator (base/core)
 */
#pragma once
#include "base/core/block_key.h"

#include <stdint.h>

struct feed_event {
    int64_t due_us;
    struct block_key key;
    uint32_t serial, place; /* of the instance */
    bool add;
};

struct feed {
    struct feed_event *event; /* ring */
    size_t first, count, capacity;
};

void feed_fini(struct feed *f);
bool feed_push(struct feed *f, const struct feed_event *ev);           /* false without memory */
bool feed_pop(struct feed *f, int64_t now_us, struct feed_event *ret); /* false: none is due */
