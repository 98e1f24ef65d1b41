/* t_trace_export.c - tests the exporter against a collector that does as it is told: takes spans, refuses part
 * of them, asks for rest, hangs, is gone; and the settings of tracing. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/http/http_server.h"
#include "base/io/loop/clock.h"
#include "base/io/trace/tracer.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAIT_US 30000000
#define SPAN "{\"name\":\"%05d\"}"
#define CALLS_MAX 64

enum { T_SPANS, T_EXPORTS, T_REQUESTS, T_COUNT };
static const struct metric_desc table[T_COUNT] = {
    [T_SPANS] = { .name = "spans_total", .type = METRIC_COUNTER, .help = "x", .labels = { "r" } },
    [T_EXPORTS] = { .name = "exports_total",
                    .type = METRIC_COUNTER,
                    .help = "x",
                    .labels = { "r" } },
    [T_REQUESTS] = { .name = "requests_total",
                     .type = METRIC_COUNTER,
                     .help = "x",
                     .labels = { "d" } },
};

/* One call as the collector answers it. */
struct script {
    int status; /* 0: no answer */
    const char *retry_after, *body;
};

struct world {
    struct loop *loop;
    struct http_server *server;
    struct trace_export *exporter;
    struct metrics *metrics;
    struct trace_settings settings;
    char url[64];
    const struct script *script; /* the last holds from then on */
    uint32_t script_count, calls;
    uint32_t spans[CALLS_MAX]; /* of each call */
    int64_t at_us[CALLS_MAX];
    struct buf last;
    char secret[64];
    struct http_exchange *held;
};

static void on_left(void *arg, enum http_abort why)
{
    (void)why;
    ((struct world *)arg)->held = NULL;
}

static void on_call(void *ctx, struct http_exchange *x)
{
    struct world *w = ctx;
    const struct http_request *req = http_exchange_request(x);
    const struct script *s = &w->script[min_u32(w->calls, w->script_count - 1)];
    struct str rest = req->body, name = STR("\"name\":\"0");
    must(w->calls < CALLS_MAX);
    assert_true(str_eq(req->method, STR("POST")) && str_eq(req->path, STR("/v1/traces")));
    assert_true(str_eq(http_request_header(req, "content-type"), STR("application/json")));
    snprintf(w->secret, sizeof w->secret, STR_FMT, STR_ARG(http_request_header(req, "x-secret")));
    buf_clear(&w->last);
    buf_str(&w->last, req->body);
    w->at_us[w->calls] = loop_now_us(w->loop);
    for (size_t at; (at = str_find(rest, name)) != SIZE_MAX;) {
        w->spans[w->calls]++;
        rest = str_of(rest.data + at + name.len, rest.len - at - name.len);
    }
    w->calls++;
    if (s->status == 0) {
        w->held = x;
        http_exchange_watch(x, on_left, NULL, w);
        return;
    }
    if (s->retry_after) http_reply_header(x, "retry-after", str_from(s->retry_after));
    http_reply(x, s->status, STR("application/json"), str_from(s->body ? s->body : "{}"));
}

static void open_world(struct world *w, const struct script *script, uint32_t count,
                       uint32_t queue_max, uint32_t batch_max, int64_t delay_us)
{
    struct err err = { "" };
    *w = (struct world){ .script = script, .script_count = count };
    const struct http_server_config server = { .host = "127.0.0.1",
                                               .on_request = on_call,
                                               .ctx = w };
    assert_int_equal(loop_new(&w->loop, &err), 0);
    assert_int_equal(http_server_new(w->loop, &server, &w->server, &err), 0);
    assert_int_equal(metrics_new(table, T_COUNT, NULL, 0, &w->metrics, &err), 0);
    snprintf(w->url, sizeof w->url, "http://127.0.0.1:%u/v1/traces", http_server_port(w->server));
    w->settings = (struct trace_settings){ .on = true,
                                           .url = str_from(w->url),
                                           .timeout_us = 10000000,
                                           .header = { { STR("x-secret"), STR("of ours") } },
                                           .header_count = 1 };
    const struct trace_export_config config = {
        .settings = &w->settings,
        .resource = STR("{\"attributes\":[]}"),
        .scope_version = STR("1"),
        .queue_max = queue_max,
        .batch_max = batch_max,
        .delay_us = delay_us,
        .meters = { w->metrics, T_SPANS, T_EXPORTS },
        .seed = 7,
    };
    assert_int_equal(trace_export_new(w->loop, &config, &w->exporter, &err), 0);
}

