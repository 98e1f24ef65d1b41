/* t_encoders.c - tests encoders behind a router and by themselves: vectors and scores of texts are those of
 * transformers (tests/vectors/arch/served.txt), and what they cannot do is refused. */
#include "base/core/own.h"
#include "tests/proc/router/pair_rig.h"
#include "tests/unit/engine/arch_case.h"
#include "tests/unit/engine/hf_make.h"
#include "tests/unit/engine/model_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VECTORS "tests/vectors/arch/"
#define WIDTH 64
#define LINES_MAX 128
#define OFF_MAX 1e-4

/* The lines of served.txt. */
static struct {
    struct buf text;
    const char *line[LINES_MAX];
    uint32_t count;
} served;

static void read_whole(const char *path, struct buf *out)
{
    char chunk[4096];
    size_t len;
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot read %s", path);
    while ((len = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(out, chunk, len);
    fclose(f);
}

static int setup(void **state)
{
    read_whole(VECTORS "served.txt", &served.text);
    buf_byte(&served.text, 0);
    for (char *at = served.text.data; *at && served.count < LINES_MAX; served.count++) {
        served.line[served.count] = at;
        at += strcspn(at, "\n");
        if (*at) *at++ = 0;
    }
    return model_folder_make(state);
}

static int teardown(void **state)
{
    buf_fini(&served.text);
    return model_folder_remove(state);
}

/* Returns what follows the words in the n-th line that begins with them. */
static const char *line_of(const char *words, uint32_t n)
{
    for (uint32_t i = 0; i < served.count; i++)
        if (strncmp(served.line[i], words, strlen(words)) == 0 && n-- == 0)
            return served.line[i] + strlen(words);
    fail_msg("no line %s", words);
    return NULL;
}

/* Starts an engine with the case's folder, and a router before it. */
static void serve(const char *name, const char *tokenizer, const char *const *flags)
{
    CLEANUP(case_fini) struct arch_case c;
    CLEANUP(buf_fini) struct buf text = { 0 };
    case_load(&c, name);
    case_folder(&c, NULL);
    read_whole(tokenizer, &text);
    hf_make_file(model_folder, "tokenizer.json", buf_view(&text));
    pair_start_model(model_folder, flags);
}

static void check_vectors(const char *words, const struct buf *reply)
{
    const char *at = reply->data;
    for (uint32_t i = 0; i < 3; i++) {
        char *want = (char *)(uintptr_t)line_of(words, i);
        at = strstr(at, "\"embedding\":[");
        if (!at) fail_msg("no vector in %s", reply->data);
        at += strlen("\"embedding\":[");
        for (uint32_t d = 0; d < WIDTH; d++) {
            char *end;
            const double got = strtod(at, &end), expected = strtod(want, &want);
            if (!(fabs(got - expected) <= OFF_MAX))
                fail_msg("%s %u: number %u is %g, expected %g", words, i, d, got, expected);
            at = end + 1;
        }
        assert_int_equal(at[-1], ']');
    }
}

static void embeds(const char *words)
{
    const uint16_t ports[] = { pair.router.port, pair.engine.port };
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_printf(&body, "{\"input\":[\"%s\",\"%s\",\"%s\"]}", line_of("text ", 0),
               line_of("text ", 1), line_of("text ", 2));
    buf_byte(&body, 0);
    for (size_t i = 0; i < COUNT_OF(ports); i++) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        assert_int_equal(rig_call(ports[i], "/v1/embeddings", body.data, &reply), 200);
        check_vectors(words, &reply);
    }
}

/* Asks for the number behind `name` in the reply. */
static void scores(const char *path, const char *name, const char *body, double expected)
{
    const uint16_t ports[] = { pair.router.port, pair.engine.port };
    for (size_t i = 0; i < COUNT_OF(ports); i++) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        assert_int_equal(rig_call(ports[i], path, body, &reply), 200);
        const char *at = strstr(reply.data, name);
        if (!at) fail_msg("no %s in %s", name, reply.data);
        const double got = strtod(at + strlen(name), NULL);
        if (!(fabs(got - expected) <= OFF_MAX))
            fail_msg("%s: %g, expected %g in %s", path, got, expected, reply.data);
    }
}

