/* t_think_limit.c - tests outputs with a limit on reasoning: how many of their tokens are reasoning, that they are
 * those without a limit up to it, and that they go on alike from any place. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "engine/serve/output.h"
#include "tests/unit/text/small_vocab.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

#define TOKENS 240
#define SEEDS 6

static struct vocab *vocab;
static struct sampler *sampler;
static float *logits;
static struct dialogue dialects;

/* The bytes of both marks and some others are likely, so that marks and halves of marks come by chance. */
static void draw_logits(uint64_t seed, uint32_t at)
{
    static const char likely[] = "<</tthhiinnkk>> a";
    size_t count = vocab_count(vocab);
    for (size_t id = 0; id < count; id++)
        logits[id] = -30;
    logits[SMALL_THINK] = (float)rng_at_f64(seed, at * 64) * 3;
    for (uint32_t i = 0; likely[i]; i++)
        logits[SMALL_BYTE0 + (uint8_t)likely[i]] = (float)rng_at_f64(seed, at * 64 + i + 1) * 4;
}

struct drawn {
    uint32_t id[TOKENS];
    uint32_t count;
};

static struct output_spec spec_of(uint32_t limit, bool thinking)
{
    struct output_spec spec = { .sampling = { .temperature = 1, .seed = 5 }, .prompt_tokens = 1 };
    const uint32_t prompt = thinking ? SMALL_THINK : SMALL_ASSISTANT;
    struct err err = { "" };
    assert_int_equal(reasoning_limit_make(&dialects, vocab, limit, &prompt, 1, &spec.limit, &err),
                     0);
    assert_int_equal(spec.limit.tokens, limit);
    return spec;
}

/* Generates up to TOKENS tokens, the first `from` of which are there. */
static void generate(const struct output_spec *spec, uint64_t seed, struct drawn *d, uint32_t from)
{
    uint32_t ids[1 + TOKENS] = { SMALL_ASSISTANT };
    struct output output;
    memcpy(ids + 1, d->id, from * sizeof *ids);
    assert_int_equal(output_init(&output, vocab, spec, ids, 1 + from), 0);
    for (d->count = from; d->count < TOKENS; d->count++) {
        struct sampler_result got;
        draw_logits(seed, d->count);
        assert_int_equal(output_pick(&output, sampler, logits, ids, 1 + d->count, &got), 0);
        assert_int_equal(output_take(&output, got.chosen.id), 0);
        ids[1 + d->count] = d->id[d->count] = got.chosen.id;
    }
    output_fini(&output);
}

/* Counts the reasoning of an output; *ret_open: it has not ended. What is held of a mark that the output's end cuts off
 * is not counted. */
static uint32_t counted(const struct drawn *d, bool thinking, bool *ret_open)
{
    struct reasoning c;
    uint32_t tokens;
    const struct turn t = {
        .parses = true, .vocab = vocab, .thinking = thinking, .dialects.think = dialects.think
    };
    reasoning_init(&c, &t);
    assert_int_equal(reasoning_take(&c, d->id, d->count), 0);
    *ret_open = reasoning_is_open(&c, &tokens);
    tokens = c.tokens;
    reasoning_fini(&c);
    return tokens;
}

static uint32_t common(const struct drawn *a, const struct drawn *b)
{
    uint32_t n = 0;
    while (n < TOKENS && a->id[n] == b->id[n])
        n++;
    return n;
}

/* Returns true if the token is one of the mark's, which may have begun as the model's own choice. */
static bool is_closing(const struct drawn *d, uint32_t at, const struct reasoning_limit *l)
{
    for (uint32_t before = 0; before < l->end_count && before <= at; before++) {
        uint32_t equal = 0;
        while (equal < l->end_count && at - before + equal < TOKENS &&
               d->id[at - before + equal] == l->end[equal])
            equal++;
        if (equal == l->end_count || at - before + equal == TOKENS) return true;
    }
    return false;
}

static uint32_t bitten;

static void check(uint64_t seed, bool thinking, uint32_t limit)
{
    struct output_spec plain = spec_of(0, thinking), spec = spec_of(limit, thinking);
    struct drawn without, with, again;
    bool open, open_without;
    generate(&plain, seed, &without, 0);
    generate(&spec, seed, &with, 0);
    uint32_t all = counted(&without, thinking, &open_without);
    uint32_t some = counted(&with, thinking, &open);
    if (some > limit)
        fail_msg("seed %lu: %u tokens of reasoning, limit %u", (unsigned long)seed, some, limit);
    uint32_t same = common(&without, &with);
    if (all < limit && !open_without) assert_int_equal(same, TOKENS);
    if (same < TOKENS) {
        bitten++;
        assert_true(is_closing(&with, same, &spec.limit));
    }
    for (uint32_t from = 1; from < TOKENS; from += 1 + (uint32_t)rng_at(seed, from) % 29) {
        again = with;
        generate(&spec, seed, &again, from);
        if (common(&with, &again) < TOKENS)
            fail_msg("seed %lu, limit %u: another output from %u on", (unsigned long)seed, limit,
                     from);
    }
}

static void reasoning_ends_in_time(void **state)
{
    (void)state;
    static const uint32_t limits[] = { 1, 2, 9, 40, 2 * TOKENS };
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (size_t i = 0; i < COUNT_OF(limits); i++) {
            check(seed, true, limits[i]);
            check(seed, false, limits[i]);
        }
    print_message("the limit ended reasoning in %u of %zu outputs\n", bitten,
                  2 * SEEDS * COUNT_OF(limits));
    assert_int_equal(bitten, 2 * SEEDS * (COUNT_OF(limits) - 1));
}

/* No limit can be kept where the mark's end would end the output, and none is needed without reasoning. */
static void some_models_have_none(void **state)
{
    (void)state;
    struct reasoning_limit l;
    struct err err = { "" };
    const uint32_t prompt = SMALL_ASSISTANT;
    const struct dialogue none = { 0 };
    const struct think_dialect ends = { .name = "x", .begin = "<think>", .end = "<|end|>" };
    const struct dialogue cannot = { .think = &ends };
    assert_int_equal(reasoning_limit_make(&none, vocab, 7, &prompt, 1, &l, &err), 0);
    assert_int_equal(l.tokens, 0);
    assert_int_equal(reasoning_limit_make(&cannot, vocab, 7, &prompt, 1, &l, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "<|end|>"));
}

int main(void)
{
    struct err err = { "" };
    vocab = small_vocab("gpt-2");
    logits = calloc(vocab_count(vocab), sizeof *logits);
    must(logits && sampler_new((uint32_t)vocab_count(vocab), &sampler) == 0);
    must(dialogue_find((struct str){ 0 }, STR("none"), STR("deepseek_r1"), &dialects, &err) == 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasoning_ends_in_time),
        cmocka_unit_test(some_models_have_none),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    sampler_free(sampler);
    free(logits);
    vocab_free(vocab);
    return rc;
}
