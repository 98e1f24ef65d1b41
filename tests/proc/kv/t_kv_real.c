/* t_kv_real.c - transfers K and V from engine to engine: outputs equal those from computed K and V, token
 * for token and byte for byte, also when one engine continues the output of another. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/http/http_fetch.h"
#include "tests/proc/kv/kv_rig.h"
#include "tests/unit/engine/tiny_model.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ENDED(how) "muster_engine_kv_fetches_total{end=\"" how "\"}"
#define FETCHED "muster_engine_kv_fetched_tokens_total"
#define SENT "muster_engine_kv_sent_bytes_total"
#define READS "muster_engine_http_requests_total{path=\"/internal/kv/read\",status=\"200\"}"
#define HEAD 24 /* tokens of an output that is cut at each position */

static void same_answer(const struct kv_answer *x, const struct kv_answer *y)
{
    assert_int_equal(x->status, 200);
    assert_int_equal(y->status, 200);
    assert_int_equal(x->count, y->count);
    assert_memory_equal(x->ids, y->ids, x->count * sizeof *x->ids);
    assert_string_equal(x->text.data, y->text.data);
    assert_int_equal(x->finish, y->finish);
}

static void what_was_fetched_answers_as_what_was_computed(void **state)
{
    (void)state;
    static const struct sampling how[] = {
        { .top_p = 1, .repetition_penalty = 1 },
        { .temperature = 0.8, .top_p = 0.9, .repetition_penalty = 1 },
        { .temperature = 1.5,
          .top_p = 1,
          .min_p = 0.01,
          .top_k = 40,
          .repetition_penalty = 1.2,
          .frequency_penalty = 0.5 },
    };
    CLEANUP(kv_answer_fini) struct kv_answer alone = { 0 };
    CLEANUP(kv_answer_fini) struct kv_answer there = { 0 };
    CLEANUP(kv_answer_fini) struct kv_answer here = { 0 };
    /* A hit leaves at least one token to compute, also of a prompt of whole pages. */
    const uint32_t prompts[] = { 100, 96, 17 }, cached[] = { 96, 95, 16 };
    double pulled = 0, fetches = 0;
    for (uint32_t i = 0; i < COUNT_OF(how); i++) {
        struct generate_request req = kv_request(prompts[i], 1 + i);
        req.sampling = how[i];
        req.sampling.has_seed = true;
        req.sampling.seed = i;
        req.max_tokens = 30;
        kv_generate(&kv_a, &req, &there);
        assert_int_equal(there.usage.cached_tokens, 0);
        req.tenant = STR("alone");
        kv_generate(&kv_b, &req, &alone);
        assert_int_equal(alone.usage.cached_tokens, 0);
        same_answer(&alone, &there);
        req.tenant = STR("one");
        kv_from(&req, &kv_a);
        kv_generate(&kv_b, &req, &here);
        assert_int_equal(here.usage.cached_tokens, cached[i]);
        same_answer(&alone, &here);
        pulled += prompts[i] / KV_RIG_PAGE * KV_RIG_PAGE;
        assert_true(kv_metric(&kv_b, FETCHED) == pulled);
        assert_true(kv_metric(&kv_b, ENDED("whole")) == ++fetches);
        /* It is in the cache for the next request too, without a peer. */
        req.kv_host = req.kv_ticket = req.kv_key = (struct str){ 0 };
        req.kv_port = 0;
        kv_generate(&kv_b, &req, &here);
        assert_int_equal(here.usage.cached_tokens, cached[i]);
        same_answer(&alone, &here);
    }
    int64_t token_bytes = 2 * 2 * 16 * 2 * 2; /* layers, heads, their width, K and V, F16 */
    assert_true(kv_metric(&kv_a, SENT) == pulled * (double)token_bytes);
    assert_true(kv_metric(&kv_a, FETCHED) == 0 && kv_metric(&kv_b, SENT) == 0);
}

