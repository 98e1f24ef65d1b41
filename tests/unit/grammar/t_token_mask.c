/* t_token_mask.c - compares masks with the slow truth, each token tried by its bytes, over random grammars
 * and vocabularies by seed. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/rng.h"
#include "base/grammar/matcher.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

#define TOKENS 400
#define TOKEN_BYTES 6
#define CASES 300
#define STEPS 40

struct vocabulary {
    char bytes[TOKENS][TOKEN_BYTES];
    struct str token[TOKENS];
};

static uint32_t below(struct rng *rng, uint32_t bound)
{
    return (uint32_t)rng_below(rng, bound);
}

static const char alphabet[] = "abc,[]{}\":01 \xc3\xa9\n";

/* All single bytes of the alphabet, random longer tokens, some twice, some empty. */
static void make_vocabulary(struct rng *rng, struct vocabulary *v)
{
    const uint32_t letters = sizeof alphabet - 1;
    for (uint32_t i = 0; i < TOKENS; i++) {
        uint32_t len = i < letters ? 1 : below(rng, TOKEN_BYTES + 1);
        for (uint32_t k = 0; k < len; k++)
            v->bytes[i][k] = i < letters ? alphabet[i] : alphabet[below(rng, letters)];
        v->token[i] = str_of(v->bytes[i], len);
    }
}

static void put_item(struct rng *rng, struct buf *out, uint32_t rules, uint32_t depth)
{
    static const char *const items[] = { "\"a\"",       "\"ab\"", "[a-c]", "[^a,]",
                                         "\"\\u00e9\"", "\"[\"",  "\",\"", "\"{\\\"\"",
                                         "\"0\"",       ".",      "\"\"" };
    uint32_t pick = below(rng, depth > 2 ? 6 : 9);
    if (pick < 6) {
        buf_text(out, items[below(rng, COUNT_OF(items))]);
    } else if (pick < 8) {
        buf_printf(out, "r%u", below(rng, rules));
    } else {
        buf_text(out, "(");
        put_item(rng, out, rules, depth + 1);
        buf_text(out, below(rng, 2) ? " | " : " ");
        put_item(rng, out, rules, depth + 1);
        buf_text(out, ")");
    }
    static const char *const counts[] = { "*", "+", "?", "{2}", "{0,3}", "{1,}" };
    if (below(rng, 4) == 0) buf_text(out, counts[below(rng, COUNT_OF(counts))]);
}

static void make_grammar(struct rng *rng, struct buf *out)
{
    uint32_t rules = 1 + below(rng, 4);
    buf_clear(out);
    buf_text(out, "root ::= r0 | r0 \",\" root\n");
    for (uint32_t r = 0; r < rules; r++) {
        buf_printf(out, "r%u ::= ", r);
        for (uint32_t k = below(rng, 3) + 1; k > 0; k--) {
            put_item(rng, out, rules, 0);
            buf_text(out, k > 1 && below(rng, 3) == 0 ? " | " : " ");
        }
        buf_text(out, "\n");
    }
}

static bool allowed_slowly(struct automaton *slow, struct str before, struct str token)
{
    struct matcher t;
    if (token.len == 0) return false;
    assert_int_equal(matcher_init(&t, slow), 0);
    assert_int_equal(matcher_advance(&t, before), 0);
    bool allowed = matcher_advance(&t, token) == 0;
    matcher_fini(&t);
    return allowed;
}

