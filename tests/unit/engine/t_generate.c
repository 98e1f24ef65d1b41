/* t_generate.c - tests the text that an executor generates: equal tokens under every configuration of the real model
 * and scheduler. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/text/tokenizer.h"
#include "engine/serve/executor.h"
#include "engine/serve/output.h"
#include "tests/unit/engine/flat_perf.h"
#include "tests/unit/engine/tiny_model.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the same tokens and text under every configuration ----
 *
 * Each request first runs alone, whole, without a cache: that output is the truth. Then all run
 * together under configurations that chunk, batch, hit the cache, preempt and thread; ids and texts
 * must be equal, bit for bit, also where tokens are sampled. */

#define REQUESTS 24
#define OUTPUT 48
#define CONTEXT 160
#define STEPS_MAX 100000
#define SHIPPED "models/muster-tiny-q8_0.gguf" /* from the checkout's root */

struct request {
    struct ids ids;
    struct output_spec spec;
    struct grammar_spec grammar;
    struct str stop[1];
    struct output output;
    uint32_t output_max;
    uint32_t got[OUTPUT], got_count;
    uint64_t logprobs; /* a hash of the tokens' */
    struct buf text;
    enum session_end end;
    uint32_t cached, preemptions;
};

static struct model *model;
static struct model *guesser; /* of setups whose draft policy asks for a draft model */
static struct request truth[REQUESTS];

static void on_token(void *arg, struct output *output, const struct session *session,
                     const struct sampler_result *got)
{
    (void)arg, (void)session;
    struct request *r = CONTAINER_OF(output, struct request, output);
    must(r->got_count < OUTPUT);
    r->got[r->got_count++] = got->chosen.id;
    r->logprobs = hash64(&got->chosen.logprob, sizeof got->chosen.logprob, r->logprobs);
    buf_str(&r->text, buf_view(&output->text));
    buf_clear(&output->text);
}

static void on_end(void *arg, struct output *output, const struct session *session)
{
    struct request *r = CONTAINER_OF(output, struct request, output);
    uint32_t *open = arg;
    if (session->end != SESSION_END_STOP) output_close(output);
    buf_str(&r->text, buf_view(&output->text));
    r->end = session->end;
    r->cached = session->cached_tokens;
    r->preemptions = session->preemptions;
    must(session_generated(session) == r->got_count);
    output_fini(output);
    (*open)--;
}

static const char *const starts[] = {
    "the king said to the queen that the garden had been silent for a hundred years and ",
    "hello hello ",
    "once there was a house in the woods where ",
    "",
};

#define GRAMMAR(kind, text)       \
    {                             \
        kind,                     \
        {                         \
            text, sizeof text - 1 \
        }                         \
    }

static const struct grammar_spec grammars[] = {
    { 0 },
    { GRAMMAR_JSON_OBJECT, { 0 } },
    GRAMMAR(GRAMMAR_REGEX, "[a-z]{3,30}( [a-z]+){20,}\\."),
    GRAMMAR(GRAMMAR_CHOICE, "[\"yes\",\"no\",\"the king of the garden\"]"),
    GRAMMAR(GRAMMAR_JSON_SCHEMA,
            "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":1,"
            "\"maximum\":12},\"minItems\":9}"),
};
static bool with_grammars; /* the requests that `fill` makes have one, four of five */

static void fill(struct request *r, uint32_t i)
{
    struct rng rng;
    char text[512];
    rng_seed(&rng, 100 + i);
    *r = (struct request){ 0 };
    int len = snprintf(text, sizeof text, "%s", starts[i % COUNT_OF(starts)]);
    uint32_t more = 1 + (uint32_t)rng_below(&rng, 60);
    if (model_info(model)->vocab_size > 1000) more += 60; /* its tokens are longer */
    for (uint32_t k = 0; k < more; k++) {
        text[len++] =
            (char)(i % 3 == 0 && k < 40 ? 'a' + (int)(k % 7) : ' ' + (int)rng_below(&rng, 90));
    }
    assert_int_equal(
        tokenizer_encode_prompt(model_info(model)->vocab, str_of(text, (size_t)len), &r->ids, NULL),
        0);
    r->output_max = 4 + (uint32_t)rng_below(&rng, OUTPUT - 4);
    r->spec.prompt_tokens = (uint32_t)r->ids.count;
    r->spec.sampling.seed = i;
    if (i % 4 == 1) r->spec.sampling.temperature = 0.9f;
    if (i % 4 == 2) r->spec.sampling.repetition_penalty = 1.3f;
    if (i % 4 == 3) {
        r->spec.sampling.temperature = 1.4f;
        r->spec.sampling.top_p = 0.9f;
        r->spec.sampling.frequency_penalty = 0.5f;
    }
    r->spec.sampling.want_logprob = i % 3 == 0;
    r->spec.min_tokens = i % 5 == 0 ? 6 : 0;
    r->spec.ignore_eos = i % 7 == 0;
    if (with_grammars) r->grammar = grammars[i % COUNT_OF(grammars)];
}

