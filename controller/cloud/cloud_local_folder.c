/* cloud_local_folder.c - keeps one folder an intent, and those of the instances that have ended.
 *
 * What counts is in files, so that a controller that restarts sees what the one before it saw. A process is known by
 * its pid with its start time (base/io/proc.h): a file that outlives it names nobody.
 */
#include "controller/cloud/cloud_local_folder.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int local_path(const char *root, const char *intent, const char *file, char ret[PATH_MAX],
               struct err *err)
{
    int n = snprintf(ret, PATH_MAX, "%s/%s%s%s", root, intent, file ? "/" : "", file ? file : "");
    if (n < 0 || n >= PATH_MAX) return err_set(err, -ENAMETOOLONG, "%s: path too long", root);
    return 0;
}

bool local_id_is_plain(const char *id)
{
    size_t len = strlen(id);
    return len > 0 && len < INTENT_ID_BYTES &&
           strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == len && id[0] != '-';
}

/* ---- reading a folder ---- */

/* Reads a small file; -ENOENT when it is not there. */
static int read_mark(const char *root, const char *intent, const char *file, struct buf *text)
{
    char path[PATH_MAX];
    int rc = local_path(root, intent, file, path, NULL);
    if (rc < 0) return rc;
    return file_read(path, LOCAL_MARK_BYTES_MAX, text, NULL);
}

int64_t local_time_read(const char *root, const char *intent, const char *file)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int64_t us;
    if (read_mark(root, intent, file, &text) < 0 || str_to_i64(buf_view(&text), &us) < 0) return 0;
    return us;
}

/* Returns the living process that a file names in its first line, else pid 0. *ret_was: the file
 * names a process, living or not. */
static struct proc_id read_process(const char *root, const char *intent, const char *file,
                                   bool *ret_was)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct proc_id id = { 0 };
    *ret_was = false;
    if (read_mark(root, intent, file, &text) < 0) return id;
    struct str rest = buf_view(&text);
    if (proc_id_parse(str_trim(str_cut(&rest, '\n')), &id) < 0) return (struct proc_id){ 0 };
    *ret_was = true;
    return proc_is_alive(&id) ? id : (struct proc_id){ 0 };
}

static int read_spec(const char *root, const char *intent, struct local_sight *s, struct err *err)
{
    char path[PATH_MAX];
    int rc = local_path(root, intent, "spec.json", path, err);
    if (rc < 0) return rc;
    CLEANUP(buf_fini) struct buf text = { 0 };
    rc = file_read(path, LAUNCH_BYTES_MAX, &text, err);
    if (rc < 0) return rc;

    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 2 * LAUNCH_BYTES_MAX);
    struct launch_spec spec;
    rc = launch_spec_decode(buf_view(&text), &arena, &spec, err);
    if (rc < 0) return rc;
    struct stat st;
    if (stat(path, &st) < 0) return err_set(err, -errno, "%s: %s", path, strerror(errno));

    struct listed *out = &s->listed;
    rc = name_copy(out->service, sizeof out->service, spec.service);
    if (rc == 0) rc = name_copy(out->pool, sizeof out->pool, spec.pool);
    if (rc == 0) rc = name_copy(out->offer, sizeof out->offer, spec.offer);
    if (rc < 0) return err_set(err, -EINVAL, "%s: a name is too long", path);
    /* Older releases wrote no time of their own. */
    int64_t written_us = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
    out->created_us = spec.created_us ? spec.created_us : written_us;
    s->share = spec.share;
    return 0;
}

int local_look(const char *root, const char *intent, struct local_sight *ret, struct err *err)
{
    struct local_sight s = { 0 };
    if (!local_id_is_plain(intent))
        return err_set(err, -ENOENT, "'%s' is no instance's name", intent);
    int rc = read_spec(root, intent, &s, err);
    /* An instance that cannot be read is not absent: leaving it out would end one that may serve. */
    if (rc < 0 && (rc == -ENOENT || rc == -ENOTDIR || rc == -ENOMEM)) return rc;
    if (rc < 0) s = (struct local_sight){ .listed = { .unreadable = true } };
    must(name_copy(s.listed.handle, sizeof s.listed.handle, str_from(intent)) == 0);
    must(name_copy(s.listed.intent, sizeof s.listed.intent, str_from(intent)) == 0);
    if (gethostname(s.listed.node, sizeof s.listed.node - 1) < 0) s.listed.node[0] = 0;
    bool engine_was;
    s.agent = read_process(root, intent, "agent.lock", &s.agent_was);
    s.engine = read_process(root, intent, "engine.id", &engine_was);
    s.spawned_us = local_time_read(root, intent, "spawned");
    s.removed_us = local_time_read(root, intent, "removed");
    *ret = s;
    return 0;
}

bool local_is_dead(const struct local_sight *s, int64_t now_us)
{
    if (s->agent.pid || s->engine.pid) return false;
    if (s->agent_was) return true;
    return s->removed_us && now_us - s->spawned_us >= LOCAL_SPAWN_US;
}