static void close_world(struct world *w)
{
    trace_export_free(w->exporter);
    http_server_free(w->server);
    metrics_free(w->metrics);
    loop_free(w->loop);
    buf_fini(&w->last);
}

static double counted(const struct world *w, uint32_t metric, const char *label)
{
    struct str l = str_from(label);
    return metric_value(metric_series(w->metrics, metric, &l));
}

static bool offer(struct world *w, int number)
{
    char text[64];
    snprintf(text, sizeof text, SPAN, number);
    return trace_export_offer(w->exporter, str_from(text), 1);
}

/* Turns the loop until the condition holds. */
#define UNTIL(w, condition)                                                            \
    do {                                                                               \
        int64_t until_us_ = clock_mono_us() + WAIT_US;                                 \
        while (!(condition)) {                                                         \
            assert_int_equal(loop_turn((w)->loop, 10000), 0);                          \
            if (clock_mono_us() > until_us_) fail_msg("waited too long: " #condition); \
        }                                                                              \
    } while (0)

static const struct script well[] = { { 200, NULL, "{}" } };

static void spans_come_in_batches(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, well, 1, 1000, 10, 50000);
    for (int i = 0; i < 25; i++)
        assert_true(offer(&w, i));
    UNTIL(&w, counted(&w, T_SPANS, "exported") == 25);
    assert_int_equal(w.calls, 3);
    assert_int_equal(w.spans[0], 10);
    assert_int_equal(w.spans[2], 5); /* the rest came with the delay */
    assert_string_equal(w.secret, "of ours");
    struct str spans;
    CLEANUP(buf_fini) struct buf text = { 0 };
    int depth = 0;
    for (size_t i = 0; i < w.last.len; i++)
        depth += (w.last.data[i] == '{') - (w.last.data[i] == '}');
    assert_int_equal(depth, 0);
    assert_int_equal(json_path(buf_view(&w.last), "resourceSpans", &spans), 0);
    close_world(&w);
}

static void a_full_queue_drops_and_counts(void **state)
{
    (void)state;
    static const struct script hangs[] = { { 0, NULL, NULL } };
    struct world w;
    open_world(&w, hangs, 1, 20, 10, 1000);
    for (int i = 0; i < 10; i++)
        assert_true(offer(&w, i));
    UNTIL(&w, w.calls == 1); /* a batch is under way, and is never answered */
    for (int i = 0; i < 30; i++)
        assert_true(offer(&w, i) == (i < 20));
    assert_true(counted(&w, T_SPANS, "queue_full") == 10);
    assert_int_equal(w.calls, 1);
    assert_false(trace_export_offer(w.exporter, STR("{}"), 1000));
    close_world(&w);
}

static void it_rests_as_long_as_it_is_told(void **state)
{
    (void)state;
    static const struct script busy[] = { { 429, "2", NULL },
                                          { 503, "1", NULL },
                                          { 200, NULL, "" } };
    struct world w;
    open_world(&w, busy, 3, 100, 10, 1000);
    for (int i = 0; i < 10; i++)
        offer(&w, i);
    UNTIL(&w, counted(&w, T_SPANS, "exported") == 10);
    assert_int_equal(w.calls, 3);
    assert_int_equal(w.spans[0], 10);
    assert_int_equal(w.spans[2], 10); /* the same batch */
    assert_true(w.at_us[1] - w.at_us[0] >= 2000000);
    assert_true(w.at_us[2] - w.at_us[1] >= 1000000);
    assert_true(counted(&w, T_EXPORTS, "again") == 2);
    assert_true(counted(&w, T_EXPORTS, "ok") == 1);
    close_world(&w);
}

