/* t_serve_fleet.c - tests an engine as routers and the controller see it: token ids, blocks, drain,
 * clock. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/text/bundle.h"
#include "base/wire/generate.h"
#include "base/wire/report.h"
#include "tests/unit/engine/serve_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Opens an engine with a secret and a metrics key, in files of `folder`. */
static void open_with_keys(struct engine *e, const char *folder, char secret_path[64],
                           char key_path[64])
{
    snprintf(secret_path, 64, "%s/secret", folder);
    snprintf(key_path, 64, "%s/metrics-key", folder);
    const char *const args[] = { "--secret-file", secret_path, "--metrics-key-file", key_path,
                                 NULL };
    assert_int_equal(file_write_atomic(key_path, STR("# scraper\nread-metrics\n"), 0600, NULL), 0);
    engine_open(e, args);
}

/* A scraper on this machine needs no key; one with a metrics key, or a wrong one, is judged by it. */
static void scrapers_read_metrics_only(struct engine *e)
{
    CLEANUP(buf_fini) struct buf r = { 0 };
    assert_int_equal(get(e, "/metrics", &r), 200);
    snprintf(e->bearer, sizeof e->bearer, "Bearer wrong-wrong");
    assert_int_equal(get(e, "/metrics", &r), 401);
    snprintf(e->bearer, sizeof e->bearer, "Bearer read-metrics");
    assert_int_equal(get(e, "/metrics", &r), 200);
    assert_int_equal(get(e, "/v1/models", &r), 401);
    assert_int_equal(get(e, "/internal/info", &r), 401);
    e->bearer[0] = 0;
}

static void t_the_fleet_side(void **state)
{
    (void)state;
    char folder[] = "/tmp/t_serve_XXXXXX", secret_path[64], key_path[64];
    assert_non_null(mkdtemp(folder));
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 }, body = { 0 }, text = { 0 }, whole = { 0 };
    open_with_keys(&e, folder, secret_path, key_path);
    assert_int_equal(get(&e, "/internal/info", &r), 401);
    scrapers_read_metrics_only(&e);
    assert_int_equal(post(&e, "/internal/clock", "{\"v\":1,\"clock\":0.5}", &r), 401);
    assert_int_equal(post(&e, "/v1/completions", "{\"prompt\":\"x\"}", &r), 401);
    assert_int_equal(get(&e, "/health", &r), 200);

    char secret[128] = "";
    FILE *f = fopen(secret_path, "r");
    assert_non_null(f);
    assert_non_null(fgets(secret, sizeof secret, f));
    fclose(f);
    snprintf(e.bearer, sizeof e.bearer, "Bearer %.*s", (int)strcspn(secret, "\n"), secret);
    assert_int_equal(get(&e, "/internal/info", &r), 200);
    has(&r, "\"health\":\"ready\"");
    has(&r, "\"context_tokens\":4096");

    CLEANUP(bundle_fini) struct bundle bundle = { 0 };
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    assert_int_equal(get(&e, "/internal/tokenizer", &bytes), 200);
    assert_int_equal(bundle_decode(buf_view(&bytes), NULL, &bundle, NULL), 0);
    assert_non_null(bundle.chat_template);

    uint32_t ids[40];
    for (uint32_t i = 0; i < COUNT_OF(ids); i++)
        ids[i] = 30 + i;
    struct generate_request req = {
        .id = STR("abc"),
        .ids = ids,
        .id_count = COUNT_OF(ids),
        .prompt_tokens = COUNT_OF(ids),
        .sampling = SAMPLING_DEFAULT,
        .max_tokens = 12,
        .ignore_eos = true,
        .tenant = STR("one"),
    };
    req.sampling.has_seed = true, req.sampling.seed = 5;
    for (int i = 0; i < 3; i++) {
        if (i == 2) req.tenant = STR("two");
        buf_clear(&body);
        assert_int_equal(generate_encode(&req, &body), 0);
        assert_int_equal(post(&e, "/internal/generate", body.data, &r), 200);
        struct arena arena;
        arena_init(&arena, 1 << 20);
        uint32_t tokens = 0, last = 0;
        buf_clear(&text);
        for (struct str rest = buf_view(&r); rest.len > 0;) {
            struct generate_frame frame;
            struct str line = str_cut(&rest, '\n');
            if (line.len == 0) continue;
            assert_int_equal(generate_frame_decode(line, &arena, &frame, NULL), 0);
            assert_int_equal(last, 0);
            if (tokens == 0 && frame.id_count) {
                assert_true(frame.has_usage);
                /* The second request hits the cache; another tenant has a cache of its own. */
                assert_int_equal(frame.usage.cached_tokens, i == 1 ? 32 : 0);
            }
            tokens += frame.id_count;
            buf_str(&text, frame.text);
            last = frame.finish == FINISH_LENGTH;
        }
        assert_int_equal(tokens, 12);
        assert_int_equal(last, 1);
        if (i == 0) buf_str(&whole, buf_view(&text));
        assert_true(str_eq(buf_view(&whole), buf_view(&text)));
        arena_fini(&arena);
    }
    assert_int_equal(post(&e, "/internal/drain", "", &r), 200);
    assert_int_equal(post(&e, "/internal/generate", body.data, &r), 503);
    assert_int_equal(get(&e, "/health", &r), 503);
    engine_close(&e);
    unlink(secret_path);
    unlink(key_path);
    rmdir(folder);
}