/* Gives the request the automaton of its grammar, if it has one. */
static void open_grammar(struct executor *x, struct request *r)
{
    struct grammar *g = NULL;
    uint8_t key[SHA256_BYTES];
    if (r->grammar.kind == GRAMMAR_NONE) return;
    assert_int_equal(grammar_compile(&r->grammar, &g, NULL), 0);
    sha256(r->grammar.text.data, r->grammar.text.len, key);
    assert_int_equal(masks_open(executor_masks(x), key, false, &g, &r->spec.automaton), 0);
    assert_null(g);
}

/* Checks by an automaton of its own that the text is one of the grammar's, whole if the output stopped. */
static void check_grammar(const struct request *r)
{
    struct grammar *g = NULL;
    struct automaton *m = NULL;
    struct matcher t;
    if (r->grammar.kind == GRAMMAR_NONE) return;
    assert_int_equal(grammar_compile(&r->grammar, &g, NULL), 0);
    assert_int_equal(automaton_new(g, NULL, &m), 0);
    assert_int_equal(matcher_init(&t, m), 0);
    struct str text = buf_view(&r->text);
    if (r->end == SESSION_END_LENGTH && str_ends(text, STR("\xef\xbf\xbd")))
        text.len -= 3; /* the limit came within a character */
    assert_int_equal(matcher_advance(&t, text), 0);
    if (r->end == SESSION_END_STOP) assert_true(matcher_may_end(&t));
    matcher_fini(&t);
    automaton_free(m);
}

static void request_fini(struct request *r)
{
    ids_fini(&r->ids);
    buf_fini(&r->text);
}

struct setup {
    const char *why;
    uint32_t seqs, batch, pages, page_tokens, threads;
    bool cache, preempts;
    enum { NO_HITS, HITS, MAYBE } hits; /* large pages need a long common prefix */
    const char *chunk, *preset;
    uint32_t swap;
    const char *draft;
};

/* The clock that executor_observe sees: a step lasts a millisecond, so that policies that decide by
 * time do the same on every machine. With a real clock feedback queues lift sessions that waited
 * three seconds, on a slow machine all of them all the time, and each lift costs a prompt. */
static int64_t now_us;

static int64_t step_clock(void)
{
    return now_us;
}

/* The same where a draft model runs: its passes take a microsecond each. */
static int64_t pass_clock(void)
{
    return now_us++;
}

static int one_step(struct executor *x, struct executor_step_info *info, struct err *err)
{
    now_us += 1000;
    int rc = executor_step(x, executor_drafter(x) ? pass_clock : step_clock, info, err);
    if (rc <= 0) return rc;
    /* Beside a draft model a step is so slow that guesses are worth it. */
    executor_observe(x, &info->shape, executor_drafter(x) ? 1e-2 : 1e-3);
    executor_observe_draft(x, 1);
    return rc;
}

/* Checks that at half the clock a step is predicted to take twice as long. */
static void check_clock(struct executor *x)
{
    const struct perf_shape shape = { .prefill_tokens = 64,
                                      .prefill_chunks = 1,
                                      .decoding_seqs = 3,
                                      .kv_tokens_read = 64 * 65 / 2 + 900,
                                      .kv_tokens_decoding = 900 };
    double full_s = perf_step_s(executor_perf_now(x), &shape);
    executor_clock_set(x, 0.5);
    double half_s = perf_step_s(executor_perf_now(x), &shape);
    assert_true(full_s > 0 && half_s > 1.999 * full_s && half_s < 2.001 * full_s);
    assert_true(perf_step_s(executor_perf(x), &shape) < 1.001 * full_s);
}

static const char *drafts_all = "none"; /* the draft policy of setups that name none */

static uint64_t accepted, swapped; /* guesses, and pages swapped in, of all runs */

/* Returns false where guesses are so often right that outputs end before many run. */
static bool preempts_surely(const struct setup *s)
{
    return s->draft || strcmp(drafts_all, "model") != 0;
}

