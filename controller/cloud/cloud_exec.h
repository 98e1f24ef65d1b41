/* cloud_exec.h - makes a program of anybody's own a cloud: it reads a call on stdin and writes the reply on stdout.
 *
 * Layer:    controller/cloud (base/io)
 * Threads:  one at a time: each call waits for a process (cloud_thread.h)
 * Protocol: one line of JSON each way, web/hook.h. A new process for each call, in a session of its own, with
 *           the variables that the section names and no others
 * Settings: an entry of `clouds` of kind exec
 * Rules:    (1) a call is over when its process has ended, not when its pipes have: an instance that it left
 *               running may hold them
 *           (2) a program that ends with another status than 0, is killed, is late, or writes too much or
 *               nonsense: OFFER_TRANSIENT, whatever it wrote; late: its process group is killed
 *           (3) a program that cannot be started made nothing: OFFER_INVALID
 *           (4) what it writes to stderr is logged, EXEC_WORDS_BYTES of each call, without the instance's key and
 *               without values of its environment
 */
#pragma once
#include "controller/cloud/cloud.h"
#include "controller/cloud/web/web_section.h"

#define EXEC_CALL_US 30000000 /* longest call, unless the section says otherwise */
#define EXEC_WORDS_BYTES ((size_t)8 << 10)

struct cloud_exec;

/* Makes no call. `settings` and `environment` (NAME=value, ends with NULL) outlive it. */
int cloud_exec_new(const struct web_settings *settings, const char *const *environment,
                   struct cloud_exec **ret, struct err *err);

/* Returns the backend, under the cloud's name; its ctx is the cloud_exec, which its close frees. */
const struct cloud_backend *cloud_exec_backend(const struct cloud_exec *x);

/* Opens it behind a thread, as a cloud of the controller. */
int cloud_exec_open(const struct web_settings *settings, const char *const *environment,
                    struct cloud *ret, struct err *err);
