/* t_draft.c - tests policies that guess the next tokens, and the length that is worth computing. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/draft/draft.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 64

struct text_row {
    const char *why, *policy, *text, *guess;
    uint32_t max, match;
};

/* Guesses behind a text whose letters are tokens, told letter by letter as a sequence grows. */
static uint32_t guess(const struct draft_policy *p, const char *text, uint32_t max, uint32_t *ret,
                      uint32_t *ret_match)
{
    uint32_t ids[TEXT_MAX], length = (uint32_t)strlen(text), count = 0;
    void *state = calloc(1, max_u32(p->state_size, 1));
    assert_true(state && length <= TEXT_MAX);
    for (uint32_t i = 0; i < length; i++) {
        ids[i] = (uint32_t)text[i];
        const struct draft_view view = { .ids = ids, .count = i + 1, .max = max };
        count = p->propose(state, &view, ret, ret_match);
        assert_true(count <= max);
    }
    free(state);
    return count;
}

static void t_guesses(void **state)
{
    (void)state;
    static const struct text_row rows[] = {
        { "ngram: the last three tokens came before", "ngram", "xabcdefg.abc", "defg", 4, 3 },
        { "ngram: of two occurrences the latest", "ngram", "abcd.abce.abc", "e.ab", 4, 3 },
        { "ngram: three before two", "ngram", "abcd.xbce.abc", "d.xb", 4, 3 },
        { "ngram: two where three never came", "ngram", "zbcd.abc", "d.", 2, 2 },
        { "ngram: one where two never came", "ngram", "cd.abc", "d.a", 3, 1 },
        { "ngram: a run goes on beyond its end", "ngram", "xyxyxy", "xyxyx", 5, 3 },
        { "ngram: nothing came before", "ngram", "abc", "", 4, 0 },
        { "ngram: a single token", "ngram", "a", "", 4, 0 },
        { "suffix: no longer than its match", "suffix", "xabcdefghi.abc", "def", 8, 3 },
        { "suffix: what most occurrences have", "suffix", "1abcd2abce3abcd4abc", "d4a", 8, 3 },
        { "suffix: the longer match where counts are equal", "suffix", "zabcd.yabce.zabc", "d.ya",
          8, 4 },
        { "suffix: a pair at least", "suffix", "bd.ab", "", 8, 0 },
        { "suffix: nothing came before", "suffix", "abc", "", 4, 0 },
        { "suffix: a single token", "suffix", "a", "", 4, 0 },
        { "suffix: as many as are wanted", "suffix", "abcdefghi.abcdef", "gh", 2, 6 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct text_row *r = &rows[i];
        uint32_t ids[DRAFT_TOKENS_MAX], match = 0;
        uint32_t count = guess(draft_find(str_from(r->policy)), r->text, r->max, ids, &match);
        char got[DRAFT_TOKENS_MAX + 1] = { 0 };
        for (uint32_t k = 0; k < count; k++)
            got[k] = (char)ids[k];
        if (strcmp(got, r->guess) != 0 || (count > 0 && match != r->match))
            fail_msg("%s: \"%s\" on %u", r->why, got, match);
    }
    assert_null(draft_find(STR(DRAFT_DEFAULT))->propose);
    assert_null(draft_find(STR("medusa")));
}

/* Finds the longest earlier occurrence of the end, at most 64 tokens, by comparing everywhere. */
static uint32_t longest_match(const uint32_t *ids, uint32_t count)
{
    uint32_t longest = 0, first = count > DRAFT_WINDOW ? count - DRAFT_WINDOW : 0;
    for (uint32_t at = first; at + 1 < count; at++) {
        uint32_t n = 0;
        while (n < 64 && n <= at && ids[at - n] == ids[count - 1 - n])
            n++;
        longest = max_u32(longest, n);
    }
    return longest;
}

/* In texts with few repeated pairs the chains see every occurrence: the match is the one that a search
 * of the whole window finds. Also where the sequence is longer than the window, and where the state
 * was lost and begins anew. */
static void t_suffix_matches_the_slow_search(void **state)
{
    (void)state;
    const struct draft_policy *p = draft_find(STR("suffix"));
    enum { COUNT = DRAFT_WINDOW + 3000 };
    uint32_t *ids = calloc(COUNT, sizeof *ids), checked = 0, ret[DRAFT_TOKENS_MAX];
    void *kept = calloc(1, p->state_size), *fresh = calloc(1, p->state_size);
    assert_true(ids && kept && fresh);
    struct rng rng;
    rng_seed(&rng, 17);
    for (uint32_t i = 0; i < COUNT; i++)
        ids[i] = i > 100 && rng_below(&rng, 12) > 0 ? ids[i - 97] : (uint32_t)rng_below(&rng, 4000);
    for (uint32_t count = 1; count <= COUNT; count += 1 + (uint32_t)rng_below(&rng, 3)) {
        const struct draft_view view = { .ids = ids, .count = count, .max = 1 };
        uint32_t match = 0, guessed = p->propose(kept, &view, ret, &match);
        if (count % 16 > 1) continue;
        uint32_t longest = longest_match(ids, count);
        assert_true(guessed == 0 ? longest < 2 : match <= longest && match >= 2);
        if (guessed > 0) checked++;
        uint32_t again[DRAFT_TOKENS_MAX], other = 0;
        memset(fresh, 0, p->state_size);
        assert_int_equal(p->propose(fresh, &view, again, &other), guessed);
        assert_true(guessed == 0 || (again[0] == ret[0] && other == match));
    }
    assert_true(checked > 300);
    free(ids), free(kept), free(fresh);
}

/* No guess holds a token that the sequence has not, whatever the sequence. */
static void t_guesses_are_the_sequences_own_tokens(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 23);
    for (uint32_t i = 0; i < draft_count; i++) {
        const struct draft_policy *p = draft_table[i];
        if (!p->propose) continue;
        void *kept = calloc(1, max_u32(p->state_size, 1));
        for (uint32_t round = 0; round < 300; round++) {
            uint32_t ids[200], kinds = 1 + (uint32_t)rng_below(&rng, 8);
            memset(kept, 0, p->state_size);
            for (uint32_t n = 1; n <= COUNT_OF(ids); n++) {
                ids[n - 1] = 1000 + (uint32_t)rng_below(&rng, kinds);
                uint32_t max = 1 + (uint32_t)rng_below(&rng, DRAFT_TOKENS_MAX);
                uint32_t ret[DRAFT_TOKENS_MAX], match = 0;
                const struct draft_view view = { .ids = ids, .count = n, .max = max };
                uint32_t count = p->propose(kept, &view, ret, &match);
                assert_true(count <= max && (count == 0 || match > 0));
                for (uint32_t k = 0; k < count; k++)
                    assert_true(ret[k] >= 1000 && ret[k] < 1000 + kinds);
            }
        }
        free(kept);
    }
}

