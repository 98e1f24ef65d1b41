/* t_trace_context.c - tests W3C's headers against the specification's own cases, the samplers by seed, the
 * bound of spans a second, and spans as OTLP/JSON. */
#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/otlp_span.h"
#include "base/core/own.h"
#include "base/core/trace_context.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ID "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"
#define SEED 20260301

/* ---- traceparent ---- */

struct parent_row {
    const char *why, *header;
    const char *passed_on; /* NULL: it is ignored */
};

static const struct parent_row parents[] = {
    { "sampled", "00-" ID "-" SPAN "-01", "00-" ID "-" SPAN "-01" },
    { "not sampled", "00-" ID "-" SPAN "-00", "00-" ID "-" SPAN "-00" },
    { "unknown flags are passed on as zero", "00-" ID "-" SPAN "-ff", "00-" ID "-" SPAN "-01" },
    { "level 2's random flag is unknown here", "00-" ID "-" SPAN "-02", "00-" ID "-" SPAN "-00" },
    { "a higher version is read as far as it is known", "cc-" ID "-" SPAN "-01",
      "00-" ID "-" SPAN "-01" },
    { "and may go on", "cc-" ID "-" SPAN "-01-what-the-future-will-be-like",
      "00-" ID "-" SPAN "-01" },
    { "blanks around a header's value are HTTP's", "  00-" ID "-" SPAN "-01 \t",
      "00-" ID "-" SPAN "-01" },
    { "version ff is forbidden", "ff-" ID "-" SPAN "-01", NULL },
    { "version 00 does not go on", "00-" ID "-" SPAN "-01-x", NULL },
    { "nor with a dash alone", "00-" ID "-" SPAN "-01-", NULL },
    { "a higher version goes on behind a dash", "cc-" ID "-" SPAN "-01.x", NULL },
    { "a trace id of zeros", "00-00000000000000000000000000000000-" SPAN "-01", NULL },
    { "a span id of zeros", "00-" ID "-0000000000000000-01", NULL },
    { "upper case", "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01", NULL },
    { "upper case in the span", "00-" ID "-00F067AA0BA902B7-01", NULL },
    { "upper case in the version", "0A-" ID "-" SPAN "-01", NULL },
    { "no hex in the trace", "00-.bf92f3577b34da6a3ce929d0e0e4736-" SPAN "-01", NULL },
    { "no hex in the span", "00-" ID "-.0f067aa0ba902b7-01", NULL },
    { "no hex in the flags", "00-" ID "-" SPAN "-.1", NULL },
    { "no hex in the version", ".0-" ID "-" SPAN "-01", NULL },
    { "a short trace id", "00-bf92f3577b34da6a3ce929d0e0e4736-" SPAN "-01", NULL },
    { "a long trace id", "00-" ID "0-" SPAN "-01", NULL },
    { "short flags", "00-" ID "-" SPAN "-1", NULL },
    { "long flags", "00-" ID "-" SPAN "-001", NULL },
    { "another separator", "00_" ID "_" SPAN "_01", NULL },
    { "two of them in one header", "00-" ID "-" SPAN "-01,00-" ID "-" SPAN "-01", NULL },
    { "nothing", "", NULL },
    { "a byte above ASCII",
      "00-\xc3\xa9"
      "f92f3577b34da6a3ce929d0e0e4736-" SPAN "-01",
      NULL },
};

static void traceparents(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(parents); i++) {
        const struct parent_row *row = &parents[i];
        struct trace_context c;
        char text[TRACE_PARENT_BYTES + 1];
        int rc = trace_parent_read(str_from(row->header), &c);
        if (rc != (row->passed_on ? 0 : -EINVAL)) fail_msg("%s: %d", row->why, rc);
        if (rc < 0) continue;
        trace_parent_print(&c, text);
        if (strcmp(text, row->passed_on) != 0) fail_msg("%s: %s", row->why, text);
    }
}

/* ---- tracestate ---- */

struct state_row {
    const char *why;
    const char *header[3];
    const char *joined; /* NULL: it is ignored */
};