static void run(const struct setup *s, struct request *requests, uint32_t count)
{
    const char *draft = s->draft ? s->draft : drafts_all;
    bool guesses = strcmp(draft, "none") != 0, asks = draft_find(str_from(draft))->asks;
    uint32_t open = 0;
    now_us = 0;
    CLEANUP(executor_freep) struct executor *x = NULL;
    struct err err = { "" };
    struct executor_config config = {
        .sched = { .pages = s->pages,
                   .page_tokens = s->page_tokens,
                   .context_max = CONTEXT,
                   .seqs_max = s->seqs,
                   .batch_tokens_max = s->batch,
                   .waiting_max = REQUESTS,
                   .events_max = 64,
                   .prefix_cache = s->cache,
                   .step_s_max = 1e-4,
                   .swap_pages = s->swap,
                   .preset = s->preset ? preset_find(str_from(s->preset)) : NULL,
                   .policies = { .chunk = chunk_find(str_from(s->chunk)),
                                 .admit = admit_find(STR("fit")),
                                 .draft = draft_find(str_from(draft)) } },
        .threads = s->threads,
        /* An estimate never changes a token. */
        .perf = asks      ? perf_find(STR("linear"))
                : guesses ? &flat_perf
                          : perf_table[s->seqs % perf_count],
        .hardware = hardware_find(STR("cpu")),
        .draft_model = asks ? guesser : NULL,
        .draft_pages = s->pages,
    };
    const struct executor_events events = { .on_token = on_token, .on_end = on_end, .arg = &open };
    config.sched.parts = executor_parts(model, &config.sched);
    int rc = executor_new(model, &config, &events, &x, &err);
    if (rc < 0) fail_msg("%s: %s", s->why, err_text(&err, rc));
    executor_measure(x, pass_clock);
    for (uint32_t i = 0; i < count; i++) {
        struct request *r = &requests[i];
        struct session *session;
        struct sched_request req = {
            .id = i,
            .owner = &r->output,
            .ids = r->ids.data,
            .prompt_tokens = (uint32_t)r->ids.count,
            .output_max = r->output_max,
            .arrival_us = i + 1,
        };
        open_grammar(x, r);
        assert_int_equal(output_init(&r->output, model_info(model)->vocab, &r->spec, r->ids.data,
                                     (uint32_t)r->ids.count),
                         0);
        assert_int_equal(sched_submit(executor_sched(x), &req, &session, &err), 0);
        open++;
        /* Some requests arrive while others run. */
        struct executor_step_info info;
        if (i % 3 == 0) assert_true(one_step(x, &info, &err) >= 0);
    }
    for (uint32_t steps = 0; open > 0; steps++) {
        struct executor_step_info info;
        rc = one_step(x, &info, &err);
        if (rc < 0) fail_msg("%s: %s", s->why, err_text(&err, rc));
        assert_true(sched_check(executor_sched(x)));
        if (steps == STEPS_MAX) fail_msg("%s: %u steps and no end", s->why, STEPS_MAX);
    }
    assert_int_equal(sched_index(executor_sched(x))->pool->held_count, 0);
    if (asks) {
        struct drafter_counts d;
        drafter_counts_get(executor_drafter(x), &d);
        assert_int_equal(d.pages_held, 0);
    }
    struct sched_counts c;
    sched_counts_get(executor_sched(x), &c);
    if (s->swap && s->preempts && c.swapped_in == 0 && preempts_surely(s))
        fail_msg("%s: nothing was swapped", s->why);
    if (guesses && count > 1 && s->batch > 2 * s->seqs && c.drafted_tokens == 0)
        fail_msg("%s: no guesses", s->why);
    accepted += c.accepted_tokens;
    swapped += c.swapped_in;
    check_clock(x);
}

static void find_truth(void)
{
    static const struct setup alone = { "alone", 1,       256,      10,   16, 1,     false,
                                        false,   NO_HITS, "budget", NULL, 0,  "none" };
    uint32_t stopped = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        fill(&truth[i], i);
        run(&alone, &truth[i], 1);
        check_grammar(&truth[i]);
        stopped += truth[i].grammar.kind && truth[i].end == SESSION_END_STOP;
    }
    assert_true(stopped > 0 || !with_grammars);
}

static void check(const struct setup *s, const struct request *got)
{
    uint32_t cached = 0, preemptions = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const struct request *want = &truth[i];
        bool same = got[i].got_count == want->got_count && got[i].end == want->end &&
                    memcmp(got[i].got, want->got, want->got_count * sizeof *want->got) == 0 &&
                    got[i].logprobs == want->logprobs &&
                    str_eq(buf_view(&got[i].text), buf_view(&want->text));
        if (!same) fail_msg("%s: request %u has another answer than alone", s->why, i);
        cached += got[i].cached;
        preemptions += got[i].preemptions;
    }
    uint32_t least = s->draft || strcmp(drafts_all, "none") != 0 ? 1 : 3; /* outputs end sooner */
    if (!preempts_surely(s)) least = 0;
    if (s->preempts && preemptions < least) fail_msg("%s: %u preemptions", s->why, preemptions);
    if (s->hits != MAYBE && (s->hits == HITS) != (cached > 0))
        fail_msg("%s: %u cached tokens", s->why, cached);
}

/* Compares all requests under each setup with the same alone. Returns the preemptions of all. */
static uint32_t compare_roads(const struct setup *rows, size_t count)
{
    uint32_t preemptions = 0;
    find_truth();
    accepted = swapped = 0;
    for (size_t k = 0; k < count; k++) {
        struct request got[REQUESTS];
        for (uint32_t i = 0; i < REQUESTS; i++)
            fill(&got[i], i);
        run(&rows[k], got, REQUESTS);
        check(&rows[k], got);
        for (uint32_t i = 0; i < REQUESTS; i++) {
            preemptions += got[i].preemptions;
            request_fini(&got[i]);
        }
    }
    for (uint32_t i = 0; i < REQUESTS; i++)
        request_fini(&truth[i]);
    assert_true(accepted > 0);
    return preemptions;
}