static void check_pairs(const char *words)
{
    CLEANUP(buf_fini) struct buf all = { 0 };
    double best = 0;
    buf_text(&all, "{\"query\":\"where is the cat\",\"documents\":[");
    for (uint32_t i = 0; i < 3; i++) {
        char body[256];
        const char *text = line_of("pair ", i), *bar = strchr(text, '|');
        const double expected = strtod(line_of(words, i), NULL);
        snprintf(body, sizeof body, "{\"text_1\":\"%.*s\",\"text_2\":\"%s\"}", (int)(bar - text),
                 text, bar + 1);
        scores("/v1/score", "\"score\":", strchr(body, '{'), expected);
        if (i == 2) continue;
        buf_printf(&all, "%s\"%s\"", i > 0 ? "," : "", bar + 1);
        best = fmax(best, expected);
    }
    buf_text(&all, "]}");
    buf_byte(&all, 0);
    scores("/v1/rerank", "\"relevance_score\":", all.data, best);
}

static void long_text(struct buf *out, const char *before, const char *behind)
{
    buf_text(out, before);
    for (int i = 0; i < 60; i++)
        buf_text(out, "cat ");
    buf_text(out, behind);
    buf_byte(out, 0);
}

/* ---- embedders */

static void a_bert_embeds_by_the_mean(void **state)
{
    serve("bert", VECTORS "bert.tokenizer.json", ARGS(NULL));
    embeds("vector bert mean");
    BOTH("/v1/embeddings", "{\"input\":\"zebras\",\"dimensions\":2}", 200, "\"embedding\":[",
         "\"usage\":{\"prompt_tokens\":8");
    BOTH("/v1/rerank", "{\"query\":\"cat\",\"documents\":[\"sun\",\"cat\"]}", 200,
         "\"results\":[{\"index\":1,");
    assert_int_equal(pair_end(state), 0);
}

static void an_xlm_roberta_embeds_by_its_first_token(void **state)
{
    serve("xlm_roberta", VECTORS "xlmroberta.tokenizer.json", ARGS("--pooling", "cls"));
    embeds("vector xlm_roberta cls");
    assert_int_equal(pair_end(state), 0);
}

static void a_modernbert_and_a_nomic_bert_embed(void **state)
{
    serve("modern_bert", VECTORS "bert.tokenizer.json", ARGS(NULL));
    embeds("vector modern_bert mean");
    assert_int_equal(pair_end(state), 0);
    serve("modern_bert", VECTORS "bert.tokenizer.json", ARGS("--pooling", "cls"));
    embeds("vector modern_bert cls");
    assert_int_equal(pair_end(state), 0);
    serve("nomic_bert", VECTORS "bert.tokenizer.json", ARGS(NULL));
    embeds("vector nomic_bert mean");
    assert_int_equal(pair_end(state), 0);
}

/* A text may fill the positions to the last; a step of the engine's default holds many. */
static void texts_have_as_many_tokens_as_the_model_has_positions(void **state)
{
    CLEANUP(buf_fini) struct buf body = { 0 }, many = { 0 };
    serve("bert", VECTORS "bert.tokenizer.json",
          ARGS("--max-num-batched-tokens", "20", "--max-num-seqs", "4", "--threads", "2"));
    buf_text(&body, "{\"dimensions\":1,\"input\":\"");
    for (int i = 0; i < 46; i++)
        buf_text(&body, "cat ");
    buf_text(&body, "\"}");
    buf_byte(&body, 0);
    BOTH("/v1/embeddings", body.data, 200, "\"prompt_tokens\":48");
    buf_clear(&body);
    long_text(&body, "{\"input\":\"", "\"}");
    BOTH("/v1/embeddings", body.data, 400, "longer than the context of this model, 48 tokens",
         "context_length_exceeded");
    buf_text(&many, "{\"dimensions\":1,\"input\":[\"sun\"");
    for (int i = 0; i < 40; i++)
        buf_printf(&many, ",\"the cat sat on the mat %.*s\"", i % 30,
                   "and and and and and and and and");
    buf_text(&many, "]}");
    buf_byte(&many, 0);
    BOTH("/v1/embeddings", many.data, 200, "\"index\":0,", "\"index\":17,", "\"index\":40,");
    assert_true(rig_metric(pair.engine.port, "muster_engine_embedded_texts_total") == 84);
    assert_int_equal(pair_end(state), 0);
}

