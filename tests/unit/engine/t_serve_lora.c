/* t_serve_lora.c - tests LoRA adapters in a served engine: named by requests, apart in the cache, beside each other
 * in steps, with drafts and under preemption; loaded and unloaded while it runs. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "tests/unit/engine/hf_make.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/engine/serve_rig.h"
#include "tests/unit/engine/tiny_model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int make_files(void **state)
{
    int rc = model_folder_make(state);
    for (uint32_t i = 0; i < 4 && rc == 0; i++) {
        char name[16];
        snprintf(name, sizeof name, "%c.gguf", (char)('a' + i));
        CLEANUP(buf_fini) struct buf file = { 0 };
        tiny_adapter(7 + i, &file);
        hf_make_file(model_folder, name, buf_view(&file));
    }
    return rc;
}

/* Returns "a=FOLDER/a.gguf,b=FOLDER/b.gguf". */
static const char *modules(void)
{
    static char text[1200];
    snprintf(text, sizeof text, "a=%s,b=%s", folder_at("a.gguf"), folder_at("b.gguf"));
    return text;
}

static int complete(struct engine *e, const char *model, const char *prompt, uint32_t tokens,
                    struct buf *text, uint32_t *ret_cached)
{
    CLEANUP(buf_fini) struct buf ask = { 0 }, r = { 0 };
    buf_printf(&ask,
               "{\"model\":\"%s\",\"prompt\":\"%s\",\"max_tokens\":%u,\"temperature\":0,"
               "\"ignore_eos\":true}",
               model, prompt, tokens);
    int status = post(e, "/v1/completions", ask.data, &r);
    buf_clear(text);
    if (status != 200) return status;
    struct openai_delta d = read_delta(buf_view(&r), text);
    assert_true(d.has_usage);
    if (ret_cached) *ret_cached = d.usage.cached_tokens;
    buf_clear(&ask);
    buf_printf(&ask, "\"model\":\"%s\"", model);
    has(&r, ask.data);
    return 200;
}

#define PROMPT "the king of the house and the queen of the house and the king of the house"

/* ---- outputs */

static void t_adapters_have_outputs_and_caches_of_their_own(void **state)
{
    (void)state;
    static const char *const names[] = { "tiny", "a", "b" };
    const char *const args[] = { "--served-model-name",
                                 "tiny",
                                 "--enable-lora",
                                 "--lora-modules",
                                 modules(),
                                 "--max-lora-rank",
                                 "4",
                                 "--max-loras",
                                 "3",
                                 NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 }, again = { 0 };
    struct buf text[3] = { { 0 } };
    engine_open(&e, args);
    assert_int_equal(get(&e, "/v1/models", &r), 200);
    has(&r, "{\"id\":\"tiny\",\"object\":\"model\"");
    has(&r, "{\"id\":\"a\",\"object\":\"model\"");
    has(&r, "\"owned_by\":\"muster\",\"parent\":\"tiny\"");
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        uint32_t cached = 9;
        assert_int_equal(complete(&e, names[i], PROMPT, 40, &text[i], &cached), 200);
        assert_int_equal(cached, 0); /* of the others */
        assert_int_equal(complete(&e, names[i], PROMPT, 40, &again, &cached), 200);
        assert_true(cached >= 16);
        assert_string_equal(again.data, text[i].data);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(text[i].data, text[k].data);
    }
    assert_int_equal(complete(&e, "c", PROMPT, 4, &again, NULL), 404);
    assert_int_equal(post(&e, "/v1/embeddings", "{\"model\":\"a\",\"input\":\"x\"}", &r), 404);
    assert_true(metric(&e, "muster_engine_adapters") == 2);
    assert_true(metric(&e, "muster_engine_adapter_requests_total{adapter=\"a\"}") == 2);
    engine_close(&e);
    buf_fini(&text[0]);
    buf_fini(&text[1]);
    buf_fini(&text[2]);
}

#define STREAMS 4

