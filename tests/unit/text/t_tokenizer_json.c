/* t_tokenizer_json.c - tests tokenizer.json against the ids of the package `tokenizers`, and hostile files.
 *
 * tests/vectors/tokenizer/packages.py trained the tokenizers and wrote the ids. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/fault.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "base/core/work.h"
#include "base/text/bundle.h"
#include "base/text/detok.h"
#include "base/text/tokenizer.h"
#include "base/text/tokenizer_json.h"
#include "tests/unit/unit.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define FOLDER "tests/vectors/tokenizer/packages/"
#define MODELS_MIN 15
#define RECORDS_MIN 100

static void read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot read %s", path);
    char chunk[65536];
    size_t len;
    while ((len = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(out, chunk, len);
    fclose(f);
}

static int load_text(struct str json, struct str config, struct vocab **ret, struct err *err)
{
    struct chat_template *template = NULL;
    const struct tokenizer_texts texts = { .tokenizer = json, .config = config };
    int rc = tokenizer_json_load(&texts, ret, &template, err);
    if (rc == 0) chat_template_free(template);
    return rc;
}

static struct vocab *load(const char *path)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct vocab *v = NULL;
    struct err err = { 0 };
    read_file(path, &text);
    if (load_text(buf_view(&text), (struct str){ 0 }, &v, &err) < 0)
        fail_msg("%s: %s", path, err.text);
    return v;
}

/* Returns the vocabulary as a router gets it. */
static struct vocab *through_bundle(const struct vocab *v)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    struct bundle b = { 0 };
    struct err err = { 0 };
    char digest[SHA256_HEX + 1];
    assert_int_equal(bundle_encode(v, NULL, &bytes, digest, NULL), 0);
    if (bundle_decode(buf_view(&bytes), digest, &b, &err) < 0) fail_msg("%s", err.text);
    return b.vocab;
}

/* ---- the ids of the package ---- */

static void encode(const struct vocab *v, struct str text, struct ids *out)
{
    const uint32_t *frame;
    ids_clear(out);
    for (size_t i = 0, count = vocab_before(v, &frame); i < count; i++)
        assert_int_equal(ids_push(out, frame[i]), 0);
    assert_int_equal(tokenizer_encode(v, text, true, out, NULL), 0);
    for (size_t i = 0, count = vocab_after(v, &frame); i < count; i++)
        assert_int_equal(ids_push(out, frame[i]), 0);
}

struct record {
    struct buf text, back;
    struct ids ids;
};

static void record_fini(struct record *r)
{
    buf_fini(&r->text);
    buf_fini(&r->back);
    ids_fini(&r->ids);
}

static void read_record(struct str line, struct record *ret)
{
    struct json_reader r;
    json_reader_init(&r, line);
    assert_int_equal(json_next(&r), JSON_OBJECT);
    while (json_next(&r) == JSON_KEY) {
        bool ids = json_key_is(&r, "ids"), text = json_key_is(&r, "text");
        uint64_t id;
        json_next(&r);
        if (!ids) assert_int_equal(json_text(&r, text ? &ret->text : &ret->back), 0);
        while (ids && json_next(&r) != JSON_ARRAY_END) {
            assert_int_equal(json_u64(&r, &id), 0);
            assert_int_equal(ids_push(&ret->ids, (uint32_t)id), 0);
        }
    }
    assert_int_equal(r.token, JSON_OBJECT_END);
}

static void put_ids(struct buf *out, const struct ids *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        buf_printf(out, " %u", ids->data[i]);
}

/* The package replaces a whole sequence of bytes that is no UTF-8; such texts are compared by ids alone. */
static bool has_replacement(struct str text)
{
    return str_find(text, STR("\xEF\xBF\xBD")) != SIZE_MAX;
}

