/* f_tokenizer_json.c - reads any tokenizer.json: it is refused with a sentence, or its tokenizer encodes and decodes
 * a text, gives no control token to a user, and goes through a bundle unchanged.
 *
 * The input is the file, up to the first zero byte; behind it may come tokenizer_config.json, which is
 * generation_config.json too, and behind a second one a text. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/text/bundle.h"
#include "base/text/detok.h"
#include "base/text/tokenizer.h"
#include "base/text/tokenizer_json.h"
#include "tests/fuzz/fuzz.h"

/* The flat cost is that of tables for 8,192 ids without a token, which a short file may have. */
const struct fuzz_cost fuzz_cost = { 8000000, 3000 };

static void check_ids(const struct vocab *v, struct str text, struct ids *out)
{
    CLEANUP(buf_fini) struct buf back = { 0 };
    struct detok d;
    ids_clear(out);
    must(tokenizer_encode(v, text, false, out, NULL) == 0);
    detok_init(&d, v, false);
    for (size_t i = 0; i < out->count; i++) {
        must(vocab_type(v, out->data[i]) != TOKEN_CONTROL);
        must(detok_push(&d, out->data[i], &back) == 0);
    }
    must(detok_flush(&d, &back) == 0);
    must(str_utf8_valid(buf_view(&back)));
}

static void check(const struct vocab *v, struct str text)
{
    CLEANUP(ids_fini) struct ids direct = { 0 };
    CLEANUP(ids_fini) struct ids routed = { 0 };
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    CLEANUP(bundle_fini) struct bundle b = { 0 };
    char digest[SHA256_HEX + 1];
    check_ids(v, text, &direct);
    must(bundle_encode(v, NULL, &bytes, digest, NULL) == 0);
    must(bundle_decode(buf_view(&bytes), digest, &b, NULL) == 0);
    check_ids(b.vocab, text, &routed);
    must(direct.count == routed.count);
    for (size_t i = 0; i < direct.count; i++)
        must(direct.data[i] == routed.data[i]);
}

void fuzz_one(const uint8_t *data, size_t len)
{
    struct str rest = str_of(data, len);
    struct str file = str_cut(&rest, '\0'), config = str_cut(&rest, '\0');
    if (rest.len == 0) rest = STR("Hello <s> w\xC3\xB6rld\n ##a\xFF 12");
    CLEANUP(vocab_freep) struct vocab *v = NULL;
    CLEANUP(chat_template_freep) struct chat_template *template = NULL;
    struct err err = { 0 };
    const struct tokenizer_texts texts = { .tokenizer = file,
                                           .config = config,
                                           .generation = config };
    if (tokenizer_json_load(&texts, &v, &template, &err) < 0)
        must(err.text[0] != '\0');
    else
        check(v, rest);
}
