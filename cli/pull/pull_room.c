/* pull_room.c - adds up a folder, and removes models that nothing names.
 *
 * Access times are as good as the file system keeps them: with relatime they are true to a day, with noatime a model
 * counts as read when it was pulled. Nothing better survives a restart, and a wrong choice costs one pull. */
#include "cli/pull/pull_room.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/models.h"
#include "cli/model/cmd_model.h"
#include "controller/config.h"
#include "engine/config.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define WANT ".want"
#define ROOM "room"   /* its lock is held while a folder is added up */
#define LOCK_LOOKS 50 /* others hold a lock for that long when they only look */
#define LOCK_LOOK_US 20000
#define WALK_DEPTH 16 /* descriptors of nftw */
#define SPEC_BYTES_MAX ((size_t)1 << 20)

struct item {
    char name[NAME_MAX + 1];
    uint64_t bytes, wanted;
    int64_t used_s;
    const char *kept; /* why it stays; NULL: it can go */
};

struct items {
    struct item *all;
    uint32_t count;
    uint64_t bytes;
};

void pull_room_fini(struct pull_room *r)
{
    buf_fini(&r->evicted);
}

static int path_in(const char *folder, const char *name, char ret[PATH_MAX], struct err *err)
{
    if (snprintf(ret, PATH_MAX, "%s/%s", folder, name) < PATH_MAX) return 0;
    return err_set(err, -ENAMETOOLONG, "%s: a path in it is longer than %d bytes", folder,
                   PATH_MAX);
}

static void items_free(struct items *l)
{
    free(l->all);
}

/* ---- what is there */

static uint64_t walk_bytes;
static int64_t walk_used_s;

static int walk_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)path, (void)ftw;
    if (kind != FTW_F) return 0;
    walk_bytes += (uint64_t)st->st_size;
    walk_used_s = max_i64(walk_used_s, max_i64(st->st_atim.tv_sec, st->st_mtim.tv_sec));
    return 0;
}

static uint64_t read_want(const char *path)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint64_t bytes = 0;
    if (file_read(path, 32, &text, NULL) < 0) return 0;
    struct str rest = buf_view(&text);
    (void)str_to_u64(str_cut(&rest, '\n'), &bytes);
    return bytes;
}

static int items_add(struct items *l, const char *folder, const char *name, struct err *err)
{
    char path[PATH_MAX];
    if (l->count == PULL_ROOM_ITEMS_MAX)
        return err_set(err, -E2BIG,
                       "%s holds more than %u files and folders: name another models.folder",
                       folder, PULL_ROOM_ITEMS_MAX);
    int rc = path_in(folder, name, path, err);
    if (rc < 0) return rc;
    walk_bytes = 0;
    walk_used_s = 0;
    (void)nftw(path, walk_one, WALK_DEPTH, FTW_PHYS | FTW_MOUNT);
    struct item *i = &l->all[l->count++];
    snprintf(i->name, sizeof i->name, "%s", name);
    i->bytes = walk_bytes;
    i->used_s = walk_used_s;
    if (str_ends(str_from(name), STR(WANT))) i->wanted = read_want(path);
    l->bytes += i->bytes;
    return 0;
}

