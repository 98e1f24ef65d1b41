/* t_embeddings.c - tests /v1/embeddings, /v1/score and /v1/rerank at a router and at its engine: by plain HTTP, and by
 * OpenAI's Python client where it is installed. */
#include "base/core/own.h"
#include "tests/proc/router/pair_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMBED "/v1/embeddings"

static struct rig_process mean;

static int setup(void **state)
{
    (void)state;
    pair_start(ARGS(NULL));
    mean = rig_server("engine", rig_port(),
                      ARGS("--model", MODEL, "--pooling", "mean", "--max-waiting", "2"));
    return 0;
}

static int teardown(void **state)
{
    int code = rig_stop(&mean);
    return pair_end(state) || code;
}

static void texts_and_ids_become_vectors(void **state)
{
    (void)state;
    BOTH(EMBED, "{\"input\":[\"a\",\"b\"],\"dimensions\":2}", 200, "{\"object\":\"list\"",
         "{\"object\":\"embedding\",\"index\":0,\"embedding\":[", "]},{\"object\":\"embedding\"",
         "\"index\":1,\"embedding\":[", "]}],\"model\":\"muster-tiny\"",
         "\"usage\":{\"prompt_tokens\":");
    BOTH(EMBED, "{\"input\":[[5,6],[7]],\"encoding_format\":\"base64\",\"model\":\"muster-tiny\"}",
         200, "\"index\":0,\"embedding\":\"", "\"},{",
         "\"usage\":{\"prompt_tokens\":3,\"total_tokens\":3");
}

/* The bytes of the request are above what is tokenised at once, and its texts above what is at the device. */
static void many_texts_come_in_their_order(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf body = { 0 };
    char last[64];
    buf_text(&body, "{\"dimensions\":1,\"input\":[");
    for (int i = 0; i < 300; i++)
        buf_printf(&body,
                   "%s\"a text of some length, which is number %d of all that are asked for\"",
                   i > 0 ? "," : "", i);
    buf_text(&body, "]}");
    buf_byte(&body, 0);
    snprintf(last, sizeof last, "\"index\":%d,\"embedding\":[", 299);
    double before = rig_metric(pair.engine.port, "muster_engine_embedded_texts_total");
    BOTH(EMBED, body.data, 200, "\"index\":0,", "\"index\":17,", "\"index\":298,", last);
    double after = rig_metric(pair.engine.port, "muster_engine_embedded_texts_total");
    assert_true(after - before == 600);
    assert_true(rig_metric(pair.engine.port, "muster_engine_generation_tokens_total") == 0);
}

static void scores_and_rankings_are_cosines(void **state)
{
    (void)state;
    BOTH("/v1/score", "{\"text_1\":\"a cat\",\"text_2\":[\"a cat\",\"the sun\"]}", 200,
         "{\"id\":\"score-", "\"object\":\"list\"", "{\"index\":0,\"object\":\"score\",\"score\":1",
         "{\"index\":1,\"object\":\"score\",\"score\":0.");
    BOTH("/score", "{\"queries\":[\"x\",\"y\"],\"documents\":[\"x\",\"y\"]}", 200, "\"score\":1",
         "\"score\":1");
    const char *const paths[] = { "/v1/rerank", "/v2/rerank", "/rerank" };
    for (size_t i = 0; i < COUNT_OF(paths); i++)
        BOTH(paths[i],
             "{\"query\":\"a cat\",\"documents\":[\"the sun\",{\"text\":\"a cat\"},\"moon\"],"
             "\"top_n\":2,\"return_documents\":true}",
             200, "{\"id\":\"rerank-", "\"results\":[{\"index\":1,\"relevance_score\":1",
             "\"document\":{\"text\":\"a cat\"}", "\"relevance_score\":0.", "}}]}");
}

static void mistakes_are_refused(void **state)
{
    (void)state;
    BOTH(EMBED, "{}", 400, "input is missing");
    BOTH(EMBED, "{\"input\":\"a\",\"dimensions\":257}", 400, "vectors of this model have 256");
    BOTH(EMBED, "{\"input\":[99999999]}", 400, "the model has no token 99999999");
    BOTH(EMBED, "{\"input\":\"a\",\"model\":\"other\"}", 404, "model_not_found");
    BOTH("/v1/rerank", "{\"query\":\"a\"}", 400, "documents is missing");
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_text(&body, "{\"input\":\"");
    for (int i = 0; i < 3000; i++)
        buf_text(&body, "word ");
    buf_text(&body, "\"}");
    buf_byte(&body, 0);
    BOTH(EMBED, body.data, 400, "context", "context_length_exceeded");
}

static void pooling_is_the_engines(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf last = { 0 }, means = { 0 }, one = { 0 };
    const char *const text = "{\"input\":[5,6,7,8],\"dimensions\":4}";
    const char *const single = "{\"input\":[5],\"dimensions\":4}";
    assert_int_equal(rig_call(pair.engine.port, EMBED, text, &last), 200);
    assert_int_equal(rig_call(mean.port, EMBED, text, &means), 200);
    assert_string_not_equal(strstr(last.data, "embedding\":["),
                            strstr(means.data, "embedding\":["));
    buf_clear(&last);
    buf_clear(&means);
    assert_int_equal(rig_call(pair.engine.port, EMBED, single, &last), 200);
    assert_int_equal(rig_call(mean.port, EMBED, single, &one), 200);
    size_t vector = (size_t)(strchr(last.data, ']') - last.data);
    assert_memory_equal(last.data, one.data, vector);
    buf_clear(&one); /* more texts than may wait at once */
    assert_int_equal(
        rig_call(
            mean.port, EMBED,
            "{\"input\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\",\"l\"]}",
            &one),
        200);
}

static void the_official_client_is_served(void **state)
{
    (void)state;
    char url[64];
    if (system("python3 -c 'import openai' 2>/dev/null") != 0) {
        print_message("the Python package openai is not installed\n");
        skip();
    }
    const char *at[] = { pair.router.at, pair.engine.at };
    for (size_t i = 0; i < COUNT_OF(at); i++) {
        snprintf(url, sizeof url, "http://%s", at[i]);
        const char *argv[] = { "python3", "tests/proc/router/embeddings_client.py", url, NULL };
        assert_int_equal(rig_client("embeddings_client", argv, 4), 0);
    }
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_ids_become_vectors),
        cmocka_unit_test(many_texts_come_in_their_order),
        cmocka_unit_test(scores_and_rankings_are_cosines),
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(pooling_is_the_engines),
        cmocka_unit_test(the_official_client_is_served),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
