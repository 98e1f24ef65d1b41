/* kv_publisher.h - publishes the events of a KV cache as ZeroMQ's PUB and ROUTER sockets do, for a stand-in.
 *
 * Threads: the loop's
 * Bounds:  KV_PEERS_MAX connections; the last KV_REPLAY messages can be asked for again
 * Rules:   a subscriber gets what is published after it has subscribed, and nothing before
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/io/loop/loop.h"

#define KV_PEERS_MAX 8
#define KV_REPLAY 10000 /* vLLM's default */

struct kv_publisher;

/* Listens at two Unix sockets; an empty path leaves that one out. */
int kv_publisher_new(struct loop *l, struct str events, struct str replay,
                     struct kv_publisher **ret, struct err *err);
void kv_publisher_free(struct kv_publisher *p);

/* Numbers a batch and sends it to the subscribers; with `lost` only its number is used up and the batch is
 * kept for those who ask. */
void kv_publisher_send(struct kv_publisher *p, struct str batch, bool lost);

uint32_t kv_publisher_subscribers(const struct kv_publisher *p);
