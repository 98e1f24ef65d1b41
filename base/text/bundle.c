/* bundle.c - writes and reads the blob: a header, the vocabulary (vocab_write), the template, a checksum.
 *
 *     "MUSTERTB"  u32 version                               2; 3 for a model with further ends;
 *                                                           4 and 5: as 2 and 3, with names
 *     str kind, str pre                                     str: u32 length, bytes
 *     u32 tokens   { str text }[tokens]  { u8 type }[tokens]  { u8 added }[tokens]
 *     u32 scores   { f64 }[scores]                          0 or tokens
 *     u32 merges   { u32 left, u32 right }[merges]
 *     u32 bos, eos, eot, pad, unk   u8 add_bos, add_eos
 *     u32 flags   rules normal, rules cut, rules decode     rules: u32 count, { u8 kind, flags,
 *     str continuing   u32 word_chars_max                       behavior, str a, str b }[count]
 *     u32 before   { u32 id }[before]   u32 after   { u32 id }[after]
 *     u32 ends   { u32 id }[ends]                           versions 3, 5: beside eos and eot
 *     u32 has_template   str source
 *     str call, str think                                   versions 4, 5: the names of dialects
 *     sha256 of everything before
 *
 * The reader compares each count with the bytes that are left before it allocates anything, and then
 * passes the arrays to vocab_build and chat_template_compile, which check all of it again.
 */
#include "base/text/bundle.h"

#include "base/core/bits.h"
#include "base/text/dialogue/turn.h"
#include "base/text/vocab_tables.h"

#include <stdlib.h>

static const char magic[8] = { 'M', 'U', 'S', 'T', 'E', 'R', 'T', 'B' };

void bundle_fini(struct bundle *b)
{
    vocab_free(b->vocab);
    chat_template_free(b->chat_template);
    *b = (struct bundle){ 0 };
}

int bundle_encode(const struct vocab *v, const struct chat_template *t, struct buf *out,
                  char ret_digest[SHA256_HEX + 1], struct err *err)
{
    const struct bundle_names none = { .call = { 0 } };
    return bundle_encode_named(v, t, &none, out, ret_digest, err);
}

static bool is_named(struct str name)
{
    return name.len > 0 && !str_eq(name, STR(DIALECT_AUTO));
}

int bundle_dialogue(const struct vocab *v, const struct chat_template *t,
                    const struct bundle_names *names, struct dialogue *ret, struct err *err)
{
    uint32_t marks[TURN_MARKS_MAX];
    struct str source = t ? chat_template_source(t) : (struct str){ 0 };
    int rc = dialogue_find(source, names->call, names->think, ret, err);
    if (rc == 0) ret->marked = turn_marks(v, marks) > 0;
    return rc;
}

int bundle_encode_named(const struct vocab *v, const struct chat_template *t,
                        const struct bundle_names *names, struct buf *out,
                        char ret_digest[SHA256_HEX + 1], struct err *err)
{
    size_t start = out->len;
    bool named = is_named(names->call) || is_named(names->think);
    buf_append(out, magic, sizeof magic);
    /* A model that version 2 can hold keeps its digest, and older routers read it. */
    buf_u32(out, BUNDLE_VERSION_MIN + (v->end_count > v->special_ends) + 2 * named);
    vocab_write(v, out);
    struct str source = t ? chat_template_source(t) : (struct str){ 0 };
    buf_u32(out, t != NULL);
    buf_u32(out, (uint32_t)source.len);
    buf_str(out, source);
    if (named) {
        buf_u32(out, (uint32_t)names->call.len);
        buf_str(out, names->call);
        buf_u32(out, (uint32_t)names->think.len);
        buf_str(out, names->think);
    }
    if (out->rc < 0) return err_set(err, out->rc, "no room for the tokenizer bundle");
    if (out->len - start > BUNDLE_BYTES_MAX - SHA256_BYTES)
        return err_set(err, -E2BIG, "the tokenizer bundle has more than %zu bytes",
                       BUNDLE_BYTES_MAX);
    uint8_t digest[SHA256_BYTES];
    sha256(out->data + start, out->len - start, digest);
    buf_append(out, digest, sizeof digest);
    if (out->rc < 0) return err_set(err, out->rc, "no room for the tokenizer bundle");
    hex_from(digest, sizeof digest, ret_digest);
    return 0;
}

struct source {
    struct str left;
    bool failed; /* sticky: a read wanted more bytes than are left */
};

static const char *get_bytes(struct source *s, size_t len)
{
    if (s->failed || len > s->left.len) {
        s->failed = true;
        return NULL;
    }
    const char *at = s->left.data;
    s->left = str_of(at + len, s->left.len - len);
    return at;
}

