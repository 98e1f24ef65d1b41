/* hook.h - writes calls and reads replies of the hook protocol, in which anybody sells instances: over HTTP
 * (webhook.c) or with a program (cloud_exec.h).
 *
 * Layer:    controller/cloud/web (base/core)
 * Threads:  pure
 * Protocol: one JSON object each way; docs/clouds/exec.md has it field by field
 * Rules:    (1) members that a reader does not know are passed over; a known one of another type is an error
 *           (2) a reply that cannot be read is OFFER_TRANSIENT: something may have been made
 *           (3) a listing with an instance without the fleet's tag is an error: nothing is decided on it, since
 *               the instance may be ours. One with another fleet's tag is passed over
 */
#pragma once
#include "controller/cloud/web/web_section.h"

#define HOOK_VERSION 1
#define HOOK_REPLY_BYTES ((size_t)4 << 20)
#define HOOK_USER_DATA_BYTES ((size_t)64 << 10)

/* Appends the call of `op` as one line, without its end. `zone` empty: any. -EINVAL and a sentence. */
int hook_write(const struct web_settings *s, const struct web_op *op, struct str zone,
               struct buf *out, struct err *err);

/* Reads the reply into op->made, item or price, and ends the op: ret->next is WEB_END. */
void hook_read(const struct web_settings *s, struct web_op *op, struct str reply, int64_t now_us,
               struct web_step *ret);

/* True if the text has an `error`, with or without success beside it. */
bool hook_is_error(struct str reply);
