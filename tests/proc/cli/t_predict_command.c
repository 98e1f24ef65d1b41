/* t_predict_command.c - runs `muster predict`, and a router that keeps its predictor's state. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/rig/rig.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXTS "traces/text-5000.jsonl"

static struct rig_process engine, router;

/* Runs `muster predict` with the words of the line; returns its exit code, and in *out its output. */
static int predict(struct buf *out, const char *format, ...)
{
    char line[2048];
    va_list ap;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    return rig_muster("predict", line, out);
}

static double member(const struct buf *out, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(out->data, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

static void rows_are_judged(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(predict(&out, "eval -t " TEXTS " -p oracle -n 500 -o json"), 0);
    assert_true(member(&out, "concordance") == 1 && member(&out, "mae_tokens") == 0);
    assert_int_equal(predict(&out, "eval -t " TEXTS " -p ngram,trail -n 500"), 0);
    assert_non_null(strstr(out.data, "no hidden states"));
    assert_int_equal(predict(&out, "eval -t " TEXTS " -n 200"), 0); /* all predictors */
    assert_non_null(strstr(out.data, "noisy_oracle"));
}

#define ALIKE "{\"timestamp\":0,\"input_length\":9,\"output_length\":7}\n"

/* Outputs of equal length have no order to predict: the figure is absent. */
static void no_order_is_no_figure(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[RIG_PATH];
    rig_file(path, "alike.jsonl", ALIKE ALIKE ALIKE);
    assert_int_equal(predict(&out, "eval -t %s -p key_table -o json", path), 0);
    assert_null(strstr(out.data, "concordance"));
    assert_int_equal(predict(&out, "eval -t %s -p key_table", path), 0);
    assert_null(strstr(out.data, "-100"));
    assert_int_equal(predict(&out, "merge -t %s -p ngram --save a b", path), 2);
    assert_non_null(strstr(out.data, "--trace is eval's"));
    assert_int_equal(predict(&out, "eval -t %s -p", path), 2);
    assert_int_equal(predict(&out, "eval -t %s --predict=", path), 2);
    assert_non_null(strstr(out.data, "--predict is empty"));
}

static void states_are_saved_and_merged(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    const char *dir = rig_folder();
    assert_int_equal(predict(&out, "eval -t " TEXTS " -p ngram -n 1000 -o json --save %s/a", dir),
                     0);
    double alone = member(&out, "concordance");
    assert_int_equal(predict(&out, "eval -t " TEXTS " -p ngram -n 800 -o json --save %s/b", dir),
                     0);
    assert_int_equal(predict(&out, "merge -p ngram --save %s/ab %s/a %s/b", dir, dir, dir), 0);
    /* A predictor that has seen these requests before predicts them better. */
    assert_int_equal(predict(&out, "eval %s/ab -t " TEXTS " -p ngram -n 1000 -o json", dir), 0);
    assert_true(member(&out, "concordance") > alone + 0.02);
    assert_int_equal(predict(&out, "eval %s/ab -t " TEXTS " -p ssjf -n 100", dir), 1);
    assert_non_null(strstr(out.data, "not a state of predictor ssjf"));
}

static void mistakes_have_sentences(void **state)
{
    (void)state;
    static const struct rig_row rows[] = {
        { "eval", 2, "wants --trace" },
        { "judge", 2, "want eval or merge" },
        { "eval -t " TEXTS " -p ngrm", 2, "did you mean ngram" },
        { "eval -t /nowhere", 1, "/nowhere" },
        { "eval -t " TEXTS " --save x", 2, "want one policy" },
        { "merge -p ngram", 2, "merge wants" },
    };
    rig_expect("predict", rows, COUNT_OF(rows));
}

static void start_router(const char *row, const char *file)
{
    router = rig_server("router", rig_port(),
                        ARGS("--endpoints", engine.at, "--sync", "100ms", "--predict", row,
                             "--predict-file", file));
    rig_wait_endpoints(&router, 1);
}

static double predicted_p50(void)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char request[512];
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}";
    int len =
        snprintf(request, sizeof request,
                 "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
                 "content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                 sizeof body - 1, body);
    assert_int_equal(rig_raw(router.port, str_of(request, (size_t)len), &reply), 0);
    assert_int_equal(buf_byte(&reply, '\0'), 0);
    const char *at = strstr(reply.data, "x-muster-predicted-p50: ");
    if (!at) fail_msg("%s", reply.data);
    return strtod(at + strlen("x-muster-predicted-p50: "), NULL);
}

/* The fake engine's outputs have 8 tokens: a router with a saved state predicts that from the first request
 * on, and one with another predictor leaves the file alone. */
static void a_router_remembers(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf before = { 0 };
    CLEANUP(buf_fini) struct buf after = { 0 };
    char file[512], nowhere[512];
    engine = rig_fake_engine(rig_port(), ARGS(NULL));
    snprintf(file, sizeof file, "%s/learned", rig_folder());
    snprintf(nowhere, sizeof nowhere, "%s/no-folder/learned", rig_folder());
    start_router("key_table", nowhere);
    assert_int_equal(file_read(router.log, 1 << 20, &before, NULL), 0);
    assert_non_null(memmem(before.data, before.len, "predictor_not_saved", 19)); /* at once */
    assert_int_equal(rig_stop(&router), 0);
    buf_clear(&before);
    start_router("key_table", file);
    assert_int_equal(access(file, F_OK), 0);
    double first = predicted_p50();
    for (uint32_t i = 0; i < 30; i++)
        predicted_p50();
    assert_int_equal(rig_stop(&router), 0);
    start_router("key_table", file);
    double then = predicted_p50();
    assert_true(first > 12 && then < 12);
    assert_int_equal(rig_stop(&router), 0);
    assert_int_equal(file_read(file, 1 << 24, &before, NULL), 0);
    start_router("client_mean", file);
    predicted_p50();
    assert_int_equal(rig_stop(&router), 0);
    assert_int_equal(file_read(file, 1 << 24, &after, NULL), 0);
    assert_true(str_eq(buf_view(&before), buf_view(&after)));

    /* A damaged file is put aside, and the router saves its state in a new one. */
    char aside[520];
    snprintf(aside, sizeof aside, "%s.damaged", file);
    before.data[before.len - 1] ^= 1;
    assert_int_equal(file_write_atomic(file, buf_view(&before), 0600, NULL), 0);
    start_router("key_table", file);
    assert_true(rig_metric(router.port, "muster_router_predictor_damaged_total") == 1);
    assert_true(predicted_p50() > 12);
    assert_int_equal(access(aside, F_OK), 0);
    assert_int_equal(rig_stop(&router), 0);
    start_router("key_table", file);
    assert_true(rig_metric(router.port, "muster_router_predictor_damaged_total") <= 0);
    assert_int_equal(rig_stop(&router), 0);
    rig_kill(&engine);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN"))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_judged),
        cmocka_unit_test(no_order_is_no_figure),
        cmocka_unit_test(states_are_saved_and_merged),
        cmocka_unit_test(mistakes_have_sentences),
        cmocka_unit_test(a_router_remembers),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
