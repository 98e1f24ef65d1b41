/* file.h - reads files whole, and writes them so that a crash leaves the old or the new one.
 *
 * Layer: base/io (base/core)
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

#include <sys/types.h>

#define FILE_SECRET_BYTES 32 /* of entropy; the file holds twice as many hex digits */

/* Appends the whole file to *out. -EFBIG over bytes_max, -EISDIR, and open's and read's errors. */
int file_read(const char *path, size_t bytes_max, struct buf *out, struct err *err);

/* Writes a temporary file beside `path`, syncs it, renames it over `path` and syncs the folder. On
 * failure the old file is as it was and nothing is left behind. */
int file_write_atomic(const char *path, struct str data, mode_t mode, struct err *err);

/* Makes a folder and those above it, as mkdir -p does; folders that exist keep their mode. */
int file_make_folders(const char *path, mode_t mode, struct err *err);

/* Takes an exclusive lock, which lasts as long as the descriptor is open; a crash ends it, too. The
 * file holds the owner's identity (proc_id_print) and is never removed: removing races with the next
 * owner. -EBUSY with a sentence naming the holder. */
int file_lock(const char *path, int *ret_fd, struct err *err);

/* The same for several holders at once, whom it does not name: none of them with an exclusive one. */
int file_lock_shared(const char *path, int *ret_fd, struct err *err);
void file_unlock(int fd);

/* Returns 0 if nobody else can use the file: mode 0600 or less. A file of root's that our group may read,
 * and only read, counts too, unless we are root: Kubernetes mounts Secrets so (fsGroup). -EPERM and a
 * sentence otherwise, -ENOENT. */
int file_check_private(const char *path, struct err *err);

/* Reads the secret at `path`, or makes one (mode 0600, getrandom) when there is none; when two processes
 * make it at once, one wins and both read the same. -EPERM when others may read the file. `ret` receives
 * hex text. */
int file_secret(const char *path, char ret[2 * FILE_SECRET_BYTES + 1], struct err *err);