static int items_find(const char *folder, struct items *l, struct err *err)
{
    l->all = calloc(PULL_ROOM_ITEMS_MAX, sizeof *l->all);
    if (!l->all) return err_set(err, -ENOMEM, "no memory to list %s", folder);
    DIR *dir = opendir(folder);
    if (!dir) return err_set(err, -errno, "%s: %s", folder, strerror(errno));
    int rc = 0;
    for (struct dirent *e; rc == 0 && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = items_add(l, folder, e->d_name, err);
    closedir(dir);
    return rc;
}

/* Returns true while a process has the lock of the item; a want outlives one that was killed. */
static bool is_pulled(const char *folder, struct str name)
{
    char path[PATH_MAX];
    int lock;
    if (snprintf(path, sizeof path, "%s/." STR_FMT ".lock", folder, STR_ARG(name)) >=
        (int)sizeof path)
        return true;
    if (file_lock(path, &lock, NULL) < 0) return true;
    file_unlock(lock);
    return false;
}

/* Adds what other pulls will still write: their want, less what their part holds. */
static uint64_t bytes_to_come(const struct pull_room *r, const struct items *l)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        struct str name = str_from(l->all[i].name);
        uint64_t there = 0;
        if (l->all[i].wanted == 0) continue;
        name.len -= sizeof WANT - 1;
        if (str_eq(name, str_from(r->item)) || !is_pulled(r->folder, name)) continue;
        for (uint32_t k = 0; k < l->count; k++)
            if (str_starts(str_from(l->all[k].name), name) &&
                str_eq(str_from(l->all[k].name + name.len), STR(".part")))
                there = l->all[k].bytes;
        bytes += l->all[i].wanted > there ? l->all[i].wanted - there : 0;
    }
    return bytes;
}

/* ---- what may go */

/* Returns true if `model`, as a service says it, lies at `path` or below it, by whatever links. */
static bool is_at(const struct models_section *m, struct str model, const char *path)
{
    struct models_place place;
    char real[PATH_MAX], item[PATH_MAX];
    if (model.len == 0 || models_resolve(m, model, &place, NULL) < 0) return false;
    if (!realpath(place.path, real) || !realpath(path, item)) return false;
    size_t len = strlen(item);
    return strncmp(real, item, len) == 0 && (real[len] == 0 || real[len] == '/');
}

static bool service_names(const struct pull_room *r, const struct models_section *m,
                          const char *path)
{
    const struct config_records *list = config_section_get(r->config, services_section.name);
    const struct engine_config *engine = config_section_get(r->config, engine_section.name);
    const struct service_section *s = list->items;
    bool named = is_at(m, engine->model, path);
    for (size_t i = 0; i < list->count && !named; i++) {
        const struct pool_section *p = s[i].pools.items;
        named = is_at(m, s[i].model, path);
        for (size_t k = 0; k < s[i].pools.count && !named; k++)
            named = is_at(m, p[k].model, path) || is_at(m, p[k].tokenizer, path);
    }
    return named;
}

/* Returns true if an instance of this machine was launched with a model of that name; its service may have left the
 * file. The name alone counts, because its path may be written in many ways. */
static bool instance_names(const struct pull_room *r, const char *name)
{
    const struct controller_section *c = config_section_get(r->config, controller_section.name);
    char folder[PATH_MAX], spec[PATH_MAX];
    bool named = false;
    if (path_in(c->state.data, "instances", folder, NULL) < 0) return true;
    DIR *dir = opendir(folder);
    if (!dir) return false;
    for (struct dirent *e; !named && (e = readdir(dir));) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        if (e->d_name[0] == '.' ||
            snprintf(spec, sizeof spec, "%s/%s/spec.json", folder, e->d_name) >= (int)sizeof spec)
            continue;
        if (file_read(spec, SPEC_BYTES_MAX, &text, NULL) == 0)
            named = str_find(buf_view(&text), str_from(name)) != SIZE_MAX;
    }
    closedir(dir);
    return named;
}

/* Returns true if `path` is the whole of an entry: its file, its folder, or the folder of its shards. A folder that
 * holds other things beside a model is none. */
static bool is_entry(const struct models_section *m, const struct models_entry *e, const char *path)
{
    char place[PATH_MAX], real[PATH_MAX], item[PATH_MAX];
    if (models_path(m, e, place, NULL) < 0 || !realpath(place, real) || !realpath(path, item))
        return false;
    struct str base = models_base(str_from(real));
    if (models_shards(base) > 0) real[strlen(real) - base.len - 1] = 0;
    return strcmp(real, item) == 0;
}