static void t_every_road_the_same_tokens(void **state)
{
    (void)state;
    static const struct setup rows[] = {
        { "batched", 8, 256, 100, 16, 1, false, false, NO_HITS, "budget", NULL, 0, NULL },
        { "batched with the cache", 8, 256, 100, 16, 1, true, false, HITS, "budget", NULL, 0,
          NULL },
        { "chunks of 7", 7, 7, 100, 16, 1, true, false, HITS, "budget", NULL, 0, NULL },
        { "chunks by time", 8, 64, 100, 16, 1, true, false, HITS, "slack", NULL, 0, NULL },
        { "token by token", 1, 1, 60, 16, 1, true, false, HITS, "budget", NULL, 0, NULL },
        { "large pages", 8, 64, 20, 64, 1, true, false, MAYBE, "budget", NULL, 0, NULL },
        { "preempted, nothing found again", 8, 64, 16, 16, 1, false, true, NO_HITS, "budget",
          "vllm", 0, NULL },
        { "preempted, found again", 8, 64, 16, 16, 1, true, true, HITS, "budget", "vllm", 0, NULL },
        { "preempted by swap", 8, 64, 16, 16, 1, false, true, NO_HITS, "budget", "vllm", 64, NULL },
        { "swapped and found again", 8, 64, 16, 16, 1, true, true, HITS, "budget", "vllm", 64,
          NULL },
        { "feedback queues", 3, 64, 16, 16, 1, true, false, MAYBE, "budget", "fastserve", 64,
          NULL },
        { "shortest remaining first", 3, 64, 16, 16, 1, true, false, MAYBE, "budget", "trail_swap",
          9, NULL },
        { "two threads", 8, 64, 30, 32, 2, true, false, HITS, "budget", NULL, 0, NULL },
        { "ngram", 1, 64, 60, 16, 1, false, false, NO_HITS, "budget", NULL, 0, "ngram" },
        { "ngram, batched", 8, 64, 100, 16, 1, true, false, HITS, "budget", NULL, 0, "ngram" },
        { "suffix", 1, 64, 60, 16, 1, false, false, NO_HITS, "budget", NULL, 0, "suffix" },
        { "suffix, batched, chunks of 11", 5, 11, 100, 16, 1, true, false, HITS, "budget", NULL, 0,
          "suffix" },
        { "suffix, preempted", 8, 64, 16, 16, 1, false, true, NO_HITS, "budget", "vllm", 0,
          "suffix" },
        { "suffix, preempted, found again", 8, 64, 16, 16, 1, true, true, MAYBE, "budget", "vllm",
          0, "suffix" },
        { "suffix, swapped", 8, 64, 16, 16, 1, false, true, NO_HITS, "budget", "vllm", 64,
          "suffix" },
        { "ngram, feedback queues", 3, 64, 16, 16, 1, true, false, MAYBE, "budget", "fastserve", 64,
          "ngram" },
        { "suffix, two threads, large pages", 8, 64, 30, 32, 2, true, false, MAYBE, "budget", NULL,
          0, "suffix" },
        { "model", 1, 64, 60, 16, 1, false, false, NO_HITS, "budget", NULL, 0, "model" },
        { "model, chunks of 11", 5, 11, 100, 16, 1, true, false, HITS, "budget", NULL, 0, "model" },
        { "model, very few pages", 8, 64, 11, 16, 1, true, false, MAYBE, "budget", "vllm", 0,
          "model" },
        { "model, few pages and swap", 8, 64, 12, 16, 1, true, false, MAYBE, "budget", "vllm", 64,
          "model" },
        { "model, feedback queues", 3, 64, 16, 16, 1, true, false, MAYBE, "budget", "fastserve", 64,
          "model" },
        { "model, two threads, large pages", 8, 64, 30, 32, 2, true, false, MAYBE, "budget", NULL,
          0, "model" },
    };
    assert_true(compare_roads(rows, COUNT_OF(rows)) > 0);
}

/* The roads that read, copy, move or share pages; those above, where K and V are codes. */
static void t_codes_on_every_road(void **state)
{
    (void)state;
    static const struct setup rows[] = {
        { "codes, chunks of 7", 7, 7, 100, 16, 1, true, false, HITS, "budget", NULL, 0, NULL },
        { "codes, token by token", 1, 1, 60, 16, 1, true, false, HITS, "budget", NULL, 0, NULL },
        { "codes, preempted by swap", 8, 64, 16, 16, 1, false, true, NO_HITS, "budget", "vllm", 64,
          NULL },
        { "codes, swapped and found again", 8, 64, 16, 16, 1, true, true, HITS, "budget", "vllm",
          64, NULL },
        { "codes, two threads, large pages", 8, 64, 30, 32, 2, true, false, MAYBE, "budget", NULL,
          0, "suffix" },
    };
    compare_roads(rows, COUNT_OF(rows));
}