/* A stream of the ids writes the same as the whole text, behind the first token. */
static void check_stream(const struct vocab *v, const struct ids *ids, struct str whole)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    CLEANUP(buf_fini) struct buf first = { 0 };
    struct detok d;
    size_t at = 0;
    while (at < ids->count && vocab_type(v, ids->data[at]) != TOKEN_NORMAL &&
           vocab_type(v, ids->data[at]) != TOKEN_USER_DEFINED &&
           vocab_type(v, ids->data[at]) != TOKEN_BYTE)
        at++;
    if (at == ids->count || !str_utf8_valid(whole)) return;
    detok_init(&d, v, true);
    for (size_t i = at; i < ids->count; i++)
        assert_int_equal(detok_push(&d, ids->data[i], &out), 0);
    assert_int_equal(detok_flush(&d, &out), 0);
    assert_int_equal(detok_bytes(v, &ids->data[at], 1, true, &first), 0);
    struct str streamed = buf_view(&out);
    size_t skip = vocab_bytes(v, ids->data[at]).len;
    assert_true(skip <= streamed.len && first.len <= whole.len);
    assert_true(str_eq(str_of(streamed.data + skip, streamed.len - skip),
                       str_of(whole.data + first.len, whole.len - first.len)));
}

static int check_record(const struct vocab *v, const char *path, struct str line)
{
    CLEANUP(record_fini) struct record r = { 0 };
    CLEANUP(ids_fini) struct ids got = { 0 };
    CLEANUP(buf_fini) struct buf want_text = { 0 };
    CLEANUP(buf_fini) struct buf got_text = { 0 };
    CLEANUP(buf_fini) struct buf back = { 0 };
    read_record(line, &r);
    encode(v, buf_view(&r.text), &got);
    put_ids(&want_text, &r.ids);
    put_ids(&got_text, &got);
    assert_int_equal(detok_bytes(v, r.ids.data, r.ids.count, true, &back), 0);
    check_stream(v, &r.ids, buf_view(&back));
    bool ids = str_eq(buf_view(&want_text), buf_view(&got_text));
    bool text = has_replacement(buf_view(&r.back)) || str_eq(buf_view(&back), buf_view(&r.back));
    if (ids && text) return 0;
    fprintf(stderr,
            "%s: " STR_FMT "\n  want" STR_FMT " \"" STR_FMT "\"\n  got " STR_FMT " \"" STR_FMT
            "\"\n",
            path, STR_ARG(line), STR_ARG(buf_view(&want_text)), STR_ARG(buf_view(&r.back)),
            STR_ARG(buf_view(&got_text)), STR_ARG(buf_view(&back)));
    return 1;
}

static void check_model(const char *path)
{
    CLEANUP(vocab_freep) struct vocab *v = load(path);
    CLEANUP(vocab_freep) struct vocab *routed = through_bundle(v);
    CLEANUP(buf_fini) struct buf lines = { 0 };
    CLEANUP(buf_fini) struct buf vectors = { 0 };
    int records = 0, differ = 0;
    buf_printf(&vectors, "%.*s.ndjson", (int)(strlen(path) - strlen(".json")), path);
    read_file(vectors.data, &lines);
    for (struct str rest = buf_view(&lines); rest.len > 0; records++) {
        struct str line = str_cut(&rest, '\n');
        differ += check_record(v, path, line) + check_record(routed, path, line);
    }
    print_message("%s: %d texts\n", path, records);
    assert_int_equal(differ, 0);
    assert_true(records >= RECORDS_MIN);
}

