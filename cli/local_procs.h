/* local_procs.h - the processes of local instances, found by what they wrote into the state directory.
 *
 * Layer: cli (base/io)
 * Use:   after the controller has ended: while it lives it would start again what is ended here
 */
#pragma once
#include "base/io/proc.h"

#include <stdint.h>

#define LOCALS_MAX 512 /* processes; two an instance */

struct local_procs {
    struct proc_id id[LOCALS_MAX];
    uint32_t count;
    uint32_t dropped; /* beyond LOCALS_MAX */
};

/* Living agents first, then living engines. A state directory without instances has none. */
int local_procs_find(struct str state, struct local_procs *ret, struct err *err);

/* SIGKILL to agents, then to engines, until none is left or timeout_us has passed: -ETIMEDOUT and
 * their pids. *ret_ended counts processes that were ended. */
int local_procs_kill(struct str state, int64_t timeout_us, uint32_t *ret_ended, struct err *err);
