/* predict_file.h - keeps the state of a predictor in a file.
 *
 * Layer:   router (policies, base/io)
 * Threads: the caller's; both block on the disk
 */
#pragma once
#include "base/core/err.h"
#include "policies/predict/predict.h"

/* Merges the file's state into `state`, which keeps all it knows already. -ENOENT when there is no
 * file, -EINVAL when it is another policy's or another version's, -EBADMSG when it is damaged. */
int predict_file_merge(const struct predict_policy *policy, const char *path, void *state,
                       struct err *err);
int predict_file_write(const struct predict_policy *policy, const char *path, const void *state,
                       struct err *err);
