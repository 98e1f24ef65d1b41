/* t_metrics.c - tests metrics: exact text, bounded series, quantiles against sorted samples, many
 * threads. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/metrics.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { REQUESTS, RUNNING, TTFT, TOKENS, SIZES, METRIC_COUNT };

static const double ttft_buckets[] = { 0.1, 0.5, 1 };
static const double token_buckets[] = { 16, 64, 256 };
static const struct metric_desc table[METRIC_COUNT] = {
    [REQUESTS] = { .name = "muster_requests_total",
                   .type = METRIC_COUNTER,
                   .help = "Requests answered.",
                   .labels = { "tenant", "code" },
                   .series_max = 3 },
    [RUNNING] = { .name = "muster_running",
                  .type = METRIC_GAUGE,
                  .unit = "requests",
                  .help = "Requests that run now, \\ and\nmore." },
    [TTFT] = { .name = "muster_ttft_seconds",
               .type = METRIC_HISTOGRAM,
               .unit = "seconds",
               .help = "Time to the \"first\" token.",
               .exemplars = true,
               .buckets = ttft_buckets,
               .bucket_count = COUNT_OF(ttft_buckets) },
    [TOKENS] = { .name = "muster_prompt_tokens",
                 .type = METRIC_HISTOGRAM,
                 .unit = "tokens",
                 .help = "Length of prompts | tokens.",
                 .labels = { "tenant" },
                 .buckets = token_buckets,
                 .bucket_count = COUNT_OF(token_buckets) },
    [SIZES] = { .name = "muster_sent_bytes_total",
                .type = METRIC_COUNTER,
                .unit = "bytes",
                .help = "Bytes sent." },
};

static struct metrics *make(const struct metric_target *targets, uint32_t count)
{
    struct metrics *m = NULL;
    assert_int_equal(metrics_new(table, METRIC_COUNT, targets, count, &m, NULL), 0);
    return m;
}

/* Checks the metrics of the process, which come last, and cuts them off; `end` stays. */
static void cut_process(struct buf *text, const char *end)
{
    const char *cpu = strstr(text->data, "# HELP process_cpu_seconds");
    const char *resident = strstr(text->data, "\nprocess_resident_memory_bytes ");
    const char *began = strstr(text->data, "\nprocess_start_time_seconds ");
    assert_true(cpu && resident && began && str_ends(buf_view(text), str_from(end)));
    assert_true(strtod(strstr(cpu, "\nprocess_cpu_seconds_total ") + 27, NULL) > 0);
    assert_true(strtod(resident + 31, NULL) > 1e6);
    double age_s = (double)time(NULL) - strtod(began + 28, NULL);
    assert_true(age_s > -5 && age_s < 3600);
    text->len = (size_t)(cpu - text->data);
    buf_text(text, end);
    buf_byte(text, 0);
}

