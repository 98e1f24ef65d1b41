/* kv_link.h - the ports through which K and V go from one instance to another.
 *
 * Layer:    simulator (base/core)
 * Rules:    (1) each instance has one port with a way out and a way in, of equal speed; a copy needs
 *               the sender's way out and the receiver's way in, and waits for both in the order in
 *               which copies were asked for
 *           (2) the latency passes before the first byte and occupies nothing
 *           (3) a copy is over when its last byte is there or its time is up; the bytes that are still
 *               to come take their time all the same
 */
#pragma once
#include "base/core/heap.h"

struct kv_link {
    struct heap under_way;             /* by the time at which the copy is over */
    int64_t *out_free_us, *in_free_us; /* by port */
    uint32_t ports;
    double bytes_s;
    int64_t latency_us;
    double bytes; /* asked for so far */
};

struct kv_copy {
    struct heap_node node;
    int64_t first_us, last_us; /* when its first byte comes, and when its last is there */
};

bool kv_link_init(struct kv_link *t, uint32_t ports, double bytes_s,
                  int64_t latency_us); /* false without memory */
void kv_link_fini(struct kv_link *t);

/* `copy` must not be under way. It is over at until_us at the latest. False without memory. */
bool kv_link_begin(struct kv_link *t, struct kv_copy *copy, uint32_t from, uint32_t to,
                   double bytes, int64_t now_us, int64_t until_us);
void kv_link_drop(struct kv_link *t, struct kv_copy *copy);
void kv_link_port_new(struct kv_link *t, uint32_t port); /* another instance's from now on */
struct kv_copy *kv_link_over(struct kv_link *t, int64_t now_us);  /* NULL: none is */
int64_t kv_link_next_us(const struct kv_link *t);                 /* INT64_MAX: none */
double kv_copy_share(const struct kv_copy *copy, int64_t now_us); /* of its bytes that are there */