/* Nothing is sent before its end: as a stream whose client does not read it would lose its place in time. */
#define ENDLESS "{\"prompt\":\"once upon a time\",\"max_tokens\":4000,\"ignore_eos\":true}"

/* After so many a waiting request is lifted (policies/order/learned_rank.c). */
#define LIFT_STEPS 200
#define RANK_TRIES 3

/* With one place, the waiting request of lower rank runs first, although it came second: behind the other one, which
 * takes thousands of steps, it would not have ended yet. Returns false if it ended after so many steps that a request
 * may have been lifted. */
static bool lower_rank_runs_first(struct engine *e)
{
    static const uint32_t ids[] = { 30, 31, 32, 33 };
    CLEANUP(buf_fini) struct buf seen = { 0 };
    int blocker = connect_raw(e), waits[2] = { connect_raw(e), connect_raw(e) };
    send_raw(blocker, "/v1/completions", ENDLESS);
    until_metric(e, "muster_engine_requests_running", 1);
    double before = metric(e, "muster_engine_step_seconds_count");
    for (int i = 0; i < 2; i++) {
        CLEANUP(buf_fini) struct buf body = { 0 };
        const struct generate_request req = { .id = i == 0 ? STR("long") : STR("short"),
                                              .ids = ids,
                                              .id_count = COUNT_OF(ids),
                                              .prompt_tokens = COUNT_OF(ids),
                                              .sampling = SAMPLING_DEFAULT,
                                              .max_tokens = i == 0 ? ENDLESS_TOKENS : 2,
                                              .ignore_eos = true,
                                              .has_rank = true,
                                              .rank = i == 0 ? 2 : -2 };
        assert_int_equal(generate_encode(&req, &body), 0);
        send_raw(waits[i], "/internal/generate", body.data);
        until_metric(e, "muster_engine_requests_waiting", i + 1);
    }
    close(blocker);
    read_raw(waits[1], "\"finish\":\"length\"", &seen);
    bool in_time = metric(e, "muster_engine_step_seconds_count") - before < LIFT_STEPS;
    close(waits[0]);
    close(waits[1]);
    return in_time;
}

static void t_a_rank_orders_those_that_wait(void **state)
{
    (void)state;
    static const char *const args[] = { "--order", "learned_rank", "--max-num-seqs",
                                        "1",       "--cpu-share",  SLOW,
                                        NULL };
    bool in_time = false;
    for (int i = 0; i < RANK_TRIES && !in_time; i++) {
        struct engine e;
        engine_open(&e, args);
        in_time = lower_rank_runs_first(&e);
        engine_close(&e);
    }
    assert_true(in_time);
}

/* One request runs and three of one tenant fill the queue: the last of them loses its place to
 * another tenant's request, and reports it in its kind of reply. */
