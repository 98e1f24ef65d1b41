/* pull_chunks.c - keeps calls for chunks under way until every chunk is there, then judges the file.
 *
 *     WANTED ──a place is free──► BUSY ──whole, as the seal says──► HERE ──all──► judge ──► the file's digest holds: done
 *       ▲                        │                                                └──► chunks that another seal, or
 *       └── cut, silent, not as the seal says ◄──┘                                     the source, has otherwise: WANTED
 *
 * Callbacks of calls only write to the file and note how a call ended; chunks change hands in the loop below. */
#include "cli/pull/pull_chunks.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "cli/pull/pull_source.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ORIGIN PULL_SEEDS_MAX /* as the giver of a chunk: its source */
#define NOBODY (PULL_SEEDS_MAX + 1)
#define IDLE_US 20000000     /* an agent's silence */
#define LOOK_US 1000000      /* between looks at the list of agents */
#define SEED_FAILURES_MAX 3u /* in a row, after which an agent is left alone for SEED_QUIET_US */
#define SEED_QUIET_US 30000000
#define PIECE_BYTES ((size_t)1 << 20)

enum chunk_state { WANTED, BUSY, HERE };

struct chunk {
    uint8_t state, giver, accused; /* who gave it; an agent whose chunk was not as the seal says */
    bool hashed, origin_only;      /* hashed: digest is of what the part holds */
    uint8_t digest[SHA256_BYTES];
};

struct slot {
    struct chunks *all;
    uint32_t giver, chunk;
    uint64_t at, bytes; /* written; wanted */
    struct sha256_run *run;
    struct fetch_call *fetch;
    struct signed_call *call;
    int status;
    bool used, over, whole;
    int64_t heard_us, retry_after_us;
    char why[160];
};

struct chunks {
    struct pull_wire *wire;
    const struct pull_file *file;
    struct pull_seeds *seeds;
    uint32_t index, count;
    uint64_t total, here_bytes, fetched;
    int fd, map_fd;
    struct chunk *chunk;
    struct slot slot[PULL_CALLS_MAX];
    char part[PATH_MAX], map[PATH_MAX], source[PATH_MAX];
    char validator[FETCH_VALIDATOR_BYTES];
    uint32_t author;        /* whose seal is believed; PULL_SEEDS_MAX: nobody's */
    struct sha256_run *all; /* of the chunks before `hashed_to`, which are HERE */
    uint32_t hashed_to;
    char *piece;
    /* the source */
    /* wants_origin: for chunks that agents contradict each other in. */
    bool origin_gone, one_piece, wants_origin;
    uint32_t origin_failures;
    int64_t origin_quiet_us;
    int rc;
    struct err *err;
};

static void slot_clear(struct slot *t)
{
    if (t->fetch && !t->over) fetch_cancel(t->fetch);
    if (t->call && !t->over) signed_call_cancel(t->call);
    sha256_drop(t->run);
    *t = (struct slot){ .all = t->all };
}

static void chunks_fini(struct chunks *k)
{
    for (uint32_t i = 0; i < PULL_CALLS_MAX; i++)
        slot_clear(&k->slot[i]);
    (void)loop_turn(k->wire->loop, 0); /* ended calls are freed at the end of a turn */
    if (k->fd >= 0) close(k->fd);
    if (k->map_fd >= 0) close(k->map_fd);
    sha256_drop(k->all);
    free(k->piece);
    free(k->chunk);
}

static int fail(struct chunks *k, const char *verb)
{
    int code = errno ? -errno : -EIO;
    return err_set(k->err, code, "cannot %s %s: %s", verb, k->part, strerror(-code));
}

/* ---- the part */

static int paths(struct chunks *k)
{
    const char *path = k->file->path;
    int n = snprintf(k->part, sizeof k->part, "%s.part", path);
    snprintf(k->map, sizeof k->map, "%s.part.map", path);
    snprintf(k->source, sizeof k->source, "%s.part.source", path);
    return n < (int)sizeof k->part - 16
               ? 0
               : err_set(k->err, -ENAMETOOLONG, "%s: the path is too long", path);
}

bool pull_chunks_has_part(const char *path)
{
    char map[PATH_MAX];
    return snprintf(map, sizeof map, "%s.part.map", path) < (int)sizeof map &&
           access(map, F_OK) == 0;
}

