/* order.h - the interface of order rows: which waiting session is admitted next?
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) the lowest rank goes first; equal ranks go by arrival, then by id
 *          (2) a rank may depend on now_us only so that waiting lowers it: nobody starves
 */
#pragma once
#include "policies/step.h"

struct order_policy {
    const char *name;
    const char *about;
    double (*rank)(const struct step_session *session, int64_t now_us);
};

extern const struct order_policy *const order_table[];
extern const uint32_t order_count;
#define ORDER_DEFAULT "fcfs"

const struct order_policy *order_find(struct str name); /* NULL when there is none */
