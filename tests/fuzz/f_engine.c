/* f_engine.c - drives the engine's whole step, scheduler, executor, model and outputs, with drawn requests
 * over a drawn configuration, in one thread and on a clock of its own.
 *
 * Every request comes out of a list of KINDS: prompts with common beginnings, sampling with seeds, grammars,
 * adapters, scores of the prompt. Its truth is the output that it has alone, whole, without a cache. In a run requests
 * come, are paused and cancelled and go on from the middle of their truth, as after the death of another
 * engine, while pages are few, guesses are verified and prefixes are shared. What a request has brought at
 * its end is its truth, or a beginning of it where it was cut short; there is an end, and all pages are free
 * or cached then.
 *
 * f_scheduler does the same with every operation of the scheduler over pages that prove their contents, which
 * is a hundred times as fast; this target proves what stands around it. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/text/encode.h"
#include "engine/model/adapter_file.h"
#include "engine/serve/executor.h"
#include "engine/serve/output.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/engine/flat_perf.h"
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/engine/tiny_model.h"

#include <stdio.h>
#include <unistd.h>

#define KINDS 48
#define SENT_MAX 16
#define PROMPT_MAX 56
#define OUTPUT_MAX 20
#define CONTEXT 80
#define STEP_US 1000

/* More steps than can pass without a new token, score or end: as in f_scheduler. */
#define QUIET_STEPS_MAX (SENT_MAX * CONTEXT * 4)

/* Holds the output of a request. */
struct brought {
    uint32_t ids[OUTPUT_MAX], count;
    float logprobs[OUTPUT_MAX];
    float scores[PROMPT_MAX];
    uint32_t score_count;
    struct buf text;
    enum session_end end;
};

struct kind {
    uint32_t ids[CONTEXT], prompt_tokens; /* behind the prompt: the truth's ids, to go on from */
    uint32_t output_max;
    struct output_spec spec;
    struct grammar_spec grammar;
    bool scores;
    bool known; /* truth is */
    struct brought truth;
};

struct sent {
    struct output output;
    const struct kind *kind;
    uint32_t from; /* tokens of the truth that another engine is said to have generated */
    struct session *session;
    struct brought got;
    bool cut; /* it may end early */
};

struct life {
    struct executor *x;
    struct sent sent[SENT_MAX];
    uint32_t count, open;
};

#define ADAPTERS 2

static struct model *model;
static struct adapter *adapters[ADAPTERS];
static struct kind kinds[KINDS];
static int64_t now_us;

/* ---- the requests ---- */

static const char *const starts[] = {
    "the king said to the queen ",
    "hello hello hello hello ",
    "once there was a house ",
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
    GRAMMAR(GRAMMAR_REGEX, "[a-z]{3,9}( [a-z]+){4,}\\."),
    GRAMMAR(GRAMMAR_CHOICE, "[\"yes\",\"no\",\"the king\"]"),
    GRAMMAR(GRAMMAR_JSON_SCHEMA,
            "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":1,"
            "\"maximum\":12},\"minItems\":3}"),
};

static const struct str stops[] = { { "e", 1 }, { "  ", 2 } };

static void make_kind(struct kind *k, uint32_t i)
{
    struct rng rng;
    CLEANUP(ids_fini) struct ids ids = { 0 };
    char text[128];
    rng_seed(&rng, 900 + i / 2); /* pairs of one prompt, with two seeds: samples of one request */
    int len = snprintf(text, sizeof text, "%s%s", starts[i / 2 % COUNT_OF(starts)],
                       i % 8 < 4 ? "and all that was in it " : "");
    const bool twin = i / 2 % 2 == 0;
    for (uint64_t more = 1 + rng_below(&rng, 40) + (twin ? 45 : 0); more > 0; more--)
        text[len++] = (char)(' ' + (int)rng_below(&rng, 90));
    must(tokenizer_encode_prompt(model_info(model)->vocab, str_of(text, (size_t)len), &ids, NULL) ==
         0);
    k->prompt_tokens = min_u32((uint32_t)ids.count, PROMPT_MAX);
    memcpy(k->ids, ids.data, k->prompt_tokens * sizeof *k->ids);
    if (twin) /* the same two pages behind unlike ones: a page's own parent tells none apart */
        for (uint32_t t = 0; t < 2 * KV_PAGE_GRANULE; t++)
            k->ids[KV_PAGE_GRANULE + t] = 'A' + t;
    k->output_max = 2 + (uint32_t)rng_below(&rng, OUTPUT_MAX - 2);
    k->scores = i % 6 < 2;
    k->spec.prompt_tokens = k->prompt_tokens;
    k->spec.sampling.seed = i;
    k->spec.sampling.want_logprob = true;
    if (i % 8 >= 2) k->spec.sampling.temperature = 0.9f;
    if (i % 8 >= 6) k->spec.sampling.top_p = 0.8f;
    if (i % 8 == 5) k->spec.sampling.frequency_penalty = 0.7f;
    k->spec.min_tokens = i % 5 == 0 ? 4 : 0;
    k->spec.ignore_eos = i % 7 == 0;
    if (i % 9 == 4) {
        k->spec.stop = stops;
        k->spec.stop_count = COUNT_OF(stops);
    }
    if (i / 2 % 5 < ADAPTERS) k->spec.adapter = adapters[i / 2 % 5];
    if (i % 4 == 3) k->grammar = grammars[i / 4 % COUNT_OF(grammars)];
}

