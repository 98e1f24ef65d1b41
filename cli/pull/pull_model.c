/* pull_model.c - lists, makes room, fetches file by file, joins the digests, renames.
 *
 *     commit ─► listing ─► choice ─► room for all ─► each file ─► digest of all ─► DEST.part becomes DEST
 *
 * Sizes and digests come from the hub's listing; of another server the sizes come with the replies, so that room is
 * made file by file. */
#include "cli/pull/pull_model.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "base/io/models.h"
#include "cli/model/cmd_model.h"
#include "cli/pull/pull_chunks.h"
#include "cli/pull/pull_store.h"
#include "engine/model/model_check.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOURCE ".source"
#define WALK_DEPTH 16
#define LINE_PER_MILLE 100 /* between two lines of progress, where there is no terminal */
#define LINE_BYTES ((uint64_t)256 << 20)
#define REPORT_US 250000

struct run {
    struct pull_wire *wire;
    const struct pull_model *m;
    struct pull_listing list;
    struct buf commit;
    struct model_check_line *lines;
    struct seal seal; /* of what was fetched; files with a chunk of NULL are not known */
    uint64_t seeded;
    char part[PATH_MAX]; /* of several files: their folder */
    bool many;
    uint64_t total, done; /* bytes of all files, 0: not known; of those that are whole */
    uint64_t bytes, fetched;
    struct model_progress bar;
    uint64_t line;              /* of the last line of progress */
    struct loop_timer reporter; /* of m->report */
    uint64_t shown_done, shown_total;
};

static void report_end(struct run *r);

static void run_fini(struct run *r)
{
    report_end(r);
    for (uint32_t i = 0; r->seal.file && i < r->list.count; i++)
        free(r->seal.file[i].chunk);
    free(r->seal.file);
    pull_listing_fini(&r->list);
    buf_fini(&r->commit);
    free(r->lines);
}

bool pull_url_is_many(const struct pull_url *url)
{
    return models_shards(str_from(url->name)) > 0 || (url->hub && url->file.len == 0) ||
           url->folder;
}

/* ---- progress */

static void report(void *arg)
{
    struct run *r = arg;
    char line[80];
    int len = snprintf(line, sizeof line, "%llu %llu %llu\n", (unsigned long long)r->shown_done,
                       (unsigned long long)r->shown_total, (unsigned long long)r->seeded);
    /* A reader that lags, or has gone, loses lines: the fetch does not wait for it. */
    if (write(STDOUT_FILENO, line, (size_t)len) < 0) return;
    (void)loop_timer_set(r->wire->loop, &r->reporter, clock_mono_us() + REPORT_US);
}

static void report_begin(struct run *r)
{
    r->reporter = (struct loop_timer){ .fn = report, .arg = r };
    if (r->m->report) report(r);
}

static void report_end(struct run *r)
{
    if (!r->m->report || !r->reporter.fn) return;
    report(r);
    loop_timer_clear(r->wire->loop, &r->reporter);
}

static void show(void *arg, uint64_t done, uint64_t total)
{
    struct run *r = arg;
    uint64_t all = r->done + done, most = r->total ? r->total : total;
    r->shown_done = all;
    r->shown_total = most > all ? most : all;
    if (r->m->report) return;
    if (isatty(STDERR_FILENO)) {
        model_progress_show(&r->bar, all, most > all ? most : all);
        return;
    }
    uint64_t line = most ? all * 1000 / most / LINE_PER_MILLE : all / LINE_BYTES;
    if (line == r->line) return;
    r->line = line;
    fprintf(stderr, "%.1f of %.1f MB\n", (double)all * 1e-6, (double)(most ? most : all) * 1e-6);
}

/* ---- the listing */

