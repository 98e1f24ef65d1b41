/* web_user_data.h - writes what a machine runs at its first boot: a template, filled for one instance.
 *
 *     ${LAUNCH}         the launch document, base64 of its JSON
 *     ${TOKEN}          a one-time token by which the instance gets its key, base64 (base/io/auth/join.h)
 *     ${CA}             PEM of the CAs by which its agent knows the controller, base64; empty: those of the machine
 *     ${INTENT}         id of the intent and of the instance
 *     ${CONTROLLER}     host at which the controller is reached
 *     ${NOTICE}         setting agent.notice of machines of this kind
 *     ${MUSTER_URL}     where to fetch muster; empty: the image has it
 *     ${MUSTER_SHA256}  its digest
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 * Secrecy: user data can be read by every process of the machine, through its metadata service, and by everybody
 *          with the right to read machines of the account. The token in it lets one agent in, once; after that it
 *          opens nothing
 */
#pragma once
#include "controller/cloud/web/web_section.h"

#define WEB_FOLDER "/var/lib/muster"
#define WEB_LAUNCH_FILE WEB_FOLDER "/launch.json"
#define WEB_KEY_FILE WEB_FOLDER "/instance.key" /* the agent writes it */
#define WEB_TOKEN_FILE WEB_FOLDER "/join.token"
#define WEB_CA_FILE WEB_FOLDER "/ca.pem"
#define WEB_BEGUN_FILE WEB_FOLDER "/begun" /* agent/first_boot.h */
#define WEB_AGENT_PORT 8100

extern const struct str web_user_data_default;

/* Refuses a template without ${LAUNCH} or ${TOKEN}, with an unknown ${NAME}, or for a kind that takes none. */
int web_user_data_check(const struct web_settings *s, struct err *err);

/* Reads the file with the CAs that agents trust; an empty path gives no text. -EINVAL: it has no certificate. */
int web_user_data_ca(struct str path, struct arena *arena, struct str *ret, struct err *err);

/* Fills the template. The launch document is changed as the instance sees it: its folder and files.
 * -E2BIG and a sentence with both sizes beyond what the kind takes. */
int web_user_data_write(const struct web_settings *s, const struct launch_spec *spec,
                        struct str token, struct buf *out, struct err *err);