/* Where layers have a window, in all or every other one: pages that it has passed keep their other part, or nothing. */
static void t_windows_on_every_road(void **state)
{
    (void)state;
    static const struct setup rows[] = {
        { "batched", 8, 256, 100, 16, 1, false, false, NO_HITS, "budget", NULL, 0, NULL },
        { "batched with the cache", 8, 256, 100, 16, 1, true, false, HITS, "budget", NULL, 0,
          NULL },
        { "chunks of 7", 7, 7, 60, 16, 1, true, false, HITS, "budget", NULL, 0, NULL },
        { "token by token", 1, 1, 60, 16, 1, true, false, HITS, "budget", NULL, 0, NULL },
        { "large pages", 8, 64, 20, 64, 1, true, false, MAYBE, "budget", NULL, 0, NULL },
        { "few pages", 8, 16, 10, 16, 1, true, false, MAYBE, "budget", "vllm", 0, NULL },
        { "preempted", 8, 16, 10, 16, 1, false, false, NO_HITS, "budget", "vllm", 0, NULL },
        { "preempted by swap", 8, 16, 10, 16, 1, false, false, NO_HITS, "budget", "vllm", 64,
          NULL },
        { "swapped and found again", 8, 16, 10, 16, 1, true, false, MAYBE, "budget", "vllm", 64,
          NULL },
        { "feedback queues", 3, 16, 10, 16, 1, true, false, MAYBE, "budget", "fastserve", 64,
          NULL },
        { "shortest remaining first", 3, 16, 10, 16, 1, true, false, MAYBE, "budget", "trail_swap",
          9, NULL },
        { "two threads, large pages", 8, 64, 30, 32, 2, true, false, MAYBE, "budget", NULL, 0,
          NULL },
        { "suffix, few pages", 8, 16, 10, 16, 1, true, false, MAYBE, "budget", "vllm", 0,
          "suffix" },
        { "suffix, swapped", 8, 16, 10, 16, 1, true, false, MAYBE, "budget", "vllm", 64, "suffix" },
        { "model, few pages", 8, 16, 10, 16, 1, true, false, MAYBE, "budget", "vllm", 0, "model" },
    };
    const struct sched_config sched = { .pages = 9, .page_tokens = 16, .context_max = CONTEXT };
    assert_true(executor_parts(model, &sched).window_tokens > 0);
    const uint32_t preemptions = compare_roads(rows, COUNT_OF(rows));
    const bool grows =
        model_info(model)->kv_window > 64; /* a sequence does not end its growth at once */
    if (grows && (preemptions < 5 || swapped < 5))
        fail_msg("%u preemptions, %lu pages swapped", preemptions, (unsigned long)swapped);
}

/* ---- memory ---- */

/* Returns the resident bytes of the mapping that starts at this address. */
static size_t resident_bytes(const char *at)
{
    char line[512], begin[32];
    size_t bytes = 0;
    bool here = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    must(f);
    snprintf(begin, sizeof begin, "%lx-", (unsigned long)at);
    while (fgets(line, sizeof line, f)) {
        if (strchr(line, '-') && strncmp(line, begin, strlen(begin)) == 0) here = true;
        if (here && sscanf(line, "Rss: %zu kB", &bytes) == 1) break;
    }
    fclose(f);
    return bytes * 1024;
}

/* A sequence that outgrows its window holds what is counted, and no more memory than that: of layers with a window the last
 * tokens. All of it comes back. */
static void t_memory_is_bounded_by_the_window(void **state)
{
    (void)state;
    for (int cache = 0; cache < 2; cache++) {
        CLEANUP(executor_freep) struct executor *x = NULL;
        struct executor_config config = { .sched = { .pages = 40,
                                                     .page_tokens = 16,
                                                     .context_max = TINY_CONTEXT,
                                                     .seqs_max = 1,
                                                     .batch_tokens_max = 16,
                                                     .waiting_max = 2,
                                                     .events_max = 64,
                                                     .prefix_cache = cache } };
        uint32_t open = 1;
        const struct executor_events events = { .on_token = on_token,
                                                .on_end = on_end,
                                                .arg = &open };
        config.sched.parts = executor_parts(model, &config.sched);
        assert_int_equal(executor_new(model, &config, &events, &x, NULL), 0);
        const struct kv_pool *pool = sched_index(executor_sched(x))->pool;
        const struct kv_layout *l = kv_store_layout(executor_kv(x));
        const char *memory = kv_store_page(executor_kv(x), 0);
        const uint32_t window = model_info(model)->kv_window, prompt = TINY_CONTEXT - 8;
        const uint32_t covered = (window - 1 + 16 + 15) / 16 + 1;
        struct request r = { .spec = { .prompt_tokens = prompt, .ignore_eos = true } };
        for (uint32_t i = 0; i < prompt; i++)
            assert_int_equal(ids_push(&r.ids, 6 + i * 13 % 250), 0);
        struct session *session;
        const struct sched_request req = {
            .owner = &r.output, .ids = r.ids.data, .prompt_tokens = prompt, .output_max = 4
        };
        assert_int_equal(
            output_init(&r.output, model_info(model)->vocab, &r.spec, r.ids.data, prompt), 0);
        assert_int_equal(sched_submit(executor_sched(x), &req, &session, NULL), 0);
        uint64_t most = 0;
        while (open > 0) {
            struct executor_step_info info;
            assert_true(one_step(x, &info, NULL) >= 0);
            const uint64_t unit = kv_page_bytes(l) / kv_pool_whole(pool);
            assert_true(resident_bytes(memory) <= pool->used_units * unit + kv_page_bytes(l));
            most = max_u64(most, pool->held_units);
            if (!cache && open > 0) assert_int_equal(pool->used_units, pool->held_units);
        }
        const uint32_t pages = prompt / 16 + 1;
        assert_true(most <=
                    (uint64_t)pages * pool->parts.full + (uint64_t)covered * pool->parts.window);
        assert_int_equal(pool->held_units, 0);
        assert_true(kv_pool_check(pool));
        if (!cache) assert_int_equal(pool->used_units, 0);
        executor_sleep(x);
        assert_int_equal(pool->used_units, 0);
        assert_int_equal(resident_bytes(memory), 0);
        request_fini(&r);
    }
}

