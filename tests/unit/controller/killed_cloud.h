/* killed_cloud.h - runs a controller over a cloud that makes processes, and kills it once at a chosen step.
 *
 * Layer:   tests (controller)
 * Threads: one
 * Run:     two instances are wanted, and after 25 seconds none. The controller that dies is followed by another one on the
 *          same store
 */
#pragma once
#include "controller/control.h"

struct killed_cloud {
    const char *provider;
    const struct cloud_backend *backend;
    void *backend_ctx;
    struct str secret;     /* empty: none */
    bool carried_out;      /* the call that is under way at the death is carried out all the same */
    int turns, quiet;      /* seconds at least, and seconds without an instance at the end */
    const int64_t *now_us; /* moves with `second` */

    /* Lets a second go by: agents report (killed_cloud_report), then returns control_tick's result. */
    int (*second)(void *ground, struct control *c);
    uint32_t (*there)(void *ground); /* instances that the cloud has */
    void *ground;
};

struct killed_count {
    uint32_t crashes, most, left; /* most: instances at once */
};

/* Fails the test if other than two instances run before they are given up. */
struct killed_count killed_cloud_run(const struct killed_cloud *k, const char *step, uint64_t nth,
                                     uint64_t seed);

/* Reports for an agent with a ready engine that obeys: told to drain, it has stopped. */
void killed_cloud_report(struct control *c, const char *intent, int64_t now_us);