static const struct state_row states[] = {
    { "one member", { "congo=t61rcWkgMzE" }, "congo=t61rcWkgMzE" },
    { "two",
      { "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE" },
      "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE" },
    { "of two headers, in their order", { "rojo=1,congo=2", "a=3" }, "rojo=1,congo=2,a=3" },
    { "blanks around members", { " rojo=1 ,\tcongo=2 " }, "rojo=1,congo=2" },
    { "empty members", { "rojo=1,,", "", "a=2" }, "rojo=1,a=2" },
    { "nothing", { "" }, "" },
    { "a tenant's key, which may begin with a digit", { "0t@v=1" }, "0t@v=1" },
    { "all bytes of a key", { "a0_-*/=1" }, "a0_-*/=1" },
    { "blanks within a value, and before it", { "a=b c,d= e" }, "a=b c,d= e" },
    { "a key comes twice", { "a=1,b=2,a=3" }, NULL },
    { "in two headers", { "a=1", "a=1" }, NULL },
    { "no key", { "=1" }, NULL },
    { "no value", { "a=" }, NULL },
    { "no member", { "a" }, NULL },
    { "two equal signs", { "a=b=c" }, NULL },
    { "a key in upper case", { "A=1" }, NULL },
    { "a simple key that begins with a digit", { "0a=1" }, NULL },
    { "a key with a dot", { "a.b=1" }, NULL },
    { "a blank before the equal sign", { "a =1" }, NULL },
    { "no tenant", { "@v=1" }, NULL },
    { "no system", { "t@=1" }, NULL },
    { "a system that begins with a digit", { "t@0v=1" }, NULL },
    { "a system of 15 bytes", { "t@abcdefghijklmno=1" }, NULL },
    { "two at signs", { "a@b@c=1" }, NULL },
    { "a control byte", { "a=\x01x" }, NULL },
    { "a byte above ASCII", { "a=\xc3\xa9" }, NULL },
};

static void tracestates(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(states); i++) {
        const struct state_row *row = &states[i];
        struct str header[3];
        uint32_t count = 0;
        char joined[TRACE_STATE_BYTES_MAX + 1];
        while (count < 3 && row->header[count]) {
            header[count] = str_from(row->header[count]);
            count++;
        }
        int rc = trace_state_join(header, count, joined);
        if (rc != (row->joined ? 0 : -EINVAL)) fail_msg("%s: %d", row->why, rc);
        if (rc == 0 && strcmp(joined, row->joined) != 0) fail_msg("%s: %s", row->why, joined);
    }
}

/* Appends ",kN=xxx" with a value of that many bytes. */
static void add_member(struct buf *b, int n, int bytes)
{
    buf_printf(b, "%sk%d=", b->len ? "," : "", n);
    for (int i = 0; i < bytes; i++)
        buf_byte(b, 'x');
}

static void a_long_tracestate_loses_long_members_first(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf list = { 0 };
    char joined[TRACE_STATE_BYTES_MAX + 1];
    add_member(&list, 1, 20);
    add_member(&list, 2, 200); /* goes: above 128 bytes, and the list is too long */
    for (int i = 3; i < 10; i++)
        add_member(&list, i, 60);
    struct str header = buf_view(&list);
    assert_int_equal(trace_state_join(&header, 1, joined), 0);
    assert_null(strstr(joined, "k2="));
    assert_non_null(strstr(joined, "k1="));
    assert_non_null(strstr(joined, "k9="));
    for (int i = 10; i < 14; i++)
        add_member(&list, i, 60); /* now the last ones go too */
    header = buf_view(&list);
    assert_int_equal(trace_state_join(&header, 1, joined), 0);
    assert_true(strlen(joined) <= TRACE_STATE_BYTES_MAX);
    assert_non_null(strstr(joined, "k9="));
    assert_null(strstr(joined, "k13="));
    buf_clear(&list);
    for (int i = 0; i < TRACE_STATE_MEMBERS_MAX; i++)
        add_member(&list, i, 1);
    header = buf_view(&list);
    assert_int_equal(trace_state_join(&header, 1, joined), 0);
    add_member(&list, 99, 1);
    header = buf_view(&list);
    assert_int_equal(trace_state_join(&header, 1, joined), -EINVAL);
}

/* ---- samplers ---- */

static struct trace_sampler sampler(const char *name, double ratio)
{
    struct trace_sampler s;
    struct err err = { "" };
    if (trace_sampler_make(str_from(name), ratio, &s, &err) < 0) fail_msg("%s", err.text);
    return s;
}

#define DRAWS 200000

static void a_ratio_takes_its_share(void **state)
{
    (void)state;
    static const double ratios[] = { 0, 0.001, 0.01, 0.3, 0.999, 1 };
    for (size_t i = 0; i < COUNT_OF(ratios); i++) {
        struct trace_sampler s = sampler("traceidratio", ratios[i]);
        struct rng rng;
        uint32_t taken = 0;
        rng_seed(&rng, SEED);
        for (int k = 0; k < DRAWS; k++) {
            uint8_t id[TRACE_ID_BYTES];
            trace_id_draw(&rng, id);
            taken += trace_sampler_takes(&s, NULL, id);
        }
        /* Five standard deviations of a binomial. */
        double want = ratios[i] * DRAWS, off = 5 * sqrt(want * (1 - ratios[i]));
        if (fabs(taken - want) > off)
            fail_msg("ratio %g: %u of %d, seed %d", ratios[i], taken, DRAWS, SEED);
    }
}