int local_each(const char *root, int (*fn)(void *arg, const struct local_sight *s, struct err *err),
               void *arg, struct err *err)
{
    DIR *dir = opendir(root);
    if (!dir) return err_set(err, -errno, "%s: %s", root, strerror(errno));
    int rc = 0;
    for (struct dirent *e; rc == 0 && (e = readdir(dir));) {
        if (e->d_name[0] == '.' || strcmp(e->d_name, "ended") == 0) continue;
        struct local_sight s;
        if (!local_id_is_plain(e->d_name)) continue;
        rc = local_look(root, e->d_name, &s, err);
        if (rc == -ENOENT || rc == -ENOTDIR)
            rc = 0; /* being made, being buried, or no folder */
        else if (rc == 0)
            rc = fn(arg, &s, err);
    }
    closedir(dir);
    return rc;
}

/* ---- changes ---- */

int local_mark_write(const char *root, const char *intent, const char *file, int64_t now_us,
                     struct err *err)
{
    char path[PATH_MAX], text[32];
    int rc = local_path(root, intent, file, path, err);
    if (rc < 0) return rc;
    snprintf(text, sizeof text, "%lld", (long long)now_us);
    return file_write_atomic(path, str_from(text), 0600, err);
}

int local_spec_write(const char *root, const struct cloud_request *req, double share,
                     int64_t now_us, int64_t launch_us, struct err *err)
{
    char folder[PATH_MAX], path[PATH_MAX], key[PATH_MAX];
    int rc = local_path(root, req->intent, NULL, folder, err);
    if (rc == 0) rc = local_path(root, req->intent, "spec.json", path, err);
    if (rc == 0) rc = local_path(root, req->intent, "key", key, err);
    if (rc == 0) rc = file_make_folders(folder, 0700, err);
    if (rc == 0 && req->key.len > 0) rc = file_write_atomic(key, req->key, 0600, err);
    if (rc < 0) return rc;
    struct launch_spec spec = *req->spec;
    if (req->key.len > 0) spec.secret_file = str_from(key);
    spec.folder = str_from(folder);
    spec.share = share;
    spec.created_us = now_us;
    spec.boot = proc_id_self().boot;
    spec.born_mono_us = clock_mono_us();
    spec.start_mono_us = spec.born_mono_us + launch_us;
    spec.start_wall_us = clock_wall_us() + launch_us; /* for agents of older releases */
    CLEANUP(buf_fini) struct buf text = { 0 };
    rc = launch_spec_encode(&spec, &text);
    if (rc < 0) return err_set(err, rc, "the launch document of %s", req->intent);
    return file_write_atomic(path, buf_view(&text), 0600, err);
}

static const char *const leftovers[] = { "spec.json", "key",        "agent.lock",
                                         "engine.id", "removed",    "spawned",
                                         "agent.log", "engine.log", "kv" };

/* Returns true for a file of ours: one of those names, or one with a suffix behind a dot, as older logs
 * and the temporaries of a killed writer have. */
static bool is_leftover(const char *file)
{
    for (size_t i = 0; i < COUNT_OF(leftovers); i++) {
        size_t len = strlen(leftovers[i]);
        if (strncmp(file, leftovers[i], len) == 0 && (file[len] == 0 || file[len] == '.'))
            return true;
    }
    return false;
}

void local_erase(const char *folder)
{
    char path[PATH_MAX];
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (is_leftover(e->d_name) && n > 0 && n < PATH_MAX) unlink(path);
    }
    closedir(dir);
    rmdir(folder);
}

/* One folder of ended/, by its age and then by its name. */
struct aged {
    int64_t at_us;
    char name[INTENT_ID_BYTES];
};

static bool is_older(const struct aged *a, const struct aged *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : strcmp(a->name, b->name) < 0;
}

/* Finds the oldest folder that is younger than *after, and returns how many are younger. */
static uint32_t oldest_after(const char *ended, const struct aged *after, struct aged *ret)
{
    uint32_t count = 0;
    DIR *dir = opendir(ended);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[PATH_MAX];
        struct stat st;
        struct aged one;
        int n = snprintf(path, sizeof path, "%s/%s", ended, e->d_name);
        if (!local_id_is_plain(e->d_name) || n >= PATH_MAX || stat(path, &st) < 0) continue;
        one.at_us = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
        must(name_copy(one.name, sizeof one.name, str_from(e->d_name)) == 0);
        if (!is_older(after, &one)) continue;
        if (count++ == 0 || is_older(&one, ret)) *ret = one;
    }
    if (dir) closedir(dir);
    return count;
}

/* Keeps the newest LOCAL_ENDED_MAX - 1 folders of ended/. One that cannot be removed, because it has
 * a file that is not ours, stays and is passed over. */
static void prune_ended(const char *ended)
{
    struct aged last = { .at_us = INT64_MIN }, oldest;
    char path[PATH_MAX];
    while (oldest_after(ended, &last, &oldest) >= LOCAL_ENDED_MAX) {
        int n = snprintf(path, sizeof path, "%s/%s", ended, oldest.name);
        if (n < PATH_MAX) local_erase(path);
        last = oldest;
    }
}

int local_bury(const char *root, const char *intent, struct err *err)
{
    char from[PATH_MAX], ended[PATH_MAX], to[PATH_MAX];
    int rc = local_path(root, intent, NULL, from, err);
    if (rc == 0) rc = local_path(root, "ended", NULL, ended, err);
    if (rc == 0) rc = local_path(root, "ended", intent, to, err);
    if (rc == 0) rc = file_make_folders(ended, 0700, err);
    if (rc < 0) return rc;
    prune_ended(ended);
    if (rename(from, to) == 0 || errno == ENOENT) return 0;
    local_erase(from); /* ended/ has one of that name, or the disk refuses */
    return 0;
}
