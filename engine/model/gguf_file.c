/* gguf_file.c - a model file as a source of bytes, and its digest. */
#include "base/core/fault.h"
#include "base/core/hash.h"
#include "engine/model/gguf.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGEST_PIECE ((size_t)1 << 20)

static int file_read(void *ctx, uint64_t offset, void *data, size_t len, struct err *err)
{
    const struct gguf_file *f = ctx;
    char *to = data;
    while (len > 0) {
        ssize_t n = pread(f->fd, to, len, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 || FAULT("gguf.read")) {
            int rc = n < 0 ? -errno : -EIO;
            return err_set(err, rc, "reading %zu bytes at %llu: %s", len,
                           (unsigned long long)offset, strerror(-rc));
        }
        if (n == 0)
            return err_set(err, -EIO, "the file ended at %llu while it was read: it was cut",
                           (unsigned long long)offset);
        to += n, offset += (uint64_t)n, len -= (size_t)n;
    }
    return 0;
}

int gguf_file_open(const char *path, struct gguf_file *ret, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(err, -errno, "%s: %s", path, strerror(errno));
    struct stat st;
    int rc = 0;
    if (fstat(fd, &st) < 0)
        rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = err_set(err, -EINVAL, "%s: not a regular file", path);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    *ret = (struct gguf_file){ .fd = fd };
    ret->source = (struct gguf_source){
        .name = path, .bytes = (uint64_t)st.st_size, .read = file_read, .ctx = ret
    };
    return 0;
}

void gguf_file_close(struct gguf_file *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

static void freep(char **p)
{
    free(*p);
}

int gguf_digest(const struct gguf_source *source, char *ret_hex, struct err *err)
{
    size_t pieces = (size_t)(source->bytes / DIGEST_PIECE) + (source->bytes % DIGEST_PIECE != 0);
    CLEANUP(freep) char *piece = malloc(DIGEST_PIECE);
    CLEANUP(freep) char *list = malloc(pieces * SHA256_BYTES + 1);
    if (!piece || !list) return err_set(err, -ENOMEM, "%s: no memory to digest", source->name);
    uint64_t offset = 0;
    for (size_t i = 0; i < pieces; i++) {
        size_t len = min_size(DIGEST_PIECE, source->bytes - offset);
        int rc = source->read(source->ctx, offset, piece, len, err);
        if (rc < 0) return err_prefix(err, rc, "%s", source->name);
        sha256(piece, len, (uint8_t *)list + i * SHA256_BYTES);
        offset += len;
    }
    uint8_t digest[SHA256_BYTES];
    sha256(list, pieces * SHA256_BYTES, digest);
    hex_from(digest, sizeof digest, ret_hex);
    return 0;
}