/* Runs four long requests at once, of the model and of two adapters, and compares each with itself alone. */
static void check_together(const char *const *args, const char *meter)
{
    static const char *const names[STREAMS] = { "a", "tiny", "b", "a" };
    static const char *const prompts[STREAMS] = { PROMPT, PROMPT, PROMPT, "once upon a time" };
    struct engine e;
    int fd[STREAMS];
    CLEANUP(buf_fini) struct buf ask = { 0 };
    engine_open(&e, args);
    for (uint32_t i = 0; i < STREAMS; i++) {
        fd[i] = connect_raw(&e);
        buf_clear(&ask);
        buf_printf(&ask,
                   "{\"model\":\"%s\",\"prompt\":\"%s\",\"max_tokens\":120,\"temperature\":0,"
                   "\"ignore_eos\":true}",
                   names[i], prompts[i]);
        send_raw(fd[i], "/v1/completions", ask.data);
    }
    struct buf seen[STREAMS] = { { 0 } };
    for (uint32_t i = 0; i < STREAMS; i++)
        read_raw(fd[i], "\"total_tokens\"", &seen[i]);
    if (meter) assert_true(metric(&e, meter) > 0);
    for (uint32_t i = 0; i < STREAMS; i++) {
        CLEANUP(buf_fini) struct buf alone = { 0 }, beside = { 0 };
        read_delta(str_from(strstr(seen[i].data, "\r\n\r\n") + 4), &beside);
        assert_int_equal(complete(&e, names[i], prompts[i], 120, &alone, NULL), 200);
        assert_string_equal(beside.data, alone.data);
        buf_fini(&seen[i]);
        close(fd[i]);
    }
    engine_close(&e);
}

static void t_adapters_share_steps(void **state)
{
    (void)state;
    const char *const args[] = { "--served-model-name", "tiny",    "--enable-lora",
                                 "--lora-modules",      modules(), NULL };
    check_together(args, NULL);
}

static void t_adapters_are_preempted(void **state)
{
    (void)state;
    const char *const args[] = { "--served-model-name",
                                 "tiny",
                                 "--enable-lora",
                                 "--lora-modules",
                                 modules(),
                                 "--max-model-len",
                                 "256",
                                 "--kv-cache-memory-bytes",
                                 "96KiB",
                                 "--no-enable-prefix-caching",
                                 "--admit",
                                 "all",
                                 "--cpu-share", /* so that all four are there at once */
                                 SLOW,
                                 NULL };
    check_together(args, "muster_engine_preemptions_total");
}

static void t_drafts_change_no_output_of_an_adapter(void **state)
{
    (void)state;
    const char *const plain[] = { "--served-model-name", "tiny",    "--enable-lora",
                                  "--lora-modules",      modules(), NULL };
    const char *const drafts[] = { "--served-model-name",
                                   "tiny",
                                   "--enable-lora",
                                   "--lora-modules",
                                   modules(),
                                   "--draft",
                                   "ngram",
                                   NULL };
    static const char *const names[] = { "a", "b" };
    struct engine e, d;
    engine_open(&e, plain);
    engine_open(&d, drafts);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        CLEANUP(buf_fini) struct buf want = { 0 }, got = { 0 };
        assert_int_equal(complete(&e, names[i], PROMPT, 200, &want, NULL), 200);
        assert_int_equal(complete(&d, names[i], PROMPT, 200, &got, NULL), 200);
        assert_string_equal(got.data, want.data);
    }
    assert_true(metric(&d, "muster_engine_draft_tokens_total") > 0);
    engine_close(&d);
    engine_close(&e);
}

/* ---- loaded and unloaded */

static int load(struct engine *e, const char *name, const char *file, struct buf *r)
{
    CLEANUP(buf_fini) struct buf ask = { 0 };
    buf_printf(&ask, "{\"lora_name\":\"%s\",\"lora_path\":\"%s\"}", name, folder_at(file));
    return post(e, "/v1/load_lora_adapter", ask.data, r);
}

static int unload(struct engine *e, const char *name, struct buf *r)
{
    CLEANUP(buf_fini) struct buf ask = { 0 };
    buf_printf(&ask, "{\"lora_name\":\"%s\",\"lora_int_id\":3}", name);
    return post(e, "/v1/unload_lora_adapter", ask.data, r);
}

static void t_paths_are_read_only_where_that_is_allowed(void **state)
{
    (void)state;
    const char *const args[] = { "--enable-lora", NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 };
    engine_open(&e, args);
    assert_int_equal(load(&e, "a", "a.gguf", &r), 403);
    has(&r, "--allow-runtime-lora-updating");
    assert_int_equal(unload(&e, "a", &r), 403);
    engine_close(&e);
}

