/* tokenizer_load.c - makes the bundle of a model as an engine of ours makes it: equal models then have
 * equal digests, so that prefixes are predicted alike for engines of several kinds.
 *
 * A folder of a Hugging Face repository has its weights in *.safetensors; their digest is the one of the
 * digests of all such files, in the order of their names. */
#include "cli/tokenizer_load.h"

#include "base/core/own.h"
#include "base/io/file.h"
#include "base/text/tokenizer_json.h"
#include "engine/model/gguf_shards.h"
#include "engine/model/vocab_gguf.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define JSON_NAME "tokenizer.json"

struct parts {
    struct vocab *vocab;
    struct chat_template *template;
};

static void parts_fini(struct parts *p)
{
    vocab_free(p->vocab);
    chat_template_free(p->template);
}

/* ---- GGUF ---- */

static int parts_of_gguf(const struct gguf *g, struct parts *p, struct err *err)
{
    struct str source = { 0 };
    int rc = vocab_from_gguf(g, &p->vocab, err);
    if (rc == 0 && !p->vocab) rc = err_set(err, -EINVAL, "the model has no vocabulary");
    if (rc == 0) rc = gguf_get_str(g, "tokenizer.chat_template", &source, err);
    if (rc == -ENOENT) rc = 0;
    return rc == 0 && source.len > 0 ? chat_template_compile(source, &p->template, err) : rc;
}

/* Reads a GGUF file, and with `weights` (or NULL) the digest of all of it. */
static int read_gguf(const char *path, struct parts *p, char *weights, struct err *err)
{
    CLEANUP(gguf_shards_freep) struct gguf_shards *file = NULL;
    int rc = gguf_shards_open(path, &file, err);
    if (rc == 0) rc = parts_of_gguf(file->gguf, p, err);
    if (rc == 0 && weights) rc = gguf_digest(file->source, weights, err);
    return rc;
}

/* ---- a folder of a Hugging Face repository ---- */

static int read_beside(const char *folder, const char *name, size_t max, bool needed,
                       struct buf *out, struct err *err)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (len < 0 || (size_t)len >= sizeof path)
        return err_set(err, -ENAMETOOLONG, "%s: the path is too long", folder);
    buf_init(out, max + 1);
    int rc = file_read(path, max, out, err);
    return rc == -ENOENT && !needed ? 0 : rc;
}

static int read_folder(const char *folder, struct parts *p, struct err *err)
{
    CLEANUP(buf_fini) struct buf tokenizer = { 0 };
    CLEANUP(buf_fini) struct buf config = { 0 };
    CLEANUP(buf_fini) struct buf template = { 0 };
    int rc = read_beside(folder, JSON_NAME, TOKENIZER_JSON_BYTES_MAX, true, &tokenizer, err);
    if (rc == 0)
        rc = read_beside(folder, "tokenizer_config.json", TOKENIZER_CONFIG_BYTES_MAX, false,
                         &config, err);
    if (rc == 0)
        rc = read_beside(folder, "chat_template.jinja", CHAT_TEMPLATE_BYTES_MAX, false, &template,
                         err);
    if (rc < 0) return rc;
    const struct tokenizer_texts texts = { buf_view(&tokenizer), buf_view(&config),
                                           buf_view(&template) };
    rc = tokenizer_json_load(&texts, &p->vocab, &p->template, err);
    return rc < 0 ? err_prefix(err, rc, "%s", folder) : 0;
}

static int digest_files(const glob_t *found, const char *folder, char *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf all = { 0 };
    uint8_t digest[SHA256_BYTES];
    for (size_t i = 0; i < found->gl_pathc; i++) {
        CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
        char one[SHA256_HEX + 1];
        int rc = gguf_file_open(found->gl_pathv[i], &file, err);
        if (rc == 0) rc = gguf_digest(&file.source, one, err);
        if (rc < 0) return rc;
        buf_text(&all, one);
    }
    if (all.rc < 0) return err_set(err, all.rc, "%s: no memory for the digests", folder);
    sha256(all.data, all.len, digest);
    hex_from(digest, sizeof digest, ret);
    return 0;
}