/* What a lower ratio takes a higher one takes too: processes with unlike ratios cut no trace apart. */
static void a_higher_ratio_takes_more(void **state)
{
    (void)state;
    struct trace_sampler low = sampler("traceidratio", 0.05), high = sampler("traceidratio", 0.2);
    struct rng rng;
    uint32_t both = 0;
    rng_seed(&rng, SEED);
    for (int k = 0; k < DRAWS; k++) {
        uint8_t id[TRACE_ID_BYTES];
        trace_id_draw(&rng, id);
        bool l = trace_sampler_takes(&low, NULL, id), h = trace_sampler_takes(&high, NULL, id);
        assert_true(h || !l);
        both += l;
    }
    assert_true(both > 0);
}

struct sampler_row {
    const char *name;
    double ratio;
    bool alone, with_sampled, with_unsampled;
};

static const struct sampler_row samplers[] = {
    { "always_on", 0, true, true, true },
    { "always_off", 1, false, false, false },
    { "traceidratio", 1, true, true, true },
    { "traceidratio", 0, false, false, false },
    { "parentbased_always_on", 0, true, true, false },
    { "parentbased_always_off", 1, false, true, false },
    { "parentbased_traceidratio", 0, false, true, false },
    { "parentbased_traceidratio", 1, true, true, false },
};

static void samplers_do_as_they_are_called(void **state)
{
    (void)state;
    uint8_t id[TRACE_ID_BYTES] = { 1 };
    struct trace_context parent = { .trace_id = { 1 }, .span_id = { 1 } };
    for (size_t i = 0; i < COUNT_OF(samplers); i++) {
        const struct sampler_row *row = &samplers[i];
        struct trace_sampler s = sampler(row->name, row->ratio);
        parent.sampled = true;
        bool sampled = trace_sampler_takes(&s, &parent, id);
        parent.sampled = false;
        bool unsampled = trace_sampler_takes(&s, &parent, id);
        if (trace_sampler_takes(&s, NULL, id) != row->alone || sampled != row->with_sampled ||
            unsampled != row->with_unsampled)
            fail_msg("%s %g", row->name, row->ratio);
    }
    struct trace_sampler s;
    struct err err = { "" };
    assert_int_equal(trace_sampler_make(STR("sometimes"), 0, &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "always_on"));
    assert_int_equal(trace_sampler_make(STR("parentbased_"), 0, &s, NULL), -EINVAL);
    assert_int_equal(trace_sampler_make(STR("traceidratio"), 1.5, &s, NULL), -EINVAL);
    assert_int_equal(trace_sampler_make(STR("traceidratio"), (double)NAN, &s, NULL), -EINVAL);
}

static void the_budget_is_per_second(void **state)
{
    (void)state;
    struct trace_budget b = { .per_s = 100 };
    int64_t now_us = 1000000;
    uint32_t taken = 0;
    for (int i = 0; i < 1000; i++)
        taken += trace_budget_take(&b, 5, now_us);
    assert_int_equal(taken, 20); /* a second's worth is saved at the start */
    for (int i = 0; i < 3000; i++) {
        now_us += 1000; /* three seconds, asked for 15,000 spans */
        taken += trace_budget_take(&b, 5, now_us);
    }
    assert_true(taken >= 79 && taken <= 80);
    now_us += 60000000; /* no more than a second is saved */
    uint32_t before = taken;
    for (int i = 0; i < 1000; i++)
        taken += trace_budget_take(&b, 5, now_us);
    assert_int_equal(taken - before, 20);
    trace_budget_owe(&b, 50); /* what was made beyond the promise is paid first */
    assert_false(trace_budget_take(&b, 5, now_us + 500000));
    assert_true(trace_budget_take(&b, 5, now_us + 600000));
}

/* ---- spans ---- */

static int keep_item(void *ctx, struct str item)
{
    struct str *into = ctx;
    while (into->data)
        into++;
    *into = item;
    return 0;
}