static void a_final_status_is_not_tried_again(void **state)
{
    (void)state;
    static const struct script bad[] = { { 400, "1", "{\"message\":\"no\"}" },
                                         { 200, NULL, "{}" } };
    struct world w;
    open_world(&w, bad, 2, 100, 10, 1000);
    for (int i = 0; i < 10; i++)
        offer(&w, i);
    UNTIL(&w, counted(&w, T_SPANS, "undelivered") == 10);
    for (int i = 10; i < 13; i++)
        offer(&w, i);
    UNTIL(&w, counted(&w, T_SPANS, "exported") == 3);
    assert_int_equal(w.calls, 2);
    assert_true(counted(&w, T_EXPORTS, "refused") == 1);
    close_world(&w);
}

struct partial_row {
    const char *why, *body;
    int refused;
};

static const struct partial_row partials[] = {
    { "all were taken", "{\"partialSuccess\":{}}", 0 },
    { "a number as the mapping has it", "{\"partialSuccess\":{\"rejectedSpans\":\"3\"}}", 3 },
    { "a plain number", "{\"partialSuccess\":{\"rejectedSpans\":4,\"errorMessage\":\"no room\"}}",
      4 },
    { "a warning alone", "{\"partialSuccess\":{\"errorMessage\":\"slow down\"}}", 0 },
    { "more than were sent", "{\"partialSuccess\":{\"rejectedSpans\":\"99\"}}", 10 },
    { "an empty body", "", 0 },
    { "no JSON", "<html>", 0 },
};

static void a_partial_success_is_counted(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(partials); i++) {
        const struct script once[] = { { 200, NULL, partials[i].body } };
        struct world w;
        open_world(&w, once, 1, 100, 10, 1000);
        for (int k = 0; k < 10; k++)
            offer(&w, k);
        double refused = partials[i].refused;
        UNTIL(&w, counted(&w, T_SPANS, "exported") + counted(&w, T_SPANS, "refused") == 10);
        if (counted(&w, T_SPANS, "refused") != refused ||
            counted(&w, T_EXPORTS, refused > 0 ? "partial" : "ok") != 1)
            fail_msg("%s: %g", partials[i].why, counted(&w, T_SPANS, "refused"));
        close_world(&w);
    }
}

/* A collector that is gone costs a batch its tries; what waits meanwhile is bounded by the queue. */
static void a_collector_that_is_gone(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, well, 1, 100, 10, 1000);
    http_server_free(w.server);
    w.server = NULL;
    for (int i = 0; i < 10; i++)
        offer(&w, i);
    UNTIL(&w, counted(&w, T_EXPORTS, "again") >= 2);
    assert_true(counted(&w, T_SPANS, "exported") == 0);
    struct trace_export *gone = TAKE(w.exporter);
    trace_export_free(gone); /* what was not sent is told */
    assert_true(counted(&w, T_SPANS, "undelivered") == 10);
    close_world(&w);
}

static void a_call_that_hangs_ends_at_its_timeout(void **state)
{
    (void)state;
    static const struct script hangs[] = { { 0, NULL, NULL }, { 200, NULL, "{}" } };
    struct world w;
    open_world(&w, hangs, 2, 100, 10, 1000);
    w.settings.timeout_us = 100000;
    for (int i = 0; i < 10; i++)
        offer(&w, i);
    UNTIL(&w, counted(&w, T_SPANS, "exported") == 10);
    assert_int_equal(w.calls, 2);
    close_world(&w);
}

static void a_flush_waits_for_no_delay(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, well, 1, 100, 10, 3600000000);
    for (int i = 0; i < 3; i++)
        offer(&w, i);
    trace_export_flush(w.exporter, WAIT_US);
    assert_true(counted(&w, T_SPANS, "exported") == 3);
    close_world(&w);
}

static void without_memory_a_span_is_dropped(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, well, 1, 100, 10, 1000);
    fault_arm("trace.item", 1);
    assert_false(offer(&w, 1));
    fault_disarm();
    assert_true(counted(&w, T_SPANS, "queue_full") == 1);
    assert_true(offer(&w, 2));
    UNTIL(&w, counted(&w, T_SPANS, "exported") == 1);
    close_world(&w);
}