static void text_is_exact(void **state)
{
    (void)state;
    static const struct metric_target targets[] = { { TTFT, 0.25 }, { TTFT, 0.5 } };
    CLEANUP(metrics_freep) struct metrics *m = make(targets, 2);
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct metric_series *ok =
        metric_series(m, REQUESTS, (struct str[]){ STR("a\"\\\n"), STR("200") });
    metric_inc(ok);
    metric_add(ok, 2);
    assert_ptr_equal(ok, metric_series(m, REQUESTS, (struct str[]){ STR("a\"\\\n"), STR("200") }));
    metric_set(metric_of(m, RUNNING), 3);
    metric_add(metric_of(m, RUNNING), -0.5);
    metric_observe(metric_of(m, TTFT), 0.25); /* le: a value on the bound is inside */
    metric_observe(metric_of(m, TTFT), 0.3);
    metric_observe(metric_of(m, TTFT), 7);
    metric_observe(metric_of(m, TTFT), (double)NAN);
    metric_add(metric_of(m, SIZES), 9007199254740991.0);
    assert_int_equal(metrics_render(m, METRICS_CLASSIC, &out), 0);
    cut_process(&out, "");
    assert_string_equal(out.data,
                        "# HELP muster_requests_total Requests answered.\n"
                        "# TYPE muster_requests_total counter\n"
                        "muster_requests_total{tenant=\"a\\\"\\\\\\n\",code=\"200\"} 3\n"
                        "# HELP muster_running Requests that run now, \\\\ and\\nmore.\n"
                        "# TYPE muster_running gauge\n"
                        "muster_running 2.5\n"
                        "# HELP muster_ttft_seconds Time to the \"first\" token.\n"
                        "# TYPE muster_ttft_seconds histogram\n"
                        "muster_ttft_seconds_bucket{le=\"0.1\"} 0\n"
                        "muster_ttft_seconds_bucket{le=\"0.25\"} 1\n"
                        "muster_ttft_seconds_bucket{le=\"0.5\"} 2\n"
                        "muster_ttft_seconds_bucket{le=\"1\"} 2\n"
                        "muster_ttft_seconds_bucket{le=\"+Inf\"} 3\n"
                        "muster_ttft_seconds_sum 7.55\n"
                        "muster_ttft_seconds_count 3\n"
                        "# HELP muster_prompt_tokens Length of prompts | tokens.\n"
                        "# TYPE muster_prompt_tokens histogram\n"
                        "# HELP muster_sent_bytes_total Bytes sent.\n"
                        "# TYPE muster_sent_bytes_total counter\n"
                        "muster_sent_bytes_total 9007199254740991\n"
                        "# HELP muster_metrics_overflow_total Look-ups of a series beyond its "
                        "metric's bound.\n"
                        "# TYPE muster_metrics_overflow_total counter\n"
                        "muster_metrics_overflow_total{metric=\"muster_requests_total\"} 0\n"
                        "muster_metrics_overflow_total{metric=\"muster_prompt_tokens\"} 0\n");
}