/* ---- length ---- */

static void t_rates(void **state)
{
    (void)state;
    struct draft_rates all = { 0 }, own = { 0 };
    assert_true(fabs(draft_rate(&own, &all, 3) - 0.5) < 1e-6);
    for (uint32_t i = 0; i < 100; i++)
        draft_rates_observe(&all, 3, 0, true);
    assert_true(draft_rate(&own, &all, 3) < 0.05 && draft_rate(&own, &all, 4) < 0.05);
    assert_true(fabs(draft_rate(&own, &all, 20) - 0.5) < 1e-6); /* another class */
    for (uint32_t i = 0; i < 100; i++)
        draft_rates_observe(&own, 3, 4, false);
    assert_true(draft_rate(&own, &all, 3) > 0.9); /* its own count more */
    assert_true(draft_rate(&own, &all, 6) > 0.9); /* the guesses behind rest on more */
}

static void fill_places(struct draft_place *place, uint32_t count, const struct draft_rates *own,
                        uint32_t guessed)
{
    for (uint32_t i = 0; i < count; i++)
        place[i] =
            (struct draft_place){ .own = own, .guessed = guessed, .match = 30, .context = 100 };
}

/* Returns the tokens taken for `batch` sequences whose guesses come true with `rate`. */
static uint32_t taken_of(uint32_t batch, double rate, uint32_t least, uint32_t most)
{
    /* A step reads the weights in 10 ms; a token costs 1 ms of arithmetic. */
    const struct draft_step step = { .perf = { .step_s = 10e-3, .decode_seq_s = 1e-3 },
                                     .shape = { .decoding_seqs = batch },
                                     .least = least,
                                     .most = most };
    struct draft_rates all = { 0 }, own = { 0 };
    for (uint32_t k = 0; k < DRAFT_CLASSES; k++)
        own.compared[k] = 1e6f, own.equal[k] = (float)(1e6 * rate);
    struct draft_place place[64];
    fill_places(place, batch, &own, DRAFT_TOKENS_MAX);
    uint32_t all_taken = draft_allot(place, batch, &all, &step), sum = 0;
    for (uint32_t i = 0; i < batch; i++) {
        assert_true(place[i].take <= place[i].guessed);
        assert_true(fabs(place[i].reach - pow(rate, place[i].take)) < 1e-4);
        sum += place[i].take;
    }
    assert_int_equal(sum, all_taken);
    return sum;
}