static const char *why_kept(const struct pull_room *r, const struct item *i)
{
    const struct models_section *m = config_section_get(r->config, models_section.name);
    const struct models_entry *e = m->list.items;
    char path[PATH_MAX];
    bool listed = false;
    if (path_in(r->folder, i->name, path, NULL) < 0) return "not in models.list";
    for (size_t k = 0; k < m->list.count && !listed; k++)
        listed = is_entry(m, &e[k], path);
    if (!listed) return "not in models.list";
    if (service_names(r, m, path)) return "a service names it";
    return instance_names(r, i->name) ? "an instance has it" : NULL;
}

static bool is_own(const struct pull_room *r, const struct item *i)
{
    size_t len = strlen(r->item);
    return strncmp(i->name, r->item, len) == 0 && (i->name[len] == 0 || i->name[len] == '.');
}

static void judge(const struct pull_room *r, struct items *l)
{
    for (uint32_t i = 0; i < l->count; i++)
        l->all[i].kept = is_own(r, &l->all[i]) ? "this pull"
                         : !r->config          ? "not in models.list"
                                               : why_kept(r, &l->all[i]);
}

/* ---- room */

static uint64_t free_bytes(const char *folder)
{
    struct statvfs s;
    if (statvfs(folder, &s) < 0) return 0;
    uint64_t bytes = (uint64_t)s.f_bavail * s.f_frsize;
    return bytes > PULL_FREE_BYTES ? bytes - PULL_FREE_BYTES : 0;
}

/* Returns how many bytes are missing for `more`, by the bound or the disk, whichever lacks more. */
static uint64_t missing(const struct pull_room *r, const struct items *l, uint64_t more)
{
    uint64_t to_come = bytes_to_come(r, l), room = free_bytes(r->folder);
    uint64_t used = l->bytes + to_come, disk_lacks, bound_lacks;
    disk_lacks = more + to_come > room ? more + to_come - room : 0;
    bound_lacks = used > r->max || more > r->max - used ? used + more - r->max : 0;
    return disk_lacks > bound_lacks ? disk_lacks : bound_lacks;
}

static int by_use(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if ((x->kept == NULL) != (y->kept == NULL)) return x->kept ? 1 : -1;
    return (x->used_s > y->used_s) - (x->used_s < y->used_s);
}

static void say_items(const struct pull_room *r, const struct items *l)
{
    fprintf(stderr, "%s holds, read longest ago first:\n", r->folder);
    for (uint32_t i = 0; i < l->count; i++) {
        CLEANUP(buf_fini) struct buf bytes = { 0 };
        char day[16] = "";
        time_t at = l->all[i].used_s;
        struct tm tm;
        if (l->all[i].bytes == 0) continue;
        model_bytes_text((double)l->all[i].bytes, &bytes);
        if (gmtime_r(&at, &tm)) strftime(day, sizeof day, "%Y-%m-%d", &tm);
        fprintf(stderr, "  %10s  read %s  %s: %s\n", bytes.data, day, l->all[i].name,
                l->all[i].kept ? l->all[i].kept : "can go");
    }
}