static int hub_commit(struct run *r, struct err *err)
{
    const struct pull_model *m = r->m;
    CLEANUP(buf_fini) struct buf url = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    if (pull_hub_commit_url(m->endpoint, &m->url, &url) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    int rc = pull_wire_text(r->wire, buf_view(&url), m->token, NULL, PULL_LISTING_BYTES_MAX, &reply,
                            NULL, err);
    if (rc < 0) return rc;
    uint8_t id[20];
    if (json_path_text(buf_view(&reply), "sha", &r->commit) < 0 ||
        hex_to(buf_view(&r->commit), id, sizeof id) < 0)
        return err_set(err, -EPROTO, "%s: the hub names no commit for the revision " STR_FMT,
                       url.data, STR_ARG(m->url.rev));
    return 0;
}

static int hub_list(struct run *r, struct err *err)
{
    const struct pull_model *m = r->m;
    CLEANUP(buf_fini) struct buf url = { 0 };
    int rc = hub_commit(r, err);
    if (rc == 0) rc = pull_hub_tree_url(m->endpoint, &m->url, buf_view(&r->commit), &url);
    for (uint32_t page = 0; rc == 0 && url.len > 0; page++) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        CLEANUP(buf_fini) struct buf link = { 0 };
        struct str next;
        if (page == PULL_PAGES_MAX)
            return err_set(err, -E2BIG, "the repository's listing has more than %u pages",
                           PULL_PAGES_MAX);
        rc = pull_wire_text(r->wire, buf_view(&url), m->token, NULL, PULL_LISTING_BYTES_MAX, &reply,
                            &link, err);
        if (rc == 0) rc = pull_listing_add(&r->list, buf_view(&reply), err);
        if (rc == 0) rc = pull_next_page(buf_view(&link), m->endpoint, &next, err);
        buf_clear(&url);
        if (rc == 0) rc = buf_str(&url, next);
    }
    return rc < 0 ? err_prefix(err, rc, STR_FMT, STR_ARG(m->url.repo))
                  : pull_listing_choose(&r->list, &m->url, err);
}

static struct pull_store_place place_of(const struct run *r)
{
    return (struct pull_store_place){ r->m->store_endpoint, pull_login_region(r->m->login) };
}

/* Gets one page of a store's listing; once more if the bucket turns out to be in another region. */
static int store_page(struct run *r, struct str next, struct buf *ret, struct err *err)
{
    int rc = PULL_MOVED;
    for (int tries = 0; rc == PULL_MOVED && tries < 2; tries++) {
        CLEANUP(buf_fini) struct buf url = { 0 };
        const struct pull_store_place at = place_of(r);
        if (pull_store_list_url(&r->m->url, &at, next, &url) < 0)
            return err_set(err, -ENOMEM, "out of memory");
        rc = pull_wire_text(r->wire, buf_view(&url), (struct str){ 0 }, r->m->login,
                            PULL_LISTING_BYTES_MAX, ret, NULL, err);
    }
    return rc;
}

/* Lists the folder that a store's URL names. */
static int store_list(struct run *r, struct err *err)
{
    CLEANUP(buf_fini) struct buf next = { 0 };
    int rc = 0;
    for (uint32_t page = 0; rc == 0 && (page == 0 || next.len > 0); page++) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        CLEANUP(buf_fini) struct buf after = { 0 };
        if (page == PULL_PAGES_MAX)
            return err_set(err, -E2BIG, "the folder's listing has more than %u pages",
                           PULL_PAGES_MAX);
        rc = store_page(r, buf_view(&next), &reply, err);
        if (rc == 0) rc = pull_store_add(&r->list, &r->m->url, buf_view(&reply), &after, err);
        buf_clear(&next);
        if (rc == 0) rc = buf_str(&next, buf_view(&after));
    }
    return rc < 0 ? err_prefix(err, rc, STR_FMT, STR_ARG(r->m->url.text))
                  : pull_listing_choose(&r->list, &r->m->url, err);
}

/* Lists the file that a URL names, or all shards of which it names the first. */
static int plain_list(struct run *r, struct err *err)
{
    char name[PULL_PART_BYTES_MAX + 1];
    const struct pull_url *u = &r->m->url;
    uint32_t shards = models_shards(str_from(u->name)), count = shards > 0 ? shards : 1;
    r->list.items = calloc(count, sizeof *r->list.items);
    if (!r->list.items) return err_set(err, -ENOMEM, "out of memory");
    arena_init(&r->list.arena, (size_t)1 << 20);
    snprintf(name, sizeof name, "%s", u->name);
    for (uint32_t i = 0; i < count; i++) {
        if (shards > 0) models_shard_name(name, i + 1);
        r->list.items[i] = (struct pull_item){ .name = arena_str(&r->list.arena, str_from(name)),
                                               .bytes = PULL_BYTES_UNKNOWN };
        if (!r->list.items[i].name.data) return err_set(err, -ENOMEM, "out of memory");
    }
    r->list.count = count;
    return 0;
}

/* Appends the URL of an item: of the hub, or the given one with the item's name in place of its last part. */
static int item_url(const struct run *r, const struct pull_item *item, struct buf *out)
{
    const struct pull_url *u = &r->m->url;
    if (u->hub) return pull_hub_file_url(r->m->endpoint, u, buf_view(&r->commit), item->name, out);
    if (u->store) {
        const struct pull_store_place at = place_of(r);
        return pull_store_object_url(u, &at, item->name, out);
    }
    struct str base = models_url_base(u->text);
    buf_str(out, str_of(u->text.data, (size_t)(base.data - u->text.data)));
    buf_str(out, item->name);
    return buf_str(out, str_of(base.data + base.len,
                               u->text.len - (size_t)(base.data + base.len - u->text.data)));
}

