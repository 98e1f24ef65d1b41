/* cloud_local_folder.h - reads and changes the folder of an intent: its document, its marks, its end.
 *
 * Layer:   controller/cloud (base/io), private to cloud_local.c. The files are listed in cloud_local.h
 * Threads: one at a time
 */
#pragma once
#include "base/io/proc.h"
#include "controller/cloud/cloud_local.h"

#include <limits.h>

#define LOCAL_MARK_BYTES_MAX 256 /* of a file that holds a time or a process */

/* One instance as its folder shows it. */
struct local_sight {
    struct listed listed;
    double share;
    struct proc_id agent, engine; /* pid 0: none alive */
    bool agent_was;               /* an agent held the lock once */
    int64_t spawned_us;           /* the last try; 0: none */
    int64_t removed_us;           /* the wish; 0: none */
};

/* Makes the path of a file in an intent's folder, or of the folder (`file` NULL). -ENAMETOOLONG. */
int local_path(const char *root, const char *intent, const char *file, char ret[PATH_MAX],
               struct err *err);
bool local_id_is_plain(const char *id); /* it may be a folder's name */

/* Reads an instance. -ENOENT: there is none. One whose document cannot be read is there, and says so. */
int local_look(const char *root, const char *intent, struct local_sight *ret, struct err *err);
bool local_is_dead(const struct local_sight *s, int64_t now_us);
/* Calls fn for each instance until it returns an error. */
int local_each(const char *root, int (*fn)(void *arg, const struct local_sight *s, struct err *err),
               void *arg, struct err *err);

int64_t local_time_read(const char *root, const char *intent, const char *file); /* 0: no mark */
int local_mark_write(const char *root, const char *intent, const char *file, int64_t now_us,
                     struct err *err);
/* Makes the folder and writes the launch document, with which the instance exists. */
int local_spec_write(const char *root, const struct cloud_request *req, double share,
                     int64_t now_us, int64_t launch_us, struct err *err);

/* Moves the folder to ended/, of which the newest LOCAL_ENDED_MAX stay. */
int local_bury(const char *root, const char *intent, struct err *err);
void local_erase(const char *folder); /* our files only; with others in it, the folder stays */