/* Accept headers of scrapers, and the format that each gets. */
static void scrapers_choose_the_format(void **state)
{
    (void)state;
    static const struct {
        const char *accept;
        enum metrics_format format;
        const char *why;
    } rows[] = {
        { "", METRICS_CLASSIC, "no header" },
        { "*/*", METRICS_CLASSIC, "curl" },
        { "text/plain", METRICS_CLASSIC, "a scraper of the classic format" },
        { "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
          "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
          METRICS_OPENMETRICS, "Prometheus 2" },
        { "application/openmetrics-text", METRICS_OPENMETRICS, "any version" },
        { "application/OpenMetrics-Text; Version=0.0.1", METRICS_OPENMETRICS, "an older one" },
        { "application/openmetrics-text;version=2.0.0, text/plain;q=0.5", METRICS_CLASSIC,
          "a version that we do not write" },
        { "text/plain;q=0.9,application/openmetrics-text;q=0.3", METRICS_CLASSIC, "classic first" },
        { "application/openmetrics-text;q=0", METRICS_CLASSIC, "not acceptable" },
        { "application/openmetrics-text;q=much", METRICS_CLASSIC, "no weight" },
        { ",;,q=;application/openmetrics-text", METRICS_CLASSIC, "nonsense" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (metrics_format_of(str_from(rows[i].accept)) != rows[i].format)
            fail_msg("%s: %s", rows[i].why, rows[i].accept);
}

static const char openmetrics_text[] =
    "# HELP muster_requests Requests answered.\n"
    "# TYPE muster_requests counter\n"
    "muster_requests_total{tenant=\"a\",code=\"200\"} 2\n"
    "# HELP muster_running Requests that run now, \\\\ and\\nmore.\n"
    "# TYPE muster_running gauge\n"
    "muster_running 0\n"
    "# HELP muster_ttft_seconds Time to the \\\"first\\\" token.\n"
    "# TYPE muster_ttft_seconds histogram\n"
    "muster_ttft_seconds_bucket{le=\"0.1\"} 2 # {request_id=\"two\"} 0.07 1700000000.000002\n"
    "muster_ttft_seconds_bucket{le=\"0.5\"} 3\n"
    "muster_ttft_seconds_bucket{le=\"1.0\"} 3\n"
    "muster_ttft_seconds_bucket{le=\"+Inf\"} 4 # {request_id=\"q\\\"\","
    "trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"} 7 1700000001.500000\n"
    "muster_ttft_seconds_sum 7.42\n"
    "muster_ttft_seconds_count 4\n"
    "# HELP muster_prompt_tokens Length of prompts | tokens.\n"
    "# TYPE muster_prompt_tokens histogram\n"
    "# HELP muster_sent_bytes Bytes sent.\n"
    "# TYPE muster_sent_bytes counter\n"
    "muster_sent_bytes_total 0\n"
    "# HELP muster_metrics_overflow Look-ups of a series beyond its metric's bound.\n"
    "# TYPE muster_metrics_overflow counter\n"
    "muster_metrics_overflow_total{metric=\"muster_requests_total\"} 0\n"
    "muster_metrics_overflow_total{metric=\"muster_prompt_tokens\"} 0\n"
    "# EOF\n";

/* A bucket keeps the id of its latest request; one that is too long, or none, leaves the one before. */
static void exemplars_are_the_latest(void **state)
{
    (void)state;
    CLEANUP(metrics_freep) struct metrics *m = make(NULL, 0);
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct metric_series *ttft = metric_of(m, TTFT);
    char endless[METRIC_EXEMPLAR_BYTES_MAX + 1];
    memset(endless, 'x', sizeof endless);
    metric_add(metric_series(m, REQUESTS, (struct str[]){ STR("a"), STR("200") }), 2);
    metric_observe_request(ttft, 0.05, STR("one"), (struct str){ 0 }, 1700000000000001);
    metric_observe_request(ttft, 0.07, STR("two"), (struct str){ 0 }, 1700000000000002);
    metric_observe_request(ttft, 0.3, str_of(endless, sizeof endless), (struct str){ 0 },
                           1700000000000003);
    metric_observe_request(ttft, 7, STR("q\""), STR("4bf92f3577b34da6a3ce929d0e0e4736"),
                           1700000001500000);
    metric_observe_request(ttft, (double)NAN, STR("no"), (struct str){ 0 }, 1700000001600000);
    assert_int_equal(metrics_render(m, METRICS_OPENMETRICS, &out), 0);
    cut_process(&out, "# EOF\n");
    assert_string_equal(out.data, openmetrics_text);
    buf_clear(&out);
    assert_int_equal(metrics_render(m, METRICS_CLASSIC, &out), 0);
    assert_null(strstr(out.data, "request_id"));
}

static struct metric_series *tenant(struct metrics *m, const char *name)
{
    return metric_series(m, REQUESTS, (struct str[]){ str_from(name), STR("200") });
}

static void series_are_bounded(void **state)
{
    (void)state;
    CLEANUP(metrics_freep) struct metrics *m = make(NULL, 0);
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct metric_series *a = tenant(m, "a"), *b = tenant(m, "b"), *c = tenant(m, "c");
    assert_ptr_not_equal(a, b);
    struct metric_series *d = tenant(m, "d");
    assert_ptr_equal(d, tenant(m, "e"));
    assert_ptr_equal(c, tenant(m, "c"));
    metric_add(d, 5);
    metric_inc(a);
    metrics_render(m, METRICS_CLASSIC, &out);
    assert_non_null(
        strstr(out.data, "\nmuster_requests_total{tenant=\"other\",code=\"other\"} 5\n"));
    assert_non_null(strstr(out.data, "{metric=\"muster_requests_total\"} 2\n"));
    /* Long values are cut between characters. */
    char name[METRIC_LABEL_BYTES_MAX + 8];
    memset(name, 'x', sizeof name);
    memcpy(name + METRIC_LABEL_BYTES_MAX - 1, "\xc3\xa9", 2);
    struct str values[] = { str_of(name, sizeof name) };
    metric_observe(metric_series(m, TOKENS, values), 5);
    buf_clear(&out);
    metrics_render(m, METRICS_CLASSIC, &out);
    assert_true(str_utf8_valid(buf_view(&out)));
    assert_non_null(strstr(out.data, "xxx\",le=\"16\"} 1\n"));
}

static void memory_failure_goes_to_other(void **state)
{
    (void)state;
    CLEANUP(metrics_freep) struct metrics *m = make(NULL, 0);
    fault_arm("metrics.alloc", 1);
    struct metric_series *a = tenant(m, "a");
    fault_disarm();
    assert_ptr_not_equal(a, tenant(m, "a"));
    struct metrics *none = NULL;
    uint64_t n = 1;
    for (bool reached = true; reached; n++) {
        fault_arm("metrics.alloc", n);
        int rc = metrics_new(table, METRIC_COUNT, NULL, 0, &none, NULL);
        reached = fault_hits() >= n;
        fault_disarm();
        assert_int_equal(rc, reached ? -ENOMEM : 0);
    }
    assert_int_equal(n, METRIC_COUNT + 2);
    metrics_free(none);
}

#define THREADS 4
#define ADDS 20000

static void *add_many(void *arg)
{
    struct metrics *m = arg;
    for (int i = 0; i < ADDS; i++) {
        metric_inc(metric_of(m, SIZES));
        metric_observe_request(metric_of(m, TTFT), 0.25, STR("some-request"), (struct str){ 0 }, i);
        if (i % 1000 == 0) metric_inc(tenant(m, "a"));
    }
    return NULL;
}

static void threads_lose_nothing(void **state)
{
    (void)state;
    CLEANUP(metrics_freep) struct metrics *m = make(NULL, 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, add_many, m);
    CLEANUP(buf_fini) struct buf out = { 0 };
    for (int i = 0; i < 20; i++) {
        buf_clear(&out);
        enum metrics_format format = i % 2 ? METRICS_CLASSIC : METRICS_OPENMETRICS;
        assert_int_equal(metrics_render(m, format, &out), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    struct metric_snapshot now;
    metric_snapshot(metric_of(m, TTFT), &now);
    assert_int_equal(now.count, THREADS * ADDS);
    assert_true(now.sum == THREADS * ADDS * 0.25);
    assert_true(metric_value(metric_of(m, SIZES)) == THREADS * ADDS);
    assert_true(metric_value(tenant(m, "a")) == THREADS * ADDS / 1000);
}

static void docs_have_every_row(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(metrics_markdown(table, METRIC_COUNT, &out), 0);
    assert_non_null(strstr(out.data, "| `muster_requests_total` | counter | - | `tenant`, `code` | "
                                     "Requests answered. |\n"));
    assert_non_null(strstr(out.data, "| Length of prompts \\| tokens. |\n"));
    assert_non_null(strstr(out.data, "| `muster_running` | gauge | requests | - | "));
}

/* promtool, where installed, accepts our text. */
static void promtool_agrees(void **state)
{
    (void)state;
    if (system("command -v promtool >/dev/null 2>&1") != 0) { /* NOLINT: our own command */
        print_message("skipped: promtool is not installed\n");
        skip();
    }
    CLEANUP(metrics_freep) struct metrics *m = make(NULL, 0);
    CLEANUP(buf_fini) struct buf out = { 0 };
    metric_inc(tenant(m, "a\"\\\n"));
    struct str values[] = { STR("a") };
    metric_observe(metric_series(m, TOKENS, values), 5);
    assert_int_equal(metrics_render(m, METRICS_CLASSIC, &out), 0);
    char path[] = "/tmp/t_metrics.XXXXXX", command[128];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(file_write_atomic(path, buf_view(&out), 0600, NULL), 0);
    snprintf(command, sizeof command, "promtool check metrics < %s", path);
    int status = system(command); /* NOLINT: our own command */
    unlink(path);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_exact),
        cmocka_unit_test(scrapers_choose_the_format),
        cmocka_unit_test(exemplars_are_the_latest),
        cmocka_unit_test(series_are_bounded),
        cmocka_unit_test(memory_failure_goes_to_other),
        cmocka_unit_test(threads_lose_nothing),
        cmocka_unit_test(docs_have_every_row),
        cmocka_unit_test(promtool_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