/* The same, under grammars. */
static void t_grammars_on_every_road(void **state)
{
    (void)state;
    static const struct setup rows[] = {
        { "batched", 8, 256, 100, 16, 1, false, false, NO_HITS, "budget", NULL, 0, NULL },
        { "chunks of 7", 7, 7, 100, 16, 1, true, false, HITS, "budget", NULL, 0, NULL },
        { "few pages", 8, 64, 13, 16, 1, false, false, NO_HITS, "budget", "vllm", 0, NULL },
        { "few pages and swap", 8, 64, 13, 16, 1, true, false, MAYBE, "budget", "vllm", 64, NULL },
        { "feedback queues", 3, 64, 16, 16, 1, true, false, MAYBE, "budget", "fastserve", 64,
          NULL },
        { "two threads", 8, 64, 30, 32, 2, true, false, MAYBE, "budget", NULL, 0, NULL },
        { "ngram", 8, 64, 100, 16, 1, true, false, MAYBE, "budget", NULL, 0, "ngram" },
        { "suffix, few pages and swap", 8, 64, 13, 16, 1, true, false, MAYBE, "budget", "vllm", 64,
          "suffix" },
        { "model, few pages", 8, 64, 13, 16, 1, true, false, MAYBE, "budget", "vllm", 0, "model" },
    };
    with_grammars = true;
    uint32_t preemptions = compare_roads(rows, COUNT_OF(rows));
    with_grammars = false;
    assert_true(preemptions > 0);
}

static const struct setup plain = { "plain", 4,     64,       40,   16, 1,   true,
                                    false,   MAYBE, "budget", NULL, 0,  NULL };

static void t_stop_strings_end_the_answer(void **state)
{
    (void)state;
    struct request whole, cut;
    fill(&whole, 4); /* greedy */
    whole.output_max = OUTPUT;
    whole.spec.ignore_eos = true;
    run(&plain, &whole, 1);
    assert_true(whole.text.len > 8);
    struct str middle = str_of(whole.text.data + whole.text.len / 2, 3);
    fill(&cut, 4);
    cut.output_max = OUTPUT;
    cut.spec.ignore_eos = true;
    cut.stop[0] = middle;
    cut.spec.stop = cut.stop;
    cut.spec.stop_count = 1;
    run(&plain, &cut, 1);
    assert_int_equal(cut.end, SESSION_END_STOP);
    assert_true(cut.got_count < whole.got_count);
    size_t shown = str_find(buf_view(&whole.text), middle);
    assert_true(str_eq(buf_view(&cut.text), str_of(whole.text.data, shown)));
    request_fini(&whole);
    request_fini(&cut);
}

/* An output under a grammar that is continued elsewhere ends like the whole one. */
static void t_grammar_continued_elsewhere(void **state)
{
    (void)state;
    with_grammars = true;
    for (uint32_t i = 1; i < 10; i++) {
        struct request whole, rest;
        fill(&whole, i);
        whole.output_max = OUTPUT;
        run(&plain, &whole, 1);
        check_grammar(&whole);
        uint32_t at = whole.got_count / 2;
        fill(&rest, i);
        for (uint32_t k = 0; k < at; k++)
            assert_int_equal(ids_push(&rest.ids, whole.got[k]), 0);
        rest.output_max = OUTPUT - at;
        run(&plain, &rest, 1);
        assert_int_equal(rest.got_count, whole.got_count - at);
        assert_memory_equal(rest.got, whole.got + at, rest.got_count * sizeof *rest.got);
        assert_int_equal(rest.end, whole.end);
        request_fini(&whole);
        request_fini(&rest);
    }
    with_grammars = false;
}

