/* weight_file.c - seals packed weights in a file, finds them again, and keeps the folder within its bound.
 *
 *     header:  magic, layout, bytes, order, checksum (XXH3 of the weights), digest     one page, then a hole
 *     weights: from WEIGHTS_AT on, so that huge pages can hold them
 *
 * Weights are written with pwrite and read through the mapping of the same file, which Linux keeps coherent: a disk
 * that fills up is an error to the writer, where a write to the mapping would be SIGBUS. What was written lies in small
 * pages of the page cache; so when it is sealed it goes to the disk, is dropped, and is read again through a mapping
 * that asks for huge ones, in which all later engines find it. A file that a crash has torn fails its checksum and is
 * packed anew. */
#include "engine/model/weight_file.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "MusterW1"
#define WEIGHTS_AT ((size_t)2 << 20)
#define NAME_MAX_BYTES 256 /* of a file in a folder */
#define WAIT_STEP_NS 50000000

struct header {
    char magic[8];
    uint64_t layout, bytes, order, checksum;
    char digest[SHA256_HEX];
};

struct weight_file {
    int folder, fd, lock; /* -1: none */
    bool sealed;
    char *map; /* of the whole file */
    size_t map_bytes;
    uint64_t order;
    char digest[SHA256_HEX + 1], path[512];
};

static void name_of(const char *stem, const char *kind, char ret[NAME_MAX_BYTES])
{
    snprintf(ret, NAME_MAX_BYTES, "%.64s-%d.%s", stem, WEIGHT_FILE_LAYOUT, kind);
}

/* ---- the folder */

/* Refuses what somebody else could change. */
static int check_owner(const struct stat *st, const char *path, struct err *err)
{
    if ((st->st_uid == geteuid() || st->st_uid == 0) && !(st->st_mode & (S_IWGRP | S_IWOTH)))
        return 0;
    return err_set(err, -EPERM,
                   "%s: others may write to it; weights are read from files of one's own", path);
}

static int open_folder(const char *path, struct err *err)
{
    struct stat st;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_set(err, -errno, "%s: %s", path, strerror(errno));
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || fstat(fd, &st) < 0 ? err_set(err, -errno, "%s: %s", path, strerror(errno))
                                          : check_owner(&st, path, err);
    if (rc == 0) return fd;
    if (fd >= 0) close(fd);
    return rc;
}

/* Holds the findings of one look at the folder. */
struct look {
    struct str kind; /* ".weights" */
    uint64_t bytes;  /* of all */
    uint32_t count;
    char oldest[NAME_MAX_BYTES];
    struct timespec when; /* of the oldest */
};

static bool is_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