static void another_tenant_gets_nothing(void **state)
{
    (void)state;
    CLEANUP(kv_answer_fini) struct kv_answer x = { 0 };
    CLEANUP(kv_answer_fini) struct kv_answer y = { 0 };
    struct generate_request req = kv_request(100, 1);
    kv_generate(&kv_a, &req, &x);
    req.tenant = STR("two");
    kv_from(&req, &kv_a);
    kv_generate(&kv_b, &req, &y);
    assert_int_equal(y.usage.cached_tokens, 0);
    same_answer(&x, &y);
    assert_true(kv_metric(&kv_b, ENDED("dry")) == 1);
    assert_true(kv_metric(&kv_a, SENT) == 0);
}

/* A ticket lets a peer read the pages of one tenant, in one life of the engine, until its expiry. */
static void a_ticket_opens_one_tenant(void **state)
{
    (void)state;
    CLEANUP(kv_answer_fini) struct kv_answer x = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    struct generate_request req = kv_request(100, 2);
    kv_generate(&kv_a, &req, &x);
    static const struct {
        const char *tenant;
        bool other_boot, is_over, other_path;
        int status;
    } rows[] = {
        { "one", false, false, false, 200 }, { "two", false, false, false, 403 },
        { "", false, false, false, 403 },    { "one", true, false, false, 403 },
        { "one", false, true, false, 403 },  { "one", false, false, true, 401 },
    };
    const struct kv_read_request read = { req.ids, req.id_count, STR("one"), 0 };
    assert_int_equal(kv_read_request_encode(&read, &body), 0);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kv_ticket ticket;
        struct auth_ticket t;
        struct signed_as as;
        char tenant[AUTH_TENANT_BYTES_MAX];
        kv_ticket_make(kv_a.port, str_from(rows[i].tenant), &ticket);
        assert_int_equal(auth_ticket_parse(str_from(ticket.text), tenant, &t), 0);
        if (rows[i].other_boot) t.epoch ^= 1;
        if (rows[i].is_over) t.until_us = 1;
        struct auth_ticket made = t;
        assert_int_equal(auth_ticket_print(&made, ticket.text), 0);
        as.id = str_from(ticket.text);
        assert_int_equal(auth_key_of(kv_rig_secret(), as.id, &as.key), 0);
        const struct http_header json = { STR("content-type"), STR("application/json") };
        const struct http_fetch_request ask = {
            .host = STR("127.0.0.1"),
            .port = kv_a.port,
            .path = str_from(rows[i].other_path ? "/internal/kv/pull" : "/internal/kv/read"),
            .headers = &json,
            .header_count = 1,
            .body = buf_view(&body),
            .as = &as,
            .timeout_us = RIG_WAIT_US,
        };
        int status = 0;
        buf_clear(&reply);
        assert_int_equal(http_fetch(&ask, &status, &reply, NULL), 0);
        if (status != rows[i].status) fail_msg("row %zu: %d %.200s", i, status, reply.data);
    }
    /* A changed ticket does not fit its key. */
    struct kv_ticket ticket;
    struct signed_as as;
    kv_ticket_make(kv_a.port, STR("two"), &ticket);
    assert_int_equal(auth_key_of(kv_rig_secret(), str_from(ticket.text), &as.key), 0);
    kv_ticket_make(kv_a.port, STR("one"), &ticket);
    as.id = str_from(ticket.text);
    const struct http_fetch_request ask = { .host = STR("127.0.0.1"),
                                            .port = kv_a.port,
                                            .path = STR("/internal/kv/read"),
                                            .body = buf_view(&body),
                                            .as = &as,
                                            .timeout_us = RIG_WAIT_US };
    int status = 0;
    assert_int_equal(http_fetch(&ask, &status, &reply, NULL), -EBADMSG);
}