/* ---- the place */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

/* Makes the folder DEST.part, or goes on with it if it was begun with the same files. */
static int open_folder(struct run *r, struct err *err)
{
    CLEANUP(buf_fini) struct buf is = { 0 };
    CLEANUP(buf_fini) struct buf was = { 0 };
    char path[PATH_MAX];
    uint8_t digest[SHA256_BYTES];
    char url[SHA256_HEX + 1];
    if (snprintf(path, sizeof path, "%s/" SOURCE, r->part) >= (int)sizeof path)
        return err_set(err, -ENAMETOOLONG, "%s: the path is too long", r->part);
    sha256(r->m->url.text.data, r->m->url.text.len, digest);
    hex_from(digest, sizeof digest, url);
    buf_printf(&is, "%s\n%s\n", url, r->commit.data ? r->commit.data : "");
    if (file_read(path, 256, &was, NULL) == 0 && str_eq(buf_view(&was), buf_view(&is))) return 0;
    if (access(r->part, F_OK) == 0) {
        fprintf(stderr, "%s is of another version: it is begun anew\n", r->part);
        if (nftw(r->part, remove_one, WALK_DEPTH, FTW_DEPTH | FTW_PHYS) != 0)
            return err_set(err, -errno, "%s cannot be removed: %s", r->part, strerror(errno));
    }
    int rc = file_make_folders(r->part, 0755, err);
    return rc < 0 ? rc : file_write_atomic(path, buf_view(&is), 0600, err);
}

/* Returns an item's name in the model's folder. */
static struct str name_below(const struct run *r, const struct pull_item *item)
{
    return r->m->url.file.len > 0 ? models_base(item->name) : item->name;
}

/* Writes the path of an item: DEST itself, or below DEST.part, whose folders are made. */
static int item_path(const struct run *r, const struct pull_item *item, char ret[PATH_MAX],
                     struct err *err)
{
    struct str name = name_below(r, item);
    char folder[PATH_MAX];
    int len = r->many ? snprintf(ret, PATH_MAX, "%s/" STR_FMT, r->part, STR_ARG(name))
                      : snprintf(ret, PATH_MAX, "%s", r->m->dest);
    if (len >= PATH_MAX - 32)
        return err_set(err, -ENAMETOOLONG, "%s: a file's path is too long", r->m->dest);
    struct str base = models_base(str_from(ret));
    if (!r->many || base.len == name.len) return 0;
    snprintf(folder, sizeof folder, "%.*s", (int)((size_t)len - base.len - 1), ret);
    return file_make_folders(folder, 0755, err);
}

/* Returns the bytes of an item that are there, whole or in part. */
static uint64_t bytes_there(const struct run *r, const struct pull_item *item)
{
    char path[PATH_MAX], part[PATH_MAX + 8];
    struct stat st;
    if (item_path(r, item, path, NULL) < 0) return 0;
    snprintf(part, sizeof part, "%s.part", path);
    if (stat(path, &st) < 0 && stat(part, &st) < 0) return 0;
    /* Blocks, because a part that came in chunks has holes. */
    return min_u64(min_u64((uint64_t)st.st_size, (uint64_t)st.st_blocks * 512), item->bytes);
}

/* Adds up the sizes, where all are known, and makes room. */
static int make_room(struct run *r, struct err *err)
{
    uint64_t there = 0;
    for (uint32_t i = 0; i < r->list.count; i++) {
        const struct pull_item *item = &r->list.items[i];
        if (item->bytes == PULL_BYTES_UNKNOWN) return 0; /* pull_file asks */
        if (!add_fits(r->total, item->bytes, &r->total))
            return err_set(err, -E2BIG, "the listing's sizes make no sense");
        there += bytes_there(r, item);
    }
    return pull_room_make(r->m->room, r->total - there, err);
}

/* ---- the files */

static bool goes_on(void *wire, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return !pull_wire_stopped(wire);
}

/* Returns 1 if an earlier command has fetched the whole item. It is read, for its digest. */
static int is_there(struct run *r, const struct pull_item *item, const char *path,
                    struct model_check_line *line, struct err *err)
{
    struct stat st;
    if (stat(path, &st) < 0) return 0;
    if (item->bytes != PULL_BYTES_UNKNOWN && (uint64_t)st.st_size != item->bytes) return 0;
    int rc = model_sha256(path, goes_on, r->wire, line->digest, err);
    if (rc < 0) return rc;
    return item->sha256.len == 0 || str_eq_nocase(item->sha256, str_from(line->digest));
}

