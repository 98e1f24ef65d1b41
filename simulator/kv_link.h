/* kv_link.h - the ports through which K and V go from one instance to another.
 *
 * Layer:    simulator (base/core)
 * Rules:    (1) each instance has one port with a way out and a way in, of equal speed; a copy needs
 *               the sender's way out and the receiver's way in, and waits for both in the order in
 *               which copies were asked for
 *           (2) the latency passes before the first byte and occupies nothing
 */
#pragma once
#include "base/core/heap.h"

struct kv_link {
    struct heap under_way;             /* by the arrival of the last byte */
    int64_t *out_free_us, *in_free_us; /* by port */
    uint32_t ports;
    double bytes_s;
    int64_t latency_us;
    double bytes; /* asked for so far */
};

bool kv_link_init(struct kv_link *t, uint32_t ports, double bytes_s,
                  int64_t latency_us); /* false without memory */
void kv_link_fini(struct kv_link *t);

/* `copy` must not be under way. False without memory. */
bool kv_link_begin(struct kv_link *t, struct heap_node *copy, uint32_t from, uint32_t to,
                   double bytes, int64_t now_us);
void kv_link_drop(struct kv_link *t, struct heap_node *copy); /* its bytes still take their time */
void kv_link_port_new(struct kv_link *t, uint32_t port);      /* another instance's from now on */
struct heap_node *kv_link_arrived(struct kv_link *t, int64_t now_us); /* NULL: none has */
int64_t kv_link_next_us(const struct kv_link *t);                     /* INT64_MAX: none */