static uint32_t get_u32(struct source *s)
{
    const char *at = get_bytes(s, 4);
    return at ? load_u32(at) : 0;
}

static struct str get_str(struct source *s)
{
    uint32_t len = get_u32(s);
    const char *at = get_bytes(s, len);
    return at ? str_of(at, len) : (struct str){ 0 };
}

static bool get_bool(struct source *s)
{
    const char *at = get_bytes(s, 1);
    if (at && (unsigned char)*at > 1) s->failed = true;
    return at && *at == 1;
}

/* Reads a count of items that follow, of at least `size` bytes each. */
static uint32_t get_count(struct source *s, size_t size)
{
    uint32_t count = get_u32(s);
    if (count > s->left.len / size) s->failed = true;
    return s->failed ? 0 : count;
}

/* Makes an aligned copy of `count` numbers of `size` bytes. */
static int get_numbers(struct source *s, struct arena *arena, size_t count, size_t size, void **ret)
{
    const char *at = get_bytes(s, count * size);
    if (!at) return -EINVAL;
    void *copy = arena_array(arena, count, size);
    if (!copy) return -ENOMEM;
    memcpy(copy, at, count * size);
    *ret = copy;
    return 0;
}

static uint8_t get_byte(struct source *s)
{
    const char *at = get_bytes(s, 1);
    return at ? (uint8_t)*at : 0;
}

#define RULE_BYTES_MIN 11 /* three bytes and two lengths */

static int get_rules(struct source *s, struct arena *arena, struct text_rules *ret)
{
    uint32_t count = get_count(s, RULE_BYTES_MIN);
    struct text_rule *list = arena_array(arena, count, sizeof *list);
    if (!list) return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        list[i].kind = get_byte(s);
        list[i].flags = get_byte(s);
        list[i].behavior = get_byte(s);
        list[i].a = get_str(s);
        list[i].b = get_str(s);
    }
    *ret = (struct text_rules){ list, count };
    return 0;
}

static void get_frame(struct source *s, uint32_t ids[VOCAB_FRAME_MAX], uint32_t *ret_count)
{
    uint32_t count = get_count(s, 4);
    if (count > VOCAB_FRAME_MAX) s->failed = true;
    for (uint32_t i = 0; i < count && !s->failed; i++)
        ids[i] = get_u32(s);
    *ret_count = s->failed ? 0 : count;
}

static void get_ends(struct source *s, struct vocab_parts *p)
{
    uint32_t count = get_count(s, 4);
    if (count == 0 || count > VOCAB_ENDS_MAX) s->failed = true; /* none is written as version 2 */
    for (uint32_t i = 0; i < count && !s->failed; i++)
        p->ends[i] = get_u32(s);
    p->end_count = s->failed ? 0 : count;
}

static int get_tokens(struct source *s, struct arena *arena, struct vocab_parts *p)
{
    p->token_count = get_count(s, 6);
    struct str *tokens = arena_array(arena, p->token_count, sizeof *tokens);
    if (!tokens) return -ENOMEM;
    for (size_t i = 0; i < p->token_count; i++)
        tokens[i] = get_str(s);
    p->tokens = tokens;
    p->types = (const uint8_t *)get_bytes(s, p->token_count);
    p->type_count = p->token_count;
    p->added = (const uint8_t *)get_bytes(s, p->token_count);
    p->added_count = p->token_count;
    return 0;
}

static int get_parts(struct source *s, struct arena *arena, uint32_t version, struct vocab_parts *p)
{
    void *scores, *merges;
    p->kind = get_str(s);
    p->pre = get_str(s);
    int rc = get_tokens(s, arena, p);
    if (rc < 0) return rc;
    p->score_count = get_count(s, sizeof *p->scores);
    rc = get_numbers(s, arena, p->score_count, sizeof *p->scores, &scores);
    if (rc < 0) return rc;
    p->scores = scores;
    p->merge_count = get_count(s, 8);
    rc = get_numbers(s, arena, 2 * p->merge_count, sizeof *p->merge_ids, &merges);
    if (rc < 0) return rc;
    p->merge_ids = merges;
    struct vocab_special *v = &p->special;
    uint32_t *const ids[] = { &v->bos, &v->eos, &v->eot, &v->pad, &v->unk };
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        *ids[i] = get_u32(s);
    v->add_bos = get_bool(s);
    v->add_eos = get_bool(s);
    p->flags = get_u32(s);
    struct text_rules *const rules[] = { &p->normal, &p->cut, &p->decode };
    for (size_t i = 0; i < COUNT_OF(rules) && rc == 0; i++)
        rc = get_rules(s, arena, rules[i]);
    if (rc < 0) return rc;
    p->continuing = get_str(s);
    p->word_chars_max = get_u32(s);
    get_frame(s, p->before, &p->before_count);
    get_frame(s, p->after, &p->after_count);
    if (version % 2 == 1) get_ends(s, p);
    return s->failed ? -EINVAL : 0;
}

