/* preempt.h - the interface of preemption rows: who gives its pages back when none are left?
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) a paused session goes first, then the highest rank; equal ranks: the later
 *              arrival, then the higher id
 *          (2) at least one running session keeps a rank below all others until it is done, else
 *              two sessions could take each other's pages for ever
 */
#pragma once
#include "policies/step.h"

struct preempt_policy {
    const char *name;
    const char *about;
    double (*rank)(const struct step_session *session);
};

extern const struct preempt_policy *const preempt_table[];
extern const uint32_t preempt_count;
#define PREEMPT_DEFAULT "newest"

const struct preempt_policy *preempt_find(struct str name); /* NULL when there is none */
