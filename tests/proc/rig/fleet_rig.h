/* fleet_rig.h - a whole fleet by its parts: a controller and a router, each of which may be killed
 * and started again, and the instances of one service that the controller starts.
 *
 * One fleet in a test program. The service is called tiny and its pool only.
 */
#pragma once
#include "tests/proc/rig/rig.h"

extern struct rig_process controller, router;
extern char fleet_state[128], fleet_secret[160]; /* the state folder; the secret in it */

/* Writes the configuration, of which `yaml` is all but the controller's part, and starts both. */
void fleet_open(const char *tick, const char *yaml);

/* One service of at most two instances, each of a third of a core and four requests. */
#define FLEET_OF_THIRDS                                                           \
    "router: { sync: 100ms }\n"                                                   \
    "local:\n"                                                                    \
    "  cores: 1\n"                                                                \
    "  offers:\n"                                                                 \
    "    - { name: third, share: 0.33, price_per_hour: 1, launch_delay: 200ms,\n" \
    "        max_num_seqs: 4 }\n"                                                 \
    "services:\n"                                                                 \
    "  - name: tiny\n"                                                            \
    "    model: " MODEL "\n"                                                      \
    "    zero_after: 1s\n"                                                        \
    "    stabilisation: 1s\n"                                                     \
    "    engine_flags: ['--max-num-seqs', '4', '--threads', '1']\n"               \
    "    pools: [ { name: only, offers: [third], max: 2 } ]\n"

/* At their ports again once they have them. */
void fleet_start_controller(void);
void fleet_start_router(void);

/* `count` below 0: as the policy likes. */
void fleet_scale(int count);

/* This many instances are ready and known to the router, and none comes or goes. */
bool fleet_is_at(uint32_t count);
void fleet_wait(uint32_t count);

/* The processes that `file` names in the folders of the fleet's `count` instances, in the order of
 * the folders' names; pid 0 where it names none. */
#define FLEET_INSTANCES_MAX 8
void fleet_ids(const char *file, struct proc_id *ret, uint32_t count);

/* struct fleet_successor *: another living process stands where the first instance's `before`
 * stood. For rig_wait. */
struct fleet_successor {
    const char *file;
    struct proc_id before;
};
bool fleet_has_successor(void *arg);

/* A completion of a few tokens whose prompt has exactly so many, the one that begins every text
 * included, appended. Shorter ones are asked on the way. */
void fleet_prompt(uint32_t tokens, struct buf *body);