static void t_loads_are_refused_with_a_reason(void **state)
{
    (void)state;
    const char *const args[] = {
        "--served-model-name",           "tiny", "--enable-lora", "--max-loras", "2",
        "--allow-runtime-lora-updating", NULL
    };
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 };
    engine_open(&e, args);
    assert_int_equal(load(&e, "a", "a.gguf", &r), 200);
    assert_string_equal(r.data, "Success: LoRA adapter 'a' added successfully.");
    assert_int_equal(load(&e, "a", "b.gguf", &r), 400);
    has(&r, "is loaded already");
    assert_int_equal(load(&e, "tiny", "b.gguf", &r), 400);
    has(&r, "the name of the model itself");
    assert_int_equal(load(&e, "x", "none.gguf", &r), 404);
    has(&r, "none.gguf");
    hf_make_file(model_folder, "broken.gguf", STR("GGUF"));
    assert_int_equal(load(&e, "x", "broken.gguf", &r), 400);
    assert_int_equal(post(&e, "/v1/load_lora_adapter", "{\"lora_name\":\"x\"}", &r), 400);
    has(&r, "lora_path");
    assert_int_equal(post(&e, "/v1/load_lora_adapter", "[", &r), 400);
    assert_int_equal(load(&e, "b", "b.gguf", &r), 200);
    assert_int_equal(load(&e, "c", "c.gguf", &r), 429);
    has(&r, "as many as --max-loras allows");
    assert_int_equal(unload(&e, "c", &r), 404);
    assert_int_equal(unload(&e, "b", &r), 200);
    assert_int_equal(load(&e, "c", "c.gguf", &r), 200);
    engine_close(&e);
}

static void t_running_requests_keep_an_adapter_that_is_unloaded(void **state)
{
    (void)state;
    const char *const args[] = { "--enable-lora",
                                 "--lora-modules",
                                 modules(),
                                 "--max-loras",
                                 "2",
                                 "--allow-runtime-lora-updating",
                                 "--cpu-share",
                                 SLOW,
                                 NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 }, seen = { 0 };
    engine_open(&e, args);
    int fd = connect_raw(&e);
    send_raw(
        fd, "/v1/completions",
        "{\"model\":\"a\",\"prompt\":\"once upon a time\",\"max_tokens\":4000,\"ignore_eos\":true,"
        "\"temperature\":0,\"stream\":true}");
    read_raw(fd, "\"model\":\"a\"", &seen);
    assert_int_equal(unload(&e, "a", &r), 200);
    assert_int_equal(complete(&e, "a", "x", 1, &r, NULL), 404);
    assert_int_equal(get(&e, "/v1/models", &r), 200);
    assert_null(strstr(r.data, "\"id\":\"a\""));
    assert_true(metric(&e, "muster_engine_adapters") == 1);
    assert_int_equal(load(&e, "c", "c.gguf", &r), 429); /* its memory is still there */
    has(&r, "1 of them in use by their last requests");
    buf_clear(&seen);
    read_raw(fd, "\"model\":\"a\"", &seen); /* it goes on */
    close(fd);
    until_metric(&e, "muster_engine_requests_running", 0);
    for (int status = 429; status == 429;)
        status = load(&e, "c", "c.gguf", &r);
    assert_int_equal(complete(&e, "c", "x", 1, &r, NULL), 200);
    engine_close(&e);
}

static void starts_not(const char *const *args, const char *says)
{
    struct engine e = { 0 };
    char path[64];
    e.model_fd = tiny_model_path(TINY_CONTEXT, path);
    engine_spawn(&e, path, args);
    assert_true(engine_log_has(&e, says));
    assert_true(engine_wait(&e) != 0);
    engine_fini(&e);
}

static void t_mistakes_are_told_at_start(void **state)
{
    (void)state;
    starts_not((const char *const[]){ "--lora-modules", modules(), NULL },
               "--lora-modules needs --enable-lora");
    starts_not((const char *const[]){ "--enable-lora", "--lora-modules", "a", NULL },
               "'a' is not NAME=PATH");
    starts_not((const char *const[]){ "--enable-lora", "--lora-modules", modules(), "--max-loras",
                                      "1", NULL },
               "as many as --max-loras allows");
    starts_not((const char *const[]){ "--enable-lora", "--lora-modules", modules(),
                                      "--max-lora-rank", "3", NULL },
               "has rank 4, at most 3 are taken (--max-lora-rank)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_adapters_have_outputs_and_caches_of_their_own),
        cmocka_unit_test(t_adapters_share_steps),
        cmocka_unit_test(t_adapters_are_preempted),
        cmocka_unit_test(t_drafts_change_no_output_of_an_adapter),
        cmocka_unit_test(t_paths_are_read_only_where_that_is_allowed),
        cmocka_unit_test(t_loads_are_refused_with_a_reason),
        cmocka_unit_test(t_running_requests_keep_an_adapter_that_is_unloaded),
        cmocka_unit_test(t_mistakes_are_told_at_start),
    };
    return cmocka_run_group_tests(tests, make_files, model_folder_remove);
}