static void a_fetch_says_what_is_here_and_what_came(void **state)
{
    (void)state;
    CLEANUP(kv_answer_fini) struct kv_answer x = { 0 };
    struct generate_request req = kv_request(100, 3);
    struct kv_fetch_reply got = kv_fetch_now(&kv_b, req.ids, 100, "one", kv_a.port);
    assert_true(got.tokens == 0 && got.pulled == 0);
    kv_generate(&kv_a, &req, &x);
    got = kv_fetch_now(&kv_b, req.ids, 50, "one", kv_a.port); /* three whole pages of them */
    assert_true(got.tokens == 48 && got.pulled == 48);
    got = kv_fetch_now(&kv_b, req.ids, 100, "one", kv_a.port);
    assert_true(got.tokens == 96 && got.pulled == 48);
    got = kv_fetch_now(&kv_b, req.ids, 100, "one", kv_a.port);
    assert_true(got.tokens == 96 && got.pulled == 0);
    got = kv_fetch_now(&kv_b, req.ids, 100, "two", kv_a.port);
    assert_true(got.tokens == 0 && got.pulled == 0);
    got = kv_fetch_now(&kv_b, req.ids, 100, "one", kv_b.port); /* from itself */
    assert_true(got.tokens == 96 && got.pulled == 0);
    got = kv_fetch_now(&kv_b, req.ids, 15, "one", kv_a.port); /* less than a page */
    assert_true(got.tokens == 0 && got.pulled == 0);
    /* No session holds them; they stay in the cache, where others may fetch them. */
    assert_true(kv_metric(&kv_b, "muster_engine_kv_pages{state=\"held\"}") == 0);
    assert_true(kv_metric(&kv_b, "muster_engine_kv_pages{state=\"cached\"}") == 6);
    struct rig_process c = kv_engine(kv_tiny, NULL);
    got = kv_fetch_now(&c, req.ids, 100, "one", kv_b.port);
    assert_true(got.tokens == 96 && got.pulled == 96);
    kv_engine_stop(&c);
}

/* Routers learn of fetched pages just as of computed ones. */
static void routers_hear_of_what_came(void **state)
{
    (void)state;
    CLEANUP(kv_answer_fini) struct kv_answer x = { 0 };
    CLEANUP(buf_fini) struct buf seen = { 0 };
    char ask[256];
    struct generate_request req = kv_request(64, 4);
    kv_generate(&kv_a, &req, &x);
    int fd = rig_connect(kv_b.port, 0);
    int len = snprintf(ask, sizeof ask, "GET /internal/events HTTP/1.1\r\nhost: x\r\n%s\r\n\r\n",
                       kv_rig_header());
    assert_int_equal(send(fd, ask, (size_t)len, MSG_NOSIGNAL), len);
    struct kv_fetch_reply got = kv_fetch_now(&kv_b, req.ids, 64, "one", kv_a.port);
    assert_int_equal(got.pulled, 64);
    while (!seen.data || !strstr(seen.data, "\"seq\":4")) {
        char chunk[4096];
        ssize_t n = recv(fd, chunk, sizeof chunk, 0);
        assert_true(n > 0);
        buf_append(&seen, chunk, (size_t)n);
    }
    close(fd);
}

/* The prefix is larger than one reply can be: 1200 tokens of 16 KiB are 18.75 MiB, so three reads, each
 * from where the last one ended. */
