/* file.c - reads files whole, and writes them so that a crash leaves the old or the new one.
 *
 *     write:  name.XXXXXX -> write -> fsync -> rename over name -> fsync the folder
 *
 * Without the first fsync a rename may reach the disk before the bytes; without the second the
 * rename itself may be lost. Temporary names are unique rather than fixed, so that two writers
 * never share one; the last rename wins whole.
 */
#include "base/io/file.h"

#include "base/core/fault.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/proc.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_CHUNK ((size_t)64 << 10)

static void fd_close(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static int fail(struct err *err, int code, const char *verb, const char *path)
{
    return err_set(err, -code, "cannot %s %s: %s", verb, path, strerror(code));
}

static int read_all(int fd, size_t bytes_max, struct buf *out)
{
    size_t start = out->len;
    for (;;) {
        int rc = buf_reserve(out, READ_CHUNK);
        if (rc < 0) return rc == -E2BIG ? -EFBIG : rc;
        ssize_t n =
            FAULT("file.read") ? (errno = EIO, -1) : read(fd, out->data + out->len, READ_CHUNK);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        if (n == 0) break;
        out->len += (size_t)n;
        if (out->len - start > bytes_max) return -EFBIG;
    }
    out->data[out->len] = 0;
    return 0;
}

int file_read(const char *path, size_t bytes_max, struct buf *out, struct err *err)
{
    CLEANUP(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0) return fail(err, errno, "open", path);
    if (fstat(fd, &st) < 0) return fail(err, errno, "read", path);
    if (S_ISDIR(st.st_mode)) return fail(err, EISDIR, "read", path);
    size_t start = out->len;
    int rc = read_all(fd, bytes_max, out);
    if (rc == 0) return 0;
    out->len = start;
    if (rc == -EFBIG)
        return err_set(err, rc, "%s is larger than the %zu bytes allowed", path, bytes_max);
    return fail(err, -rc, "read", path);
}

static int write_all(int fd, struct str data)
{
    while (data.len > 0) {
        ssize_t n = FAULT("file.write") ? (errno = ENOSPC, -1) : write(fd, data.data, data.len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        data.data += n;
        data.len -= (size_t)n;
    }
    return 0;
}

/* Opens the folder that holds `path`; negative errno. */
static int folder_open(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 1;
    if (len >= sizeof folder) return -ENAMETOOLONG;
    memcpy(folder, slash ? path : ".", len);
    folder[len] = 0;
    int fd = open(len > 0 ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int folder_sync(const char *path)
{
    CLEANUP(fd_close) int fd = folder_open(path);
    if (fd < 0) return fd;
    /* Some file systems cannot sync a folder and say EINVAL: then there is nothing to do. */
    if (FAULT("file.sync_folder") || (fsync(fd) < 0 && errno != EINVAL)) return -EIO;
    return 0;
}

static int make_temporary(const char *path, char *ret, size_t size, mode_t mode)
{
    if ((size_t)snprintf(ret, size, "%s.XXXXXX", path) >= size) return -ENAMETOOLONG;
    int fd = FAULT("file.create") ? (errno = EACCES, -1) : mkostemp(ret, O_CLOEXEC);
    if (fd < 0) return -errno;
    if (fchmod(fd, mode) == 0) return fd;
    int rc = -errno;
    close(fd);
    unlink(ret);
    return rc;
}

/* Writes and syncs a temporary file beside `path`; its name is in `ret`. */
static int write_beside(const char *path, struct str data, mode_t mode, char *ret, size_t size)
{
    CLEANUP(fd_close) int fd = make_temporary(path, ret, size, mode);
    if (fd < 0) return fd;
    int rc = write_all(fd, data);
    if (rc == 0 && (FAULT("file.sync") || fsync(fd) < 0)) rc = -EIO;
    if (rc < 0) unlink(ret);
    return rc;
}

int file_write_atomic(const char *path, struct str data, mode_t mode, struct err *err)
{
    char temporary[PATH_MAX];
    int rc = write_beside(path, data, mode, temporary, sizeof temporary);
    if (rc < 0) return fail(err, -rc, "write", path);
    if (FAULT("file.rename") || rename(temporary, path) < 0) {
        rc = errno ? errno : EIO;
        unlink(temporary);
        return fail(err, rc, "replace", path);
    }
    /* The new file is in place; only its name may be lost in a power cut. */
    rc = folder_sync(path);
    return rc < 0 ? fail(err, -rc, "sync the folder of", path) : 0;
}

int file_make_folders(const char *path, mode_t mode, struct err *err)
{
    char part[PATH_MAX];
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof part) return fail(err, ENAMETOOLONG, "create", path);
    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (part[i] != '/' && part[i] != 0) continue;
        char end = part[i];
        part[i] = 0;
        struct stat st;
        if (mkdir(part, mode) < 0 && errno != EEXIST) return fail(err, errno, "create", part);
        if (stat(part, &st) < 0) return fail(err, errno, "use", part);
        if (!S_ISDIR(st.st_mode)) return fail(err, ENOTDIR, "use", part);
        part[i] = end;
    }
    return 0;
}

/* Reads the holder from the lock file, for the sentence; empty when it cannot be read. */
static void holder_read(int fd, char *ret, size_t size)
{
    ssize_t n = pread(fd, ret, size - 1, 0);
    if (n < 0) n = 0;
    ret[n] = 0;
    ret[strcspn(ret, "\n")] = 0;
}

static int lock(const char *path, int how, int *ret_fd, struct err *err)
{
    char holder[PROC_ID_TEXT_MAX];
    CLEANUP(fd_close) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return fail(err, errno, "open", path);
    if (flock(fd, how | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK) return fail(err, errno, "lock", path);
        holder_read(fd, holder, sizeof holder);
        return err_set(err, -EBUSY, "%s is held by another process (%s)", path,
                       holder[0] ? holder : "unknown");
    }
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int file_lock_shared(const char *path, int *ret_fd, struct err *err)
{
    return lock(path, LOCK_SH, ret_fd, err);
}

int file_lock(const char *path, int *ret_fd, struct err *err)
{
    char holder[PROC_ID_TEXT_MAX];
    CLEANUP(fd_close) int fd = -1;
    int rc = lock(path, LOCK_EX, &fd, err);
    if (rc < 0) return rc;
    struct proc_id self = proc_id_self();
    proc_id_print(&self, holder);
    size_t len = strlen(holder);
    holder[len] = '\n';
    if (ftruncate(fd, 0) < 0 || pwrite(fd, holder, len + 1, 0) != (ssize_t)len + 1)
        return fail(err, errno ? errno : EIO, "write", path);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

void file_unlock(int fd)
{
    if (fd >= 0) close(fd);
}

int file_check_private(const char *path, struct err *err)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        int code = errno;
        return code == ENOENT ? -ENOENT : fail(err, code, "read", path);
    }
    mode_t others = S_IRWXG | S_IRWXO;
    if (st.st_uid == 0 && geteuid() != 0) others &= ~(mode_t)S_IRGRP;
    if (!(st.st_mode & others)) return 0;
    return err_set(err, -EPERM, "%s holds a secret but its mode %03o lets others in: chmod 600",
                   path, (unsigned)(st.st_mode & 0777));
}

static int secret_read(const char *path, char ret[2 * FILE_SECRET_BYTES + 1], struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint8_t bytes[FILE_SECRET_BYTES];
    int rc = file_check_private(path, err);
    if (rc == 0) rc = file_read(path, 2 * FILE_SECRET_BYTES + 2, &text, err);
    if (rc < 0) return rc;
    struct str hex = buf_view(&text);
    if (hex.len > 0 && hex.data[hex.len - 1] == '\n') hex.len--;
    if (hex_to(hex, bytes, sizeof bytes) < 0)
        return err_set(err, -EINVAL, "%s does not hold %d hex digits: remove it to get a new one",
                       path, 2 * FILE_SECRET_BYTES);
    hex_from(bytes, sizeof bytes, ret);
    explicit_bzero(bytes, sizeof bytes);
    return 0;
}

/* Makes the file of a new secret. link() and not rename(), because link() fails when another process was
 * first; then the other's file is used. */
static int secret_make(const char *path, struct err *err)
{
    uint8_t bytes[FILE_SECRET_BYTES];
    char hex[2 * FILE_SECRET_BYTES + 2], temporary[PATH_MAX];
    if (FAULT("file.random") || getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return err_set(err, -EIO, "no random bytes for %s", path);
    hex_from(bytes, sizeof bytes, hex);
    hex[2 * FILE_SECRET_BYTES] = '\n';
    int rc = write_beside(path, str_of(hex, sizeof hex - 1), 0600, temporary, sizeof temporary);
    explicit_bzero(bytes, sizeof bytes);
    explicit_bzero(hex, sizeof hex);
    if (rc < 0) return fail(err, -rc, "write", path);
    if (link(temporary, path) < 0 && errno != EEXIST) rc = -errno;
    unlink(temporary);
    if (rc == 0) rc = folder_sync(path);
    return rc < 0 ? fail(err, -rc, "create", path) : 0;
}

int file_secret(const char *path, char ret[2 * FILE_SECRET_BYTES + 1], struct err *err)
{
    int rc = secret_read(path, ret, err);
    if (rc != -ENOENT) return rc;
    rc = secret_make(path, err);
    if (rc < 0) return rc;
    rc = secret_read(path, ret, err);
    return rc == -ENOENT ? err_set(err, rc, "%s was removed while it was made", path) : rc;
}
