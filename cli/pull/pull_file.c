/* pull_file.c - writes a file as it comes and hashes it on the way.
 *
 * A part that is taken up again is read once, for its hash; so the digest is of what lies on the disk before, and of
 * what was written since. Without a validator a part of an earlier command is begun anew: nothing would tell that the
 * server's file is still the same one. */
#include "cli/pull/pull_file.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/models.h"
#include "cli/pull/pull_chunks.h"
#include "cli/pull/pull_source.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define VALIDATOR_BYTES_MAX 256
#define PIECE_BYTES ((size_t)1 << 20)

struct pulling {
    const struct pull_file *file;
    struct pull_wire *wire;
    char part[PATH_MAX], source[PATH_MAX];
    struct pull_ask ask;
    int fd;
    struct sha256_run *run; /* of the first `have` bytes */
    uint64_t have, fetched, total, max;
    char validator[VALIDATOR_BYTES_MAX]; /* of what the part holds; "": none */
    bool asked_room, whole;              /* whole: the server has nothing behind `have` */
    bool in_chunks;                      /* an earlier command has begun it so */
    struct sha256_run *one;              /* of the chunk that `have` is in */
    struct buf chunks;                   /* digests of those before it */
};

static void pulling_fini(struct pulling *p)
{
    if (p->fd >= 0) close(p->fd);
    sha256_drop(p->run);
    sha256_drop(p->one);
    buf_fini(&p->chunks);
}

static int fail(const struct pulling *p, const char *verb, struct err *err)
{
    int code = errno ? -errno : -EIO;
    return err_set(err, code, "cannot %s %s: %s", verb, p->part, strerror(-code));
}

/* ---- the part and its source */

static void url_hash(struct str url, char ret[SHA256_HEX + 1])
{
    uint8_t digest[SHA256_BYTES];
    sha256(url.data, url.len, digest); /* not the text: a query may be a credential */
    hex_from(digest, sizeof digest, ret);
}

static int source_write(const struct pulling *p, struct err *err)
{
    char text[SHA256_HEX + VALIDATOR_BYTES_MAX + 8], url[SHA256_HEX + 1];
    url_hash(p->file->url, url);
    int len = snprintf(text, sizeof text, "%s\n%s\n", url, p->validator);
    must(len > 0 && len < (int)sizeof text);
    return file_write_atomic(p->source, str_of(text, (size_t)len), 0600, err);
}

/* Reads the validator of a part of this URL; "" if there is none. */
static void source_read(struct pulling *p)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char url[SHA256_HEX + 1];
    p->validator[0] = 0;
    if (file_read(p->source, SHA256_HEX + VALIDATOR_BYTES_MAX + 8, &text, NULL) < 0) return;
    struct str rest = buf_view(&text);
    url_hash(p->file->url, url);
    bool same = str_eq(str_cut(&rest, '\n'), str_from(url));
    struct str validator = str_cut(&rest, '\n');
    if (same && validator.len < sizeof p->validator)
        snprintf(p->validator, sizeof p->validator, STR_FMT, STR_ARG(validator));
}

static void show(const struct pulling *p)
{
    const struct pull_progress *g = &p->file->progress;
    if (g->show)
        g->show(g->arg, p->have,
                g->total                         ? g->total
                : p->total == PULL_BYTES_UNKNOWN ? 0
                                                 : p->total);
}

static void end_chunk(struct pulling *p)
{
    uint8_t digest[SHA256_BYTES];
    sha256_end(TAKE(p->one), digest);
    buf_str(&p->chunks, str_of(digest, sizeof digest));
}

/* Adds bytes to the digest of the file, and to those of its chunks. */
static void hash_more(struct pulling *p, const char *data, size_t len)
{
    sha256_more(p->run, data, len);
    while (len > 0) {
        if (!p->one) p->one = sha256_begin();
        size_t n = (size_t)min_u64(len, SEAL_CHUNK_BYTES - p->have % SEAL_CHUNK_BYTES);
        sha256_more(p->one, data, n);
        p->have += n;
        data += n;
        len -= n;
        if (p->have % SEAL_CHUNK_BYTES == 0) end_chunk(p);
    }
}

