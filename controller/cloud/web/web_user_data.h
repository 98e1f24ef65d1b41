/* web_user_data.h - writes what a machine runs at its first boot: a template, filled for one instance.
 *
 *     ${LAUNCH}         the launch document, base64 of its JSON
 *     ${KEY}            the instance's own key, base64; empty where the fleet sends none
 *     ${INTENT}         id of the intent and of the instance
 *     ${CONTROLLER}     host at which the controller is reached
 *     ${NOTICE}         setting agent.notice of machines of this kind
 *     ${MUSTER_URL}     where to fetch muster; empty: the image has it
 *     ${MUSTER_SHA256}  its digest
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 * Secrecy: user data can be read by every process of the machine, through its metadata service, and by everybody
 *          with the right to read machines of the account. The key in it opens what this one instance may do, and
 *          nothing of others (base/io/auth/credentials.h)
 */
#pragma once
#include "controller/cloud/web/web_section.h"

#define WEB_FOLDER "/var/lib/muster"
#define WEB_LAUNCH_FILE WEB_FOLDER "/launch.json"
#define WEB_KEY_FILE WEB_FOLDER "/instance.key"
#define WEB_AGENT_PORT 8100

extern const struct str web_user_data_default;

/* Refuses a template without ${LAUNCH} or ${KEY}, with an unknown ${NAME}, or for a kind that takes none. */
int web_user_data_check(const struct web_settings *s, struct err *err);

/* Fills the template. The launch document is changed as the instance sees it: its folder, the file of its key.
 * -E2BIG and a sentence with both sizes beyond what the kind takes. */
int web_user_data_write(const struct web_settings *s, const struct launch_spec *spec,
                        struct str key, struct buf *out, struct err *err);