static void url_hash(struct str url, char ret[SHA256_HEX + 1])
{
    uint8_t digest[SHA256_BYTES];
    sha256(url.data, url.len, digest);
    hex_from(digest, sizeof digest, ret);
}

/* Notes what the part was begun with. Without a digest a part is gone on with only if the source's validator, which
 * the reply to a part must carry, is still the same. */
static int write_source(struct chunks *k)
{
    char text[SHA256_HEX + FETCH_VALIDATOR_BYTES + 8], url[SHA256_HEX + 1];
    url_hash(k->file->url, url);
    int len = snprintf(text, sizeof text, "%s\n%s\n", url, k->validator);
    return file_write_atomic(k->source, str_of(text, (size_t)len), 0600, k->err);
}

static bool read_source(struct chunks *k)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char url[SHA256_HEX + 1];
    if (file_read(k->source, SHA256_HEX + FETCH_VALIDATOR_BYTES + 8, &text, NULL) < 0) return false;
    struct str rest = buf_view(&text), of = str_cut(&rest, '\n'), validator = str_cut(&rest, '\n');
    url_hash(k->file->url, url);
    if (!str_eq(of, str_from(url)) || validator.len >= sizeof k->validator) return false;
    snprintf(k->validator, sizeof k->validator, STR_FMT, STR_ARG(validator));
    return k->validator[0] || k->file->sha256.len > 0;
}