/* An output cut after `at` tokens and continued by another engine ends like the whole one. */
static void t_continued_elsewhere(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < 4; i++) {
        struct request whole, rest;
        fill(&whole, i);
        whole.output_max = OUTPUT;
        whole.spec.ignore_eos = true;
        run(&plain, &whole, 1);
        uint32_t at = whole.got_count / 2;
        fill(&rest, i);
        for (uint32_t k = 0; k < at; k++)
            assert_int_equal(ids_push(&rest.ids, whole.got[k]), 0);
        rest.output_max = OUTPUT - at;
        rest.spec.ignore_eos = true;
        run(&plain, &rest, 1);
        assert_int_equal(rest.got_count, whole.got_count - at);
        assert_memory_equal(rest.got, whole.got + at, rest.got_count * sizeof *rest.got);
        /* The half character that the first part held back comes with the second. */
        assert_true(str_ends(buf_view(&whole.text), buf_view(&rest.text)));
        request_fini(&whole);
        request_fini(&rest);
    }
}

/* ---- the distribution of sampled tokens ----
 *
 * With equal seeds the tokens with and without drafts are equal, which the tests above check. With
 * other seeds they are other samples of one distribution: a chi-square test of two samples. */

#define SAMPLES 960
#define SAMPLED 6   /* tokens of an output */
#define KINDS 512   /* tokens are counted by their ids mod KINDS */
#define POOLED 10.0 /* kinds with fewer in both samples count as one */

/* Counts the tokens at each place of outputs with the seeds [from, from + SAMPLES). */
static void sample_outputs(const struct setup *s, uint32_t from, uint32_t count[SAMPLED][KINDS])
{
    const struct str repeated =
        STR("and he said, and he said, and he said, and he said, and he said, and he");
    for (uint32_t done = 0; done < SAMPLES; done += REQUESTS) {
        struct request r[REQUESTS];
        for (uint32_t i = 0; i < REQUESTS; i++) {
            r[i] = (struct request){ 0 };
            assert_int_equal(
                tokenizer_encode_prompt(model_info(model)->vocab, repeated, &r[i].ids, NULL), 0);
            r[i].spec.prompt_tokens = (uint32_t)r[i].ids.count;
            r[i].output_max = SAMPLED;
            r[i].spec.ignore_eos = true;
            r[i].spec.sampling.temperature = 0.5f;
            r[i].spec.sampling.seed = from + done + i;
        }
        run(s, r, REQUESTS);
        for (uint32_t i = 0; i < REQUESTS; i++) {
            assert_int_equal(r[i].got_count, SAMPLED);
            for (uint32_t k = 0; k < SAMPLED; k++)
                count[k][r[i].got[k] % KINDS]++;
            request_fini(&r[i]);
        }
    }
}

/* Returns the chi-square statistic of two samples of equal size. */
static double chi_square(const uint32_t *a, const uint32_t *b, double *ret_freedom)
{
    double sum = 0, rest_a = 0, rest_b = 0, kinds = 0;
    for (uint32_t i = 0; i < KINDS; i++) {
        double x = a[i], y = b[i];
        if (x + y < POOLED) {
            rest_a += x, rest_b += y;
            continue;
        }
        sum += (x - y) * (x - y) / (x + y);
        kinds++;
    }
    if (rest_a + rest_b > 0) sum += (rest_a - rest_b) * (rest_a - rest_b) / (rest_a + rest_b);
    *ret_freedom = kinds + (rest_a + rest_b > 0) - 1;
    return sum;
}

/* Returns the value that chi-square exceeds once in 10,000 times (Wilson and Hilferty). */
static double chi_square_most(double freedom)
{
    double part = 2 / (9 * freedom);
    return freedom * pow(1 - part + 3.719 * sqrt(part), 3);
}

static void t_sampled_distribution_is_the_same(void **state)
{
    (void)state;
    static const struct setup ways[] = {
        { "sampled", 8, 256, 100, 16, 1, true, false, MAYBE, "budget", NULL, 0, "none" },
        { "sampled, ngram", 8, 256, 100, 16, 1, true, false, MAYBE, "budget", NULL, 0, "ngram" },
        { "sampled, suffix", 8, 256, 100, 16, 1, true, false, MAYBE, "budget", NULL, 0, "suffix" },
        { "sampled, model", 8, 256, 100, 16, 1, true, false, MAYBE, "budget", NULL, 0, "model" },
    };
    static uint32_t count[COUNT_OF(ways)][SAMPLED][KINDS];
    memset(count, 0, sizeof count);
    for (uint32_t w = 0; w < COUNT_OF(ways); w++) {
        accepted = 0;
        sample_outputs(&ways[w], 1 + w * SAMPLES, count[w]);
        if (w > 0 && accepted < SAMPLES / 8)
            fail_msg("%s: %lu accepted", ways[w].why, (unsigned long)accepted);
        for (uint32_t k = 0; w > 0 && k < SAMPLED; k++) {
            double freedom, x = chi_square(count[0][k], count[w][k], &freedom);
            if (freedom > 0 && x > chi_square_most(freedom))
                fail_msg("%s: token %u: chi-square %.1f of %.0f", ways[w].why, k, x, freedom);
        }
    }
}