static void a_long_prefix_takes_several_reads(void **state)
{
    (void)state;
    const char *const args[] = { "--kv-cache-dtype", "f32", "--kv-cache-memory-bytes", "80MiB",
                                 NULL };
    CLEANUP(kv_answer_fini) struct kv_answer there = { 0 };
    CLEANUP(kv_answer_fini) struct kv_answer here = { 0 };
    struct rig_process c = kv_engine(kv_wide, args), d = kv_engine(kv_wide, args);
    struct generate_request req = kv_request(1200, 5);
    assert_int_equal(KV_READ_BYTES_MAX / WIDE_KV_BYTES, 512);
    kv_generate(&c, &req, &there);
    kv_from(&req, &c);
    kv_generate(&d, &req, &here);
    assert_int_equal(here.usage.cached_tokens, 1199);
    same_answer(&there, &here);
    assert_true(kv_metric(&c, READS) == 3);
    assert_true(kv_metric(&c, SENT) == 1200.0 * WIDE_KV_BYTES);
    assert_true(kv_metric(&d, ENDED("whole")) == 1);
    /* F16 here, F32 there: the pages do not fit, and the fetch says so. */
    struct rig_process e = kv_engine(kv_wide, NULL);
    struct kv_fetch_reply got = kv_fetch_now(&e, req.ids, 1200, "one", c.port);
    assert_true(got.tokens == 0 && got.pulled == 0);
    assert_true(kv_metric(&e, ENDED("misfit")) == 1);
    kv_engine_stop(&c);
    kv_engine_stop(&d);
    kv_engine_stop(&e);
}

/* Codes travel as they lie: engines of one type take each other's pages and answer as if alone; engines of
 * another type, or floats, refuse them. */
static void codes_are_fetched_by_their_own_type_alone(void **state)
{
    (void)state;
    static const char *const types[] = { "q8", "q4" };
    const double token_bytes =
        2 * 2 * 2 * (16 + 2); /* of both: heads of 16 are half a group of Q4 */
    for (uint32_t i = 0; i < COUNT_OF(types); i++) {
        const char *const args[] = { "--kv-cache-dtype", types[i], NULL };
        CLEANUP(kv_answer_fini) struct kv_answer there = { 0 };
        CLEANUP(kv_answer_fini) struct kv_answer here = { 0 };
        struct rig_process c = kv_engine(kv_tiny, args), d = kv_engine(kv_tiny, args);
        struct generate_request req = kv_request(100, 80 + i);
        kv_generate(&c, &req, &there);
        kv_from(&req, &c);
        kv_generate(&d, &req, &here);
        assert_int_equal(here.usage.cached_tokens, 96);
        same_answer(&there, &here);
        assert_true(kv_metric(&c, SENT) == 96 * token_bytes);
        double misfits = kv_metric(&kv_b, ENDED("misfit"));
        struct kv_fetch_reply got = kv_fetch_now(&kv_b, req.ids, 100, "one", c.port);
        assert_true(got.tokens == 0 && got.pulled == 0);
        assert_true(kv_metric(&kv_b, ENDED("misfit")) == misfits + 1);
        const char *const other[] = { "--kv-cache-dtype", types[1 - i], NULL };
        struct rig_process e = kv_engine(kv_tiny, other);
        got = kv_fetch_now(&e, req.ids, 100, "one", c.port);
        assert_true(got.tokens == 0 && got.pulled == 0);
        assert_true(kv_metric(&e, ENDED("misfit")) == 1);
        kv_engine_stop(&c);
        kv_engine_stop(&d);
        kv_engine_stop(&e);
    }
}

/* ---- outputs continued at another engine ------------------------------------------------------ */

/* Generates the first `cut` tokens at A and the rest at B, which fetches K and V from A, and compares both
 * together with the whole output of A. */