static uint32_t taken(uint32_t batch, double rate, uint32_t most)
{
    return taken_of(batch, rate, 0, most);
}

static void t_length(void **state)
{
    (void)state;
    /* Alone, the best length is that of the largest E / T, tried one by one. */
    for (double rate = 0.2; rate < 0.99; rate += 0.1) {
        uint32_t best = 0;
        double most = 0, tokens = 0;
        for (uint32_t k = 0; k <= DRAFT_TOKENS_MAX; k++) {
            tokens += pow(rate, k);
            if (tokens / (11e-3 + k * 1e-3) <= most) continue;
            most = tokens / (11e-3 + k * 1e-3);
            best = k;
        }
        assert_int_equal(taken(1, rate, 128), best);
    }
    assert_true(taken(1, 0.9, 128) >= 8);
    assert_int_equal(taken(1, 0.9, 3), 3); /* no more than the step takes */
    assert_int_equal(taken(1, 0.05, 128), 0);
    /* Under load it is off: at 64 sequences the arithmetic is what a step costs. */
    assert_true(taken(8, 0.7, 128) > 0);
    assert_true(taken(8, 0.7, 128) / 8 < taken(1, 0.7, 128));
    assert_int_equal(taken(64, 0.7, 128), 0);
    /* To learn what a token costs, some are computed all the same. */
    assert_int_equal(taken_of(64, 0.7, DRAFT_PROBE_TOKENS, 128), DRAFT_PROBE_TOKENS);
    assert_int_equal(taken_of(64, 0.7, DRAFT_PROBE_TOKENS, 1), 1);
    assert_int_equal(taken_of(1, 0.05, DRAFT_PROBE_TOKENS, 128), 0); /* no price would pay */
    assert_int_equal(taken_of(1, 0.9, DRAFT_PROBE_TOKENS, 128), taken(1, 0.9, 128));
}

static void t_length_goes_where_guesses_come_true(void **state)
{
    (void)state;
    struct draft_step step = { .perf = { .step_s = 10e-3, .decode_seq_s = 1e-3 },
                               .shape = { .decoding_seqs = 3 },
                               .most = 128 };
    struct draft_rates all = { 0 }, good = { 0 }, bad = { 0 };
    for (uint32_t i = 0; i < 50; i++) {
        draft_rates_observe(&good, 30, 3, false);
        draft_rates_observe(&bad, 30, 0, true);
    }
    struct draft_place place[3];
    fill_places(place, 3, &good, 8);
    place[1].own = &bad;
    place[2].guessed = 0;
    draft_allot(place, 3, &all, &step);
    assert_int_equal(place[0].take, 8);
    assert_int_equal(place[1].take, 0);
    assert_int_equal(place[2].take, 0);
    /* A token costs what one of a prompt costs at least. */
    step.perf.decode_seq_s = 0, step.perf.prefill_token_s = 1e-3;
    assert_int_equal(draft_allot(place, 3, &all, &step), 8);
    /* Where further tokens cost nothing, all likely guesses are computed; without an estimate none is. */
    step.perf = (struct perf_coef){ .step_s = 1e-3 };
    draft_allot(place, 3, &all, &step);
    assert_true(place[0].take == 8 && place[1].take == 0);
    step.perf = (struct perf_coef){ 0 };
    draft_allot(place, 3, &all, &step);
    assert_true(place[0].take == 0 && place[1].take == 0);
}

