/* fleet_rig.h - runs a fleet of separate processes: a controller and a router, each of which may be killed
 * and started again, and the instances of one service that the controller starts.
 *
 * A test program has one fleet. The service is named "tiny", its pool "only".
 */
#pragma once
#include "tests/proc/rig/rig.h"

extern struct rig_process controller, router;
extern char fleet_state[128], fleet_secret[160]; /* paths of the state folder and of its secret */

/* Writes the configuration and starts both; `yaml` is the configuration without the controller's part. */
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

/* The same at once and until it is scaled, of at most `most` instances, with further flags of the engine: ", 'FLAG'". */
#define FLEET_OF_THIRDS_WITH(flags, most)                                      \
    "router: { sync: 100ms }\n"                                                \
    "local:\n"                                                                 \
    "  cores: 1\n"                                                             \
    "  offers:\n"                                                              \
    "    - { name: third, share: 0.33, price_per_hour: 1, max_num_seqs: 4 }\n" \
    "services:\n"                                                              \
    "  - name: tiny\n"                                                         \
    "    model: " MODEL "\n"                                                   \
    "    stabilisation: 1s\n"                                                  \
    "    engine_flags: ['--max-num-seqs', '4', '--threads', '1'" flags "]\n"   \
    "    pools: [ { name: only, offers: [third], max: " most " } ]\n"

/* Start the part, each time at the same port. */
void fleet_start_controller(void);
void fleet_start_router(void);

/* Sets the pool's count; below 0: gives it back to the policy. */
void fleet_scale(int count);

/* Returns true if this many instances are ready and known to the router, and none starts or drains. */
bool fleet_is_at(uint32_t count);
void fleet_wait(uint32_t count);

/* Reads the processes that `file` names in the folders of the fleet's `count` instances, in the order of
 * the folders' names; pid 0 where it names none. */
#define FLEET_INSTANCES_MAX 8
void fleet_ids(const char *file, struct proc_id *ret, uint32_t count);

/* Returns true if `file` of the first instance names a living process other than `before`. For rig_wait;
 * the argument is a struct fleet_successor *. */
struct fleet_successor {
    const char *file;
    struct proc_id before;
};
bool fleet_has_successor(void *arg);

/* Appends the body of a completion request for four tokens with a prompt of exactly `tokens` tokens,
 * including the token that begins every text. Sends shorter prompts to the router first, to count their
 * tokens. */
void fleet_prompt(uint32_t tokens, struct buf *body);
