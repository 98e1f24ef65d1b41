/* instance.h - reads an instance's launch document, locks its folder, and starts or finds its engine.
 *
 * Layer:   agent (base/io, base/wire)
 * Threads: the agent's loop
 * Rules:   (1) one agent per instance: the lock is held as long as the agent lives
 *          (2) the identity of an engine is on disk before the engine runs: the process that the
 *              agent starts writes its own identity (pid and start time stay the same across exec)
 *              and then executes the engine, so that no crash leaves an unknown engine
 */
#pragma once
#include "agent/engines/engine_driver.h"
#include "base/io/proc.h"

#define INSTANCE_SOCKET_BYTES 108 /* a Unix socket's path, NUL included */

struct instance {
    struct arena arena;
    struct launch_spec spec; /* strings in the arena */
    char spec_path[4096];
    int lock_fd;               /* -1: not locked */
    int64_t born_us, start_us; /* of the document; no engine before; clock_mono_us */
    bool adopts;               /* somebody else started the engine and ends it: it has no folder */
    uint16_t adopted_port;     /* of that engine */
    bool alone;                /* on its machine, as in a Pod: its engine has the first port */
    bool shares_log;           /* the engine writes to the agent's own output */
};

/* Waits while the launch document is empty: a Pod of a workload gets it when an instance is bound to it. Signals
 * end the process meanwhile, as there is nothing to end yet. */
void instance_await(struct str spec_path);

/* Reads and checks the launch document. */
int instance_open(struct instance *in, struct str spec_path, struct err *err);
void instance_close(struct instance *in);

/* Makes an instance of an engine that runs already at spec->engine_host and `port`, by somebody else's
 * hand. The strings of `spec` are borrowed. Without a name it gets one that its address gives. */
int instance_adopt(struct instance *in, const struct launch_spec *spec, uint16_t port,
                   struct err *err);

/* Locks the instance. -EBUSY: another agent has it. */
int instance_lock(struct instance *in, struct err *err);

/* Finds the engine that runs already, and its port. -ENOENT: none runs. */
int instance_find_engine(const struct instance *in, struct proc *ret, uint16_t *ret_port);

/* Starts an engine on a free port. */
int instance_spawn(const struct instance *in, struct proc *ret, uint16_t *ret_port,
                   struct err *err);

/* Moves the lines of the engine's log to engine.log.1 once it has `bytes_max` bytes. The agent does it
 * because an engine of another kind may let its log grow. */
void instance_bound_log(const struct instance *in, uint64_t bytes_max);

/* Names the sockets on which the engine is to publish its KV events. False: it publishes none, or the
 * folder's path is too long for a socket. */
bool instance_kv_paths(const struct instance *in, char ret_events[INSTANCE_SOCKET_BYTES],
                       char ret_replay[INSTANCE_SOCKET_BYTES]);

/* Writes down this process's identity and executes the engine in it. Returns on failure only. */
int instance_become_engine(const struct instance *in, uint16_t port, struct err *err);