static void encoders_say_what_they_are_and_what_not(void **state)
{
    serve("bert", VECTORS "bert.tokenizer.json", ARGS(NULL));
    const char *const bodies[] = {
        "{\"prompt\":\"a cat\"}",
        "{\"prompt\":\"a cat\",\"stream\":true}",
        "{\"prompt\":[5,6],\"response_format\":{\"type\":\"json_object\"}}",
    };
    for (size_t i = 0; i < COUNT_OF(bodies); i++)
        BOTH("/v1/completions", bodies[i], 400, "is an encoder and generates no text",
             "/v1/embeddings", "invalid_request_error");
    BOTH("/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 400,
         "is an encoder and generates no text");
    const uint16_t ports[] = { pair.router.port, pair.engine.port };
    for (size_t i = 0; i < COUNT_OF(ports); i++) {
        CLEANUP(buf_fini) struct buf models = { 0 };
        assert_int_equal(rig_call(ports[i], "/v1/models", NULL, &models), 200);
        pair_must_have(&models, (const char *[]){ "\"max_model_len\":48", "\"task\":\"embed\"" },
                       2);
    }
    BOTH("/tokenize", "{\"prompt\":\"a cat\"}", 200, "\"count\":4");
    CLEANUP(buf_fini) struct buf card = { 0 }, verified = { 0 };
    assert_int_equal(rig_run(&card, ARGS("model", "inspect", model_folder)), 0);
    assert_non_null(strstr(card.data, "architecture  bert"));
    assert_null(strstr(card.data, "KV in F16"));
    assert_int_equal(rig_run(&verified, ARGS("model", "verify", model_folder)), 0);
    assert_non_null(strstr(verified.data, "result     ok"));
    assert_int_equal(pair_end(state), 0);
}

static void the_official_client_is_served(void **state)
{
    char url[64];
    if (system("python3 -c 'import openai' 2>/dev/null") != 0) {
        print_message("the Python package openai is not installed\n");
        skip();
    }
    serve("bert", VECTORS "bert.tokenizer.json", ARGS(NULL));
    const char *at[] = { pair.router.at, pair.engine.at };
    for (size_t i = 0; i < COUNT_OF(at); i++) {
        snprintf(url, sizeof url, "http://%s", at[i]);
        const char *argv[] = { "python3", "tests/proc/router/embeddings_client.py", url, NULL };
        assert_int_equal(rig_client("embeddings_client", argv, 4), 0);
    }
    assert_int_equal(pair_end(state), 0);
}

static void a_decoder_has_no_first_token_for_a_vector(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_not_equal(rig_run(&out, ARGS("engine", "--model", MODEL, "--pooling", "cls",
                                            "--listen", "127.0.0.1:0")),
                         0);
    assert_non_null(strstr(out.data, "the first token of a text does not see the others"));
}

/* ---- cross-encoders */

static void pairs_are_scored_by_the_head(void **state)
{
    serve("bert_cross", VECTORS "bert.tokenizer.json", ARGS(NULL));
    check_pairs("score bert_cross");
    CLEANUP(buf_fini) struct buf body = { 0 };
    BOTH("/v1/score", "{\"text_1\":[\"cat\",\"sun\"],\"text_2\":[\"mat\",\"moon\"]}", 200,
         "\"index\":0,", "\"index\":1,", "\"usage\":{\"prompt_tokens\":10");
    BOTH("/v1/embeddings", "{\"input\":\"a\"}", 400, "is a cross-encoder");
    BOTH("/v1/completions", "{\"prompt\":\"a\"}", 400, "generates no text", "with pairs of texts");
    long_text(&body, "{\"query\":\"cat\",\"documents\":[\"", "\"]}");
    BOTH("/v1/rerank", body.data, 400, "this model reads at most 48", "context_length_exceeded");
    assert_int_equal(pair_end(state), 0);
    serve("roberta_cross", VECTORS "xlmroberta.tokenizer.json", ARGS(NULL));
    check_pairs("score roberta_cross");
    assert_int_equal(pair_end(state), 0);
    serve("modern_cross", VECTORS "bert.tokenizer.json", ARGS(NULL));
    check_pairs("score modern_cross");
    assert_int_equal(pair_end(state), 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN"))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bert_embeds_by_the_mean),
        cmocka_unit_test(an_xlm_roberta_embeds_by_its_first_token),
        cmocka_unit_test(a_modernbert_and_a_nomic_bert_embed),
        cmocka_unit_test(texts_have_as_many_tokens_as_the_model_has_positions),
        cmocka_unit_test(encoders_say_what_they_are_and_what_not),
        cmocka_unit_test(the_official_client_is_served),
        cmocka_unit_test(a_decoder_has_no_first_token_for_a_vector),
        cmocka_unit_test(pairs_are_scored_by_the_head),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
