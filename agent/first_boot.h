/* first_boot.h - measures how long the parts of a machine's first start take, for the controller.
 *
 * Layer:   agent (base/io, base/wire)
 * Threads: the agent's loop
 * File:    `begun` in the instance's folder. User data writes it before anything else: one line, "machine UPTIME" or
 *          "container UPTIME", seconds of the boot clock. It is removed once the engine has taken requests, so that an
 *          agent that starts again later measures nothing. Without it there is nothing to measure
 */
#pragma once
#include "base/wire/report.h"

#include <limits.h>

struct first_boot {
    bool is_known, is_machine; /* a container's host has run before */
    int64_t begun_us, started_us;
    int64_t loaded_us; /* 0: not yet */
    char path[PATH_MAX];
};

/* Reads the file; `now_us`, on the boot clock, is when the agent started. */
void first_boot_open(struct first_boot *f, struct str folder, int64_t now_us);

/* The engine takes requests. */
void first_boot_loaded(struct first_boot *f, int64_t now_us);

/* Fills the times of a report. */
void first_boot_fill(const struct first_boot *f, int64_t now_us, struct agent_report *ret);