static void hash_anew(struct pulling *p)
{
    sha256_drop(p->run);
    sha256_drop(p->one);
    p->run = sha256_begin();
    p->one = NULL;
    buf_clear(&p->chunks);
    p->have = 0;
}

static int start_over(struct pulling *p, struct err *err)
{
    char map[PATH_MAX + 8];
    snprintf(map, sizeof map, "%s.map", p->part);
    if (p->in_chunks) unlink(map);
    p->in_chunks = false;
    if (ftruncate(p->fd, 0) < 0 || lseek(p->fd, 0, SEEK_SET) < 0) return fail(p, "empty", err);
    hash_anew(p);
    p->whole = false;
    return 0;
}

static void freep(char **piece)
{
    free(*piece);
}

/* Hashes what an earlier command has left. */
static int take_up(struct pulling *p, struct err *err)
{
    CLEANUP(freep) char *piece = malloc(PIECE_BYTES);
    if (!piece) return err_set(err, -ENOMEM, "no memory to read %s", p->part);
    for (ssize_t n; (n = read(p->fd, piece, PIECE_BYTES)) != 0;) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(p, "read", err);
        hash_more(p, piece, (size_t)n);
        if (pull_wire_stopped(p->wire)) return err_set(err, -EINTR, "stopped");
    }
    char shown[256];
    pull_url_shown(p->file->url, shown, sizeof shown);
    if (p->have > 0)
        fprintf(stderr, "%s: goes on behind %llu bytes\n", shown, (unsigned long long)p->have);
    return 0;
}

