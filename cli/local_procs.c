/* local_procs.c - walk STATE/instances and read the identities that agents leave there.
 *
 * An agent that was spawned a moment ago has not written its own yet, so the folder is read until
 * it shows nobody twice, QUIET_US apart. */
#include "cli/local_procs.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "cli/fleet_file.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define ID_BYTES_MAX 4096
#define QUIET_US 300000
#define POLL_US 50000 /* while somebody dies */

static void add(const char *folder, const char *name, const char *file, struct local_procs *ret)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char path[PATH_MAX];
    struct proc_id id;
    int len = snprintf(path, sizeof path, "%s/%s/%s", folder, name, file);
    if (len >= (int)sizeof path || file_read(path, ID_BYTES_MAX, &text, NULL) < 0) return;
    struct str rest = buf_view(&text);
    if (proc_id_parse(str_trim(str_cut(&rest, '\n')), &id) < 0 || !proc_is_alive(&id)) return;
    if (ret->count == LOCALS_MAX)
        ret->dropped++;
    else
        ret->id[ret->count++] = id;
}

int local_procs_find(struct str state, struct local_procs *ret, struct err *err)
{
    static const char *const files[] = { "agent.lock", "engine.id" };
    char folder[PATH_MAX];
    ret->count = ret->dropped = 0;
    int rc = fleet_file_path(state, "instances", folder, err);
    for (size_t i = 0; rc == 0 && i < COUNT_OF(files); i++) {
        DIR *dir = opendir(folder);
        if (!dir && errno == ENOENT) return 0;
        if (!dir) {
            rc = -errno;
            return err_set(err, rc, "cannot read %s: %s", folder, strerror(-rc));
        }
        for (struct dirent *e; (e = readdir(dir));)
            if (e->d_name[0] != '.') add(folder, e->d_name, files[i], ret);
        closedir(dir);
    }
    return rc;
}

static int refuse(const struct local_procs *left, struct err *err)
{
    CLEANUP(buf_fini) struct buf pids = { 0 };
    for (uint32_t i = 0; i < left->count && i < 16; i++)
        buf_printf(&pids, " %lld", (long long)left->id[i].pid);
    return err_set(err, -ETIMEDOUT, "%u instance processes do not end:%s",
                   left->count + left->dropped, pids.data ? pids.data : "");
}

static bool is_new(struct local_procs *seen, const struct proc_id *id)
{
    for (uint32_t i = 0; i < seen->count; i++)
        if (proc_id_eq(&seen->id[i], id)) return false;
    if (seen->count < LOCALS_MAX) seen->id[seen->count++] = *id;
    return true;
}

int local_procs_kill(struct str state, int64_t timeout_us, uint32_t *ret_ended, struct err *err)
{
    int64_t until_us = clock_mono_us() + timeout_us;
    struct local_procs l, seen = { 0 };
    uint32_t quiet = 0, ended = 0;
    for (;;) {
        int rc = local_procs_find(state, &l, err);
        if (rc < 0) return rc;
        for (uint32_t i = 0; i < l.count; i++)
            if (proc_signal_group(&l.id[i], SIGKILL, NULL) == 0) ended += is_new(&seen, &l.id[i]);
        quiet = l.count + l.dropped > 0 ? 0 : quiet + 1;
        if (quiet == 2) break;
        if (clock_mono_us() >= until_us && quiet == 0) return refuse(&l, err);
        usleep(quiet > 0 ? QUIET_US : POLL_US);
    }
    *ret_ended = ended;
    return 0;
}