/* ---- agents that have the model */

/* Waits for the seals of the agents that are known, and takes digests and sizes from the first. */
static void hear_seeds(struct run *r)
{
    struct pull_seeds *s = r->m->seeds;
    if (!s) return;
    pull_seeds_look(s);
    while (pull_seeds_wait(s) && !r->wire->stopped && loop_turn(r->wire->loop, -1) == 0)
        ;
    uint32_t first = pull_seeds_next(s, 0);
    const struct seal *seal = first < PULL_SEEDS_MAX ? &s->list[first].seal : NULL;
    for (uint32_t f = 0; seal && f < seal->file_count; f++) {
        for (uint32_t i = 0; i < r->list.count; i++) {
            struct pull_item *item = &r->list.items[i];
            bool same = r->many ? str_eq(name_below(r, item), seal->file[f].name)
                                : str_eq(seal->file[f].name, STR(SEAL_ONE_FILE));
            if (!same) continue;
            if (item->sha256.len == 0) item->sha256 = str_from(seal->file[f].sha256);
            if (item->bytes == PULL_BYTES_UNKNOWN) item->bytes = seal->file[f].bytes;
        }
    }
}

/* Returns the number of an item in the seals of agents; UINT32_MAX: they do not have it. */
static uint32_t seal_index(const struct run *r, const struct pull_item *item)
{
    const struct pull_seeds *s = r->m->seeds;
    uint32_t first = s ? pull_seeds_next(s, 0) : PULL_SEEDS_MAX;
    if (first == PULL_SEEDS_MAX) return UINT32_MAX;
    const struct seal *seal = &s->list[first].seal;
    for (uint32_t f = 0; f < seal->file_count; f++)
        if (!r->many || str_eq(name_below(r, item), seal->file[f].name)) return f;
    return UINT32_MAX;
}

/* Writes the seal, for the agent to give the model to others. Without it nothing is given. */
static void write_seal(struct run *r, const char *sha256)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (!r->m->seal) return;
    snprintf(r->seal.sha256, sizeof r->seal.sha256, "%s", sha256);
    for (uint32_t i = 0; i < r->list.count; i++)
        if (!r->seal.file[i].chunk) return;
    r->seal.file_count = r->list.count;
    if (seal_write(&r->seal, &text) == 0 && text.len <= SEAL_BYTES_MAX)
        (void)file_write_atomic(r->m->seal, buf_view(&text), 0600, NULL);
}

/* Fetches an item in chunks, where it is large or agents have it, else in one piece. */
static int fetch_parts(struct run *r, struct pull_file *file, const struct pull_item *item,
                       struct pull_got *ret, struct err *err)
{
    uint32_t index = seal_index(r, item);
    struct pull_seeds *seeds = index != UINT32_MAX && file->sha256.len > 0 ? r->m->seeds : NULL;
    uint64_t large = 0;
    bool known = file->bytes != PULL_BYTES_UNKNOWN && file->bytes > 0;
    int rc = PULL_ONE_PIECE;
    if (known && (seeds || file->bytes >= PULL_CHUNKED_BYTES))
        rc = pull_chunks(r->wire, file, seeds, index, ret, err);
    if (rc != PULL_ONE_PIECE) return rc;
    file->large = known ? NULL : &large;
    rc = pull_file(r->wire, file, ret, err);
    if (rc != PULL_LARGE) return rc;
    file->bytes = large;
    file->large = NULL;
    rc = pull_chunks(r->wire, file, NULL, 0, ret, err);
    return rc == PULL_ONE_PIECE ? pull_file(r->wire, file, ret, err) : rc;
}

/* Fetches an item to its path; once more if its bucket turns out to be in another region. */
static int fetch_to(struct run *r, const struct pull_item *item, const char *path,
                    struct pull_got *ret, struct err *err)
{
    const struct pull_model *m = r->m;
    int rc = PULL_MOVED;
    for (int tries = 0; rc == PULL_MOVED && tries < 2; tries++) {
        CLEANUP(buf_fini) struct buf url = { 0 };
        if (item_url(r, item, &url) < 0) return err_set(err, -ENOMEM, "out of memory");
        struct pull_file file = {
            .url = buf_view(&url),
            .bearer = m->url.hub ? m->token : (struct str){ 0 },
            .login = m->login,
            .path = path,
            .bytes = item->bytes,
            .sha256 = item->sha256.len > 0 ? item->sha256
                      : r->many            ? (struct str){ 0 }
                                           : m->sha256,
            .room = item->bytes == PULL_BYTES_UNKNOWN ? m->room : NULL,
            .progress = { r->total, show, r, &r->seeded },
        };
        rc = fetch_parts(r, &file, item, ret, err);
    }
    return rc;
}

