/* model_check.c - reads all files of a model once, in the order of their names.
 *
 * The digest that engines name a model by (gguf_digest) is another one: it is joined from pieces, and of tensors
 * alone. This one is what publishers state and what sha256sum prints, so that people can compare it by hand. */
#include "engine/model/model_check.h"

#include "base/core/arena.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/models.h"
#include "engine/files/gguf.h"
#include "engine/model/weight_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define NAMES_BYTES_MAX ((size_t)8 << 20)

struct files {
    struct arena arena;
    const char *root; /* of the names; ends without a slash */
    char **names;
    uint32_t count;
    bool alone; /* one file, whose own digest counts */
    uint64_t bytes, identity;
};

static void files_fini(struct files *f)
{
    arena_fini(&f->arena);
    free(f->names);
}

static void freep(char **p)
{
    free(*p);
}

static int join(const char *folder, const char *name, char ret[PATH_MAX], struct err *err)
{
    int len = snprintf(ret, PATH_MAX, "%s%s%s", folder, folder[0] && name[0] ? "/" : "", name);
    if (len < PATH_MAX) return 0;
    return err_set(err, -ENAMETOOLONG, "%s: a path below it is longer than %d bytes", folder,
                   PATH_MAX);
}

static int files_add(struct files *f, const char *name, struct err *err)
{
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == '\\' || *c == 0x7f)
            return err_set(err, -EINVAL,
                           "%s: a file's name has a control character or a backslash, which no "
                           "list of digests can say; rename it",
                           f->root);
    if (f->count == MODEL_CHECK_FILES_MAX)
        return err_set(err, -E2BIG, "%s: more than %u files", f->root, MODEL_CHECK_FILES_MAX);
    struct str copy = arena_str(&f->arena, str_from(name));
    if (!copy.data) return err_set(err, -ENOMEM, "%s: no memory for its files' names", f->root);
    f->names[f->count++] = (char *)(uintptr_t)copy.data;
    return 0;
}

static int add_folder(struct files *f, const char *below, uint32_t depth, struct err *err);

static int add_one(struct files *f, const char *below, const char *entry, uint32_t depth,
                   struct err *err)
{
    char name[PATH_MAX], path[PATH_MAX];
    struct stat st;
    if (entry[0] == '.') return 0;
    int rc = join(below, entry, name, err);
    if (rc == 0 && strlen(name) > MODEL_CHECK_NAME_BYTES_MAX)
        rc = err_set(err, -ENAMETOOLONG, "%s: a file's name is longer than %u bytes", f->root,
                     MODEL_CHECK_NAME_BYTES_MAX);
    if (rc == 0) rc = join(f->root, name, path, err);
    if (rc < 0) return rc;
    if (stat(path, &st) < 0) return err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return add_folder(f, name, depth + 1, err);
    return S_ISREG(st.st_mode) ? files_add(f, name, err) : 0;
}

static int add_folder(struct files *f, const char *below, uint32_t depth, struct err *err)
{
    char path[PATH_MAX];
    int rc = join(f->root, below, path, err);
    if (rc < 0) return rc;
    if (depth > MODEL_CHECK_DEPTH_MAX)
        return err_set(err, -E2BIG, "%s: more than %u folders inside each other", f->root,
                       MODEL_CHECK_DEPTH_MAX);
    DIR *dir = opendir(path);
    if (!dir) return err_set(err, -errno, "%s: %s", path, strerror(errno));
    for (struct dirent *e; rc == 0 && (e = readdir(dir));)
        rc = add_one(f, below, e->d_name, depth, err);
    closedir(dir);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the shards of a GGUF file; f->root becomes their folder. */
static int add_shards(struct files *f, const char *path, uint32_t count, struct err *err)
{
    struct str base = models_base(str_from(path));
    size_t folder = strlen(path) - base.len;
    char name[PATH_MAX];
    int rc = 0;
    struct str root = arena_str(&f->arena, folder > 1   ? str_of(path, folder - 1)
                                           : folder > 0 ? STR("/")
                                                        : STR("."));
    if (!root.data) return err_set(err, -ENOMEM, "%s: no memory for its path", path);
    f->root = root.data;
    snprintf(name, sizeof name, "%s", path + folder);
    for (uint32_t i = 1; i <= count && rc == 0; i++) {
        models_shard_name(name, i);
        rc = files_add(f, name, err);
    }
    return rc;
}

/* Writes the path of a file of the model. */
static int file_path(const struct files *f, uint32_t i, char ret[PATH_MAX], struct err *err)
{
    return f->alone ? join(f->root, "", ret, err) : join(f->root, f->names[i], ret, err);
}

static int look_at_each(struct files *f, struct err *err)
{
    char path[PATH_MAX];
    struct stat st;
    f->identity = 1; /* not that of the same files elsewhere (gguf_source) */
    for (uint32_t i = 0; i < f->count; i++) {
        int rc = file_path(f, i, path, err);
        if (rc < 0) return rc;
        if (stat(path, &st) < 0) return err_set(err, -errno, "%s: %s", path, strerror(errno));
        uint64_t one = gguf_file_identity(&st);
        f->bytes += (uint64_t)st.st_size;
        f->identity = hash64(&one, sizeof one, f->identity);
    }
    return 0;
}

/* Finds the files of the model, in the order of their names. */
static int files_find(const char *path, struct files *f, struct err *err)
{
    struct stat st;
    uint32_t shards = models_shards(models_base(str_from(path)));
    arena_init(&f->arena, NAMES_BYTES_MAX);
    f->names = calloc(MODEL_CHECK_FILES_MAX, sizeof *f->names);
    f->root = path;
    if (!f->names) return err_set(err, -ENOMEM, "%s: no memory for its files' names", path);
    if (stat(path, &st) < 0) return err_set(err, -errno, "%s: %s", path, strerror(errno));
    int rc;
    if (S_ISDIR(st.st_mode)) {
        rc = add_folder(f, "", 0, err);
    } else if (shards > 0) {
        rc = add_shards(f, path, shards, err);
    } else {
        f->alone = true;
        f->count = 1;
        rc = 0;
    }
    if (rc == 0 && f->count == 0) rc = err_set(err, -ENOENT, "%s: the folder has no files", path);
    if (rc < 0) return rc;
    if (!f->alone) qsort(f->names, f->count, sizeof *f->names, by_name);
    return look_at_each(f, err);
}

/* ---- reading */

struct reading {
    const struct files *files;
    char *piece;
    uint64_t done;
    model_check_fn progress;
    void *arg;
};

static int read_file(struct reading *r, const char *path, char ret[SHA256_HEX + 1], struct err *err)
{
    uint8_t digest[SHA256_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
    if (fd < 0) return err_set(err, -errno, "%s: %s", path, strerror(errno));
    struct sha256_run *run = sha256_begin();
    for (ssize_t n; rc == 0 && (n = read(fd, r->piece, PIECE_BYTES)) != 0;) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
            break;
        }
        sha256_more(run, r->piece, (size_t)n);
        r->done += (uint64_t)n;
        if (r->progress && !r->progress(r->arg, r->done, r->files->bytes))
            rc = err_set(err, -EINTR, "stopped");
    }
    sha256_end(run, digest);
    close(fd);
    if (rc == 0) hex_from(digest, sizeof digest, ret);
    return rc;
}

