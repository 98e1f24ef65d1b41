/* tokenizer_load.c - makes the bundle of a GGUF file as an engine of ours makes it: equal files then have
 * equal digests, so that prefixes are predicted alike for engines of several kinds. */
#include "cli/tokenizer_load.h"

#include "base/core/own.h"
#include "base/io/file.h"
#include "engine/model/gguf_shards.h"
#include "engine/model/vocab_gguf.h"

#include <errno.h>

#define MAGIC_BYTES 4

static int bundle_of(const struct gguf *g, struct tokenizer_source *t, struct err *err)
{
    CLEANUP(vocab_freep) struct vocab *vocab = NULL;
    CLEANUP(chat_template_freep) struct chat_template *template = NULL;
    struct str source = { 0 };
    char digest[SHA256_HEX + 1];
    int rc = vocab_from_gguf(g, &vocab, err);
    if (rc == 0 && !vocab) rc = err_set(err, -EINVAL, "the model has no vocabulary");
    if (rc == 0) rc = gguf_get_str(g, "tokenizer.chat_template", &source, err);
    if (rc == -ENOENT) rc = 0;
    if (rc == 0 && source.len > 0) rc = chat_template_compile(source, &template, err);
    buf_init(&t->bundle, BUNDLE_BYTES_MAX);
    return rc < 0 ? rc : bundle_encode(vocab, template, &t->bundle, digest, err);
}

static int load_gguf(const char *path, struct tokenizer_source *ret, struct err *err)
{
    CLEANUP(tokenizer_source_fini) struct tokenizer_source t = { 0 };
    CLEANUP(gguf_shards_freep) struct gguf_shards *file = NULL;
    int rc = gguf_shards_open(path, &file, err);
    if (rc == 0) rc = bundle_of(file->gguf, &t, err);
    if (rc == 0) rc = gguf_digest(file->source, t.weights, err);
    if (rc == 0) rc = tokenizer_source_seal(&t, err);
    if (rc < 0) return rc;
    *ret = t;
    t = (struct tokenizer_source){ 0 };
    return 0;
}

int tokenizer_load(const char *path, struct tokenizer_source *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct str file = str_from(path);
    if (str_ends(file, STR(".gguf"))) return load_gguf(path, ret, err);
    int rc = file_read(path, BUNDLE_BYTES_MAX + 4096, &text, err);
    if (rc == 0) rc = tokenizer_source_parse(buf_view(&text), ret, err);
    return rc < 0 ? err_prefix(err, rc, "%s", path) : 0;
}