static void cut_at(struct generate_request req, uint32_t cut, const struct kv_answer *whole)
{
    CLEANUP(kv_answer_fini) struct kv_answer first = { 0 };
    CLEANUP(kv_answer_fini) struct kv_answer rest = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint32_t ids[KV_RIG_IDS_MAX], all = req.max_tokens, prompt = req.id_count;
    req.goes_on = true;
    req.max_tokens = cut;
    kv_generate(&kv_a, &req, &first);
    buf_str(&text, buf_view(&first.text));
    if (first.finish == FINISH_LENGTH) {
        assert_int_equal(first.count, cut);
        memcpy(ids, req.ids, prompt * sizeof *ids);
        memcpy(ids + prompt, first.ids, cut * sizeof *ids);
        req.goes_on = false;
        req.ids = ids;
        req.id_count = prompt + cut;
        req.max_tokens = all - cut;
        kv_from(&req, &kv_a);
        kv_generate(&kv_b, &req, &rest);
        assert_int_equal(rest.status, 200);
        /* A has computed the whole output before: all whole pages before the last token can be fetched. */
        uint32_t there = (prompt + cut) / KV_RIG_PAGE * KV_RIG_PAGE;
        assert_int_equal(rest.usage.cached_tokens, min_u32(there, prompt));
        buf_str(&text, buf_view(&rest.text));
    }
    enum finish finish = first.finish == FINISH_LENGTH ? rest.finish : first.finish;
    assert_int_equal(first.count + rest.count, whole->count);
    assert_memory_equal(first.ids, whole->ids, first.count * sizeof *first.ids);
    assert_memory_equal(rest.ids, whole->ids + first.count, rest.count * sizeof *rest.ids);
    buf_text(&text, "");
    assert_string_equal(text.data, whole->text.data);
    assert_int_equal(finish, whole->finish);
}

/* Returns the position of a character of several bytes that was drawn byte by byte, or SIZE_MAX. */
static size_t find_wide(const struct buf *text)
{
    for (size_t i = 1; i + 1 < text->len; i++) {
        uint8_t lead = (uint8_t)text->data[i];
        bool replaced = text->len - i >= 3 && memcmp(text->data + i, "\xef\xbf\xbd", 3) == 0;
        if (lead >= 0xc2 && !replaced) return i;
        if (replaced) i += 2;
    }
    return SIZE_MAX;
}

/* Makes a request with a prompt that ends within a page, at a temperature so high that all bytes occur. */
static struct generate_request wide_request(uint32_t seed)
{
    struct generate_request req = kv_request(70, 9);
    req.sampling.temperature = 3;
    req.sampling.seed = seed;
    req.max_tokens = HEAD;
    return req;
}

static uint32_t find_wide_seed(struct kv_answer *whole, size_t *ret_at)
{
    for (uint32_t seed = 1; seed < 200; seed++) {
        const struct generate_request req = wide_request(seed);
        kv_generate(&kv_a, &req, whole);
        *ret_at = find_wide(&whole->text);
        if (*ret_at != SIZE_MAX) return seed;
    }
    fail_msg("no answer has a character of several bytes");
    return 0;
}

static void an_answer_in_two_legs_is_the_answer(void **state)
{
    (void)state;
    CLEANUP(kv_answer_fini) struct kv_answer whole = { 0 };
    size_t at;
    const struct generate_request req = wide_request(find_wide_seed(&whole, &at));
    uint32_t lagging = 0;
    for (uint32_t cut = 1; cut < HEAD; cut++) {
        cut_at(req, cut, &whole);
        /* Some cut must go through a character, or this test proves nothing. */
        CLEANUP(kv_answer_fini) struct kv_answer flushed = { 0 };
        CLEANUP(kv_answer_fini) struct kv_answer held = { 0 };
        struct generate_request first = req;
        first.max_tokens = cut;
        kv_generate(&kv_a, &first, &flushed);
        first.goes_on = true;
        kv_generate(&kv_a, &first, &held);
        assert_true(held.text.len <= flushed.text.len);
        lagging += held.text.len < flushed.text.len;
    }
    assert_true(lagging > 0);
}