/* ---- an executor with an own clock ---- */

static int64_t clock_us(void)
{
    return now_us;
}

static struct sent *sent_of(struct output *output)
{
    return CONTAINER_OF(output, struct sent, output);
}

static void take_text(struct sent *s)
{
    must(buf_str(&s->got.text, buf_view(&s->output.text)) == 0);
    buf_clear(&s->output.text);
}

static void on_token(void *arg, struct output *output, const struct session *session,
                     const struct sampler_result *got)
{
    (void)arg, (void)session;
    struct sent *s = sent_of(output);
    must(s->got.count < OUTPUT_MAX);
    s->got.logprobs[s->got.count] = got->chosen.logprob;
    s->got.ids[s->got.count++] = got->chosen.id;
    take_text(s);
}

static void on_scored(void *arg, struct output *output, const struct session *session,
                      const struct sampler_result *got)
{
    (void)arg, (void)session;
    struct sent *s = sent_of(output);
    must(s->got.score_count < s->kind->prompt_tokens - 1 && s->got.count == 0);
    must(got->chosen.id == s->kind->ids[++s->got.score_count]);
    s->got.scores[s->got.score_count - 1] = got->chosen.logprob;
}

static void on_end(void *arg, struct output *output, const struct session *session)
{
    struct life *f = arg;
    struct sent *s = sent_of(output);
    struct automaton *automaton = output->spec.automaton;
    if (session->end != SESSION_END_STOP) must(output_close(output) == 0);
    take_text(s);
    must(output->failed == 0 && session_generated(session) == s->got.count);
    s->got.end = session->end;
    s->session = NULL;
    output_fini(output);
    if (automaton) masks_close(executor_masks(f->x), automaton);
    f->open--;
}

static struct automaton *open_grammar(struct executor *x, const struct grammar_spec *spec)
{
    struct grammar *g = NULL;
    struct automaton *automaton = NULL;
    uint8_t key[SHA256_BYTES];
    if (spec->kind == GRAMMAR_NONE) return NULL;
    must(grammar_compile(spec, &g, NULL) == 0);
    sha256(spec->text.data, spec->text.len, key);
    must(masks_open(executor_masks(x), key, false, &g, &automaton) == 0);
    return automaton;
}

static void open_life(struct life *f, const struct sched_config *sched)
{
    const struct executor_config config = {
        .sched = *sched, .threads = 1, .lora_rank_max = TINY_ADAPTER_RANK, .perf = &flat_perf
    };
    const struct executor_events events = {
        .on_token = on_token, .on_scored = on_scored, .on_end = on_end, .arg = f
    };
    now_us = 10000000;
    must(executor_new(model, &config, &events, &f->x, NULL) == 0);
}

static void close_life(struct life *f)
{
    for (uint32_t i = 0; i < f->count; i++)
        buf_fini(&f->sent[i].got.text);
    executor_free(f->x);
}

/* Keys of pages are the adapter's own, as http_api_salt makes them. */
static struct block_key salt_of(const struct kind *k)
{
    const struct str none = { 0 };
    return block_salt(1, none, k->spec.adapter ? str_from(k->spec.adapter->digest) : none, none);
}

/* Submits a request, which goes on from `from` tokens of its truth. False: the queue is full. */
static bool submit(struct life *f, const struct kind *k, uint32_t from, struct sched_request *req)
{
    struct sent *s = &f->sent[f->count];
    struct output_spec spec = k->spec;
    *s = (struct sent){ .kind = k, .from = from };
    req->id = f->count;
    req->owner = &s->output;
    req->ids = k->ids;
    req->salt = salt_of(k);
    req->prompt_tokens = k->prompt_tokens + from;
    req->output_max = k->output_max - from;
    req->begun = from > 0;
    req->score_from = k->scores && from == 0;
    req->score_end = req->score_from ? k->prompt_tokens : 0;
    spec.automaton = open_grammar(f->x, &k->grammar);
    must(output_init(&s->output, model_info(model)->vocab, &spec, k->ids, req->prompt_tokens) == 0);
    if (sched_submit(executor_sched(f->x), req, &s->session, NULL) < 0) {
        output_fini(&s->output);
        if (spec.automaton) masks_close(executor_masks(f->x), spec.automaton);
        return false;
    }
    f->count++;
    f->open++;
    return true;
}

