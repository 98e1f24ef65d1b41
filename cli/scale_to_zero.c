/* scale_to_zero.c - save, set to zero, set back. */
#include "cli/scale_to_zero.h"

#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/wire/order.h"
#include "cli/cmd_override.h"
#include "cli/json_path.h"

#include <stdio.h>
#include <unistd.h>

#define FILE_NAME "rest.json"
#define FILE_BYTES_MAX ((size_t)1 << 20)

struct order {
    const struct remote *api;
    bool back; /* to what the item says, not to zero */
    struct err *err;
};

static int set_pool(void *ctx, struct str item)
{
    const struct order *o = ctx;
    CLEANUP(buf_fini) struct buf service = { 0 };
    CLEANUP(buf_fini) struct buf pool = { 0 };
    double manual;
    int rc = json_path_text(item, "service", &service);
    if (rc == 0) rc = json_path_text(item, "pool", &pool);
    if (rc < 0) return err_set(o->err, -EPROTO, "the list of pools is not understood");
    int64_t count = 0;
    if (o->back)
        count = json_path_f64(item, "manual", &manual) == 0 ? (int64_t)manual : ORDER_BY_POLICY;
    rc = override_scale(o->api, buf_view(&service), buf_view(&pool), count, o->err);
    /* Since it was remembered the file may have lost the pool, or its maximum may have shrunk. */
    return o->back && (rc == -ENOENT || rc == -EINVAL) ? 0 : rc;
}

int scale_to_zero_begin(const struct remote *api, struct str state, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char path[PATH_MAX];
    struct str pools;
    int rc = fleet_file_path(state, FILE_NAME, path, err);
    if (rc == 0) rc = remote_get(api, "/api/v1/pools", &reply, err);
    if (rc < 0) return rc;
    if (json_path(buf_view(&reply), "pools", &pools) < 0)
        return err_set(err, -EPROTO, "the controller's list of pools is not understood");
    if (access(path, F_OK) < 0) rc = file_write_atomic(path, pools, 0600, err);
    struct order o = { api, false, err };
    return rc < 0 ? rc : json_path_each(pools, "", set_pool, &o);
}

int scale_to_zero_end(const struct remote *api, struct str state, struct err *err)
{
    CLEANUP(buf_fini) struct buf pools = { 0 };
    char path[PATH_MAX];
    int rc = fleet_file_path(state, FILE_NAME, path, err);
    if (rc == 0) rc = file_read(path, FILE_BYTES_MAX, &pools, err);
    if (rc == -ENOENT) return 0;
    struct order o = { api, true, err };
    if (rc == 0) rc = json_path_each(buf_view(&pools), "", set_pool, &o);
    if (rc == 0 && unlink(path) < 0) rc = err_set(err, -errno, "cannot remove %s", path);
    return rc;
}