/* ---- a draft model ---- */

static void t_model_passes_on_what_is_given(void **state)
{
    (void)state;
    const struct draft_policy *p = draft_find(STR("model"));
    const uint32_t ids[] = { 1, 2, 3 }, given[] = { 7, 8, 9 };
    uint32_t ret[DRAFT_TOKENS_MAX] = { 0 }, match = 0;
    struct draft_view view = { .ids = ids, .count = 3, .max = 2, .given = given, .given_count = 3 };
    assert_true(p->asks);
    assert_int_equal(p->propose(NULL, &view, ret, &match), 2);
    assert_true(ret[0] == 7 && ret[1] == 8 && ret[2] == 0 && match == 1);
    view.given_count = 1;
    assert_int_equal(p->propose(NULL, &view, ret, &match), 1);
    view.given_count = 0;
    assert_int_equal(p->propose(NULL, &view, ret, &match), 0);
}

/* A step reads the target's weights in 10 ms and a token costs 0.1 ms of arithmetic; a pass of the draft model takes
 * `pass_s`, and a tenth of a millisecond for each token. */
static struct draft_ask ask_of(uint32_t batch, double pass_s)
{
    return (struct draft_ask){
        .step = { .perf = { .step_s = 10e-3, .decode_seq_s = 1e-4 },
                  .shape = { .decoding_seqs = batch },
                  .most = 128 },
        .model = { .step_s = pass_s, .decode_seq_s = 1e-4, .prefill_token_s = 1e-4 },
    };
}

static void fill_asked(struct draft_place *place, uint32_t count, struct draft_rates *own,
                       double rate)
{
    for (uint32_t k = 0; k < DRAFT_CLASSES; k++)
        own->compared[k] = 1e6f, own->equal[k] = (float)(1e6 * rate);
    for (uint32_t i = 0; i < count; i++)
        place[i] = (struct draft_place){
            .own = own, .guessed = DRAFT_TOKENS_MAX, .match = 1, .context = 100, .left = 100
        };
}

static uint32_t asked(uint32_t batch, double rate, const struct draft_ask *ask, uint32_t lacks)
{
    struct draft_rates all = { 0 }, own = { 0 };
    struct draft_place place[64];
    fill_asked(place, batch, &own, rate);
    for (uint32_t i = 0; i < batch; i++)
        place[i].lacks = lacks;
    uint32_t sum = 0, ret = draft_ask(place, batch, &all, ask);
    for (uint32_t i = 0; i < batch; i++)
        sum += place[i].take;
    assert_int_equal(sum, ret);
    return sum;
}

/* Returns the tokens for a second with k passes, which all sequences take part in. */
static double rate_of_passes(uint32_t batch, double pass_s, double rate, uint32_t k)
{
    double tokens = 0;
    for (uint32_t i = 0; i <= k; i++)
        tokens += batch * pow(rate, i);
    return tokens / (10e-3 + batch * 1e-4 + k * pass_s + batch * k * 2e-4);
}

/* As many passes as give the most tokens for a second, tried one by one, whatever a pass costs. */
static void t_passes(void **state)
{
    (void)state;
    uint32_t none = 0, most = 0;
    for (uint32_t batch = 1; batch <= 8; batch++) {
        for (double pass_s = 1e-4; pass_s < 20e-3; pass_s *= 1.7) {
            for (double rate = 0.3; rate < 0.99; rate += 0.1) {
                struct draft_ask ask = ask_of(batch, pass_s);
                ask.step.most = batch * DRAFT_TOKENS_MAX;
                double best = 0;
                for (uint32_t k = 0; k <= DRAFT_TOKENS_MAX; k++)
                    if (pow(rate, k) >= DRAFT_RATE_MIN)
                        best = fmax(best, rate_of_passes(batch, pass_s, rate, k));
                uint32_t got = asked(batch, rate, &ask, 0);
                assert_int_equal(got % batch, 0);
                if (rate_of_passes(batch, pass_s, rate, got / batch) < best * (1 - 1e-4))
                    fail_msg("batch %u, pass of %g s, rate %g: %u tokens", batch, pass_s, rate,
                             got);
                none += got == 0;
                most += got >= 4 * batch;
            }
        }
    }
    assert_true(none > 20 && most > 20);
}

