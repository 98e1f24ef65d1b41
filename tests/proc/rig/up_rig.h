/* up_rig.h - runs a fleet as its users do: started by `muster up` in a folder of its own, inspected and
 * ended by the other commands; tests compare their exit status and output.
 */
#pragma once
#include "tests/proc/rig/rig.h"

/* The fleet's folder and ports; places_make, a test's setup, chooses new ones. */
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

/* Runs a command to its end and returns its exit status; *out gets its output as a C string. */
#define MUSTER(out, ...) rig_run(out, ARGS(__VA_ARGS__))

/* Runs a command and requires the exit status and a part of its output. */
#define WANT(status, says, ...) up_want(status, says, ARGS(__VA_ARGS__))
void up_want(int status, const char *says, const char *const *args);

/* Repeats a command until it succeeds and its output contains `says`. */
#define AWAIT(says, ...) up_await(says, ARGS(__VA_ARGS__))
void up_await(const char *says, const char *const *args);
