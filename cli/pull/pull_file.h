/* pull_file.h - fetches one file, and goes on where an earlier try or an earlier command was cut.
 *
 * Layer: cli
 * Files: PATH.part while it comes, PATH.part.source beside it: a hash of the URL and the validator (a strong ETag, or
 *        Last-Modified) of what was begun. PATH only once it is whole and has its digest
 * Trust: a reply is taken on only if the server says that it begins where the part ends and is of the same version
 *        (If-Range, Content-Range); otherwise the file is fetched from its start
 * Bound: the size that is known, or what the disk's bound leaves
 */
#pragma once
#include "base/core/hash.h"
#include "cli/pull/pull_room.h"
#include "cli/pull/pull_wire.h"

struct pull_progress {
    uint64_t total; /* 0: not known */
    void (*show)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    uint64_t *seeded; /* counts what comes from other agents; NULL: nothing does */
};

#define PULL_LARGE (-EFBIG - 4096) /* of pull_file: it is to come in chunks; *large has its size */

struct pull_file {
    struct str url, bearer;
    struct pull_login *login; /* NULL: none */
    const char *path;
    uint64_t bytes;    /* or PULL_BYTES_UNKNOWN */
    struct str sha256; /* in hex; empty: not known */
    /* Asked when the size is first known; NULL: there is room for `bytes`. */
    struct pull_room *room;
    struct pull_progress progress;
    uint64_t *large; /* NULL: in one piece, however large */
};

struct pull_got {
    char sha256[SHA256_HEX + 1];
    uint64_t bytes, fetched; /* of the file; over the network */
    uint8_t (
        *chunk)[SHA256_BYTES]; /* of each SEAL_CHUNK_BYTES, the caller's to free; NULL: no memory */
};

/* Fetches the file to its path. -EBADMSG: its digest is another one; it is removed. -EFBIG: more than its bound.
 * -ENOSPC; -EPROTO: the server's head makes no sense; else as pull_wire_get. After any but -EBADMSG the part stays. */
int pull_file(struct pull_wire *w, const struct pull_file *file, struct pull_got *ret,
              struct err *err);

/* Syncs the folder that holds `path`, so that a rename in it outlives a crash. */
int pull_sync_folder(const char *path, struct err *err);