static int open_part(struct chunks *k)
{
    struct stat st;
    char *map = calloc(k->count, 1);
    if (!map) return err_set(k->err, -ENOMEM, "no memory for a map");
    k->fd = open(k->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    k->map_fd = open(k->map, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = k->fd < 0 || k->map_fd < 0 ? fail(k, "write") : 0;
    bool goes_on = rc == 0 && read_source(k) && fstat(k->map_fd, &st) == 0 &&
                   st.st_size == (off_t)k->count &&
                   pread(k->map_fd, map, k->count, 0) == (ssize_t)k->count;
    for (uint32_t c = 0; goes_on && c < k->count; c++) {
        if (map[c] != '1') continue;
        k->chunk[c].state = HERE;
        k->here_bytes += seal_chunk_bytes(k->total, c);
    }
    free(map);
    if (rc == 0 && !goes_on) {
        k->validator[0] = 0;
        bool empty = ftruncate(k->fd, 0) == 0 && ftruncate(k->map_fd, 0) == 0 &&
                     ftruncate(k->map_fd, (off_t)k->count) == 0;
        rc = empty ? write_source(k) : fail(k, "empty");
    } else if (rc == 0 && k->here_bytes > 0) {
        fprintf(stderr, "%s: %llu of %llu bytes are there\n", k->part,
                (unsigned long long)k->here_bytes, (unsigned long long)k->total);
    }
    return rc;
}

static void hash_again(struct chunks *k)
{
    sha256_drop(k->all);
    k->all = sha256_begin();
    k->hashed_to = 0;
}

static void mark(struct chunks *k, uint32_t c, bool here)
{
    struct chunk *h = &k->chunk[c];
    uint64_t bytes = seal_chunk_bytes(k->total, c);
    if (here == (h->state == HERE)) return;
    if (!here && c < k->hashed_to) hash_again(k);
    h->state = here ? HERE : WANTED;
    if (here)
        k->here_bytes += bytes;
    else
        k->here_bytes -= bytes;
    (void)!pwrite(k->map_fd, here ? "1" : "0", 1, (off_t)c); /* a lost byte is a chunk once more */
}

/* ---- calls */

static void end_slot(struct slot *t, bool whole, const char *why)
{
    t->over = true;
    t->whole = whole;
    if (!whole) snprintf(t->why, sizeof t->why, "%s", why);
}

static bool take_data(struct slot *t, struct str data)
{
    struct chunks *k = t->all;
    t->heard_us = loop_now_us(k->wire->loop);
    if (data.len > t->bytes - t->at) return false;
    uint64_t from = t->chunk * SEAL_CHUNK_BYTES + t->at;
    for (struct str rest = data; rest.len > 0;) {
        ssize_t n = pwrite(k->fd, rest.data, rest.len, (off_t)from);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            k->rc = fail(k, "write");
            return false;
        }
        rest = str_of(rest.data + n, rest.len - (size_t)n);
        from += (uint64_t)n;
    }
    sha256_more(t->run, data.data, data.len);
    t->at += data.len;
    k->fetched += data.len;
    return true;
}

/* The source's side. */

static void stop_fetch(struct slot *t, const char *why)
{
    end_slot(t, false, why);
    fetch_cancel(t->fetch);
}

static void take_validator(struct slot *t)
{
    struct chunks *k = t->all;
    struct str etag = fetch_header(t->fetch, "etag");
    struct str is = str_starts(etag, STR("\"")) ? etag : fetch_header(t->fetch, "last-modified");
    if (k->validator[0] || is.len == 0 || is.len >= sizeof k->validator) return;
    snprintf(k->validator, sizeof k->validator, STR_FMT, STR_ARG(is));
    if (write_source(k) < 0) k->validator[0] = 0;
}

/* Returns true if the head is that of the part: "bytes FROM-TO/TOTAL". */
static bool is_part(const struct slot *t)
{
    char wanted[96];
    uint64_t from = t->chunk * SEAL_CHUNK_BYTES;
    snprintf(wanted, sizeof wanted, "bytes %llu-%llu/%llu", (unsigned long long)from,
             (unsigned long long)(from + t->bytes - 1), (unsigned long long)t->all->total);
    return str_eq(fetch_header(t->fetch, "content-range"), str_from(wanted));
}

static void on_fetch_head(void *arg, int status)
{
    struct slot *t = arg;
    char why[48];
    uint64_t seconds;
    t->status = status;
    if (str_to_u64(fetch_header(t->fetch, "retry-after"), &seconds) == 0)
        t->retry_after_us = (int64_t)min_u64(seconds, PULL_RETRY_AFTER_US_MAX / 1000000) * 1000000;
    struct pull_login *l = t->all->file->login;
    if (status == 206 && is_part(t)) {
        take_validator(t);
        return;
    }
    if (status == 200 || status == 206 || status == 416) t->all->one_piece = true;
    if (l && status >= 300) {
        enum pull_login_verdict v =
            pull_login_refused(l, status, fetch_header(t->fetch, "x-amz-bucket-region"));
        if (v == PULL_LOGIN_AGAIN) t->status = 0;
        if (v == PULL_LOGIN_MOVED) t->all->rc = PULL_MOVED;
    }
    snprintf(why, sizeof why, "the server answers %d", status);
    stop_fetch(t, why);
}

static void on_fetch_data(void *arg, struct str data)
{
    struct slot *t = arg;
    if (!take_data(t, data)) stop_fetch(t, "the server sends more than was asked for");
}

static void on_fetch_end(void *arg, const struct fetch_reply *reply)
{
    struct slot *t = arg;
    bool whole = reply->end == FETCH_OK && t->at == t->bytes;
    end_slot(t, whole, reply->end == FETCH_OK ? "the server cut the part" : reply->why);
}

static int start_fetch(struct chunks *k, struct slot *t)
{
    const struct pull_file *f = k->file;
    const struct fetch_header *headers = NULL;
    size_t header_count = 0;
    uint64_t from = t->chunk * SEAL_CHUNK_BYTES;
    if (f->login && pull_login_sign(f->login, f->url, &headers, &header_count) < 0) return -ENOMEM;
    const struct fetch_request req = {
        .url = f->url,
        .headers = headers,
        .header_count = header_count,
        .bearer = f->bearer,
        .range_from = from,
        .range_to = from + t->bytes - 1,
        .if_range = str_from(k->validator),
        .body_bytes_max = SIZE_MAX,
        .idle_us = PULL_IDLE_US,
        .redirects_max = FETCH_REDIRECTS_MAX,
        .on_head = on_fetch_head,
        .on_data = on_fetch_data,
        .on_end = on_fetch_end,
        .arg = t,
    };
    return fetch_start(k->wire->fetch, &req, &t->fetch, k->err);
}

/* An agent's side. */

static void stop_call(struct slot *t, const char *why)
{
    end_slot(t, false, why);
    signed_call_cancel(t->call);
}

static void on_call_head(void *arg, const struct http_response *head)
{
    struct slot *t = arg;
    t->status = head->status;
}

static void on_call_data(void *arg, struct str data)
{
    struct slot *t = arg;
    if (t->status == 200 && !take_data(t, data)) stop_call(t, "it sends more than a chunk");
}

static void on_call_end(void *arg, enum http_end end)
{
    struct slot *t = arg;
    bool whole = end == HTTP_END_OK && t->status == 200 && t->at == t->bytes;
    end_slot(t, whole, end == HTTP_END_OK ? "it does not give the chunk" : http_end_text(end));
}

static int start_call(struct chunks *k, struct slot *t)
{
    struct http_call_request req = {
        .on_head = on_call_head, .on_data = on_call_data, .on_end = on_call_end, .arg = t
    };
    t->call = pull_seeds_ask(k->seeds, t->giver, k->index, t->chunk, &req);
    return t->call ? 0 : -ENOMEM;
}

/* ---- who gives what */

static uint32_t calls_to(const struct chunks *k, uint32_t giver)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < PULL_CALLS_MAX; i++)
        n += k->slot[i].used && k->slot[i].giver == giver;
    return n;
}

