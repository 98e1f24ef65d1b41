/* admit.h - the interface of admission rows: may this session start now?
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) asked in order; the first no ends the admissions of this step
 *          (2) with nothing running the scheduler admits without asking: a session always fits
 *              an empty engine
 */
#pragma once
#include "base/core/str.h"

#include <stdint.h>

struct admit_view {
    uint32_t pages_total;
    uint32_t pages_available; /* free, or cached and evictable, less what this one hits */
    uint32_t pages_needed;    /* for the tokens this session already has, less its hits */
    uint32_t pages_growth;    /* it will need later, by its predicted P90 */
    uint32_t running;         /* sessions running now */
    uint32_t running_growth;  /* pages those will need later, by their P90 */
};

struct admit_policy {
    const char *name;
    const char *about;
    bool (*decide)(const struct admit_view *view);
};

extern const struct admit_policy *const admit_table[];
extern const uint32_t admit_count;
#define ADMIT_DEFAULT "reserve"

const struct admit_policy *admit_find(struct str name); /* NULL when there is none */