static void a_stop_string_may_straddle_the_cut(void **state)
{
    (void)state;
    CLEANUP(kv_answer_fini) struct kv_answer whole = { 0 };
    CLEANUP(kv_answer_fini) struct kv_answer stopped = { 0 };
    size_t at;
    struct generate_request req = wide_request(find_wide_seed(&whole, &at));
    char bytes[16];
    /* The stop string is this character and the one before it: at least three tokens. */
    size_t from = at - 1, upto = at + 1;
    while (from > 0 && ((uint8_t)whole.text.data[from] & 0xc0) == 0x80)
        from--;
    while (((uint8_t)whole.text.data[upto] & 0xc0) == 0x80)
        upto++;
    size_t len = upto - from;
    memcpy(bytes, whole.text.data + from, len);
    /* The second stop string begins often and never ends. */
    const struct str stop[] = { { bytes, len }, { "\xef\xbf\xbd never met", 13 } };
    req.stop = stop;
    req.stop_count = COUNT_OF(stop);
    kv_generate(&kv_a, &req, &stopped);
    assert_int_equal(stopped.finish, FINISH_STOP);
    assert_true(stopped.text.len < whole.text.len);
    for (uint32_t cut = 1; cut < stopped.count; cut++)
        cut_at(req, cut, &stopped);
    /* Before min_tokens no stop string counts: A holds back no text, and B sends none twice. */
    req.min_tokens = HEAD;
    kv_generate(&kv_a, &req, &stopped);
    assert_int_equal(stopped.count, HEAD);
    for (uint32_t cut = 1; cut < HEAD; cut++)
        cut_at(req, cut, &stopped);
    /* Also where min_tokens is reached at the cut, within the beginning of a stop string. */
    for (req.min_tokens = 1; req.min_tokens < HEAD; req.min_tokens++) {
        kv_generate(&kv_a, &req, &stopped);
        for (uint32_t more = 0; more < 2 && req.min_tokens + more < stopped.count; more++)
            cut_at(req, req.min_tokens + more, &stopped);
    }
}

struct running {
    struct {
        uint32_t id[512];
        uint32_t count;
    } seen;
    struct buf text, line;
    uint32_t until; /* the client leaves when so many tokens have come */
    const uint32_t *prompt;
    uint32_t prompt_count, fetched_first;
};

/* Reads frames as they come. Half way through, B pulls the known tokens' K and V while A continues. */
static int on_stream(void *arg, struct str data)
{
    struct running *r = arg;
    CLEANUP(arena_fini) struct arena arena = { 0 };
    arena_init(&arena, 1 << 20);
    buf_str(&r->line, data);
    for (;;) {
        struct generate_frame frame;
        struct str all = buf_view(&r->line);
        size_t end = str_find(all, STR("\n"));
        if (end == SIZE_MAX) return 0;
        assert_int_equal(generate_frame_decode(str_of(all.data, end), &arena, &frame, NULL), 0);
        assert_int_equal(frame.finish, FINISH_NONE);
        for (uint32_t i = 0; i < frame.id_count; i++)
            r->seen.id[r->seen.count++] = frame.ids[i];
        buf_str(&r->text, frame.text);
        buf_consume(&r->line, end + 1);
        if (r->seen.count >= r->until) return 1;
        if (r->fetched_first > 0 || r->seen.count < r->until / 2) continue;
        uint32_t ids[1024];
        memcpy(ids, r->prompt, r->prompt_count * sizeof *ids);
        memcpy(ids + r->prompt_count, r->seen.id, r->seen.count * sizeof *ids);
        uint32_t known = r->prompt_count + r->seen.count;
        struct kv_fetch_reply got = kv_fetch_now(&kv_b, ids, known, "one", kv_a.port);
        r->fetched_first = got.pulled;
        /* All whole pages before the token that is being computed. */
        assert_true(got.tokens >= (known - 1) / KV_RIG_PAGE * KV_RIG_PAGE);
    }
}

/* A running request migrates: most of its K and V are copied in the background, then it is cut off at the
 * source and continues at B, which fetches the rest too. */