static const struct seal_file *seal_of(const struct chunks *k, uint32_t seed)
{
    const struct seal *s = &k->seeds->list[seed].seal;
    const struct seal_file *f = k->index < s->file_count ? &s->file[k->index] : NULL;
    return f && f->bytes == k->total ? f : NULL;
}

/* Believes the next agent's seal, if the present one's author is no longer believed. */
static void find_author(struct chunks *k)
{
    if (!k->seeds) return;
    uint32_t a = k->author;
    if (a < PULL_SEEDS_MAX && !k->seeds->list[a].liar) return;
    for (a = pull_seeds_next(k->seeds, 0); a < PULL_SEEDS_MAX;
         a = pull_seeds_next(k->seeds, a + 1)) {
        if (seal_of(k, a)) break;
        pull_seeds_blame(k->seeds, a, "its seal gives the file another size");
    }
    k->author = a;
}

static bool seed_is_usable(const struct chunks *k, uint32_t seed, int64_t now_us)
{
    const struct pull_seed *d = &k->seeds->list[seed];
    return d->state == PULL_SEED_READY && !d->liar && now_us >= d->quiet_until_us &&
           seal_of(k, seed);
}

/* The agent with the fewest calls under way; PULL_SEEDS_MAX: none has a place. *ret_any: one will have. */
static uint32_t pick_seed(const struct chunks *k, int64_t now_us, bool *ret_any)
{
    uint32_t best = PULL_SEEDS_MAX, least = PULL_SEED_CALLS_MAX;
    *ret_any = false;
    for (uint32_t i = 0; k->seeds && i < k->seeds->count; i++) {
        if (!seed_is_usable(k, i, now_us)) continue;
        *ret_any = true;
        uint32_t n = calls_to(k, i);
        if (n < least) best = i, least = n;
    }
    return best;
}

static bool origin_is_usable(const struct chunks *k, int64_t now_us)
{
    return !k->origin_gone && k->file->url.len > 0 && now_us >= k->origin_quiet_us &&
           calls_to(k, ORIGIN) < PULL_ORIGIN_MAX;
}

/* Returns who is asked for a chunk now; NOBODY: it waits. */
static uint32_t giver_of(const struct chunks *k, const struct chunk *h, int64_t now_us)
{
    bool any;
    uint32_t seed = pick_seed(k, now_us, &any);
    bool gone = k->origin_gone || k->file->url.len == 0;
    if (h->origin_only && !gone) return origin_is_usable(k, now_us) ? ORIGIN : NOBODY;
    if (h->origin_only && k->author < PULL_SEEDS_MAX) /* the seal's author then shows it, or not */
        return seed_is_usable(k, k->author, now_us) && calls_to(k, k->author) < PULL_SEED_CALLS_MAX
                   ? k->author
                   : NOBODY;
    if (seed < PULL_SEEDS_MAX) return seed;
    return !any && origin_is_usable(k, now_us) ? ORIGIN : NOBODY;
}

static void start(struct chunks *k, struct slot *t, uint32_t c, uint32_t giver)
{
    *t = (struct slot){ .all = k,
                        .giver = giver,
                        .chunk = c,
                        .bytes = seal_chunk_bytes(k->total, c),
                        .run = sha256_begin(),
                        .used = true,
                        .heard_us = loop_now_us(k->wire->loop) };
    k->chunk[c].state = BUSY;
    k->chunk[c].hashed = false;
    int rc = giver == ORIGIN ? start_fetch(k, t) : start_call(k, t);
    if (rc < 0) end_slot(t, false, "the call cannot be made");
}

