/* instance.h - the instance's folder, its document, and its engine as a process.
 *
 * Layer:   agent (base/io, base/wire)
 * Threads: the agent's loop
 * Rules:   (1) one agent an instance: the lock is held as long as the agent lives
 *          (2) an engine is written down before it is one: the process that the agent starts
 *              writes its own identity (pid and start time stay the same across exec) and then
 *              executes the engine, so that no crash leaves an engine that nobody knows
 */
#pragma once
#include "base/core/arena.h"
#include "base/io/proc.h"
#include "base/wire/launch.h"

struct instance {
    struct arena arena;
    struct launch_spec spec; /* strings in the arena */
    char spec_path[4096];
    int lock_fd;               /* -1: not locked */
    int64_t born_us, start_us; /* of the document, and not before; clock_mono_us */
};

/* Reads and checks the document. */
int instance_open(struct instance *in, struct str spec_path, struct err *err);
void instance_close(struct instance *in);

/* -EBUSY: another agent has it. */
int instance_lock(struct instance *in, struct err *err);

/* The engine that runs already, and its port; -ENOENT. */
int instance_find_engine(const struct instance *in, struct proc *ret, uint16_t *ret_port);

/* Starts an engine on a free port. */
int instance_spawn(const struct instance *in, struct proc *ret, uint16_t *ret_port,
                   struct err *err);

/* The engine's log may be any program's: beyond `bytes_max` its lines so far move to engine.log.1. */
void instance_bound_log(const struct instance *in, uint64_t bytes_max);

/* Writes our identity down and becomes the engine; returns on failure only. */
int instance_become_engine(const struct instance *in, uint16_t port, struct err *err);
