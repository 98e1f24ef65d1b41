/* predict_file.c - writes a header and the state's bytes, and reads them into aligned memory before it merges. */
#include "router/predict_file.h"

#include "base/core/own.h"
#include "base/io/file.h"

#include <stdlib.h>

#define FILE_BYTES_MAX ((size_t)PREDICT_STATE_BYTES_MAX + PREDICT_HEADER_BYTES)

int predict_file_merge(const struct predict_policy *policy, const char *path, void *state,
                       struct err *err)
{
    CLEANUP(buf_fini) struct buf saved = { .max = FILE_BYTES_MAX };
    int rc = file_read(path, FILE_BYTES_MAX, &saved, err);
    if (rc < 0) return rc;
    rc = predict_header_check(policy, buf_view(&saved));
    if (rc == -EBADMSG) return err_set(err, rc, "%s: damaged", path);
    if (rc < 0) {
        return err_set(err, -EINVAL, "%s: not a state of predictor %s of this version", path,
                       policy->name);
    }
    void *other = malloc(policy->state_size);
    if (!other) return err_set(err, -ENOMEM, "%s: no memory", path);
    memcpy(other, saved.data + PREDICT_HEADER_BYTES, policy->state_size);
    policy->merge(state, other);
    free(other);
    return 0;
}

int predict_file_write(const struct predict_policy *policy, const char *path, const void *state,
                       struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { .max = FILE_BYTES_MAX };
    uint8_t head[PREDICT_HEADER_BYTES];
    predict_header(policy, state, head);
    buf_str(&out, str_of(head, sizeof head));
    buf_str(&out, str_of(state, policy->state_size));
    if (out.rc < 0) return err_set(err, out.rc, "%s: no memory", path);
    return file_write_atomic(path, buf_view(&out), 0600, err);
}