static void spans_are_otlp_json(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 }, all = { 0 }, text = { 0 };
    struct trace_context c;
    struct otlp_writer w;
    assert_int_equal(trace_parent_read(STR("00-" ID "-" SPAN "-01"), &c), 0);
    otlp_writer_init(&w, &out);
    struct otlp_span s = { .trace_id = c.trace_id,
                           .span_id = c.span_id,
                           .name = STR("a \"name\""),
                           .kind = OTLP_SERVER,
                           .start_us = 1790000000000001,
                           .end_us = 1790000000000002,
                           .problem = "it \\ failed",
                           .events_dropped = 3 };
    otlp_open(&w, &s);
    otlp_str(&w, "text", STR("\xff\n"));
    otlp_int(&w, "number", INT64_MIN);
    otlp_f64(&w, "double", 0.5);
    otlp_bool(&w, "yes", true);
    otlp_strs(&w, "list", STR("stop"));
    otlp_event(&w, "first", 1790000000000001);
    otlp_int(&w, "of", 1);
    otlp_event(&w, "second", 1790000000000002);
    otlp_close(&w);
    s = (struct otlp_span){ .trace_id = c.trace_id,
                            .span_id = c.span_id,
                            .parent_id = c.span_id,
                            .state = STR("a=b"),
                            .name = STR("plain"),
                            .kind = OTLP_INTERNAL };
    otlp_open(&w, &s);
    otlp_close(&w);
    assert_int_equal(w.spans, 2);
    assert_int_equal(out.rc, 0);
    buf_printf(&all, "{\"s\":[" STR_FMT "]}", STR_ARG(buf_view(&out)));
    struct str span[3] = { { 0 } }, item[8] = { { 0 } };
    assert_int_equal(json_path_each(buf_view(&all), "s", keep_item, span), 0);
    assert_int_equal(json_path_text(span[0], "traceId", &text), 0);
    assert_string_equal(text.data, ID);
    buf_clear(&text);
    assert_int_equal(json_path_text(span[0], "startTimeUnixNano", &text), 0);
    assert_string_equal(text.data, "1790000000000001000");
    buf_clear(&text);
    assert_int_equal(json_path_text(span[0], "status.message", &text), 0);
    assert_string_equal(text.data, "it \\ failed");
    assert_int_equal(json_path_text(span[0], "parentSpanId", &text), -ENOENT);
    assert_int_equal(json_path_each(span[0], "attributes", keep_item, item), 0);
    buf_clear(&text);
    assert_int_equal(json_path_text(item[1], "value.intValue", &text), 0);
    assert_string_equal(text.data, "-9223372036854775808");
    buf_clear(&text);
    assert_int_equal(json_path_text(item[0], "value.stringValue", &text), 0);
    assert_string_equal(text.data, "\xef\xbf\xbd\n");
    memset(item, 0, sizeof item);
    assert_int_equal(json_path_each(span[0], "events", keep_item, item), 0);
    buf_clear(&text);
    assert_int_equal(json_path_text(item[1], "name", &text), 0);
    assert_string_equal(text.data, "second");
    assert_null(item[2].data);
    buf_clear(&text);
    assert_int_equal(json_path_text(span[1], "traceState", &text), 0);
    assert_string_equal(text.data, "a=b");
    assert_int_equal(json_path(span[1], "status", &item[0]), -ENOENT);
}

/* A peer that knows the protocol reads what we write, and finds every field that we meant. */
static void protobuf_reads_them(void **state)
{
    (void)state;
    static const char python[] =
        "python3 -c 'import opentelemetry.proto.collector.trace.v1.trace_service_pb2' 2>/dev/null";
    if (system(python) != 0) {
        print_message("skipped: the Python package opentelemetry-proto is not installed\n");
        skip();
    }
    struct trace_context c;
    assert_int_equal(trace_parent_read(STR("00-" ID "-" SPAN "-01"), &c), 0);
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct otlp_writer w;
    otlp_writer_init(&w, &out);
    const struct otlp_span s = { .trace_id = c.trace_id,
                                 .span_id = c.span_id,
                                 .parent_id = c.span_id,
                                 .state = STR("a=b"),
                                 .name = STR("n"),
                                 .kind = OTLP_CLIENT,
                                 .start_us = 1,
                                 .end_us = 2,
                                 .problem = "p",
                                 .events_dropped = 3 };
    otlp_open(&w, &s);
    otlp_str(&w, "s", STR("x"));
    otlp_int(&w, "i", -5);
    otlp_f64(&w, "d", 0.25);
    otlp_bool(&w, "b", true);
    otlp_strs(&w, "l", STR("stop"));
    otlp_event(&w, "e", 3);
    otlp_int(&w, "of", 7);
    otlp_close(&w);
    FILE *peer = popen("python3 tests/unit/core/otlp_peer.py", "w");
    assert_non_null(peer);
    fprintf(peer, "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[" STR_FMT "]}]}]}",
            STR_ARG(buf_view(&out)));
    assert_int_equal(pclose(peer), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traceparents),
        cmocka_unit_test(tracestates),
        cmocka_unit_test(a_long_tracestate_loses_long_members_first),
        cmocka_unit_test(a_ratio_takes_its_share),
        cmocka_unit_test(a_higher_ratio_takes_more),
        cmocka_unit_test(samplers_do_as_they_are_called),
        cmocka_unit_test(the_budget_is_per_second),
        cmocka_unit_test(spans_are_otlp_json),
        cmocka_unit_test(protobuf_reads_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
