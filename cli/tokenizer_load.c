/* tokenizer_load.c - makes the bundle of a model as an engine of ours makes it: equal models then have
 * equal digests, so that prefixes are predicted alike for engines of several kinds. */
#include "cli/tokenizer_load.h"

#include "base/core/own.h"
#include "base/io/file.h"
#include "engine/files/gguf_shards.h"
#include "engine/files/hf_folder.h"
#include "engine/files/vocab_gguf.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

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
    int rc = folder ? hf_folder_tokenizer(path, &p.vocab, &p.template, err)
                    : read_gguf(path, &p, t.weights, err);
    if (rc == 0 && folder) rc = hf_folder_digest(path, NULL, t.weights, err);
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
    const bool folder = hf_folder_is(path);
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
    if (hf_folder_is(path)) {
        rc = hf_folder_tokenizer(path, &p.vocab, &p.template, err);
    } else if (str_eq(name, STR(JSON_NAME)) || str_ends(name, json)) {
        char folder[PATH_MAX];
        size_t len = str_ends(name, json) ? name.len - json.len : 0;
        snprintf(folder, sizeof folder, "%.*s", (int)(len ? len : 1), len ? path : ".");
        rc = hf_folder_tokenizer(folder, &p.vocab, &p.template, err);
    } else {
        rc = str_ends(name, STR(".gguf")) ? read_gguf(path, &p, NULL, err)
                                          : read_bundle(path, &p, err);
    }
    if (rc < 0) return rc;
    *ret = TAKE(p.vocab);
    *ret_template = TAKE(p.template);
    return 0;
}
