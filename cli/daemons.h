/* daemons.h - starts, awaits, finds and stops background processes: controller, router, local instances.
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

struct daemons_place {
    struct str state;
    const struct fleet_file_tls *tls;
};
/* Waits until GET /health gets a reply, with status 200 if `ready`. -ECHILD when the process has died,
 * -ETIMEDOUT; both show the end of its log. */
int daemons_wait(const struct daemons_place *place, const char *role,
                 const struct fleet_file_part *part, bool ready, int64_t timeout_us,
                 struct err *err);

/* Returns -EADDRINUSE when another program listens at "HOST:PORT"; `flag` is the option that sets another
 * place. Called before a start, so that the other program's reply is not taken for ours. */
int daemons_check_free(const char *listen, const char *flag, struct err *err);

/* Sends SIGTERM, and SIGKILL after timeout_us. Returns 0 when the process is gone. */
int daemons_stop(const struct fleet_file_part *part, int64_t timeout_us, struct err *err);

/* Writes the last lines of a log to stderr, under its name. */
void daemons_show_log(const char *path);

/* Returns a port of 127.0.0.1 that is free now; 0 when there is none. Another process may take it first:
 * then ours fails to start with its own message. */
uint16_t daemons_free_port(void);

/* local_procs_find and _kill handle the processes of local instances by the ids in the state directory.
 *
 * Use:   after the controller has ended: a living one would start the ended instances again
 */

#define LOCALS_MAX 512 /* processes; two an instance */

struct local_procs {
    struct proc_id id[LOCALS_MAX];
    uint32_t count;
    uint32_t dropped; /* beyond LOCALS_MAX */
};

/* Lists the living agents, then the living engines. A state directory without instances has none. */
int local_procs_find(struct str state, struct local_procs *ret, struct err *err);

/* Sends SIGKILL to agents, then to engines, until none is left. -ETIMEDOUT with their pids when some are
 * left after timeout_us. *ret_ended counts the processes that were ended. */
int local_procs_kill(struct str state, int64_t timeout_us, uint32_t *ret_ended, struct err *err);