static int fetch_item(struct run *r, uint32_t i, struct err *err)
{
    const struct pull_item *item = &r->list.items[i];
    char path[PATH_MAX];
    struct pull_got got = { 0 };
    struct stat st;
    int rc = item_path(r, item, path, err);
    if (rc == 0 && r->many) rc = is_there(r, item, path, &r->lines[i], err);
    r->lines[i].name = name_below(r, item).data;
    if (rc < 0) return rc;
    if (rc == 1) {
        uint64_t bytes = stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
        r->done += bytes;
        r->bytes += bytes;
        return 0;
    }
    rc = fetch_to(r, item, path, &got, err);
    struct seal_file *sealed = &r->seal.file[i];
    sealed->chunk = got.chunk;
    sealed->bytes = got.bytes;
    sealed->name = r->many ? name_below(r, item) : STR(SEAL_ONE_FILE);
    memcpy(sealed->sha256, got.sha256, sizeof sealed->sha256);
    r->fetched += got.fetched;
    r->done += got.bytes;
    r->bytes += got.bytes;
    memcpy(r->lines[i].digest, got.sha256, sizeof got.sha256);
    return rc;
}

/* Compares the digest of all files, and gives the folder its name. */
static int finish_many(struct run *r, char ret[SHA256_HEX + 1], struct err *err)
{
    const struct pull_model *m = r->m;
    char source[PATH_MAX + 16];
    model_check_join(r->lines, r->list.count, ret);
    if (m->sha256.len > 0 && !str_eq_nocase(m->sha256, str_from(ret)))
        return err_set(err, -EBADMSG,
                       "%s is not the model that was meant: its SHA-256 is %s, expected is " STR_FMT
                       "; remove the folder, or correct sha256",
                       r->part, ret, STR_ARG(m->sha256));
    snprintf(source, sizeof source, "%s/" SOURCE, r->part);
    unlink(source);
    if (rename(r->part, m->dest) < 0)
        return err_set(err, -errno, "cannot rename %s: %s", r->part, strerror(errno));
    return pull_sync_folder(m->dest, err);
}

/* Refuses a digest that the hub contradicts before anything is fetched. */
static int check_expected(const struct run *r, struct err *err)
{
    struct str says = r->list.items[0].sha256, wanted = r->m->sha256;
    if (r->many || says.len == 0 || wanted.len == 0 || str_eq_nocase(says, wanted)) return 0;
    return err_set(err, -EBADMSG,
                   "%s is not the model that was meant: its SHA-256 is " STR_FMT
                   " by the hub, expected is " STR_FMT,
                   r->list.items[0].name.data, STR_ARG(says), STR_ARG(wanted));
}

int pull_model(struct pull_wire *w, const struct pull_model *m, struct pull_result *ret,
               struct err *err)
{
    CLEANUP(run_fini) struct run r = { .wire = w, .m = m, .many = pull_url_is_many(&m->url) };
    if (snprintf(r.part, sizeof r.part, "%s.part", m->dest) >= (int)sizeof r.part - 32)
        return err_set(err, -ENAMETOOLONG, "%s: the path is longer than %d bytes", m->dest,
                       PATH_MAX - 32);
    report_begin(&r);
    int rc = m->url.hub      ? hub_list(&r, err)
             : m->url.folder ? store_list(&r, err)
                             : plain_list(&r, err);
    if (rc == 0) rc = check_expected(&r, err);
    if (rc < 0) return rc;
    r.lines = calloc(r.list.count, sizeof *r.lines);
    r.seal.file = calloc(r.list.count, sizeof *r.seal.file);
    if (!r.lines || !r.seal.file) return err_set(err, -ENOMEM, "out of memory");
    hear_seeds(&r);
    if (r.many) rc = open_folder(&r, err);
    if (rc == 0) rc = make_room(&r, err);
    for (uint32_t i = 0; i < r.list.count && rc == 0; i++)
        rc = fetch_item(&r, i, err);
    model_progress_end(&r.bar);
    pull_room_done(m->room);
    if (rc < 0) return rc;
    struct pull_result got = { .bytes = r.bytes, .fetched = r.fetched };
    if (r.many)
        rc = finish_many(&r, got.sha256, err);
    else
        memcpy(got.sha256, r.lines[0].digest, sizeof got.sha256);
    if (rc < 0) return rc;
    write_seal(&r, got.sha256);
    *ret = got;
    return 0;
}