static void step(struct life *f)
{
    struct executor_step_info info;
    now_us += STEP_US;
    must(executor_step(f->x, clock_us, &info, NULL) >= 0);
    must(sched_check(executor_sched(f->x)));
}

/* ---- the truth ---- */

static void find_truth(struct kind *k)
{
    struct sched_config alone = { .pages = CONTEXT / KV_PAGE_GRANULE,
                                  .page_tokens = KV_PAGE_GRANULE,
                                  .context_max = CONTEXT,
                                  .seqs_max = 1,
                                  .batch_tokens_max = CONTEXT,
                                  .waiting_max = 1,
                                  .events_max = 1 };
    static struct life f;
    struct sched_request req = { 0 };
    f = (struct life){ 0 };
    open_life(&f, &alone);
    must(submit(&f, k, 0, &req));
    for (uint32_t i = 0; f.open > 0; i++) {
        must(i < 2 * CONTEXT);
        step(&f);
    }
    k->truth = f.sent[0].got;
    f.sent[0].got.text = (struct buf){ 0 };
    memcpy(k->ids + k->prompt_tokens, k->truth.ids, k->truth.count * sizeof *k->ids);
    k->known = true;
    close_life(&f);
}

/* Digests stand for files, which adapter_load reads; here they are numbers. */
static struct adapter *make_adapter(uint64_t seed)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    CLEANUP(adapter_file_fini) struct adapter_file file = { 0 };
    struct adapter *a = NULL;
    tiny_adapter(seed, &bytes);
    const struct str all = buf_view(&bytes);
    const struct gguf_source source = memory_source(&all);
    must(adapter_file_gguf(&source, "llama", false, &file, NULL) == 0);
    must(adapter_pack(&file, model, TINY_ADAPTER_RANK, &a, NULL) == 0);
    snprintf(a->digest, sizeof a->digest, "%064x", (unsigned)seed);
    return a;
}

static void open_model(void)
{
    char path[64];
    int fd = tiny_model_path(TINY_CONTEXT, path);
    must(model_load(path, NULL, &model, NULL) == 0);
    close(fd);
    for (uint32_t i = 0; i < ADAPTERS; i++)
        adapters[i] = make_adapter(1 + i);
}

static struct kind *kind_of(uint32_t i)
{
    if (!model) open_model();
    if (kinds[i].prompt_tokens == 0) make_kind(&kinds[i], i);
    if (!kinds[i].known) find_truth(&kinds[i]);
    return &kinds[i];
}

/* ---- a run ---- */

static struct sched_config draw_config(struct fuzz_choices *c)
{
    struct sched_config config = { .page_tokens = KV_PAGE_GRANULE << fuzz_below(c, 2),
                                   .context_max = CONTEXT,
                                   .events_max = 64 };
    config.policies = (struct step_policies){ .fair = fair_table[fuzz_u8(c) % fair_count],
                                              .order = order_table[fuzz_u8(c) % order_count],
                                              .admit = admit_table[fuzz_u8(c) % admit_count],
                                              .preempt = preempt_table[fuzz_u8(c) % preempt_count],
                                              .chunk = chunk_table[fuzz_u8(c) % chunk_count],
                                              .evict = evict_table[fuzz_u8(c) % evict_count],
                                              .draft = draft_table[fuzz_u8(c) % draft_count] };
    config.pages = ceil_div_u32(CONTEXT, config.page_tokens) + fuzz_below(c, 16);
    config.seqs_max = 1 + fuzz_below(c, 6);
    config.batch_tokens_max = config.seqs_max + fuzz_below(c, 100);
    config.swap_pages = fuzz_below(c, 3) == 0 ? fuzz_below(c, 24) : 0;
    config.swap_page_s = 1e-5 * fuzz_below(c, 64);
    config.prefix_cache = fuzz_below(c, 4) > 0;
    config.step_s_max = 2e-3 * fuzz_below(c, 3);
    config.ttft_s_max = 0.02 * fuzz_below(c, 3);
    config.waiting_max = 1 + fuzz_below(c, SENT_MAX);
    return config;
}

