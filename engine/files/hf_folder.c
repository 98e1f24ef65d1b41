/* hf_folder.c - reads small files of a folder whole, and digests the large ones.
 *
 * config.json is in the digest because it changes what the same tensors compute (rope_theta, for one): two
 * engines that differ in it must not exchange K and V. The digest is of files, not of the model that they
 * hold, so that it can be had for models of any architecture, served by any kind of engine. */
#include "engine/files/hf_folder.h"

#include "base/core/own.h"
#include "base/text/tokenizer_config.h"
#include "base/text/tokenizer_json.h"
#include "engine/files/gguf.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define FOLDER_PATH_MAX 4096

bool hf_folder_is(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int path_in(const char *folder, const char *name, char ret[FOLDER_PATH_MAX], struct err *err)
{
    int len = snprintf(ret, FOLDER_PATH_MAX, "%s/%s", folder, name);
    if (len >= 0 && len < FOLDER_PATH_MAX) return 0;
    return err_set(err, -ENAMETOOLONG, "%s: a path of more than %d bytes", folder,
                   FOLDER_PATH_MAX - 1);
}

int hf_folder_read(const char *folder, const char *name, size_t max, struct buf *out,
                   struct err *err)
{
    CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
    char path[FOLDER_PATH_MAX];
    int rc = path_in(folder, name, path, err);
    if (rc == 0) rc = gguf_file_open(path, &file, err);
    if (rc < 0) return rc;
    if (file.source.bytes > max)
        return err_set(err, -E2BIG, "%s: %llu bytes, at most %zu are read", path,
                       (unsigned long long)file.source.bytes, max);
    const size_t bytes = (size_t)file.source.bytes;
    buf_init(out, max + 1);
    if (buf_reserve(out, bytes) < 0) return err_set(err, -ENOMEM, "%s: no memory to read it", path);
    rc = bytes > 0 ? file.source.read(file.source.ctx, 0, out->data, bytes, err) : 0;
    if (rc < 0) return err_prefix(err, rc, "%s", path);
    out->len += bytes;
    return 0;
}

enum { TOKENIZER, TOKENIZER_CONFIG, TEMPLATE, MODEL, GENERATION, TEXT_COUNT };

static const struct {
    const char *name;
    size_t max;
} text_rows[TEXT_COUNT] = {
    [TOKENIZER] = { "tokenizer.json", TOKENIZER_JSON_BYTES_MAX },
    [TOKENIZER_CONFIG] = { "tokenizer_config.json", TOKENIZER_CONFIG_BYTES_MAX },
    [TEMPLATE] = { "chat_template.jinja", CHAT_TEMPLATE_BYTES_MAX },
    [MODEL] = { "config.json", CONFIG_JSON_BYTES_MAX },
    [GENERATION] = { "generation_config.json", CONFIG_JSON_BYTES_MAX },
};

struct texts {
    struct buf text[TEXT_COUNT];
};

static void texts_fini(struct texts *t)
{
    for (size_t i = 0; i < TEXT_COUNT; i++)
        buf_fini(&t->text[i]);
}

int hf_folder_tokenizer(const char *folder, struct vocab **ret, struct chat_template **ret_template,
                        struct err *err)
{
    CLEANUP(texts_fini) struct texts t = { 0 };
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        int rc = hf_folder_read(folder, text_rows[i].name, text_rows[i].max, &t.text[i], err);
        if (rc < 0 && (rc != -ENOENT || i == TOKENIZER)) return rc;
    }
    const struct tokenizer_texts texts = {
        .tokenizer = buf_view(&t.text[TOKENIZER]),
        .config = buf_view(&t.text[TOKENIZER_CONFIG]),
        .chat_template = buf_view(&t.text[TEMPLATE]),
        .model = buf_view(&t.text[MODEL]),
        .generation = buf_view(&t.text[GENERATION]),
    };
    int rc = tokenizer_json_load(&texts, ret, ret_template, err);
    return rc < 0 ? err_prefix(err, rc, "%s", folder) : 0;
}

/* ---- the digest */

/* Gathers the files' digests, or with `identity` only that. */
struct sum {
    struct gguf_watch watch;
    struct buf digests;
    uint64_t *identity;
};

static int add_sum(const char *path, struct sum *all, struct err *err)
{
    CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
    struct gguf_watched watched;
    char one[SHA256_HEX + 1];
    int rc = gguf_file_open(path, &file, err);
    if (rc < 0) return rc;
    if (all->identity) {
        *all->identity = hash64(&file.source.identity, sizeof *all->identity, *all->identity);
        return 0;
    }
    gguf_watched_init(&watched, &file.source, &all->watch);
    rc = gguf_digest(&watched.source, one, err);
    if (rc == 0) buf_text(&all->digests, one);
    return rc;
}

static int is_tensors(const struct dirent *entry)
{
    return str_ends(str_from(entry->d_name), STR(".safetensors")) && entry->d_name[0] != '.';
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_file(const char *folder, const char *name, struct sum *all, struct err *err)
{
    char path[FOLDER_PATH_MAX];
    int rc = path_in(folder, name, path, err);
    return rc < 0 ? rc : add_sum(path, all, err);
}

/* Adds all tensor files. */
static int add_tensors(const char *folder, struct sum *all, struct err *err)
{
    struct dirent **found = NULL;
    int count = scandir(folder, &found, is_tensors, by_name), rc = 0;
    if (count < 0) return err_set(err, -errno, "%s: %s", folder, strerror(errno));
    if (count == 0)
        rc = err_set(err, -ENOENT,
                     "%s: no *.safetensors, whose digest names the model; give the folder of the "
                     "whole repository",
                     folder);
    if (count > HF_FOLDER_FILES_MAX)
        rc = err_set(err, -E2BIG, "%s: more than %d *.safetensors", folder, HF_FOLDER_FILES_MAX);
    for (int i = 0; i < count; i++) {
        if (rc == 0) rc = add_file(folder, found[i]->d_name, all, err);
        free(found[i]);
    }
    free(found);
    return rc;
}

static int add_all(const char *folder, struct sum *all, struct err *err)
{
    int rc = add_file(folder, text_rows[MODEL].name, all, err);
    return rc == 0 || rc == -ENOENT ? add_tensors(folder, all, err) : rc;
}

int hf_folder_digest(const char *folder, const struct gguf_watch *watch, char ret[SHA256_HEX + 1],
                     struct err *err)
{
    struct sum all = { .watch = watch ? *watch : (struct gguf_watch){ 0 } };
    uint8_t digest[SHA256_BYTES];
    int rc = add_all(folder, &all, err);
    if (rc == 0 && all.digests.rc < 0)
        rc = err_set(err, all.digests.rc, "%s: no memory for the digests", folder);
    if (rc == 0) {
        sha256(all.digests.data, all.digests.len, digest);
        hex_from(digest, sizeof digest, ret);
    }
    buf_fini(&all.digests);
    return rc;
}

uint64_t hf_folder_identity(const char *folder)
{
    uint64_t identity = 0;
    struct sum all = { .identity = &identity };
    return add_all(folder, &all, NULL) == 0 ? identity : 0;
}
