/* web_container.h - makes a container an instance: user data and tags go in by its environment.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 * Form:    BOOT_MUSTER, or BOOT_MUSTER_0, _1, ... where a provider bounds a value, hold the user data as base64; the
 *          start command runs it. TAG_MUSTER_INTENT and the like are the tags. Neither begins with MUSTER_: the agent
 *          refuses variables of that kind which are no setting of its own
 * Secrecy: whoever may read containers of the account reads the environment, and so does every process of the
 *          container that runs as the agent's user. The token in it lets one agent in, once
 */
#pragma once
#include "controller/cloud/web/web_keyless.h"
#include "controller/cloud/web/web_user_data.h"

/* The template of user data where a container has no systemd: the script becomes the agent. */
extern const struct str web_user_data_container;

/* The start command is `sh -c` with this. It has neither quotes nor dollars, which providers handle in various ways,
 * and ends as the agent, so that a stop of the container reaches it. */
#define WEB_CONTAINER_DECODE "env | sort | sed -n s/^BOOT_MUSTER[_0-9]*=//p | base64 -d"
#define WEB_CONTAINER_FILE WEB_FOLDER "/boot.sh"
#define WEB_CONTAINER_START                                                              \
    "umask 077; mkdir -p " WEB_FOLDER "; " WEB_CONTAINER_DECODE " > " WEB_CONTAINER_FILE \
    "; exec sh " WEB_CONTAINER_FILE

/* Calls fn with each variable until it fails: the tags, then the user data in values of `value_bytes` at most; 0: in
 * one. The texts live during the call. */
int web_container_env(const struct web_op *op, struct str fleet, size_t value_bytes,
                      int (*fn)(void *ctx, struct str name, struct str value), void *ctx);

/* Takes a variable of a listed container. Those that are no tag are passed over. */
void web_container_take(struct str name, struct str value, struct web_machine *ret);