static void t_who_is_displaced_is_refused(void **state)
{
    (void)state;
    static const char *const args[] = {
        "--fair", "vtc", "--max-num-seqs", "1", "--max-waiting", "3", "--cpu-share", SLOW, NULL
    };
    static const struct {
        const char *path, *body, *says;
    } last[] = {
        { "/v1/completions", "{\"prompt\":\"once\",\"max_tokens\":3}", "retry-after: 1" },
        { "/v1/completions", ENDLESS_STREAM, "\"code\":\"overloaded" },
        { "/internal/generate", NULL, "\"finish\":\"refused\"" },
    };
    static const uint32_t ids[] = { 30, 31, 32, 33 };
    struct generate_request req = { .id = STR("other"),
                                    .ids = ids,
                                    .id_count = COUNT_OF(ids),
                                    .prompt_tokens = COUNT_OF(ids),
                                    .sampling = SAMPLING_DEFAULT,
                                    .max_tokens = 2 };
    for (size_t i = 0; i < COUNT_OF(last); i++) {
        CLEANUP(buf_fini) struct buf seen = { 0 }, others = { 0 }, body = { 0 };
        struct engine e;
        int asks[5];
        engine_open(&e, args);
        /* The first must outlast all that follows, also on a busy machine. */
        assert_int_equal(post(&e, "/internal/clock", "{\"v\":1,\"clock\":0.2}", &seen), 200);
        buf_clear(&seen);
        for (int k = 0; k < 4; k++) {
            asks[k] = connect_raw(&e);
            buf_clear(&body);
            assert_int_equal(generate_encode(&req, &body), 0); /* no tenant, as the others */
            send_raw(asks[k], k < 3 ? "/v1/completions" : last[i].path,
                     k == 0         ? ENDLESS
                     : k < 3        ? ENDLESS_STREAM
                     : last[i].body ? last[i].body
                                    : body.data);
            if (k == 0) until_metric(&e, "muster_engine_requests_running", 1);
            until_metric(&e, "muster_engine_requests_waiting", k);
        }
        struct generate_request other = req;
        other.tenant = STR("two");
        asks[4] = connect_raw(&e);
        buf_clear(&body);
        assert_int_equal(generate_encode(&other, &body), 0);
        send_raw(asks[4], "/internal/generate", body.data);
        read_raw(asks[3], last[i].says, &seen);
        if (i == 0) has(&seen, "HTTP/1.1 429");
        until_metric(&e, "muster_engine_requests_finished_total{reason=\"displaced\"}", 1);
        until_metric(&e, "muster_engine_requests_waiting", 3);
        close(asks[0]); /* the tenant served least is next */
        buf_clear(&others);
        read_raw(asks[4], "\"finish\":", &others);
        assert_null(strstr(others.data, "refused"));
        for (size_t k = 1; k < COUNT_OF(asks); k++)
            close(asks[k]);
        engine_close(&e);
    }
}

#define ASK_SAME \
    "{\"prompt\":\"once upon a time\",\"max_tokens\":64,\"ignore_eos\":true,\"temperature\":0}"

/* Writes the text of a whole output. */
static void output(struct engine *e, struct buf *text)
{
    CLEANUP(buf_fini) struct buf r = { 0 };
    buf_clear(text);
    assert_int_equal(post(e, "/v1/completions", ASK_SAME, &r), 200);
    read_delta(buf_view(&r), text);
    assert_true(text->len > 0);
}

static struct engine_report info(struct engine *e, struct arena *arena, struct buf *r)
{
    struct engine_report got;
    struct err err = { "" };
    assert_int_equal(get(e, "/internal/info", r), 200);
    if (engine_report_decode(buf_view(r), arena, &got, &err) < 0) fail_msg("%s", err.text);
    return got;
}

/* At half its clock an engine sleeps, reports it, and generates the same; its steps are counted. */
static void t_clock(void **state)
{
    (void)state;
    const char *const args[] = {
        "--threads", "1", "--cpu-share", "0.8", "--hardware", "cpu", NULL
    };
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 }, whole = { 0 }, slow = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    arena_init(&arena, 1 << 20);
    engine_open(&e, args);
    struct engine_report before = info(&e, &arena, &r);
    assert_true(before.clock >= 1 && before.has_work && before.has_spec);
    assert_true(str_eq(before.hardware, STR("cpu")) && before.cores > 0.79 && before.cores < 0.81);
    assert_int_equal(before.spec.vocab > 0, 1);
    output(&e, &whole);

    assert_int_equal(post(&e, "/internal/clock", "{\"v\":1,\"clock\":0.1}", &r), 400);
    has(&r, "clock: 0.1 is outside 0.2..1");
    assert_int_equal(post(&e, "/internal/clock", "{\"v\":1}", &r), 400);
    assert_int_equal(get(&e, "/internal/clock", &r), 405);
    assert_true(metric(&e, "muster_engine_clock_ratio") >= 1); /* unchanged */
    assert_int_equal(post(&e, "/internal/clock", "{\"v\":1,\"clock\":0.5}", &r), 200);
    has(&r, "\"clock\":0.5");
    double slept_s = metric(&e, "muster_engine_throttled_seconds_total");
    double samples = metric(&e, "muster_engine_perf_samples");
    while (metric(&e, "muster_engine_throttled_seconds_total") <= slept_s + 0.05) {
        output(&e, &slow);
        assert_true(str_eq(buf_view(&slow), buf_view(&whole)));
    }
    /* Its speed is not measured again, because the slept time is no speed; the gauge is a step
     * behind. */
    assert_true(metric(&e, "muster_engine_perf_samples") < samples + 2);
    struct engine_report after = info(&e, &arena, &r);
    assert_true(after.clock > 0.49 && after.clock < 0.51);
    const struct wire_work *w = &after.work, *b = &before.work;
    assert_true(w->steps >= b->steps + 64 && w->decoding_seqs >= b->decoding_seqs + 63);
    assert_true(w->prefill_tokens > b->prefill_tokens && w->prefill_chunks > b->prefill_chunks);
    assert_true(w->kv_tokens > w->kv_tokens_decoding && w->kv_tokens_decoding > 0);
    assert_true(w->busy_s > b->busy_s && w->busy_s - b->busy_s <= w->span_s - b->span_s);
    engine_close(&e);
}