/* Walks one random output and compares every mask on the way. Returns the masks compared. */
static uint32_t compare(struct rng *rng, const struct grammar_spec *spec,
                        const struct vocabulary *v, const struct token_trie *trie)
{
    struct grammar *g = NULL, *g_slow = NULL;
    struct automaton *fast = NULL, *slow = NULL;
    struct matcher t;
    struct err err;
    uint32_t compared = 0;
    CLEANUP(buf_fini) struct buf said = { 0 };
    if (grammar_compile(spec, &g, &err) < 0) return 0; /* left recursion, or no text */
    assert_int_equal(grammar_compile(spec, &g_slow, &err), 0);
    assert_int_equal(automaton_new(g, trie, &fast), 0);
    assert_int_equal(automaton_new(g_slow, NULL, &slow), 0);
    assert_int_equal(matcher_init(&t, fast), 0);
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint64_t *mask;
        uint32_t pick = 0, some = 0;
        assert_int_equal(matcher_mask(&t, &mask), 0);
        for (uint32_t i = 0; i < TOKENS; i++) {
            bool want = allowed_slowly(slow, buf_view(&said), v->token[i]);
            if (mask_has(mask, i) != want)
                fprintf(stderr, "%.*s\nafter '%.*s' token '%.*s'\n", STR_ARG(spec->text),
                        (int)said.len, said.data ? said.data : "", STR_ARG(v->token[i]));
            assert_int_equal(mask_has(mask, i), want);
            if (want && below(rng, ++some) == 0) pick = i;
        }
        compared++;
        if (some == 0) break;
        assert_int_equal(matcher_advance(&t, v->token[pick]), 0);
        buf_str(&said, v->token[pick]);
    }
    matcher_fini(&t);
    automaton_free(fast);
    automaton_free(slow);
    return compared;
}

static void test_against_bytes(void **state)
{
    (void)state;
    static struct vocabulary v;
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint32_t compared = 0;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        struct rng rng;
        struct token_trie *trie = NULL;
        rng_seed(&rng, seed);
        make_vocabulary(&rng, &v);
        assert_int_equal(token_trie_new(v.token, TOKENS, &trie), 0);
        make_grammar(&rng, &text);
        const struct grammar_spec spec =
            seed % 10 == 0 ? (struct grammar_spec){ GRAMMAR_JSON_OBJECT, { 0 } }
                           : (struct grammar_spec){ GRAMMAR_GBNF, buf_view(&text) };
        compared += compare(&rng, &spec, &v, trie);
        token_trie_free(trie);
    }
    print_message("%u masks compared\n", compared);
    assert_true(compared > 1000);
}

/* A mask that was made is found again, by another output too. */
static void test_found_again(void **state)
{
    (void)state;
    static const char *const words[] = { "a", "b", "ab", "abc", "" };
    struct str token[COUNT_OF(words)];
    struct grammar *g = NULL;
    struct automaton *m = NULL;
    struct token_trie *trie = NULL;
    struct matcher one, two;
    struct automaton_stats stats;
    const uint64_t *mask;
    const struct grammar_spec spec = { GRAMMAR_REGEX, STR("(ab)*") };
    for (size_t i = 0; i < COUNT_OF(words); i++)
        token[i] = str_from(words[i]);
    assert_int_equal(token_trie_new(token, COUNT_OF(words), &trie), 0);
    assert_int_equal(grammar_compile(&spec, &g, NULL), 0);
    assert_int_equal(automaton_new(g, trie, &m), 0);
    assert_int_equal(matcher_init(&one, m), 0);
    assert_int_equal(matcher_init(&two, m), 0);
    assert_false(matcher_has_mask(&one));
    assert_int_equal(matcher_mask(&one, &mask), 0);
    assert_int_equal(mask[0], 1 << 0 | 1 << 2);
    assert_true(matcher_has_mask(&two));
    assert_int_equal(matcher_advance(&two, STR("ab")), 0);
    assert_int_equal(matcher_mask(&two, &mask), 0);
    assert_int_equal(mask[0], 1 << 0 | 1 << 2);
    assert_int_equal(matcher_advance(&two, STR("a")), 0);
    assert_int_equal(matcher_mask(&two, &mask), 0);
    assert_int_equal(mask[0], 1 << 1);
    automaton_stats_get(m, &stats);
    assert_true(stats.masks_made <= 3);
    matcher_fini(&one);
    matcher_fini(&two);
    automaton_free(m);
    token_trie_free(trie);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_bytes),
        cmocka_unit_test(test_found_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