static int read_all(const struct files *f, model_check_fn progress, void *arg,
                    char ret[SHA256_HEX + 1], struct err *err)
{
    CLEANUP(freep) char *piece = malloc(PIECE_BYTES);
    struct reading r = { f, piece, 0, progress, arg };
    struct model_check_line *lines = calloc(f->count, sizeof *lines);
    char path[PATH_MAX];
    int rc = piece && lines ? 0 : err_set(err, -ENOMEM, "%s: no memory to read it", f->root);
    for (uint32_t i = 0; i < f->count && rc == 0; i++) {
        lines[i].name = f->names[i];
        rc = file_path(f, i, path, err);
        if (rc == 0) rc = read_file(&r, path, lines[i].digest, err);
    }
    if (rc == 0 && f->alone)
        memcpy(ret, lines[0].digest, SHA256_HEX + 1);
    else if (rc == 0)
        model_check_join(lines, f->count, ret);
    free(lines);
    return rc;
}

void model_check_join(const struct model_check_line *lines, uint32_t count,
                      char ret[SHA256_HEX + 1])
{
    uint8_t digest[SHA256_BYTES];
    struct sha256_run *run = sha256_begin();
    for (uint32_t i = 0; i < count; i++) {
        sha256_more(run, lines[i].digest, SHA256_HEX);
        sha256_more(run, "  ", 2);
        sha256_more(run, lines[i].name, strlen(lines[i].name));
        sha256_more(run, "\n", 1);
    }
    sha256_end(run, digest);
    hex_from(digest, sizeof digest, ret);
}

int model_sha256(const char *path, model_check_fn progress, void *arg, char ret[SHA256_HEX + 1],
                 struct err *err)
{
    CLEANUP(files_fini) struct files f = { 0 };
    int rc = files_find(path, &f, err);
    return rc < 0 ? rc : read_all(&f, progress, arg, ret, err);
}

void model_check_keep(const char *path, const char *stamps, const char digest[SHA256_HEX + 1])
{
    CLEANUP(files_fini) struct files f = { 0 };
    if (files_find(path, &f, NULL) == 0) weight_digest_keep(stamps, f.identity, digest);
}

int model_check(const struct model_check *what, bool *ret_read, struct err *err)
{
    CLEANUP(files_fini) struct files f = { 0 };
    char found[SHA256_HEX + 1];
    int rc = files_find(what->path, &f, err);
    if (rc < 0) return rc;
    bool known = what->stamps && weight_digest_tell(what->stamps, f.identity, found);
    if (!known) rc = read_all(&f, what->progress, what->arg, found, err);
    if (rc < 0) return rc;
    if (!known && what->stamps) weight_digest_keep(what->stamps, f.identity, found);
    if (ret_read) *ret_read = !known;
    if (str_eq_nocase(str_from(found), what->sha256)) return 0;
    return err_set(err, -EBADMSG,
                   "%s is not the model that was meant: its SHA-256 is %s, expected is " STR_FMT,
                   what->path, found, STR_ARG(what->sha256));
}
