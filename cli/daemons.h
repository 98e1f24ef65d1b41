/* daemons.h - controller, router and local instances as background processes: start, wait, find, stop.
 *
 * Layer: cli (base/io)
 */
#pragma once
#include "base/io/proc.h"
#include "cli/fleet_file.h"

#include <stdint.h>

/* Starts `muster ROLE args...` detached, with its output appended to STATE/ROLE.log. args is
 * NULL-terminated. */
int daemons_spawn(struct str state, const char *role, const char *const *args, struct proc_id *ret,
                  struct err *err);

/* Waits until GET /health is answered, with 200 when `ready`. -ECHILD with the end of its log when
 * the process has died, -ETIMEDOUT. */
struct fleet_file_place {
    struct str state;
    const struct fleet_file_tls *tls;
};
int daemons_wait(const struct fleet_file_place *place, const char *role,
                 const struct fleet_file_part *part, bool ready, int64_t timeout_us,
                 struct err *err);

/* -EADDRINUSE when another program listens at "HOST:PORT"; `flag` names what says another place.
 * Asked before a start, so that its answer is not taken for ours. */
int daemons_check_free(const char *listen, const char *flag, struct err *err);

/* SIGTERM, and SIGKILL after timeout_us. 0 when it is gone. */
int daemons_stop(const struct fleet_file_part *part, int64_t timeout_us, struct err *err);

/* Writes the last lines of a log to stderr, under its name. */
void daemons_show_log(const char *path);

/* A port of 127.0.0.1 that is free now; 0 when there is none. Another process may take it before
 * ours does: then that one fails with its own words. */
uint16_t daemons_free_port(void);

/* The processes of local instances, found by what they wrote into the state directory.
 *
 * Use:   after the controller has ended: while it lives it would start again what is ended here
 */

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