static int refuse(const struct pull_room *r, const struct items *l, uint64_t more, uint64_t lacks,
                  uint64_t can_go, struct err *err)
{
    CLEANUP(buf_fini) struct buf want = { 0 };
    CLEANUP(buf_fini) struct buf lack = { 0 };
    CLEANUP(buf_fini) struct buf bound = { 0 };
    say_items(r, l);
    model_bytes_text((double)more, &want);
    model_bytes_text((double)lacks, &lack);
    model_bytes_text((double)r->max, &bound);
    const char *next = can_go >= lacks ? "--evict removes what can go"
                       : r->max == UINT64_MAX
                           ? "free some of the disk"
                           : "what can go is not enough: remove some by hand, or raise models.max";
    if (r->max == UINT64_MAX)
        return err_set(err, -ENOSPC, "%s needs %s more and the disk of %s lacks %s: %s", r->item,
                       want.data, r->folder, lack.data, next);
    return err_set(err, -ENOSPC, "%s needs %s more; %s (models.max %s) or its disk lacks %s: %s",
                   r->item, want.data, r->folder, bound.data, lack.data, next);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static int evict(struct pull_room *r, const struct item *i, struct err *err)
{
    char path[PATH_MAX];
    struct json_writer w;
    int rc = path_in(r->folder, i->name, path, err);
    if (rc < 0) return rc;
    if (nftw(path, remove_one, WALK_DEPTH, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0)
        return err_set(err, -errno, "%s cannot be removed: %s", path, strerror(errno));
    fprintf(stderr, "removed %s\n", path);
    if (r->evicted.len > 0) buf_byte(&r->evicted, ',');
    json_writer_init(&w, &r->evicted);
    json_put_text(&w, i->name);
    return 0;
}

static int note_want(const struct pull_room *r, uint64_t bytes, struct err *err)
{
    char path[PATH_MAX], text[32];
    if (snprintf(path, sizeof path, "%s/%s" WANT, r->folder, r->item) >= (int)sizeof path)
        return -ENAMETOOLONG;
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)bytes);
    return file_write_atomic(path, str_from(text), 0600, err);
}

static uint64_t own_part_bytes(const struct pull_room *r, const struct items *l)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (str_starts(str_from(l->all[i].name), str_from(r->item)) &&
            strcmp(l->all[i].name + strlen(r->item), ".part") == 0)
            return l->all[i].bytes;
    return 0;
}

/* Does the work while no other pull adds up the folder. */
static int make(struct pull_room *r, uint64_t more, struct err *err)
{
    CLEANUP(items_free) struct items l = { 0 };
    uint64_t can_go = 0;
    int rc = items_find(r->folder, &l, err);
    if (rc < 0) return rc;
    uint64_t lacks = missing(r, &l, more);
    if (lacks > 0) {
        judge(r, &l);
        qsort(l.all, l.count, sizeof *l.all, by_use);
        for (uint32_t i = 0; i < l.count; i++)
            can_go += l.all[i].kept ? 0 : l.all[i].bytes;
        if (!r->evict || can_go < lacks) return refuse(r, &l, more, lacks, can_go, err);
    }
    uint64_t gone = 0;
    for (uint32_t i = 0; i < l.count && gone < lacks && rc == 0; i++) {
        if (l.all[i].kept) continue;
        rc = evict(r, &l.all[i], err);
        gone += l.all[i].bytes;
    }
    return rc < 0 ? rc : note_want(r, more + own_part_bytes(r, &l), err);
}

int pull_room_lock(const char *folder, const char *name, int *ret_fd, struct err *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/.%s.lock", folder, name) >= (int)sizeof path)
        return err_set(err, -ENAMETOOLONG, "%s: the path of a lock is longer than %d bytes", folder,
                       PATH_MAX);
    int rc = file_lock(path, ret_fd, err);
    for (int i = 0; rc == -EBUSY && i < LOCK_LOOKS; i++) {
        usleep(LOCK_LOOK_US);
        rc = file_lock(path, ret_fd, err);
    }
    return rc;
}

int pull_room_make(struct pull_room *r, uint64_t more, struct err *err)
{
    int lock, rc = pull_room_lock(r->folder, ROOM, &lock, err);
    if (rc < 0) return rc;
    rc = make(r, more, err);
    file_unlock(lock);
    return rc;
}

uint64_t pull_room_left(const struct pull_room *r)
{
    CLEANUP(items_free) struct items l = { 0 };
    if (items_find(r->folder, &l, NULL) < 0) return 0;
    uint64_t to_come = bytes_to_come(r, &l), disk = free_bytes(r->folder), used = l.bytes + to_come;
    uint64_t bound = used < r->max ? r->max - used : 0;
    disk = disk > to_come ? disk - to_come : 0;
    return disk < bound ? disk : bound;
}

void pull_room_done(const struct pull_room *r)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s" WANT, r->folder, r->item) < (int)sizeof path)
        unlink(path);
}