static void a_running_answer_moves(void **state)
{
    (void)state;
    CLEANUP(kv_answer_fini) struct kv_answer whole = { 0 };
    CLEANUP(kv_answer_fini) struct kv_answer rest = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct rig_process alone = kv_engine(kv_tiny, NULL);
    struct generate_request req = kv_request(200, 6);
    req.sampling.temperature = 0.9;
    req.max_tokens = 300;
    kv_generate(&alone, &req, &whole);
    kv_engine_stop(&alone);
    struct running run = { .until = 120, .prompt = req.ids, .prompt_count = 200 };
    assert_int_equal(generate_encode(&req, &body), 0);
    struct str value = str_from(kv_rig_header());
    const struct http_header header = { str_cut(&value, ':'), str_trim(value) };
    const struct http_fetch_request fetch = { .host = STR("127.0.0.1"),
                                              .port = kv_a.port,
                                              .path = STR("/internal/generate"),
                                              .headers = &header,
                                              .header_count = 1,
                                              .body = buf_view(&body),
                                              .timeout_us = RIG_WAIT_US };
    int status;
    assert_int_equal(http_fetch_stream(&fetch, &status, NULL, on_stream, &run, NULL), 1);
    assert_true(run.fetched_first >= 240);
    uint32_t ids[1024];
    memcpy(ids, req.ids, 200 * sizeof *ids);
    memcpy(ids + 200, run.seen.id, run.seen.count * sizeof *ids);
    req.ids = ids;
    req.id_count = 200 + run.seen.count;
    req.max_tokens = 300 - run.seen.count;
    kv_from(&req, &kv_a);
    kv_generate(&kv_b, &req, &rest);
    assert_int_equal(rest.usage.cached_tokens, 200);
    assert_true(kv_metric(&kv_b, "muster_engine_prefix_cache_hits_total") >=
                (req.id_count - 1) / KV_RIG_PAGE * KV_RIG_PAGE);
    assert_int_equal(run.seen.count + rest.count, whole.count);
    assert_memory_equal(run.seen.id, whole.ids, run.seen.count * sizeof *ids);
    assert_memory_equal(rest.ids, whole.ids + run.seen.count, rest.count * sizeof *ids);
    buf_str(&run.text, buf_view(&rest.text));
    assert_string_equal(run.text.data, whole.text.data);
    kv_wait_metric(&kv_a, "muster_engine_requests_running", 0); /* the source noticed */
    buf_fini(&run.text);
    buf_fini(&run.line);
}

/* No engine can continue at the end of the context, so the text that was held back is sent. */
static void the_end_of_the_context_is_an_end(void **state)
{
    (void)state;
    const char *const args[] = { "--max-model-len", "80", NULL };
    CLEANUP(kv_answer_fini) struct kv_answer plain = { 0 };
    CLEANUP(kv_answer_fini) struct kv_answer on = { 0 };
    struct rig_process c = kv_engine(kv_tiny, args);
    for (uint32_t seed = 1; seed < 30; seed++) {
        struct generate_request req = wide_request(seed);
        kv_generate(&c, &req, &plain);
        req.goes_on = true;
        kv_generate(&c, &req, &on);
        assert_int_equal(on.count, 10);
        same_answer(&plain, &on);
    }
    kv_engine_stop(&c);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN"))) return RIG_SKIP;
    kv_rig_open();
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, kv_two_open, kv_two_close)
    const struct CMUnitTest tests[] = {
        CASE(what_was_fetched_answers_as_what_was_computed),
        CASE(another_tenant_gets_nothing),
        CASE(a_ticket_opens_one_tenant),
        CASE(a_fetch_says_what_is_here_and_what_came),
        CASE(routers_hear_of_what_came),
        CASE(a_long_prefix_takes_several_reads),
        CASE(codes_are_fetched_by_their_own_type_alone),
        CASE(an_answer_in_two_legs_is_the_answer),
        CASE(a_stop_string_may_straddle_the_cut),
        CASE(a_running_answer_moves),
        CASE(the_end_of_the_context_is_an_end),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kv_rig_close();
    return rig_end(failed);
}