static int digest_folder(const char *folder, char *ret, struct err *err)
{
    char pattern[PATH_MAX];
    glob_t found;
    int len = snprintf(pattern, sizeof pattern, "%s/*.safetensors", folder);
    if (len < 0 || (size_t)len >= sizeof pattern)
        return err_set(err, -ENAMETOOLONG, "%s: the path is too long", folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        return err_set(err, -ENOENT,
                       "%s: no *.safetensors, whose digest names the model; give the folder of the "
                       "whole repository",
                       folder);
    int rc = digest_files(&found, folder, ret, err);
    globfree(&found);
    return rc;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* ---- all of them ---- */

static int seal(struct parts *p, struct tokenizer_source *t, struct err *err)
{
    char digest[SHA256_HEX + 1];
    buf_init(&t->bundle, BUNDLE_BYTES_MAX);
    int rc = bundle_encode(p->vocab, p->template, &t->bundle, digest, err);
    return rc < 0 ? rc : tokenizer_source_seal(t, err);
}

static int load_model(const char *path, bool folder, struct tokenizer_source *ret, struct err *err)
{
    CLEANUP(tokenizer_source_fini) struct tokenizer_source t = { 0 };
    CLEANUP(parts_fini) struct parts p = { 0 };
    int rc = folder ? read_folder(path, &p, err) : read_gguf(path, &p, t.weights, err);
    if (rc == 0 && folder) rc = digest_folder(path, t.weights, err);
    if (rc == 0) rc = seal(&p, &t, err);
    if (rc < 0) return rc;
    *ret = t;
    t = (struct tokenizer_source){ 0 };
    return 0;
}

static int load_file(const char *path, struct tokenizer_source *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = file_read(path, BUNDLE_BYTES_MAX + 4096, &text, err);
    if (rc == 0) rc = tokenizer_source_parse(buf_view(&text), ret, err);
    return rc < 0 ? err_prefix(err, rc, "%s", path) : 0;
}

int tokenizer_load(const char *path, struct tokenizer_source *ret, struct err *err)
{
    const bool folder = is_folder(path);
    if (folder || str_ends(str_from(path), STR(".gguf"))) return load_model(path, folder, ret, err);
    return load_file(path, ret, err);
}

static int read_bundle(const char *path, struct parts *p, struct err *err)
{
    CLEANUP(tokenizer_source_fini) struct tokenizer_source t = { 0 };
    struct bundle b = { 0 };
    int rc = load_file(path, &t, err);
    if (rc == 0) rc = bundle_decode(buf_view(&t.bundle), NULL, &b, err);
    if (rc < 0) return rc;
    *p = (struct parts){ b.vocab, b.chat_template };
    return 0;
}

int tokenizer_read(const char *path, struct vocab **ret, struct chat_template **ret_template,
                   struct err *err)
{
    CLEANUP(parts_fini) struct parts p = { 0 };
    const struct str name = str_from(path), json = STR("/" JSON_NAME);
    int rc;
    if (is_folder(path)) {
        rc = read_folder(path, &p, err);
    } else if (str_eq(name, STR(JSON_NAME)) || str_ends(name, json)) {
        char folder[PATH_MAX];
        size_t len = str_ends(name, json) ? name.len - json.len : 0;
        snprintf(folder, sizeof folder, "%.*s", (int)(len ? len : 1), len ? path : ".");
        rc = read_folder(folder, &p, err);
    } else {
        rc = str_ends(name, STR(".gguf")) ? read_gguf(path, &p, NULL, err)
                                          : read_bundle(path, &p, err);
    }
    if (rc < 0) return rc;
    *ret = TAKE(p.vocab);
    *ret_template = TAKE(p.template);
    return 0;
}
