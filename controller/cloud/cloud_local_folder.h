/* cloud_local_folder.h - the folders of the local cloud: one an instance, read, written, buried.
 *
 * Layer: controller/cloud, private to cloud_local.c
 * Names: `root` is local_config.folder; the files below it: cloud_local.h
 */
#pragma once
#include "base/io/proc.h"
#include "controller/cloud/cloud_local.h"

#include <limits.h>

/* One instance as its folder shows it. */
struct local_sight {
    struct listed listed;
    double share;
    struct proc_id agent, engine; /* pid 0: none alive */
    bool agent_was;               /* an agent held the lock once */
    int64_t spawned_us;           /* the last try; 0: none */
    int64_t removed_us;           /* the wish; 0: none */
};

/* root/intent/file, or root/intent when `file` is NULL. */
int local_path(const char *root, const char *intent, const char *file, char ret[PATH_MAX],
               struct err *err);

/* Ids become folder names: nothing but letters, digits and '-'. */
bool local_id_is_plain(const char *id);

/* -ENOENT: no instance. */
int local_look(const char *root, const char *intent, struct local_sight *ret, struct err *err);
bool local_is_dead(const struct local_sight *s, int64_t now_us);

/* Calls fn for every folder that holds an instance, those whose document cannot be read too. */
int local_each(const char *root, int (*fn)(void *arg, const struct local_sight *s, struct err *err),
               void *arg, struct err *err);

/* `file` ("spawned", "removed") says when. */
int local_write_mark(const char *root, const char *intent, const char *file, int64_t now_us,
                     struct err *err);

/* Makes the folder, then spec.json: the engine starts launch_us from now. */
int local_write_spec(const char *root, const struct cloud_request *req, double share,
                     int64_t now_us, int64_t launch_us, struct err *err);

/* The instance is over: its folder moves to ended/, where nothing looks for instances. */
int local_bury(const char *root, const char *intent, struct err *err);
