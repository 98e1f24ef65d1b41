/* shared_rig.h - runs a fleet with two controllers on one store, a router that knows both, and two instances.
 *
 * A test program has one fleet. The service is named "tiny", its pool "only".
 */
#pragma once
#include "tests/proc/rig/rig.h"
#include "tests/redis_server.h"

#define SHARED_INSTANCES 2
#define SHARED_GRACE_S 6 /* an idle instance without a lease ends itself then */
/* A term on Kubernetes begins with reads and writes of eighty objects at once by TLS, which take a second under the
 * sanitizers on a busy machine: with the bounds of the other stores no term would begin there. */
#ifdef MUSTER_DEBUG
#    define SHARED_KUBE_SLOWER 4
#else
#    define SHARED_KUBE_SLOWER 1
#endif

extern struct rig_process shared_controller[2], shared_router;

/* Starts all of it, with this URL of the store, and waits until both instances serve. */
void shared_open(const char *store_url);
void shared_close(void);
void shared_start_controller(uint32_t index);

/* Writes the fleet's configuration with more settings of its service into a file, which is index's otherwise. */
void shared_write_config(char ret_path[RIG_PATH], const char *name, uint32_t index,
                         const char *more);

/* Returns the controller that leads, once one does. */
uint32_t shared_leader(void);

/* Waits until the controller says that it leads; 2: until both say that they do not. */
void shared_wait_leader(uint32_t index);

/* Stops the controller's process, or lets it go on. */
void shared_stop(uint32_t index, bool stopped);

/* Waits until the controller says that it stands by. */
void shared_wait_standby(uint32_t index);

/* Waits for so many seconds, but no shorter than the variable says (the long form of the tests). */
void shared_hold(uint32_t seconds);

/* Waits until two more outputs have come for each client. */
void shared_wait_answers(void);

/* Sets the pool's count at the leader. */
void shared_scale(uint32_t count);

/* Waits until this many instances are ready at the leader and at the router, and none starts or drains. */
void shared_wait_instances(uint32_t count);

/* Returns how many instances have ended so far. */
uint32_t shared_ended(void);

/* Checks that so many agents and engines run, and none has ended that was not told to: `ended` so far. */
void shared_expect(uint32_t count, uint32_t ended);

/* Runs `fault` while clients ask. After it one controller leads and the same instances serve; clients got every
 * token of every output. */
void shared_under(const char *what, void (*fault)(void));

/* Faults of the leader, whatever the store is. */
void shared_leader_stopped(void); /* past its lease; it returns and stands by */
void shared_leader_killed(void);  /* and started again */

/* The leader is stopped so many microseconds after an order to launch, which fall into different steps of it:
 * nobody launches twice, and the one that returns ends or makes nothing. */
void shared_leader_stopped_in_launches(const uint32_t *after_us, size_t count);