static void each_model(void (*check)(const char *path))
{
    glob_t found;
    assert_int_equal(glob(FOLDER "*.json", 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= MODELS_MIN);
    for (size_t i = 0; i < found.gl_pathc; i++)
        check(found.gl_pathv[i]);
    globfree(&found);
}

static void test_ids_of_package(void **state)
{
    (void)state;
    each_model(check_model);
}

/* ---- any bytes ---- */

static void check_any_bytes(const char *path)
{
    CLEANUP(vocab_freep) struct vocab *v = load(path);
    struct rng rng;
    rng_seed(&rng, 17);
    static const char *const parts[] = { "<s>", "[MASK]",       " ",         "\xE2\x96\x81", "word",
                                         "##",  "\xEF\xBC\xA1", "<|eot_id|>" };
    for (int round = 0; round < 200; round++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        CLEANUP(buf_fini) struct buf out = { 0 };
        CLEANUP(ids_fini) struct ids ids = { 0 };
        struct detok d;
        for (uint64_t n = rng_below(&rng, 40); n > 0; n--)
            if (rng_below(&rng, 3) == 0)
                buf_text(&text, parts[rng_below(&rng, COUNT_OF(parts))]);
            else
                buf_byte(&text, (char)rng_below(&rng, 256));
        assert_int_equal(tokenizer_encode(v, buf_view(&text), false, &ids, NULL), 0);
        detok_init(&d, v, false);
        for (size_t i = 0; i < ids.count; i++) {
            assert_int_not_equal(vocab_type(v, ids.data[i]), TOKEN_CONTROL);
            assert_int_equal(detok_push(&d, ids.data[i], &out), 0);
        }
        assert_int_equal(detok_flush(&d, &out), 0);
        assert_true(str_utf8_valid(buf_view(&out)));
    }
}

static void test_any_bytes_have_ids(void **state)
{
    (void)state;
    each_model(check_any_bytes);
}

/* Measured: 68 at most; a quadratic step would cost 65,536 for a word of 64 KiB. */
#define UNITS_A_BYTE 150

static void check_cost(const char *path)
{
    CLEANUP(vocab_freep) struct vocab *v = load(path);
    static const char *const fills[] = {
        "a",    " ", "\xE2\x96\x81", "\xCC\x81",        "e\xCC\x81", "1", "\n",
        "the ", "#", "\xE6\x88\x91", "\xCC\x96\xCC\x81"
    };
    for (size_t i = 0; i < COUNT_OF(fills); i++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        CLEANUP(ids_fini) struct ids ids = { 0 };
        while (text.len < (1 << 17))
            buf_text(&text, fills[i]);
        work_units = 0;
        assert_int_equal(tokenizer_encode(v, buf_view(&text), true, &ids, NULL), 0);
        if (work_units > text.len * UNITS_A_BYTE)
            fail_msg("%s: \"%s\": %.1f units a byte", path, fills[i],
                     (double)work_units / (double)text.len);
    }
}

static void test_long_texts_cost_little_a_byte(void **state)
{
    (void)state;
    each_model(check_cost);
}

/* ---- who may write a control token ---- */

#define MODEL                                                                                     \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\"_\":3," \
    "\"ab\":4,\"<\":5,\"m\":6,\">\":7},"                                                          \
    "\"merges\":[\"a b\"]}"
#define MARKER(normalized)                                                               \
    "\"added_tokens\":[{\"id\":8,\"content\":\"<M>\",\"lstrip\":false,\"rstrip\":false," \
    "\"single_word\":false,\"normalized\":" normalized ",\"special\":true}]"
#define LOWER                                                                          \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}," \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]}"

static void expect(const struct vocab *v, struct str text, const char *content, const char *want)
{
    CLEANUP(ids_fini) struct ids ids = { 0 };
    CLEANUP(text_spans_fini) struct text_spans spans = { 0 };
    CLEANUP(buf_fini) struct buf got = { 0 };
    assert_int_equal(strlen(content), text.len);
    for (size_t i = 0; i < text.len; i++)
        if (content[i] == 'x') assert_int_equal(text_spans_add(&spans, i, 1), 0);
    assert_int_equal(tokenizer_encode_spans(v, text, &spans, &ids, NULL), 0);
    put_ids(&got, &ids);
    assert_string_equal(got.data ? got.data : "", want);
}

static void test_content_writes_no_normalized_marker(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text, *content, *want;
    } rows[] = {
        { "the template's", "a <M>b", "      ", " 1 3 8 2" },
        { "in another case, as the normalizer makes it", "<m>", "   ", " 8" },
        { "a user's", "a <M>b", "xxxxxx", " 1 3 5 6 7 2" },
        { "partly a user's", "a<M>b", "  x  ", " 1 5 6 7 2" },
        { "between a user's texts", "ab <M> ab", "xxx   xxx", " 4 3 8 3 4" },
    };
    CLEANUP(vocab_freep) struct vocab *v = NULL;
    struct err err = { 0 };
    if (load_text(STR("{" MODEL "," MARKER("true") "," LOWER "}"), (struct str){ 0 }, &v, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        print_message("%s\n", rows[i].why);
        expect(v, str_from(rows[i].text), rows[i].content, rows[i].want);
    }
}

/* ---- refusals ---- */

// clang-format off
static const struct {
    const char *why, *json;
    int rc;
    const char *says;
} refused[] = {
    { "no JSON", "{", -EINVAL, "tokenizer.json: " },
    { "no model", "{}", -EINVAL, "model: " },
    { "an added token without an id", "{" MODEL ",\"added_tokens\":[{\"content\":\"x\"}]}", -EINVAL,
      "added_tokens[0]: has no id" },
    { "an id far behind all others",
      "{" MODEL ",\"added_tokens\":[{\"id\":9000,\"content\":\"x\"}]}", -EINVAL,
      "added_tokens[0]: token id 9000: more than 8192 ids before it have no token" },
    { "an added token with the largest id",
      "{" MODEL ",\"added_tokens\":[{\"id\":4294967295,\"content\":\"x\"}]}", -EINVAL, "added_tokens[0]: " },
    { "another version", "{\"version\":\"2.0\"," MODEL "}", -ENOTSUP, "version: 2.0" },
    { "an unknown member", "{" MODEL ",\"extra\":1}", -ENOTSUP, "\"extra\"" },
    { "an unknown model", "{\"model\":{\"type\":\"Neural\",\"vocab\":{}}}", -ENOTSUP,
      "model: type \"Neural\"" },
    { "an unknown normalizer",
      "{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{"
                "\"type\":\"Nmt\"}]}}",
      -ENOTSUP, "normalizer.normalizers[1]: type \"Nmt\"" },
    { "an unknown option", "{" MODEL ",\"normalizer\":{\"type\":\"NFC\",\"fast\":true}}",
      -ENOTSUP, "normalizer: member \"fast\"" },
    { "an unknown expression",
      "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a+)+$\"},"
                "\"behavior\":\"Isolated\",\"invert\":false}}",
      -ENOTSUP, "pre_tokenizer: the expression (a+)+$" },
    { "an unknown pre-tokenizer", "{" MODEL ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}",
      -ENOTSUP, "\"UnicodeScripts\"" },
    { "rules behind ByteLevel",
      "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                "\"ByteLevel\"},{\"type\":\"Whitespace\"}]}}",
      -ENOTSUP, "pre_tokenizer.pretokenizers[1]" },
    { "an unknown decoder", "{" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", -ENOTSUP,
      "decoder: type \"CTC\"" },
    { "a frame of an unknown token",
      "{" MODEL
      ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
      "\"id\":\"[CLS]\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{}}}",
      -EINVAL, "\"[CLS]\" is not in special_tokens" },
    { "a merge of an unknown token",
      "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", -EINVAL,
      "model.merges[0]" },
    { "one id for two tokens",
      "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", -EINVAL,
      "model.vocab: two tokens have the id 0" },
    { "an id beyond all bounds",
      "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4000000000},\"merges\":[]}}", -E2BIG,
      "model.vocab" },
    { "no unknown token where one is named",
      "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0},\"unk_token\":\"u\"}}", -EINVAL,
      "unknown token \"u\"" },
    { "chance",
      "{\"model\":{\"type\":\"BPE\",\"dropout\":0.5,\"vocab\":{\"a\":0},\"merges\":[]}}",
      -ENOTSUP, "dropout" },
    { "a suffix of words",
      "{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</"
      "w>\",\"vocab\":{\"a\":0},\"merges\":[]}}",
      -ENOTSUP, "model.end_of_word_suffix" },
    { "an added token with a second id",
      "{" MODEL ",\"added_tokens\":[{\"id\":9,\"content\":\"a\"}]}", -EINVAL,
      "added_tokens[0]" },
    { "a map that is no base64",
      "{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"?\"}}",
      -EINVAL, "normalizer: precompiled_charsmap" },
    { "a map cut short",
      "{" MODEL
      ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"/////w==\"}}",
      -EINVAL, "character map is malformed" },
    { "too many rules",
      "{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{"
                "\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},"
      "{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":"
      "\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},"
      "{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":"
      "\"NFC\"},{\"type\":\"NFC\"}]}}",
      -E2BIG, "more than 16 rules" },
    { "a decoder for bytes without a pre-tokenizer for them",
      "{" MODEL ",\"decoder\":{\"type\":\"ByteLevel\"}}", -ENOTSUP, "decoder: ByteLevel" },
};
// clang-format on

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        struct vocab *v = NULL;
        struct err err = { 0 };
        int rc = load_text(str_from(refused[i].json), (struct str){ 0 }, &v, &err);
        if (rc != refused[i].rc || !strstr(err.text, refused[i].says))
            fail_msg("%s: rc %d, \"%s\"", refused[i].why, rc, err.text);
        assert_null(v);
    }
}