static void draw_request(struct life *f, struct fuzz_choices *c)
{
    const struct kind *k = kind_of(fuzz_below(c, KINDS));
    uint32_t how = fuzz_u8(c);
    uint32_t samples = how % 16 == 15 ? 4 : 1, from = 0;
    if (how % 16 == 14 && k->truth.count > 1) from = 1 + fuzz_below(c, k->truth.count - 1);
    bool due = how % 16 == 13;
    for (uint32_t i = 0; i < samples && f->count < SENT_MAX; i++) {
        struct sched_request req = { .arrival_us = now_us,
                                     .predicted_p50 = fuzz_below(c, 40),
                                     .predicted_mean = fuzz_below(c, 40),
                                     .tenant = how >> 4 & 3,
                                     .group = how >> 6,
                                     .deadline_us = due ? now_us + 1 + 9 * STEP_US : 0 };
        if (submit(f, k, from, &req)) f->sent[f->count - 1].cut = due;
        k = kind_of((uint32_t)(k - kinds) ^ 1); /* the other sample of the prompt */
    }
}

static void choose(struct life *f, struct fuzz_choices *c)
{
    uint32_t op = fuzz_below(c, 16);
    struct sent *s = f->count > 0 ? &f->sent[fuzz_below(c, f->count)] : NULL;
    struct scheduler *sched = executor_sched(f->x);
    if (op < 6 && f->count < SENT_MAX) {
        draw_request(f, c);
    } else if (op == 6 && s && s->session) {
        sched_abort(sched, s->session);
        s->cut = true;
    } else if (op == 7 && s && s->session) {
        sched_pause(sched, s->session, !s->session->paused);
    } else if (op == 8 && s && s->session) {
        sched_hold(sched, s->session, !s->session->held);
    } else if (op == 9) {
        now_us += fuzz_u8(c) * (int64_t)STEP_US;
    } else {
        step(f);
    }
}

static uint64_t had_so_far(const struct life *f)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->count; i++)
        n += f->sent[i].got.count + f->sent[i].got.score_count + !f->sent[i].session;
    return n;
}

static void finish(struct life *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        struct session *x = f->sent[i].session;
        if (x && x->paused) sched_pause(executor_sched(f->x), x, false);
        if (x && x->held) sched_hold(executor_sched(f->x), x, false);
    }
    uint64_t had = 0;
    for (uint32_t quiet = 0; f->open > 0;) {
        uint64_t has = had_so_far(f);
        quiet = has > had ? 0 : quiet + 1;
        must(quiet < QUIET_STEPS_MAX);
        had = has;
        step(f);
    }
    struct sched_counts n;
    sched_counts_get(executor_sched(f->x), &n);
    must(n.running + n.waiting + n.paused == 0 && !sched_has_work(executor_sched(f->x)));
    const struct kv_pool *pool = sched_index(executor_sched(f->x))->pool;
    must(pool->held_count == 0 && pool->free_count + pool->cached_count == pool->total);
}

/* Checks that a request brought its truth, bit for bit, behind the tokens that it began with. */
static void check(const struct sent *s)
{
    const struct brought *got = &s->got, *want = &s->kind->truth;
    bool whole = got->end == SESSION_END_STOP || got->end == SESSION_END_LENGTH;
    must(whole || s->cut || got->end == SESSION_END_DISPLACED);
    must(whole ? got->count + s->from == want->count && got->end == want->end
               : got->count + s->from <= want->count);
    must(memcmp(got->ids, want->ids + s->from, got->count * sizeof *got->ids) == 0);
    must(memcmp(got->logprobs, want->logprobs + s->from, got->count * sizeof *got->logprobs) == 0);
    must(got->score_count <= want->score_count);
    must(memcmp(got->scores, want->scores, got->score_count * sizeof *got->scores) == 0);
    if (whole && s->from == 0) must(got->score_count == want->score_count);
    if (whole) must(str_ends(buf_view(&want->text), buf_view(&got->text)));
    if (whole && s->from == 0) must(got->text.len == want->text.len);
}

/* The flat cost is an executor and the truths that a run is the first to ask for; one byte may send four
 * requests. */
const struct fuzz_cost fuzz_cost = { 400000000, 4000000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    static struct life f;
    struct fuzz_choices c = { data, len };
    kind_of(0); /* the model */
    struct sched_config config = draw_config(&c);
    f = (struct life){ 0 };
    open_life(&f, &config);
    while (c.len > 0)
        choose(&f, &c);
    finish(&f);
    for (uint32_t i = 0; i < f.count; i++)
        check(&f.sent[i]);
    close_life(&f);
}
