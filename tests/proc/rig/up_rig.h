/* up_rig.h - a fleet as people have it: by `muster up` in a folder of its own, looked at and ended
 * by the other commands, whose exit status and words are what is wanted.
 */
#pragma once
#include "tests/proc/rig/rig.h"

/* Where the fleet is: chosen anew by places_make, a test's setup. */
extern struct places {
    char state[128], config[160];
    char router_at[24], controller_at[24];
    uint16_t router_port, controller_port;
} places;

int places_make(void **state);
void places_config(const char *yaml);
int places_end(void **state); /* a test's teardown: `muster down --now` */

#define STATE "--state", places.state
#define UP                                                                                 \
    "up", "-f", places.config, STATE, "--listen", places.router_at, "--controller-listen", \
        places.controller_at

/* Runs a command to its end: its exit status, and what it printed as a C string. */
#define MUSTER(out, ...) rig_run(out, ARGS(__VA_ARGS__))

/* Runs it and wants the exit status and a part of what it says. */
#define WANT(status, says, ...) up_want(status, says, ARGS(__VA_ARGS__))
void up_want(int status, const char *says, const char *const *args);

/* Polls a command until it says something. */
#define AWAIT(says, ...) up_await(says, ARGS(__VA_ARGS__))
void up_await(const char *says, const char *const *args);