static void look_at(int folder, struct look *l)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0) close(fd);
        return;
    }
    const struct dirent *e;
    struct stat st;
    while ((e = readdir(dir))) {
        if (!str_ends(str_from(e->d_name), l->kind) || strlen(e->d_name) >= NAME_MAX_BYTES)
            continue;
        if (fstatat(folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (l->count++ == 0 || is_before(&st.st_mtim, &l->when)) {
            l->when = st.st_mtim;
            memcpy(l->oldest, e->d_name, strlen(e->d_name) + 1);
        }
        l->bytes += (uint64_t)st.st_blocks * 512;
    }
    closedir(dir);
}

/* Removes what was opened longest ago until `bytes` more fit. */
static int make_room(int folder, const struct weight_file_ask *ask, struct err *err)
{
    if (ask->bytes > ask->bytes_max)
        return err_set(err, -EFBIG, "%s: %zu bytes of weights, its bound is %llu", ask->folder,
                       ask->bytes, (unsigned long long)ask->bytes_max);
    for (;;) {
        struct look l = { .kind = STR(".weights") };
        look_at(folder, &l);
        if (l.count == 0 || l.bytes + ask->bytes <= ask->bytes_max) return 0;
        if (unlinkat(folder, l.oldest, 0) < 0)
            return err_set(err, -errno, "%s/%s: %s", ask->folder, l.oldest, strerror(errno));
    }
}

static void remove_all(int folder, struct str kind, uint32_t keep)
{
    for (;;) {
        struct look l = { .kind = kind };
        look_at(folder, &l);
        if (l.count <= keep || unlinkat(folder, l.oldest, 0) < 0) return;
    }
}

/* ---- a sealed file */

/* Maps the file, to where it is mapped already if it is. */
static int map_file(struct weight_file *p, size_t bytes, struct err *err)
{
    p->map_bytes = WEIGHTS_AT + bytes;
    int flags = MAP_SHARED | (p->map ? MAP_FIXED : 0);
    void *map = FAULT("weight_file.map") ? MAP_FAILED
                                         : mmap(p->map, p->map_bytes, PROT_READ, flags, p->fd, 0);
    if (map == MAP_FAILED) return err_set(err, -ENOMEM, "%s: it cannot be mapped", p->path);
    p->map = map;
    return 0;
}

/* Reads all weights in, in huge pages where file system and kernel have them. Hints: all works without. */
static void read_in(const struct weight_file *p)
{
    (void)madvise(p->map, p->map_bytes, MADV_HUGEPAGE);
    (void)madvise(p->map + WEIGHTS_AT, p->map_bytes - WEIGHTS_AT, MADV_POPULATE_READ);
}

static void unmap(struct weight_file *p)
{
    if (p->map) munmap(p->map, p->map_bytes);
    if (p->fd >= 0) close(p->fd);
    p->map = NULL;
    p->fd = -1;
}

static uint64_t checksum_of(const struct weight_file *p)
{
    return hash64(p->map + WEIGHTS_AT, p->map_bytes - WEIGHTS_AT, WEIGHT_FILE_LAYOUT);
}

/* Returns true if the mapped file is what it says, and what is asked for. */
static bool is_whole(struct weight_file *p, const struct weight_file_ask *ask)
{
    struct header h;
    memcpy(&h, p->map, sizeof h);
    p->order = h.order;
    return memcmp(h.magic, MAGIC, sizeof h.magic) == 0 && h.layout == WEIGHT_FILE_LAYOUT &&
           h.bytes == ask->bytes && memcmp(h.digest, ask->digest, sizeof h.digest) == 0 &&
           h.checksum == checksum_of(p);
}

/* Returns 1 if the file is there and whole, 0 if it has to be made, or an error. */
static int find_sealed(struct weight_file *p, const struct weight_file_ask *ask, struct err *err)
{
    char name[NAME_MAX_BYTES];
    struct stat st;
    name_of(ask->digest, "weights", name);
    p->fd = openat(p->folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (p->fd < 0 && errno == ENOENT) return 0;
    if (p->fd < 0 || fstat(p->fd, &st) < 0)
        return err_set(err, -errno, "%s/%s: %s", ask->folder, name, strerror(errno));
    int rc = check_owner(&st, p->path, err);
    if (rc < 0) return rc;
    if (S_ISREG(st.st_mode) && (size_t)st.st_size == WEIGHTS_AT + ask->bytes) {
        rc = map_file(p, ask->bytes, err);
        if (rc < 0) return rc;
        read_in(p);
        if (is_whole(p, ask)) {
            (void)futimens(p->fd, NULL); /* it was used */
            p->sealed = true;
            return 1;
        }
    }
    unmap(p);
    if (unlinkat(p->folder, name, 0) < 0 && errno != ENOENT)
        return err_set(err, -errno, "%s: damaged, and cannot be removed: %s", p->path,
                       strerror(errno));
    return 0;
}

/* ---- a new one */

static int64_t now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* Takes the lock, unless another process has sealed the file meanwhile. Returns as find_sealed. */
static int lock_or_find(struct weight_file *p, const struct weight_file_ask *ask, struct err *err)
{
    const struct timespec step = { 0, WAIT_STEP_NS };
    int64_t until_s = now_s() + WEIGHT_FILE_WAIT_S;
    p->lock = openat(p->folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (p->lock < 0) return err_set(err, -errno, "%s/lock: %s", ask->folder, strerror(errno));
    while (flock(p->lock, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_set(err, -errno, "%s/lock: %s", ask->folder, strerror(errno));
        if (now_s() >= until_s)
            return err_set(err, -EBUSY, "%s: another process has packed weights there for %d s",
                           ask->folder, WEIGHT_FILE_WAIT_S);
        nanosleep(&step, NULL);
    }
    return find_sealed(p, ask, err);
}

static int begin(struct weight_file *p, const struct weight_file_ask *ask, struct err *err)
{
    char name[NAME_MAX_BYTES];
    remove_all(p->folder, STR(".part"), 0); /* of processes that were killed: the lock is ours */
    int rc = make_room(p->folder, ask, err);
    if (rc < 0) return rc;
    name_of(ask->digest, "part", name);
    p->fd = openat(p->folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (p->fd < 0) return err_set(err, -errno, "%s/%s: %s", ask->folder, name, strerror(errno));
    rc = FAULT("weight_file.room") ? ENOSPC
                                   : posix_fallocate(p->fd, (off_t)WEIGHTS_AT, (off_t)ask->bytes);
    if (rc != 0)
        return err_set(err, -rc, "%s: no room for %zu bytes: %s", ask->folder, ask->bytes,
                       strerror(rc));
    return map_file(p, ask->bytes, err);
}

int weight_file_open(const struct weight_file_ask *ask, struct weight_file **ret, struct err *err)
{
    struct weight_file *p = calloc(1, sizeof *p);
    if (!p) return err_set(err, -ENOMEM, "%s: no memory", ask->folder);
    must(strlen(ask->digest) == SHA256_HEX && ask->bytes > 0);
    p->fd = p->lock = -1;
    memcpy(p->digest, ask->digest, sizeof p->digest);
    snprintf(p->path, sizeof p->path, "%s/%.64s-%d.weights", ask->folder, ask->digest,
             WEIGHT_FILE_LAYOUT);
    int rc = p->folder = open_folder(ask->folder, err);
    if (rc >= 0) rc = find_sealed(p, ask, err);
    if (rc == 0) rc = lock_or_find(p, ask, err);
    if (rc == 0) rc = begin(p, ask, err);
    if (rc < 0) {
        weight_file_close(p);
        return rc;
    }
    if (p->sealed && p->lock >= 0) { /* another one has made it */
        close(p->lock);
        p->lock = -1;
    }
    *ret = p;
    return 0;
}

bool weight_file_is_sealed(const struct weight_file *p)
{
    return p->sealed;
}

const char *weight_file_memory(const struct weight_file *p)
{
    return p->map + WEIGHTS_AT;
}

uint64_t weight_file_order(const struct weight_file *p)
{
    must(p->sealed);
    return p->order;
}

static int write_at(struct weight_file *p, size_t at, const void *data, size_t len, struct err *err)
{
    const char *from = data;
    while (len > 0) {
        ssize_t n =
            FAULT("weight_file.write") ? (errno = ENOSPC, -1) : pwrite(p->fd, from, len, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set(err, -errno, "%s: %s", p->path, strerror(errno));
        from += n, at += (size_t)n, len -= (size_t)n;
    }
    return 0;
}

int weight_file_write(struct weight_file *p, size_t at, const void *data, size_t len,
                      struct err *err)
{
    must(!p->sealed && at <= p->map_bytes - WEIGHTS_AT && len <= p->map_bytes - WEIGHTS_AT - at);
    return write_at(p, WEIGHTS_AT + at, data, len, err);
}

/* Takes the weights out of the page cache's small pages and reads them into huge ones, at the same address. */
static int read_again(struct weight_file *p, struct err *err)
{
    if (fdatasync(p->fd) < 0) return err_set(err, -errno, "%s: %s", p->path, strerror(errno));
    /* Pages that are mapped are not dropped: the address is kept without them. */
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    if (mmap(p->map, p->map_bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED)
        return err_set(err, -errno, "%s: %s", p->path, strerror(errno));
    (void)posix_fadvise(p->fd, 0, 0, POSIX_FADV_DONTNEED);
    int rc = map_file(p, p->map_bytes - WEIGHTS_AT, err);
    if (rc == 0) read_in(p);
    return rc;
}

int weight_file_seal(struct weight_file *p, uint64_t order, struct err *err)
{
    char part[NAME_MAX_BYTES], name[NAME_MAX_BYTES];
    struct header h = { .layout = WEIGHT_FILE_LAYOUT,
                        .bytes = p->map_bytes - WEIGHTS_AT,
                        .order = order,
                        .checksum = checksum_of(p) };
    must(!p->sealed);
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(h.digest, p->digest, sizeof h.digest);
    int rc = write_at(p, 0, &h, sizeof h, err);
    if (rc == 0) rc = read_again(p, err);
    if (rc < 0) return rc;
    name_of(p->digest, "part", part);
    name_of(p->digest, "weights", name);
    if (fchmod(p->fd, 0400) < 0 || renameat(p->folder, part, p->folder, name) < 0)
        return err_set(err, -errno, "%s: %s", p->path, strerror(errno));
    p->sealed = true;
    p->order = order;
    close(p->lock);
    p->lock = -1;
    return 0;
}

void weight_file_expect(struct weight_file *p, bool read)
{
    if (read)
        read_in(p);
    else
        (void)madvise(p->map, p->map_bytes, MADV_DONTNEED);
}

void weight_file_remove(struct weight_file *p)
{
    char name[NAME_MAX_BYTES];
    name_of(p->digest, "weights", name);
    (void)unlinkat(p->folder, name, 0);
}

void weight_file_close(struct weight_file *p)
{
    if (!p) return;
    char part[NAME_MAX_BYTES];
    name_of(p->digest, "part", part);
    if (!p->sealed && p->lock >= 0 && p->fd >= 0) (void)unlinkat(p->folder, part, 0);
    unmap(p);
    if (p->lock >= 0) close(p->lock);
    if (p->folder >= 0) close(p->folder);
    free(p);
}

/* ---- digests by identity */

static void source_name(uint64_t identity, char ret[NAME_MAX_BYTES])
{
    snprintf(ret, NAME_MAX_BYTES, "%016llx.source", (unsigned long long)identity);
}

static void fd_close(int *fd)
{
    if (*fd >= 0) close(*fd);
}

bool weight_digest_tell(const char *folder, uint64_t identity, char ret[SHA256_HEX + 1])
{
    char name[NAME_MAX_BYTES], text[SHA256_HEX + 1];
    uint8_t digest[SHA256_BYTES];
    struct stat st;
    if (identity == 0) return false;
    CLEANUP(fd_close) int in = open_folder(folder, NULL);
    if (in < 0) return false;
    source_name(identity, name);
    CLEANUP(fd_close) int fd = openat(in, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || check_owner(&st, name, NULL) < 0) return false;
    if (read(fd, text, sizeof text) != SHA256_HEX ||
        hex_to(str_of(text, SHA256_HEX), digest, sizeof digest) < 0)
        return false;
    (void)futimens(fd, NULL);
    memcpy(ret, text, SHA256_HEX);
    ret[SHA256_HEX] = 0;
    return true;
}

void weight_digest_keep(const char *folder, uint64_t identity, const char *digest)
{
    char name[NAME_MAX_BYTES], fresh[NAME_MAX_BYTES];
    if (identity == 0) return;
    CLEANUP(fd_close) int in = open_folder(folder, NULL);
    if (in < 0) return;
    remove_all(in, STR(".source"), WEIGHT_FILE_SOURCES_MAX - 1);
    source_name(identity, name);
    snprintf(fresh, sizeof fresh, "%016llx.%d", (unsigned long long)identity, (int)getpid());
    CLEANUP(fd_close) int fd = openat(in, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return; /* the next start reads the files again */
    if (write(fd, digest, SHA256_HEX) != SHA256_HEX || renameat(in, fresh, in, name) < 0)
        (void)unlinkat(in, fresh, 0);
}
