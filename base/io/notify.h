/* notify.h - tells the service manager (systemd) that this process is ready, reloads, stops or is alive.
 *
 * Layer:    base/io (base/core, loop)
 * Threads:  notify_open before other threads start; messages from any thread; a notify_watch belongs to its
 *           loop's thread
 * Protocol: a datagram of NAME=value lines to the socket in NOTIFY_SOCKET, a path or "@name" for an abstract
 *           one; WATCHDOG_USEC and WATCHDOG_PID say how often signs of life are wanted, and from whom. These
 *           variables are no settings of ours: the manager sets them for each start, so they are read here and
 *           not by the schema
 * Rules:    (1) without a service manager every function does nothing
 *           (2) children do not inherit the variables: what they say would be taken for ours
 */
#pragma once
#include "base/core/err.h"
#include "base/io/loop/loop.h"

#define NOTIFY_TEXT_MAX 256  /* bytes of a status; the rest is cut */
#define NOTIFY_LOOPS_MAX 128 /* loops that one watch asks */

/* Reads the manager's variables and takes them out of this process's environment. -EINVAL with a sentence for
 * a socket or a time that cannot be one. Called again, it replaces what was read before. */
int notify_open(const char *const *environment, struct err *err);
void notify_close(void);

/* Each sends one message, which blocks for at most NOTIFY_SEND_US; a failure is logged once. `status` is a
 * short sentence for `systemctl status`; line ends in it become blanks. */
#define NOTIFY_SEND_US 2000000
void notify_ready(const char *status);
void notify_reloading(const char *status); /* notify_ready follows when the new settings hold */
void notify_stopping(const char *status);

/* Sends WATCHDOG=1 three times within the time that the manager grants, as long as each watched loop has taken
 * a turn since the last sign and is_well (NULL: always) says so. */
struct notify_watch {
    struct loop *loop;
    struct loop_timer timer;
    int64_t period_us; /* 0: the manager wants no signs */
    bool (*is_well)(void *arg);
    void *arg;
    struct notify_watched *watched;
    uint32_t count;
    bool held; /* the last sign was withheld, and the log says so */
};

/* Begins to watch. `loops` (count at most NOTIFY_LOOPS_MAX, may be 0) are asked besides `loop`, on which the
 * timer runs; they must run until notify_watch_release or _stop, and their threads end before notify_watch_fini. The
 * caller sets is_well and arg before. -ENOMEM. */
int notify_watch_start(struct notify_watch *w, struct loop *loop, struct loop *const *loops,
                       uint32_t count, struct err *err);
void notify_watch_release(
    struct notify_watch *w);                    /* asks the others no more: they are about to end */
void notify_watch_stop(struct notify_watch *w); /* on the loop's thread, or after its end */
void notify_watch_fini(struct notify_watch *w);