/* ---- tokenizer_config.json ---- */

static void test_config(void **state)
{
    (void)state;
    static const char json[] = "{" MODEL "," MARKER("false") "}";
    static const struct {
        const char *why, *config;
        size_t before, after;
        const char *says; /* of a refusal */
    } rows[] = {
        { "tokens as texts",
          "{\"bos_token\":\"<M>\",\"eos_token\":\"ab\",\"model_max_length\":1e30}", 0, 0, NULL },
        { "a token as an object",
          "{\"bos_token\":{\"__type\":\"AddedToken\",\"content\":\"<M>\"},\"eos_token\":\"ab\"}", 0,
          0, NULL },
        { "one that is added",
          "{\"bos_token\":\"<M>\",\"eos_token\":\"ab\",\"add_bos_token\":true}", 1, 0, NULL },
        { "both",
          "{\"bos_token\":\"<M>\",\"eos_token\":\"ab\",\"add_bos_token\":true,\"add_eos_token\":"
          "true}",
          1, 1, NULL },
        { "no such token", "{\"eos_token\":\"<nope>\"}", 0, 0,
          "tokenizer_config.json: eos_token: \"<nope>\"" },
        { "no JSON", "[", 0, 0, "tokenizer_config.json" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(vocab_freep) struct vocab *v = NULL;
        const uint32_t *frame;
        struct err err = { 0 };
        int rc = load_text(str_from(json), str_from(rows[i].config), &v, &err);
        print_message("%s\n", rows[i].why);
        if (rows[i].says) {
            assert_int_equal(rc, -EINVAL);
            assert_non_null(strstr(err.text, rows[i].says));
            continue;
        }
        assert_int_equal(rc, 0);
        assert_int_equal(vocab_special(v)->bos, 8);
        assert_int_equal(vocab_special(v)->eos, 4);
        assert_int_equal(vocab_before(v, &frame), rows[i].before);
        assert_int_equal(vocab_after(v, &frame), rows[i].after);
    }
}

/* Tokens of MODEL: 0 to 8; 4 is "ab", 8 is "<M>". */
static void test_special_ids(void **state)
{
    (void)state;
    static const struct {
        const char *config, *generation, *model;
        uint32_t bos, ends[4], end_count;
    } rows[] = {
        { "", "", "", VOCAB_NONE, { 0 }, 0 },
        { "", "", "{\"bos_token_id\":1,\"eos_token_id\":2}", 1, { 2 }, 1 },
        { "",
          "{\"bos_token_id\":3,\"eos_token_id\":[4,5,4]}",
          "{\"bos_token_id\":1,\"eos_token_id\":2}",
          3,
          { 4, 5 },
          2 },
        { "",
          "{\"bos_token_id\":null,\"eos_token_id\":null,\"x\":[{}]}",
          "{\"bos_token_id\":1,\"eos_token_id\":2}",
          1,
          { 2 },
          1 },
        { "{\"bos_token\":\"<M>\",\"eos_token\":\"ab\"}",
          "{\"bos_token_id\":3,\"eos_token_id\":[5,6]}",
          "{\"eos_token_id\":2}",
          8,
          { 4, 5, 6 },
          3 },
        { "{\"eos_token\":\"ab\"}", "", "{\"eos_token_id\":[4,2]}", VOCAB_NONE, { 4, 2 }, 2 },
        { "",
          "{\"eos_token_id\":[]}",
          "{\"vocab_size\":12,\"eos_token_id\":2}",
          VOCAB_NONE,
          { 2 },
          1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(vocab_freep) struct vocab *v = NULL;
        CLEANUP(chat_template_freep) struct chat_template *template = NULL;
        CLEANUP(buf_fini) struct buf bytes = { 0 };
        CLEANUP(bundle_fini) struct bundle b = { 0 };
        char digest[SHA256_HEX + 1];
        struct err err = { 0 };
        const struct tokenizer_texts texts = { .tokenizer = STR("{" MODEL "," MARKER("false") "}"),
                                               .config = str_from(rows[i].config),
                                               .model = str_from(rows[i].model),
                                               .generation = str_from(rows[i].generation) };
        if (tokenizer_json_load(&texts, &v, &template, &err) < 0)
            fail_msg("row %zu: %s", i, err.text);
        assert_int_equal(vocab_special(v)->bos, rows[i].bos);
        /* The same behind a bundle, which has version 3 only where there are further ends. */
        assert_int_equal(bundle_encode(v, NULL, &bytes, digest, &err), 0);
        assert_int_equal(load_u32(bytes.data + 8), rows[i].end_count > 1 ? 3 : 2);
        if (bundle_decode(buf_view(&bytes), digest, &b, &err) < 0) fail_msg("%s", err.text);
        for (int side = 0; side < 2; side++) {
            const uint32_t *ends;
            assert_int_equal(vocab_ends(side ? b.vocab : v, &ends), rows[i].end_count);
            assert_memory_equal(ends, rows[i].ends, rows[i].end_count * sizeof *ends);
        }
        assert_int_equal(vocab_count(b.vocab), vocab_count(v));
    }
}

static void test_chat_template(void **state)
{
    (void)state;
    static const struct {
        const char *config, *file, *want;
    } rows[] = {
        { "{\"chat_template\":\"one\"}", "", "one" },
        { "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"r\"},{\"name\":\"default\","
          "\"template\":\"d\"}]}",
          "", "d" },
        { "{\"chat_template\":\"one\"}", "file", "file" },
        { "{}", "", NULL },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(vocab_freep) struct vocab *v = NULL;
        CLEANUP(chat_template_freep) struct chat_template *template = NULL;
        const struct tokenizer_texts texts = { .tokenizer = STR("{" MODEL "}"),
                                               .config = str_from(rows[i].config),
                                               .chat_template = str_from(rows[i].file) };
        assert_int_equal(tokenizer_json_load(&texts, &v, &template, NULL), 0);
        assert_int_equal(template != NULL, rows[i].want != NULL);
        if (template) assert_true(str_eq(chat_template_source(template), str_from(rows[i].want)));
    }
}

/* ---- files from strangers ---- */

static void check_damaged(const char *path)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct rng rng;
    rng_seed(&rng, 5);
    read_file(path, &text);
    for (int round = 0; round < 60; round++) {
        CLEANUP(buf_fini) struct buf bytes = { 0 };
        CLEANUP(vocab_freep) struct vocab *v = NULL;
        struct err err = { 0 };
        buf_append(&bytes, text.data, text.len);
        for (uint64_t n = 1 + rng_below(&rng, 3); n > 0; n--)
            bytes.data[rng_below(&rng, bytes.len)] = "0123456789\"[]{},:azul"[rng_below(&rng, 20)];
        if (round % 3 == 0) bytes.len = rng_below(&rng, bytes.len);
        if (load_text(buf_view(&bytes), (struct str){ 0 }, &v, &err) < 0)
            assert_true(err.text[0] != '\0');
    }
}

static void test_damaged_files(void **state)
{
    (void)state;
    each_model(check_damaged);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    read_file(FOLDER "wordpiece-bert.json", &text);
    uint64_t failures = 0;
    int rc = -ENOMEM;
    for (; rc < 0 && failures < 20000; failures++) {
        CLEANUP(vocab_freep) struct vocab *v = NULL;
        struct err err = { 0 };
        fault_arm(NULL, failures + 1);
        rc = load_text(buf_view(&text), (struct str){ 0 }, &v, &err);
        fault_disarm();
        if (rc < 0) assert_int_equal(rc, -ENOMEM);
        if (rc < 0) assert_true(err.text[0] != '\0');
    }
    assert_int_equal(rc, 0);
    assert_true(failures > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_of_package),
        cmocka_unit_test(test_any_bytes_have_ids),
        cmocka_unit_test(test_long_texts_cost_little_a_byte),
        cmocka_unit_test(test_content_writes_no_normalized_marker),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_special_ids),
        cmocka_unit_test(test_chat_template),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("tokenizer_json", tests, NULL, NULL);
}
