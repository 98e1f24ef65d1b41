/* grammar_run.c - draws an output byte by byte from what a grammar allows. */
#include "tests/fuzz/grammar_run.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/grammar/matcher.h"

#define OUTPUT_BYTES 48

static const struct str tokens[] = { { "{", 1 },    { "}", 1 },   { "\"", 1 },   { "a", 1 },
                                     { "b", 1 },    { "0", 1 },   { "12", 2 },   { "\":", 2 },
                                     { ",", 1 },    { "[[", 2 },  { "true", 4 }, { "\xc3", 1 },
                                     { "\xa9", 1 }, { "ab,", 3 }, { "", 0 } };

static const struct token_trie *vocabulary(void)
{
    static struct token_trie *trie;
    if (!trie) must(token_trie_new(tokens, COUNT_OF(tokens), &trie) == 0);
    return trie;
}

/* Goes on by one byte: the chosen one, or else the first that is allowed. False: none is, or a bound is
 * reached. */
static bool go_on(struct matcher *t, uint8_t chosen, char *ret)
{
    for (uint32_t i = 0; i <= 256; i++) {
        char byte = (char)(i == 0 ? chosen : i - 1);
        int rc = matcher_advance(t, str_of(&byte, 1));
        *ret = byte;
        if (rc == 0) return true;
        must(rc == -EINVAL || rc == -E2BIG);
        if (rc == -E2BIG) return false;
    }
    must(matcher_may_end(t));
    return false;
}

static void check_mask(struct automaton *m, struct matcher *t, struct str said)
{
    const uint64_t *mask;
    int rc = matcher_mask(t, &mask);
    must(rc == 0 || rc == -E2BIG);
    for (uint32_t i = 0; i < COUNT_OF(tokens) && rc == 0; i++) {
        struct matcher slow;
        bool allowed = mask_has(mask, i);
        if (matcher_init(&slow, m) < 0) return;
        must(matcher_advance(&slow, said) == 0);
        must((tokens[i].len > 0 && matcher_advance(&slow, tokens[i]) == 0) == allowed);
        matcher_fini(&slow);
        if (matcher_mask(t, &mask) < 0) return; /* the first may have been dropped meanwhile */
    }
}

static void check_json(struct str text)
{
    struct json_reader r;
    must(str_utf8_valid(text));
    json_reader_init(&r, text);
    must(json_skip(&r) != JSON_ERROR && json_next(&r) == JSON_END);
}

static void follow(struct automaton *m, bool json, struct fuzz_choices *c)
{
    char text[OUTPUT_BYTES];
    size_t len = 0;
    struct matcher t;
    if (matcher_init(&t, m) < 0) return;
    while (len < OUTPUT_BYTES && go_on(&t, fuzz_u8(c), &text[len]))
        len++;
    struct str said = str_of(text, len);
    if (json && matcher_may_end(&t)) check_json(said);
    check_mask(m, &t, said);
    matcher_fini(&t);
}

void grammar_run(enum grammar_kind kind, bool json, const uint8_t *data, size_t len)
{
    const uint8_t *zero = len > 0 ? memchr(data, 0, len) : NULL;
    size_t described = zero ? (size_t)(zero - data) : len;
    struct fuzz_choices c = { data + described, len - described };
    struct grammar *g = NULL;
    struct automaton *m = NULL;
    struct err err = { "" };
    const struct grammar_spec spec = { kind, str_of(data, described) };
    if (grammar_compile(&spec, &g, &err) < 0) {
        must(err.text[0]);
        return;
    }
    must(automaton_new(g, vocabulary(), &m) == 0);
    follow(m, json, &c);
    automaton_free(m);
}
