/* kv_feed.h - subscribes to the KV events of an engine over ZeroMQ and keeps a view of its cache.
 *
 * Layer:   agent (agent/core, base/io)
 * Threads: the agent's loop
 * Rules:   (1) messages are numbered from 0; a gap is asked for again where the engine names a socket for
 *              that, and else drops the view: what is missing cannot be told from what is there
 *          (2) a connection that ends drops the view: the engine may have died with its cache. The feed
 *              connects again after KV_FEED_RETRY_US
 *          (3) a message of a wrong form drops the view and is counted; the feed goes on behind it
 * Forms:   ipc://PATH or tcp://HOST:PORT, as the engine's own configuration has them
 */
#pragma once
#include "agent/core/kv_view.h"
#include "base/io/loop/loop.h"

#define KV_FEED_RETRY_US 500000
#define KV_FEED_OPEN_US 5000000 /* from connecting to the end of the handshake */

struct kv_feed;

struct kv_feed_config {
    struct loop *loop;
    struct str events, replay; /* replay empty: gaps cannot be asked for */
    struct kv_view *view;      /* borrowed */
    void (*on_change)(
        void *arg); /* the view has changed, or the feed's state; once a message at most */
    void *arg;
};

struct kv_feed_counts {
    bool open;
    uint64_t connects, messages, malformed, gaps, replayed;
};

/* Starts; the first turn connects. -EINVAL: an address that is of neither form; -ENOMEM. */
int kv_feed_new(const struct kv_feed_config *config, struct kv_feed **ret, struct err *err);
void kv_feed_free(struct kv_feed *f);
void kv_feed_counts(const struct kv_feed *f, struct kv_feed_counts *ret);