static void t_block_events(void **state)
{
    (void)state;
    struct engine e;
    CLEANUP(buf_fini) struct buf seen = { 0 }, r = { 0 }, again = { 0 };
    engine_open(&e, NULL);
    int fd = connect_raw(&e);
    const char *ask = "GET /internal/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_int_equal(send(fd, ask, strlen(ask), MSG_NOSIGNAL), (ssize_t)strlen(ask));
    read_raw(fd, "\"snapshot\"", &seen);
    has(&seen, "\"page_tokens\":16");
    const char *at = strstr(seen.data, "\"boot\":\"");
    assert_non_null(at);
    char boot[17] = "";
    memcpy(boot, at + 8, 16);
    const char *body =
        "{\"prompt\":\"aaaaaaaa bb cc dd ee ff gg hh ii jj kk ll mm\",\"max_tokens\":2}";
    assert_int_equal(post(&e, "/v1/completions", body, &r), 200);
    read_raw(fd, "\"seq\":2", &seen);
    has(&seen, "\"kind\":\"add\"");
    close(fd);

    /* From a known place there is no snapshot, only the events since. */
    fd = connect_raw(&e);
    char line[256];
    int len =
        snprintf(line, sizeof line,
                 "GET /internal/events?boot=%s&from=1 HTTP/1.1\r\nhost: localhost\r\n\r\n", boot);
    assert_int_equal(send(fd, line, (size_t)len, MSG_NOSIGNAL), len);
    read_raw(fd, "\"kind\":\"add\"", &again);
    assert_null(strstr(again.data, "snapshot"));
    assert_int_equal(post(&e, "/reset_prefix_cache", "", &r), 200);
    read_raw(fd, "\"kind\":\"drop\"", &again);
    assert_null(strstr(again.data, "\"load\"")); /* not requested */
    close(fd);

    /* The load's totals go to readers that request them, and are sent as they differ from the
     * last. */
    fd = connect_raw(&e);
    buf_clear(&again);
    ask = "GET /internal/events?load=1 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_int_equal(send(fd, ask, strlen(ask), MSG_NOSIGNAL), (ssize_t)strlen(ask));
    read_raw(fd, "\"kind\":\"load\"", &again);
    has(&again, "\"uncached_total\":");
    engine_close(&e); /* with the stream open */
    close(fd);
}

static void t_a_tokenizer_is_of_the_digest_that_is_asked_for(void **state)
{
    (void)state;
    struct engine e;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char digest[SHA256_HEX + 1] = "";
    engine_open(&e, NULL);
    assert_int_equal(get(&e, "/internal/info", &reply), 200);
    const char *at = strstr(reply.data, "\"digest\":\"");
    assert_true(at && sscanf(at, "\"digest\":\"%64[0-9a-f]", digest) == 1);
    assert_int_equal(ask_with(&e, "GET", "/internal/tokenizer", NULL, "if-match", digest, &reply),
                     200);
    digest[0] ^= 1;
    assert_int_equal(ask_with(&e, "GET", "/internal/tokenizer", NULL, "if-match", digest, &reply),
                     412);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_the_fleet_side),
        cmocka_unit_test(t_a_tokenizer_is_of_the_digest_that_is_asked_for),
        cmocka_unit_test(t_clock),
        cmocka_unit_test(t_a_rank_orders_those_that_wait),
        cmocka_unit_test(t_who_is_displaced_is_refused),
        cmocka_unit_test(t_block_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