static void retry_after_has_two_forms(void **state)
{
    (void)state;
    const int64_t now_us = 784111777LL * 1000000; /* Sun, 06 Nov 1994 08:49:37 GMT */
    static const struct {
        const char *text;
        int64_t seconds;
    } rows[] = {
        { "", 0 },
        { "5", 5 },
        { " 7 ", 7 },
        { "-1", 0 },
        { "soon", 0 },
        { "999999999", TRACE_RETRY_AFTER_S_MAX },
        { "Sun, 06 Nov 1994 08:49:47 GMT", 10 },
        { "Sun, 06 Nov 1994 08:49:27 GMT", 0 },
        { "Mon, 07 Nov 1994 08:49:37 GMT", TRACE_RETRY_AFTER_S_MAX },
        { "Sun, 06 Xyz 1994 08:49:47 GMT", 0 },
        { "Sun, 06 Nov 1994 08:49:47 GMT+1", 0 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (trace_retry_after_s(str_from(rows[i].text), now_us) != rows[i].seconds)
            fail_msg("%s: %ld", rows[i].text,
                     (long)trace_retry_after_s(str_from(rows[i].text), now_us));
}

/* ---- settings ---- */

struct settings_row {
    const char *why;
    const char *endpoint, *sampler; /* of the section */
    const char *environ[6];
    const char *url; /* "": no traces; NULL: an error */
    const char *problem;
};

static const struct settings_row settings_rows[] = {
    { "nothing is set", NULL, NULL, { NULL }, "", NULL },
    { "a base", "http://c:4318", NULL, { NULL }, "http://c:4318/v1/traces", NULL },
    { "a base with a slash", "http://c:4318/", NULL, { NULL }, "http://c:4318/v1/traces", NULL },
    { "a path", "https://c/otlp/traces", NULL, { NULL }, "https://c/otlp/traces", NULL },
    { "no URL", "c:4318", NULL, { NULL }, NULL, "want http://" },
    { "the variable's base",
      NULL,
      NULL,
      { "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318/x/" },
      "http://c:4318/x/v1/traces",
      NULL },
    { "the variable for traces is used as it is",
      NULL,
      NULL,
      { "OTEL_EXPORTER_OTLP_ENDPOINT=http://c", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://t/" },
      "http://t/",
      NULL },
    { "ours comes first",
      "http://c",
      NULL,
      { "OTEL_EXPORTER_OTLP_ENDPOINT=http://d" },
      "http://c/v1/traces",
      NULL },
    { "switched off", "http://c", NULL, { "OTEL_SDK_DISABLED=true" }, "", NULL },
    { "no exporter",
      NULL,
      NULL,
      { "OTEL_EXPORTER_OTLP_ENDPOINT=http://d", "OTEL_TRACES_EXPORTER=none" },
      "",
      NULL },
    { "gRPC is not spoken",
      NULL,
      NULL,
      { "OTEL_EXPORTER_OTLP_ENDPOINT=http://d:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc" },
      "",
      NULL },
    { "an unknown sampler", "http://c", "sometimes", { NULL }, NULL, "no sampler 'sometimes'" },
    { "of the variable too",
      "http://c",
      NULL,
      { "OTEL_TRACES_SAMPLER=jaeger_remote" },
      NULL,
      "no sampler 'jaeger_remote'" },
    { "a bad header", "http://c", NULL, { "OTEL_EXPORTER_OTLP_HEADERS=a b=c" }, NULL, "no header" },
    { "a bad timeout",
      "http://c",
      NULL,
      { "OTEL_EXPORTER_OTLP_TIMEOUT=1s" },
      NULL,
      "milliseconds" },
};

static void settings_are_completed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(settings_rows); i++) {
        const struct settings_row *row = &settings_rows[i];
        CLEANUP(arena_fini) struct arena arena = { 0 };
        struct trace_settings got;
        struct err err = { "" };
        const struct trace_section section = { .endpoint = str_from(row->endpoint),
                                               .sampler = str_from(row->sampler),
                                               .ratio = 0.25 };
        arena_init(&arena, TRACE_SETTINGS_BYTES_MAX);
        int rc = trace_settings_read(&section, "muster-x", row->environ, &arena, &got, &err);
        if ((rc < 0) != (row->url == NULL)) fail_msg("%s: %d %s", row->why, rc, err.text);
        if (rc < 0) {
            if (!strstr(err.text, row->problem)) fail_msg("%s: %s", row->why, err.text);
            continue;
        }
        if (got.on != (row->url[0] != 0)) fail_msg("%s: on=%d", row->why, got.on);
        if (!got.on) continue;
        if (!str_eq(got.url, str_from(row->url)))
            fail_msg("%s: " STR_FMT, row->why, STR_ARG(got.url));
        assert_true(str_eq(got.service_name, STR("muster-x")));
    }
}

static void variables_of_opentelemetry(void **state)
{
    (void)state;
    CLEANUP(arena_fini) struct arena arena = { 0 };
    const struct trace_section section = { .ratio = 0.25 };
    static const char *const environ_[] = {
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://c",
        "OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20eA%3D%3D, x-scope = a",
        "OTEL_EXPORTER_OTLP_CERTIFICATE=/ca.pem",
        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=1500",
        "OTEL_TRACES_SAMPLER=parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG=0.125",
        "OTEL_RESOURCE_ATTRIBUTES=k8s.pod.name=p-1,service.name=of-the-list,k8s.node.name=n%2C1",
        NULL,
    };
    struct trace_settings got;
    struct err err = { "" };
    arena_init(&arena, TRACE_SETTINGS_BYTES_MAX);
    assert_int_equal(trace_settings_read(&section, "r", environ_, &arena, &got, &err), 0);
    assert_int_equal(got.header_count, 2);
    assert_true(str_eq(got.header[0].name, STR("authorization")));
    assert_true(str_eq(got.header[0].value, STR("Basic eA==")));
    assert_true(str_eq(got.header[1].value, STR("a")));
    assert_true(str_eq(got.ca, STR("/ca.pem")));
    assert_int_equal(got.timeout_us, 1500000);
    assert_true(got.ratio == 0.125);
    assert_true(str_eq(got.service_name, STR("of-the-list")));
    assert_int_equal(got.resource_count, 2);
    assert_true(str_eq(got.resource[1].value, STR("n,1")));
    const struct trace_section named = { .ratio = 0.25,
                                         .sampler = STR("traceidratio"),
                                         .service_name = STR("ours") };
    assert_int_equal(trace_settings_read(&named, "r", environ_, &arena, &got, &err), 0);
    assert_true(got.ratio == 0.25); /* the argument belongs to the variable's sampler */
    assert_true(str_eq(got.service_name, STR("ours")));
}

static void a_file_of_headers(void **state)
{
    (void)state;
    char path[] = "/tmp/muster-headers-XXXXXX";
    int fd = mkstemp(path);
    static const char text[] = "# a comment\n\nauthorization: Bearer a:b\r\n x-org : 5\n";
    static const char *const environ_[] = { "OTEL_EXPORTER_OTLP_HEADERS=authorization=weaker",
                                            NULL };
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    const struct trace_section section = { .endpoint = STR("http://c"),
                                           .headers_file = str_from(path) };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct trace_settings got;
    struct err err = { "" };
    arena_init(&arena, TRACE_SETTINGS_BYTES_MAX);
    assert_int_equal(trace_settings_read(&section, "r", environ_, &arena, &got, &err), 0);
    assert_int_equal(got.header_count, 2);
    assert_true(str_eq(got.header[0].value, STR("Bearer a:b")));
    assert_true(str_eq(got.header[1].name, STR("x-org")));
    assert_int_equal(fchmod(fd, 0644), 0);
    assert_int_equal(trace_settings_read(&section, "r", environ_, &arena, &got, &err), -EPERM);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(pwrite(fd, "no colon\n", 9, 0), 9);
    assert_int_equal(trace_settings_read(&section, "r", environ_, &arena, &got, &err), -EINVAL);
    close(fd);
    unlink(path);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_come_in_batches),
        cmocka_unit_test(a_full_queue_drops_and_counts),
        cmocka_unit_test(it_rests_as_long_as_it_is_told),
        cmocka_unit_test(a_final_status_is_not_tried_again),
        cmocka_unit_test(a_partial_success_is_counted),
        cmocka_unit_test(a_collector_that_is_gone),
        cmocka_unit_test(a_call_that_hangs_ends_at_its_timeout),
        cmocka_unit_test(a_flush_waits_for_no_delay),
        cmocka_unit_test(without_memory_a_span_is_dropped),
        cmocka_unit_test(retry_after_has_two_forms),
        cmocka_unit_test(settings_are_completed),
        cmocka_unit_test(variables_of_opentelemetry),
        cmocka_unit_test(a_file_of_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
