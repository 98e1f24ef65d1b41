/* orders.h - what people order of a running controller beyond counts and pauses: drains, collections of what is
 * left over, and the record of orders and events.
 *
 * Layer:   controller
 * Threads: the loop's
 */
#pragma once
#include "base/wire/order.h"
#include "controller/control.h"

/* Drains an instance, a pool, or all instances of a node, for a person, or takes that back. A drained
 * instance gets no new request and ends once it is empty; the plan does not keep it. A drained pool wants no
 * instance. Appends {"instances":[ID, ..]}: those that the order is about. Durable on return. -ENOENT:
 * there is none; -EINVAL: it cannot be drained, or kept, any more. */
int control_drain(struct control *c, const struct drain_order *o, int64_t now_us, struct buf *out,
                  struct err *err);

/* Drains a pool, or wants it again: an override, as control_pause and control_scale are. */
int control_drain_pool(struct control *c, struct str service, struct str pool, bool drained,
                       struct err *err);

/* Returns the machine of the instance in slot `at`; "": not known yet. */
const char *control_node(const struct control *c, uint32_t at);

/* Looks for orphans: instances that a provider lists without a living intent, intents without an instance
 * past their lead, leftovers of providers, records set aside. With `remove` those go that nothing needs,
 * by the rules of intents: what serves, or may serve, stays. Appends
 * {"removed":N,"kept":N,"orphans":[{"kind":..,"name":..,"action":..,"why":..,"next":..}]}. */
int control_gc(struct control *c, bool remove, int64_t now_us, struct buf *out,
               uint32_t *ret_removed, struct err *err);

/* Notes that a person has given an order, durably (events.h). Texts may be NULL. */
struct control_order {
    const char *what, *by, *text;
    struct str service, pool, instance;
};
void control_order_done(struct control *c, const struct control_order *o, int64_t now_us);

/* Appends {"events":[..],"dropped":N}: the newest `max` about a service, pool, instance or offer of this
 * name, oldest first; an empty name takes all. */
int control_events(const struct control *c, struct str name, uint32_t max, struct buf *out);
