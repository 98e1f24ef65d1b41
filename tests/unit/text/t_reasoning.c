/* t_reasoning.c - counts the tokens of outputs' reasoning, however the outputs are cut into tokens and the tokens come
 * in batches, against spans that are marked in the outputs. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "base/text/dialogue/reasoning.h"
#include "base/text/tokenizer.h"
#include "tests/unit/text/small_vocab.h"
#include "tests/unit/unit.h"

#include <stdio.h>

#define TEXT_MAX 512
#define CALL "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"<think>\"}}</tool_call>"

/* Reasoning stands between ^ and $, which are not part of the output. */
static const struct row {
    const char *think, *call, *text, *why;
    bool thinking;
} rows[] = {
    { "deepseek_r1", "none", "<think>^\nWell, yes$</think>\n\nYes.", "marks do not count", false },
    { "deepseek_r1", "none", "^So: 1 < 2.$</think>4", "the prompt began it", true },
    { "deepseek_r1", "none", "^cut short </thi$", "what might have become a mark", true },
    { "deepseek_r1", "none", "^a </b> </think</thi x$</think>", "almost marks", true },
    { "deepseek_r1", "none", "No <thin marks", "no reasoning", false },
    { "deepseek_r1", "none", "<think></think>a", "empty reasoning", false },
    { "deepseek_r1", "none", "<think>^a$</think>b<think>^c d$</think>e", "it comes again", false },
    { "deepseek_r1", "hermes", "^a$</think>" CALL, "a mark inside a call is none", true },
    { "deepseek_r1", "hermes", CALL "<think>^a$</think>", "behind a call", false },
    { "mistral", "none", "[THINK]^[a] \xe4\xbd\xa0\xe5\xa5\xbd$[/THINK]b", "other marks", false },
    { "none", "hermes", "<think>a</think>", "a model without reasoning", true },
};

struct output {
    char text[TEXT_MAX];
    bool reasoned[TEXT_MAX]; /* of each byte */
    size_t len;
};

static struct output output_of(const char *marked)
{
    struct output o = { .len = 0 };
    bool inside = false;
    for (const char *at = marked; *at; at++) {
        inside = *at == '^' || (inside && *at != '$');
        if (*at == '^' || *at == '$') continue;
        assert_true(o.len < TEXT_MAX);
        o.reasoned[o.len] = inside;
        o.text[o.len++] = *at;
    }
    return o;
}

static uint32_t want_of(const struct output *o, const struct vocab *v, const struct ids *ids)
{
    uint32_t want = 0;
    size_t at = 0;
    for (size_t i = 0; i < ids->count; i++) {
        bool any = false;
        for (size_t end = at + vocab_bytes(v, ids->data[i]).len; at < end; at++)
            any |= o->reasoned[at];
        want += any;
    }
    assert_int_equal(at, o->len);
    return want;
}

static void check(const struct row *row, const struct turn *t, const struct output *o,
                  const struct ids *ids, struct rng *rng)
{
    struct reasoning c;
    uint32_t want = want_of(o, t->vocab, ids);
    reasoning_init(&c, t);
    for (size_t i = 0, n; i < ids->count; i += n) {
        n = min_size(1 + rng_below(rng, 5), ids->count - i);
        assert_int_equal(reasoning_take(&c, ids->data + i, (uint32_t)n), 0);
    }
    assert_int_equal(reasoning_end(&c), 0);
    if (c.tokens != want)
        fail_msg("%s: %u of %zu tokens are reasoning, not %u", row->why, c.tokens, ids->count,
                 want);
    reasoning_fini(&c);
}

static void tokens_count_by_their_bytes(void **state)
{
    (void)state;
    static struct str tool = { "add", 3 };
    struct vocab *v = small_vocab("gpt-2");
    struct err err = { "" };
    struct rng rng;
    rng_seed(&rng, 3);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct row *row = &rows[i];
        struct turn t = { .parses = true, .vocab = v, .thinking = row->thinking };
        CLEANUP(ids_fini) struct ids merged = { 0 };
        CLEANUP(ids_fini) struct ids bytes = { 0 };
        struct output o = output_of(row->text);
        assert_int_equal(dialogue_find((struct str){ 0 }, str_from(row->call), str_from(row->think),
                                       &t.dialects, &err),
                         0);
        t.tools.name = &tool;
        t.tools.count = 1;
        assert_int_equal(tokenizer_encode(v, str_of(o.text, o.len), true, &merged, &err), 0);
        for (size_t k = 0; k < o.len; k++)
            assert_int_equal(ids_push(&bytes, SMALL_BYTE0 + (uint8_t)o.text[k]), 0);
        assert_true(merged.count <= bytes.count);
        for (int round = 0; round < 20; round++) {
            check(row, &t, &o, &merged, &rng);
            check(row, &t, &o, &bytes, &rng);
        }
    }
    vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(tokens_count_by_their_bytes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