static void assign(struct chunks *k)
{
    int64_t now_us = loop_now_us(k->wire->loop);
    uint32_t c = 0;
    for (uint32_t i = 0; i < PULL_CALLS_MAX; i++) {
        uint32_t giver = NOBODY;
        if (k->slot[i].used) continue;
        for (; c < k->count && giver == NOBODY; c++) {
            if (k->chunk[c].state == WANTED) giver = giver_of(k, &k->chunk[c], now_us);
            if (giver != NOBODY) break;
        }
        if (giver == NOBODY) return;
        start(k, &k->slot[i], c, giver);
    }
}

/* ---- the end of a call */

static void seed_failed(struct chunks *k, uint32_t seed, const char *why)
{
    struct pull_seed *d = &k->seeds->list[seed];
    if (++d->failures < SEED_FAILURES_MAX) return;
    fprintf(stderr, "agent %s:%u is left alone for a while: %s\n", d->host, d->port, why);
    d->failures = 0;
    d->quiet_until_us = loop_now_us(k->wire->loop) + SEED_QUIET_US;
}

static void origin_failed(struct chunks *k, const struct slot *t)
{
    bool passes = t->status == 0 || t->status == 206 || t->status == 408 || t->status == 429 ||
                  t->status >= 500;
    char shown[200];
    if (k->one_piece || k->rc < 0) return;
    pull_url_shown(k->file->url, shown, sizeof shown);
    err_set(k->err,
            t->status == 404                       ? -ENOENT
            : t->status == 401 || t->status == 403 ? -EACCES
                                                   : -EIO,
            "%s: %s", shown, t->why);
    if (passes && ++k->origin_failures <= k->wire->retries) {
        int64_t us = PULL_WAIT_US;
        for (uint32_t i = 1; i < k->origin_failures && us < PULL_WAIT_US_MAX; i++)
            us *= 2;
        us = max_i64(min_i64(us, PULL_WAIT_US_MAX), t->retry_after_us);
        k->origin_quiet_us = loop_now_us(k->wire->loop) + us;
        fprintf(stderr, "%s: %s; asking again in %.1f s\n", shown, t->why, (double)us * 1e-6);
        return;
    }
    k->origin_gone = true;
}

/* Compares a chunk with the seal that is believed. Returns false if it is not taken. */
static bool judge_chunk(struct chunks *k, const struct slot *t)
{
    struct chunk *h = &k->chunk[t->chunk];
    if (k->author >= PULL_SEEDS_MAX) return t->giver == ORIGIN;
    const struct seal_file *seal = seal_of(k, k->author);
    if (!seal) return t->giver == ORIGIN;
    bool same = memcmp(h->digest, seal->chunk[t->chunk], SHA256_BYTES) == 0;
    if (t->giver != ORIGIN && !same) {
        h->accused = (uint8_t)t->giver;
        h->origin_only = k->wants_origin = true;
        if (t->giver == k->author)
            pull_seeds_blame(k->seeds, t->giver, "its chunk is not the one of its own seal");
    } else if (t->giver == ORIGIN && !same) {
        pull_seeds_blame(k->seeds, k->author, "its seal is not that of the source's file");
    } else if (same && h->accused < PULL_SEEDS_MAX && t->giver == ORIGIN) {
        pull_seeds_blame(k->seeds, h->accused, "it gave a chunk that is not the file's");
    }
    return t->giver == ORIGIN || same;
}

static void take_chunk(struct chunks *k, struct slot *t)
{
    struct chunk *h = &k->chunk[t->chunk];
    sha256_end(TAKE(t->run), h->digest);
    h->hashed = true;
    h->state = WANTED;
    if (!judge_chunk(k, t)) return;
    h->giver = (uint8_t)t->giver;
    mark(k, t->chunk, true);
    if (t->giver == ORIGIN) {
        k->origin_failures = 0;
        return;
    }
    k->seeds->list[t->giver].failures = 0;
    k->seeds->list[t->giver].bytes += t->bytes;
    if (k->file->progress.seeded) *k->file->progress.seeded += t->bytes;
}