static int open_part(struct pulling *p, struct err *err)
{
    const char *path = p->file->path;
    if (snprintf(p->part, sizeof p->part, "%s.part", path) >= (int)sizeof p->part ||
        snprintf(p->source, sizeof p->source, "%s.part.source", path) >= (int)sizeof p->source)
        return err_set(err, -ENAMETOOLONG, "%s: the path is longer than %d bytes", path, PATH_MAX);
    p->fd = open(p->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (p->fd < 0) return fail(p, "write", err);
    hash_anew(p);
    p->in_chunks = pull_chunks_has_part(path);
    if (p->in_chunks && p->file->large) return 0; /* whether it goes on so, the reply tells */
    source_read(p);
    int rc = p->validator[0] && !p->in_chunks ? take_up(p, err) : start_over(p, err);
    if (rc == 0 && p->have > p->max) rc = start_over(p, err);
    return rc;
}

/* ---- one reply */

static int before(void *arg, struct pull_ask *ask, struct err *err)
{
    struct pulling *p = arg;
    if (p->have > 0 && !p->validator[0]) {
        int rc = start_over(p, err);
        if (rc < 0) return rc;
    }
    ask->from = p->have;
    ask->if_range = str_from(p->validator);
    return 0;
}

/* Writes what If-Range may say of this reply: a strong ETag, else the date; "" if there is none. */
static void validator_of(const struct pull_head *head, char ret[VALIDATOR_BYTES_MAX])
{
    struct str is = str_starts(head->etag, STR("\"")) ? head->etag : head->modified;
    ret[0] = 0;
    if (is.len < VALIDATOR_BYTES_MAX) snprintf(ret, VALIDATOR_BYTES_MAX, STR_FMT, STR_ARG(is));
}

/* Reads "bytes FROM-TO/TOTAL", or "*" in place of FROM-TO, which is UINT64_MAX then. A part of an unknown whole is
 * refused: nothing would tell where it ends. */
static int range_read(struct str range, uint64_t *ret_from, uint64_t *ret_total)
{
    struct str rest = range;
    uint64_t to, from = UINT64_MAX;
    if (!str_starts(range, STR("bytes "))) return -EINVAL;
    rest = str_of(range.data + 6, range.len - 6);
    struct str span = str_cut(&rest, '/');
    if (!str_eq(span, STR("*"))) {
        struct str first = str_cut(&span, '-');
        if (str_to_u64(first, &from) < 0 || str_to_u64(span, &to) < 0 || to < from) return -EINVAL;
    }
    *ret_from = from;
    return str_to_u64(rest, ret_total);
}

/* Learns the size of the whole file, and asks for room once. */
static int learn_total(struct pulling *p, uint64_t total, struct err *err)
{
    const struct pull_file *f = p->file;
    if (f->bytes != PULL_BYTES_UNKNOWN && total != PULL_BYTES_UNKNOWN && total != f->bytes)
        return err_set(err, -EPROTO, "the server's file has %llu bytes, the listing says %llu",
                       (unsigned long long)total, (unsigned long long)f->bytes);
    p->total = f->bytes != PULL_BYTES_UNKNOWN ? f->bytes : total;
    if (!f->room) return 0;
    if (p->total == PULL_BYTES_UNKNOWN) {
        p->max = p->have + pull_room_left(f->room);
        return 0;
    }
    p->max = p->total;
    if (p->asked_room || p->total < p->have) return 0;
    p->asked_room = true;
    return pull_room_make(f->room, p->total - p->have, err);
}

static int changed(struct pulling *p, struct err *err)
{
    int rc = start_over(p, err);
    p->validator[0] = 0;
    p->total = p->file->bytes;
    p->asked_room = false;
    return rc < 0
               ? rc
               : err_set(err, PULL_AGAIN,
                         "the server's file has changed meanwhile: it is fetched from its start");
}

static int on_part(struct pulling *p, const struct pull_head *head, struct err *err)
{
    uint64_t from, total;
    char is[VALIDATOR_BYTES_MAX];
    if (p->have == 0 || range_read(head->range, &from, &total) < 0 || from != p->have)
        return err_set(
            err, -EPROTO,
            "the server's reply is not the part that was asked for (Content-Range: %.*s)",
            (int)min_size(head->range.len, 80), head->range.data);
    validator_of(head, is);
    bool other_total = p->total != PULL_BYTES_UNKNOWN && total != p->total;
    if (is[0] && p->validator[0] == '"' && is[0] == '"' && strcmp(is, p->validator) != 0)
        return changed(p, err);
    if (other_total && p->file->bytes == PULL_BYTES_UNKNOWN) return changed(p, err);
    return learn_total(p, total, err);
}

static int on_whole(struct pulling *p, const struct pull_head *head, struct err *err)
{
    if (p->have > 0) {
        fprintf(stderr,
                "%s: the server sends it from its start: it has changed, or knows no parts\n",
                p->part);
        int rc = start_over(p, err);
        if (rc < 0) return rc;
        p->asked_room = false;
    }
    validator_of(head, p->validator);
    int rc = learn_total(p, head->length, err);
    if (rc == 0 && p->file->large && p->validator[0] && p->total != PULL_BYTES_UNKNOWN &&
        p->total >= PULL_CHUNKED_BYTES) {
        *p->file->large = p->total;
        return PULL_LARGE;
    }
    if (rc == 0 && p->in_chunks) {
        rc = start_over(p, err);
        validator_of(head, p->validator);
    }
    return rc < 0 ? rc : source_write(p, err);
}

static int on_head(void *arg, const struct pull_head *head, struct err *err)
{
    struct pulling *p = arg;
    uint64_t from, total;
    if (head->status == 200) return on_whole(p, head, err);
    if (head->status == 206) return on_part(p, head, err);
    /* 416: nothing is behind the part, which was whole when it was cut, or is longer than the file now. */
    if (p->have == 0) return err_set(err, -EPROTO, "the server has no first byte of it (416)");
    if (range_read(head->range, &from, &total) < 0 || total != p->have) return changed(p, err);
    p->whole = true;
    return learn_total(p, total, err);
}

static int on_data(void *arg, struct str data, struct err *err)
{
    struct pulling *p = arg;
    if (p->whole) return 0; /* the text of a 416 */
    if (data.len > p->max - p->have)
        return err_set(err, -EFBIG, "the server sends more than the %llu bytes that it may have",
                       (unsigned long long)p->max);
    for (struct str rest = data; rest.len > 0;) {
        ssize_t n = write(p->fd, rest.data, rest.len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail(p, "write", err);
        rest = str_of(rest.data + n, rest.len - (size_t)n);
        hash_more(p, data.data + (data.len - rest.len - (size_t)n), (size_t)n);
    }
    p->fetched += data.len;
    if (p->have > p->ask.reached) p->ask.reached = p->have;
    show(p);
    return 0;
}

/* ---- the end */

int pull_sync_folder(const char *path, struct err *err)
{
    char folder[PATH_MAX];
    struct str base = models_base(str_from(path));
    snprintf(folder, sizeof folder, "%.*s", (int)(strlen(path) - base.len), path);
    int fd = open(folder[0] ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || (fsync(fd) < 0 && errno != EINVAL) ? -errno : 0;
    if (fd >= 0) close(fd);
    return rc < 0 ? err_set(err, rc, "cannot write down the names in %s: %s", folder, strerror(-rc))
                  : 0;
}

static int finish(struct pulling *p, struct pull_got *ret, struct err *err)
{
    const struct pull_file *f = p->file;
    uint8_t digest[SHA256_BYTES];
    struct pull_got got = { .bytes = p->have, .fetched = p->fetched };
    sha256_end(TAKE(p->run), digest);
    hex_from(digest, sizeof digest, got.sha256);
    if (p->one) end_chunk(p);
    if (f->sha256.len > 0 && !str_eq_nocase(f->sha256, str_from(got.sha256))) {
        unlink(p->part);
        unlink(p->source);
        return err_set(err, -EBADMSG,
                       "%s is not the file that was meant: its SHA-256 is %s, expected is " STR_FMT
                       "; it was removed",
                       p->part, got.sha256, STR_ARG(f->sha256));
    }
    if (fsync(p->fd) < 0) return fail(p, "sync", err);
    if (rename(p->part, f->path) < 0) return fail(p, "rename", err);
    unlink(p->source);
    buf_byte(&p->chunks, 0); /* so that there is memory of an empty file's, too */
    if (p->chunks.rc == 0) got.chunk = (void *)TAKE(p->chunks.data);
    *ret = got;
    return pull_sync_folder(f->path, err);
}

int pull_file(struct pull_wire *w, const struct pull_file *file, struct pull_got *ret,
              struct err *err)
{
    CLEANUP(pulling_fini)
    struct pulling p = {
        .file = file, .wire = w, .fd = -1, .total = file->bytes, .max = file->bytes
    };
    p.ask = (struct pull_ask){ .url = file->url,
                               .bearer = file->bearer,
                               .login = file->login,
                               .before = before,
                               .on_head = on_head,
                               .on_data = on_data,
                               .arg = &p };
    int rc = open_part(&p, err);
    p.ask.reached = p.have;
    bool have_all = rc == 0 && p.total != PULL_BYTES_UNKNOWN && p.have == p.total;
    /* A body without a length that ends early looks whole; where the size is known, it is asked for again. */
    for (uint32_t tries = 0; rc == 0 && !have_all && tries < PULL_TRIES_MAX; tries++) {
        uint64_t had = p.have;
        rc = pull_wire_get(w, &p.ask, err);
        have_all = p.total == PULL_BYTES_UNKNOWN || p.have == p.total;
        if (rc == 0 && !have_all && p.have <= had)
            rc = err_set(err, -EPROTO, "the server's file ends after %llu of %llu bytes",
                         (unsigned long long)p.have, (unsigned long long)p.total);
    }
    if (rc == 0 && !have_all) rc = err_set(err, -EIO, "the server cut it %u times", PULL_TRIES_MAX);
    if (rc == 0) return finish(&p, ret, err);
    char shown[256];
    pull_url_shown(file->url, shown, sizeof shown);
    if (p.have > 0 && rc != -EBADMSG && rc != PULL_MOVED && rc != PULL_LARGE)
        fprintf(stderr, "%s: %llu bytes stay in %s; the same command goes on from there\n", shown,
                (unsigned long long)p.have, p.part);
    return rc;
}