static void t_min_tokens_and_ignore_eos(void **state)
{
    (void)state;
    /* At this temperature all tokens are about equal: an end comes once in some 280 draws. */
    uint32_t ended = 0, early = 0;
    for (uint32_t seed = 0; seed < 60; seed++) {
        for (uint32_t mode = 0; mode < 3; mode++) {
            struct request r;
            fill(&r, 4);
            r.output_max = OUTPUT;
            r.spec.min_tokens = mode == 1 ? 12 : 0;
            r.spec.ignore_eos = mode == 2;
            r.spec.sampling.temperature = 1000;
            r.spec.sampling.seed = seed;
            run(&plain, &r, 1);
            if (mode == 0 && r.end == SESSION_END_STOP) ended++, early += r.got_count < 12;
            if (mode == 1 && r.end == SESSION_END_STOP) assert_true(r.got_count > 12);
            if (mode == 2)
                assert_int_equal(r.got_count, min_u32(OUTPUT, CONTEXT - (uint32_t)r.ids.count));
            request_fini(&r);
        }
    }
    assert_true(ended > 0 && early > 0);
}

static enum kv_type kv_type; /* of the model that is loaded next */

static int load(const char *path)
{
    struct err err = { "" };
    const struct model_load_options opt = { .kv_type = kv_type };
    int rc = model_load(path, &opt, &model, &err);
    if (rc < 0) print_error("%s\n", err_text(&err, rc));
    return rc;
}

static int setup_random(void **state)
{
    (void)state;
    char path[64];
    int fd = tiny_model_path(TINY_CONTEXT, path);
    int rc = load(path);
    close(fd);
    guesser = model;
    return rc;
}

static uint32_t window, window_period; /* of the model that setup_windowed makes */

static int setup_windowed(void **state)
{
    (void)state;
    char path[64];
    int fd = windowed_model_path(window, window_period, path);
    int rc = load(path);
    close(fd);
    guesser = model;
    return rc;
}

/* A draft model that knows nothing of the other. */
static int setup_strangers(void **state)
{
    char path[64];
    int rc = setup_random(state), fd = layered_model_path(1, 7, path);
    if (rc == 0) rc = model_load(path, NULL, &guesser, NULL);
    close(fd);
    return rc;
}

static int setup_shipped(void **state)
{
    (void)state;
    int rc = load(SHIPPED);
    guesser = model;
    return rc;
}

static int teardown(void **state)
{
    (void)state;
    if (guesser != model) model_free(guesser);
    model_free(model);
    model = guesser = NULL;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_every_road_the_same_tokens),
        cmocka_unit_test(t_grammars_on_every_road),
        cmocka_unit_test(t_stop_strings_end_the_answer),
        cmocka_unit_test(t_continued_elsewhere),
        cmocka_unit_test(t_grammar_continued_elsewhere),
        cmocka_unit_test(t_min_tokens_and_ignore_eos),
    };
    const struct CMUnitTest shipped[] = {
        cmocka_unit_test(t_every_road_the_same_tokens),
        cmocka_unit_test(t_sampled_distribution_is_the_same),
#ifndef MUSTER_DEBUG /* under sanitizers the small models walk the same roads in minutes less */
        cmocka_unit_test(t_grammars_on_every_road),
#endif
    };
    const struct CMUnitTest codes[] = { cmocka_unit_test(t_codes_on_every_road),
                                        cmocka_unit_test(t_continued_elsewhere) };
    int failed = cmocka_run_group_tests_name("random model", tests, setup_random, teardown);
    kv_type = KV_Q8;
    failed += cmocka_run_group_tests_name("random model, Q8", codes, setup_random, teardown);
    kv_type = KV_Q4;
    failed += cmocka_run_group_tests_name("random model, Q4", codes, setup_random, teardown);
    kv_type = KV_F16;
    const struct CMUnitTest windows[] = { cmocka_unit_test(t_windows_on_every_road),
                                          cmocka_unit_test(t_memory_is_bounded_by_the_window),
                                          cmocka_unit_test(t_continued_elsewhere) };
    static const uint32_t shapes[][2] = { { 24, 2 }, { 72, 2 }, { 33, 0 }, { 100, 0 } };
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        char name[64];
        window = shapes[i][0], window_period = shapes[i][1];
        snprintf(name, sizeof name, "a window of %u in %s", window,
                 window_period ? "every other layer" : "all layers");
        failed += cmocka_run_group_tests_name(name, windows, setup_windowed, teardown);
    }
    drafts_all =
        "suffix"; /* of all that name none; what is generated alone, without, stays the truth */
    failed += cmocka_run_group_tests_name("random model, drafts", tests, setup_random, teardown);
    drafts_all = "model"; /* the model itself, which may have other penalties and masks to heed */
    failed += cmocka_run_group_tests_name("random model, its own draft model", tests, setup_random,
                                          teardown);
    failed += cmocka_run_group_tests_name("random model, a stranger as draft model", tests,
                                          setup_strangers, teardown);
    drafts_all = "none";
    if (access(SHIPPED, R_OK) < 0) {
        print_message("no %s beside the tests: the random model alone was tried\n", SHIPPED);
        return failed;
    }
    failed += cmocka_run_group_tests_name("shipped model", shipped, setup_shipped, teardown);
    return failed;
}