static void reap(struct chunks *k)
{
    int64_t now_us = loop_now_us(k->wire->loop);
    for (uint32_t i = 0; i < PULL_CALLS_MAX; i++) {
        struct slot *t = &k->slot[i];
        if (!t->used) continue;
        if (!t->over && t->giver != ORIGIN && now_us - t->heard_us > IDLE_US)
            stop_call(t, "it is silent");
        if (!t->over) continue;
        if (t->whole) {
            take_chunk(k, t);
        } else {
            k->chunk[t->chunk].state = WANTED;
            if (t->giver == ORIGIN)
                origin_failed(k, t);
            else
                seed_failed(k, t->giver, t->why);
        }
        slot_clear(t);
        find_author(k);
    }
}

/* ---- judgement */

/* Hashes the next chunk of the file if it is there. It was written a moment ago, so that it comes from memory. */
static int hash_next(struct chunks *k)
{
    uint32_t c = k->hashed_to;
    struct chunk *h = &k->chunk[c];
    if (c == k->count || h->state != HERE) return 0;
    uint64_t from = c * SEAL_CHUNK_BYTES, end = from + seal_chunk_bytes(k->total, c);
    struct sha256_run *one = h->hashed ? NULL : sha256_begin();
    while (from < end) {
        ssize_t n = pread(k->fd, k->piece, (size_t)min_u64(PIECE_BYTES, end - from), (off_t)from);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            sha256_drop(one);
            return fail(k, "read");
        }
        sha256_more(k->all, k->piece, (size_t)n);
        if (one) sha256_more(one, k->piece, (size_t)n);
        from += (uint64_t)n;
    }
    if (one) sha256_end(one, h->digest);
    h->hashed = true;
    k->hashed_to++;
    return 0;
}

static int hash_all(struct chunks *k, uint8_t ret[SHA256_BYTES])
{
    while (k->hashed_to < k->count) {
        int rc = hash_next(k);
        if (rc < 0) return rc;
        if (pull_wire_stopped(k->wire)) return err_set(k->err, -EINTR, "stopped");
    }
    sha256_end(TAKE(k->all), ret);
    hash_again(k);
    return 0;
}

/* Takes back what made the digest wrong: chunks that the next seal has otherwise, else those that agents gave. False:
 * all of it is the source's. */
static bool take_back(struct chunks *k)
{
    bool any = false;
    if (k->author < PULL_SEEDS_MAX)
        pull_seeds_blame(k->seeds, k->author, "the file that its seal describes is another one");
    find_author(k);
    const struct seal_file *seal = k->author < PULL_SEEDS_MAX ? seal_of(k, k->author) : NULL;
    for (uint32_t c = 0; c < k->count; c++) {
        struct chunk *h = &k->chunk[c];
        bool keep =
            h->giver == ORIGIN || (seal && memcmp(h->digest, seal->chunk[c], SHA256_BYTES) == 0);
        if (keep) continue;
        if (!seal) h->origin_only = k->wants_origin = true;
        mark(k, c, false);
        any = true;
    }
    return any;
}

static int finish(struct chunks *k, const uint8_t digest[SHA256_BYTES], struct pull_got *ret)
{
    const struct pull_file *f = k->file;
    struct pull_got got = { .bytes = k->total, .fetched = k->fetched };
    hex_from(digest, SHA256_BYTES, got.sha256);
    if (fsync(k->fd) < 0) return fail(k, "sync");
    if (rename(k->part, f->path) < 0) return fail(k, "rename");
    unlink(k->source);
    unlink(k->map);
    got.chunk = calloc(k->count + 1, sizeof *got.chunk);
    for (uint32_t c = 0; got.chunk && c < k->count; c++)
        memcpy(got.chunk[c], k->chunk[c].digest, SHA256_BYTES);
    *ret = got;
    return pull_sync_folder(f->path, k->err);
}

static int remove_part(struct chunks *k, int rc)
{
    unlink(k->part);
    unlink(k->map);
    unlink(k->source);
    return rc;
}

/* Returns 1 if more is to be fetched. */
static int judge(struct chunks *k, struct pull_got *ret)
{
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX + 1];
    int rc = hash_all(k, digest);
    if (rc < 0) return rc;
    hex_from(digest, sizeof digest, hex);
    struct str wanted = k->file->sha256;
    if (wanted.len == 0 || str_eq_nocase(wanted, str_from(hex))) return finish(k, digest, ret);
    fprintf(stderr, "%s has the digest %s, not the one that is expected\n", k->part, hex);
    if (take_back(k)) return 1;
    return remove_part(
        k, err_set(k->err, -EBADMSG,
                   "%s is not the file that was meant: its SHA-256 is %s, expected is " STR_FMT
                   "; it was removed",
                   k->part, hex, STR_ARG(wanted)));
}