static void t_what_a_draft_model_is_asked_for(void **state)
{
    (void)state;
    struct draft_ask ask = ask_of(1, 1e-3);
    uint32_t alone = asked(1, 0.8, &ask, 0);
    assert_true(alone >= 4);
    /* No more than the step verifies. */
    ask.step.most = 3;
    assert_int_equal(asked(1, 0.8, &ask, 0), 3);
    ask = ask_of(8, 1e-3), ask.step.most = 11;
    assert_true(asked(8, 0.8, &ask, 0) <= 11);
    /* A pass that several sequences share is worth it where one alone would not pay for it. */
    ask = ask_of(1, 9e-3);
    assert_int_equal(asked(1, 0.8, &ask, 0), 0);
    ask = ask_of(8, 5e-3);
    assert_true(asked(8, 0.9, &ask, 0) > 0);
    /* A model as slow as the target is worth nothing, nor is one that is always wrong. */
    ask = ask_of(1, 10e-3);
    assert_int_equal(asked(1, 1, &ask, 0), 0);
    ask = ask_of(1, 1e-4);
    assert_int_equal(asked(1, 0, &ask, 0), 0);
    /* What the model has to compute first is paid by the tokens that are left: 100 of them. */
    ask = ask_of(1, 1e-3);
    assert_int_equal(asked(1, 0.8, &ask, 100), alone);
    assert_int_equal(asked(1, 0.8, &ask, 100000), 0);
    /* Under load: where a step costs its arithmetic, nothing is asked for. */
    ask = ask_of(64, 1e-3);
    ask.step.perf = (struct perf_coef){ .step_s = 1e-3, .decode_seq_s = 1e-3 };
    assert_int_equal(asked(64, 0.9, &ask, 0), 0);
    /* Without an estimate of the target neither. */
    ask.step.perf = ask.model = (struct perf_coef){ 0 };
    assert_int_equal(asked(4, 0.9, &ask, 0), 0);
}

static void t_a_draft_model_is_tried_again(void **state)
{
    (void)state;
    struct draft_rates all = { 0 }, own = { 0 };
    struct draft_place place[3];
    /* Two tokens of the sequence that has least to catch up, if that is not too much. */
    fill_asked(place, 3, &own, 0);
    place[0].lacks = 50, place[1].lacks = 3, place[2].lacks = 9;
    assert_int_equal(draft_probe(place, 3, 32), DRAFT_PROBE_TOKENS);
    assert_true(place[0].take == 0 && place[1].take == 2 && place[2].take == 0);
    place[1].guessed = 0;
    place[2].guessed = 1;
    assert_int_equal(draft_probe(place, 3, 32), 1);
    assert_true(place[0].take == 0 && place[1].take == 0 && place[2].take == 1);
    assert_int_equal(draft_probe(place, 3, 8), 0);
    /* A token more than is worth it, to learn the rates of longer guesses. */
    struct draft_ask ask = ask_of(3, 1e-3);
    fill_asked(place, 3, &own, 0.5);
    uint32_t usual = draft_ask(place, 3, &all, &ask);
    ask.longer = true;
    assert_int_equal(draft_ask(place, 3, &all, &ask), usual + 3);
    ask.step.most = usual + 1;
    assert_int_equal(draft_ask(place, 3, &all, &ask), usual + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_guesses),
        cmocka_unit_test(t_suffix_matches_the_slow_search),
        cmocka_unit_test(t_guesses_are_the_sequences_own_tokens),
        cmocka_unit_test(t_rates),
        cmocka_unit_test(t_length),
        cmocka_unit_test(t_length_goes_where_guesses_come_true),
        cmocka_unit_test(t_model_passes_on_what_is_given),
        cmocka_unit_test(t_passes),
        cmocka_unit_test(t_what_a_draft_model_is_asked_for),
        cmocka_unit_test(t_a_draft_model_is_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
