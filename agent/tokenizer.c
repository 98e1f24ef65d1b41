/* tokenizer.c - reads and writes tokenizer files, and makes the digest that endpoints carry. */
#include "agent/tokenizer.h"

#include "base/core/own.h"

void tokenizer_source_fini(struct tokenizer_source *t)
{
    buf_fini(&t->bundle);
    *t = (struct tokenizer_source){ 0 };
}

int tokenizer_source_seal(struct tokenizer_source *t, struct err *err)
{
    CLEANUP(bundle_fini) struct bundle b = { 0 };
    int rc = bundle_decode(buf_view(&t->bundle), NULL, &b, err);
    if (rc < 0) return rc;
    bundle_identity(str_from(t->weights), b.digest, t->digest);
    return 0;
}

int tokenizer_source_parse(struct str bytes, struct tokenizer_source *ret, struct err *err)
{
    CLEANUP(tokenizer_source_fini) struct tokenizer_source t = { 0 };
    struct str rest = bytes;
    uint8_t digest[SHA256_BYTES];
    if (!str_starts(rest, STR(TOKENIZER_MAGIC)))
        return err_set(err, -EINVAL, "not a tokenizer file");
    (void)str_cut(&rest, '\n');
    struct str line = str_cut(&rest, '\n');
    if (!str_starts(line, STR("weights ")) || line.len != 8 + SHA256_HEX ||
        hex_to(str_of(line.data + 8, SHA256_HEX), digest, sizeof digest) < 0)
        return err_set(err, -EINVAL, "a tokenizer file without the digest of its weights");
    hex_from(digest, sizeof digest, t.weights);
    buf_init(&t.bundle, BUNDLE_BYTES_MAX);
    if (buf_str(&t.bundle, rest) < 0)
        return err_set(err, t.bundle.rc, "a tokenizer of more than %zu bytes", BUNDLE_BYTES_MAX);
    int rc = tokenizer_source_seal(&t, err);
    if (rc < 0) return rc;
    *ret = t;
    t = (struct tokenizer_source){ 0 };
    return 0;
}

int tokenizer_source_print(const struct tokenizer_source *t, struct buf *out)
{
    buf_printf(out, TOKENIZER_MAGIC "weights %s\n", t->weights);
    return buf_str(out, buf_view(&t->bundle));
}