/* ---- the loop */

static void on_time(void *arg)
{
    (void)arg;
}

/* Turns the loop until something happened, a second at most. */
static int turn(struct chunks *k)
{
    struct loop_timer timer = { .fn = on_time };
    struct loop *l = k->wire->loop;
    int rc = loop_timer_set(l, &timer, loop_now_us(l) + LOOK_US / 4);
    if (rc == 0) rc = loop_turn(l, -1);
    loop_timer_clear(l, &timer);
    if (rc < 0) return err_set(k->err, rc, "waiting: %s", strerror(-rc));
    return k->wire->stopped ? err_set(k->err, -EINTR, "stopped") : 0;
}

/* Returns true if no chunk can ever come: no agent, and the source is gone. */
static bool is_stuck(const struct chunks *k)
{
    bool source = !k->origin_gone && k->file->url.len > 0;
    bool seed = false;
    for (uint32_t i = 0; k->seeds && i < k->seeds->count; i++)
        seed = seed || (k->seeds->list[i].state != PULL_SEED_GONE && !k->seeds->list[i].liar);
    return !source && !seed;
}

/* Logs in where the source is to be asked. A source that is not open to us is gone. */
static int ready(struct chunks *k)
{
    bool any;
    (void)pick_seed(k, loop_now_us(k->wire->loop), &any);
    if (!k->file->login || k->origin_gone || (any && !k->wants_origin)) return 0;
    int rc = pull_login_ready(k->file->login, k->err);
    k->origin_gone = rc < 0;
    return rc == -EINTR ? rc : 0;
}

static int step(struct chunks *k, int64_t *look_us)
{
    int64_t now_us = loop_now_us(k->wire->loop);
    if (k->seeds && now_us >= *look_us) {
        pull_seeds_look(k->seeds);
        *look_us = now_us + LOOK_US;
    }
    find_author(k);
    int rc = ready(k);
    if (rc < 0) return rc;
    assign(k);
    rc = turn(k);
    if (rc < 0) return rc;
    reap(k);
    /* Behind what came in this turn: after the last chunk there is no other. */
    if (k->file->progress.show)
        k->file->progress.show(k->file->progress.arg, k->here_bytes, k->total);
    if (k->rc < 0) return k->rc;
    if (k->one_piece) return remove_part(k, PULL_ONE_PIECE);
    if (is_stuck(k))
        return k->err->text[0] ? -EIO
                               : err_set(k->err, -EIO, "no agent and no source gives the file");
    return hash_next(k);
}

static int run(struct chunks *k, struct pull_got *ret)
{
    int64_t look_us = 0;
    int rc = 1;
    while (rc == 1) {
        for (rc = 0; rc == 0 && k->here_bytes < k->total;)
            rc = step(k, &look_us);
        if (rc == 0) rc = judge(k, ret);
    }
    return rc;
}

int pull_chunks(struct pull_wire *w, const struct pull_file *file, struct pull_seeds *seeds,
                uint32_t index, struct pull_got *ret, struct err *err)
{
    struct err own = { 0 };
    struct chunks *k = calloc(1, sizeof *k);
    if (!k) return err_set(err, -ENOMEM, "no memory for a fetch");
    *k = (struct chunks){ .wire = w,
                          .file = file,
                          .seeds = seeds,
                          .index = index,
                          .total = file->bytes,
                          .count = seal_chunks(file->bytes),
                          .fd = -1,
                          .map_fd = -1,
                          .author = PULL_SEEDS_MAX,
                          .err = err ? err : &own };
    k->chunk = calloc(k->count, sizeof *k->chunk);
    k->piece = malloc(PIECE_BYTES);
    k->all = sha256_begin();
    int rc = k->chunk && k->piece ? paths(k) : -ENOMEM;
    for (uint32_t c = 0; rc == 0 && c < k->count; c++)
        k->chunk[c].giver = k->chunk[c].accused = PULL_SEEDS_MAX + 1;
    if (rc == 0) rc = open_part(k);
    if (rc == 0) rc = run(k, ret);
    chunks_fini(k);
    free(k);
    return rc;
}