static int check_frame(struct str bytes, const char *expected_digest, struct bundle *b,
                       struct err *err)
{
    if (bytes.len > BUNDLE_BYTES_MAX)
        return err_set(err, -EINVAL, "tokenizer bundle of %zu bytes: at most %zu", bytes.len,
                       BUNDLE_BYTES_MAX);
    if (bytes.len < sizeof magic + 4 + SHA256_BYTES || memcmp(bytes.data, magic, sizeof magic) != 0)
        return err_set(err, -EINVAL, "not a tokenizer bundle");
    uint32_t version = load_u32(bytes.data + sizeof magic);
    if (version < BUNDLE_VERSION_MIN || version > BUNDLE_VERSION)
        return err_set(err, -EINVAL, "tokenizer bundle of version %u: versions %u to %u are read",
                       version, BUNDLE_VERSION_MIN, BUNDLE_VERSION);
    uint8_t digest[SHA256_BYTES];
    sha256(bytes.data, bytes.len - SHA256_BYTES, digest);
    if (memcmp(digest, bytes.data + bytes.len - SHA256_BYTES, SHA256_BYTES) != 0)
        return err_set(err, -EINVAL, "the tokenizer bundle is damaged: its checksum is wrong");
    hex_from(digest, sizeof digest, b->digest);
    if (expected_digest && strcmp(expected_digest, b->digest) != 0)
        return err_set(err, -EINVAL, "the tokenizer bundle has digest %s, expected was %.64s",
                       b->digest, expected_digest);
    return 0;
}

static int decode_body(struct str body, uint32_t version, struct bundle *b, struct err *err)
{
    CLEANUP(arena_fini) struct arena arena;
    /* Each token, of 5 bytes or more, becomes a struct str; numbers are copied once. */
    arena_init(&arena, 8 * body.len + (1u << 20));
    struct source s = { .left = body };
    struct vocab_parts parts = { 0 };
    int rc = get_parts(&s, &arena, version, &parts);
    uint32_t has_template = get_u32(&s);
    struct str source = get_str(&s);
    struct bundle_names names = { .call = { 0 } };
    if (version >= BUNDLE_VERSION_MIN + 2) {
        names.call = get_str(&s);
        names.think = get_str(&s);
    }
    if (rc == -ENOMEM) return err_set(err, rc, "no memory for the tokenizer bundle");
    if (rc < 0 || s.failed || s.left.len > 0 || has_template > 1 ||
        (!has_template && source.len > 0))
        return err_set(err, -EINVAL, "the tokenizer bundle is malformed");
    rc = vocab_build(&parts, &b->vocab, err);
    if (rc == 0 && has_template) rc = chat_template_compile(source, &b->chat_template, err);
    if (rc == 0) rc = bundle_dialogue(b->vocab, b->chat_template, &names, &b->dialogue, err);
    return rc < 0 ? err_prefix(err, rc, "tokenizer bundle") : 0;
}

int bundle_decode(struct str bytes, const char *expected_digest, struct bundle *ret,
                  struct err *err)
{
    CLEANUP(bundle_fini) struct bundle b = { 0 };
    int rc = check_frame(bytes, expected_digest, &b, err);
    if (rc < 0) return rc;
    size_t head = sizeof magic + 4;
    rc = decode_body(str_of(bytes.data + head, bytes.len - head - SHA256_BYTES),
                     load_u32(bytes.data + sizeof magic), &b, err);
    if (rc < 0) return rc;
    *ret = b;
    b = (struct bundle){ 0 };
    return 0;
}

void bundle_identity(struct str weights, const char *bundle_digest, char ret[SHA256_HEX + 1])
{
    char both[2 * SHA256_HEX + 1];
    uint8_t digest[SHA256_BYTES];
    size_t len = min_size(weights.len, SHA256_HEX), more = strlen(bundle_digest);
    must(more <= SHA256_HEX);
    memcpy(both, weights.data, len);
    memcpy(both + len, bundle_digest, more);
    sha256(both, len + more, digest);
    hex_from(digest, sizeof digest, ret);
}
