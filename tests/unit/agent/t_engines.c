/* t_engines.c - tests the engine kinds: what their replies say of them, and the command lines that start them.
 *
 * The pages of metrics of vLLM 0.32 and of llama.cpp's server are real ones, taken under load
 * (tests/vectors/engines). SGLang's rows are written here after its sources: its names and labels, our values. */
#include "agent/engines/engine_driver.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

static const struct engine_ask *ask_of(const struct engine_driver *d, const char *path)
{
    for (uint32_t i = 0; i < d->ask_count; i++)
        if (strcmp(d->ask[i].path, path) == 0) return &d->ask[i];
    fail_msg("%s does not ask for %s", engine_kind_names[d->kind], path);
    abort(); /* fail_msg does not return, which the compiler does not know */
}

static int answer(struct engine_sight *s, const char *path, struct str body, struct err *err)
{
    return ask_of(s->driver, path)->take(s, body, err);
}

static struct engine_sight sight_of(enum engine_kind kind)
{
    struct engine_sight s = { .driver = engine_driver_of(kind) };
    for (int i = 0; i < 2; i++)
        arena_init(&s.arena[i], ENGINE_REPLY_BYTES_MAX);
    return s;
}

static void sight_fini(struct engine_sight *s)
{
    for (int i = 0; i < 2; i++)
        arena_fini(&s->arena[i]);
}

/* ---- the table ---- */

static void every_kind_has_a_driver(void **state)
{
    (void)state;
    for (enum engine_kind k = 0; k < ENGINE_KIND_COUNT; k++) {
        const struct engine_driver *d = engine_driver_of(k);
        const struct engine_traits *t = &engine_traits[k];
        assert_int_equal(d->kind, k);
        assert_non_null(engine_kind_names[k]);
        assert_non_null(t->about);
        assert_true(t->seqs > 0);
        assert_true(d->ask_count > 0 && d->ask_count <= 64);
        /* what is only adopted has no command line, and the other way about */
        assert_int_equal(d->command != NULL, t->program != NULL);
        assert_true(!d->ask[d->ask_count - 1].once); /* the last one makes the report */
    }
    assert_null(engine_kind_names[ENGINE_KIND_COUNT]);
}

/* ---- metrics ---- */

static void vllm_under_load_is_read(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf page = { 0 };
    CLEANUP(sight_fini) struct engine_sight s = sight_of(ENGINE_VLLM);
    struct err err = { "" };
    assert_int_equal(file_read("tests/vectors/engines/vllm-0.32.metrics", 1 << 20, &page, &err), 0);
    assert_int_equal(
        answer(
            &s, "/v1/models",
            STR("{\"object\":\"list\",\"data\":[{\"id\":\"tiny\",\"root\":\"/m\",\"parent\":null,"
                "\"max_model_len\":2048,\"permission\":[{\"id\":\"modelperm-1\"}]},"
                "{\"id\":\"tl\",\"parent\":\"tiny\"}]}"),
            &err),
        0);
    assert_int_equal(answer(&s, "/metrics", buf_view(&page), &err), 0);
    const struct engine_report *r = &s.report;
    assert_true(str_eq(r->model, STR("tiny")));
    assert_int_equal(r->health, ENGINE_READY);
    assert_int_equal(r->context_tokens, 2048);
    assert_int_equal(r->running, 4);
    assert_int_equal(r->waiting, 10);
    assert_int_equal(r->running_max, engine_traits[ENGINE_VLLM].seqs); /* it does not say */
    assert_int_equal(r->page_tokens, 32);
    assert_int_equal(r->pages_total, 70);
    assert_int_equal(r->pages_free, 4); /* 94.2 % of 70 in use */
    assert_int_equal(r->prompt_tokens_total, 6776);
    assert_int_equal(r->cached_tokens_total, 0);
    assert_true(r->generated_tokens_total > 0 && r->requests_total > 0);
    assert_true(s.started_s > 1.7e9);
}

static void llama_server_under_load_is_read(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf page = { 0 };
    CLEANUP(sight_fini) struct engine_sight s = sight_of(ENGINE_LLAMA_SERVER);
    struct err err = { "" };
    assert_int_equal(file_read("tests/vectors/engines/llama-server.metrics", 1 << 20, &page, &err),
                     0);
    assert_int_equal(
        answer(&s, "/v1/models",
               STR("{\"models\":[{\"name\":\"tiny\",\"tags\":[\"\"]}],\"object\":\"list\",\"data\":"
                   "[{\"id\":"
                   "\"tiny\",\"aliases\":[\"tiny\"],\"architecture\":{\"input_modalities\":["
                   "\"text\"]},"
                   "\"meta\":{\"vocab_type\":2,\"n_ctx\":2048,\"n_ctx_train\":4096}}]}"),
               &err),
        0);
    assert_int_equal(
        answer(
            &s, "/props",
            STR("{\"default_generation_settings\":{\"n_ctx\":2048},\"total_slots\":4,\"x\":[1]}"),
            &err),
        0);
    assert_int_equal(answer(&s, "/metrics", buf_view(&page), &err), 0);
    const struct engine_report *r = &s.report;
    assert_int_equal(r->context_tokens, 2048);
    assert_int_equal(r->running, 4);
    assert_int_equal(r->waiting, 4);
    assert_int_equal(r->running_max, 4);
    assert_int_equal(r->pages_total, 0);                /* it has none */
    assert_int_equal(r->prompt_tokens_total, 368 + 22); /* it counts without the cached ones */
    assert_int_equal(r->cached_tokens_total, 22);
}

static void sglang_is_read(void **state)
{
    (void)state;
    CLEANUP(sight_fini) struct engine_sight s = sight_of(ENGINE_SGLANG);
    struct err err = { "" };
    assert_int_equal(
        answer(&s, "/get_server_info",
               STR("{\"model_path\":\"m\",\"page_size\":16,\"max_running_requests\":48,"
                   "\"internal_states\":[{\"page_size\":99}]}"),
               &err),
        0);
    assert_int_equal(
        answer(&s, "/metrics",
               STR("# TYPE sglang:num_running_reqs gauge\n"
                   "sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\",pp_rank=\"0\"} 5.0\n"
                   "sglang:num_running_reqs{model_name=\"m\",tp_rank=\"1\",pp_rank=\"0\"} 5.0\n"
                   "sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\",priority=\"0\"} 4.0\n"
                   "sglang:num_queue_reqs{model_name=\"m\",tp_rank=\"0\",priority=\"\"} 3.0\n"
                   "sglang:token_usage{model_name=\"m\",tp_rank=\"0\"} 0.25\n"
                   "sglang:max_total_num_tokens{model_name=\"m\",tp_rank=\"0\"} 1600.0\n"
                   "sglang:prompt_tokens_total{model_name=\"m\"} 1000.0\n"
                   "sglang:cached_tokens_total{model_name=\"m\",cache_source=\"device\"} 300.0\n"
                   "sglang:cached_tokens_total{model_name=\"m\",cache_source=\"host\"} 100.0\n"
                   "sglang:generation_tokens_total{model_name=\"m\"} 70.0\n"
                   "sglang:num_requests_total{model_name=\"m\"} 9.0\n"),
               &err),
        0);
    const struct engine_report *r = &s.report;
    assert_int_equal(r->running, 5); /* each rank says the same */
    assert_int_equal(r->waiting, 3);
    assert_int_equal(r->running_max, 48);
    assert_int_equal(r->page_tokens, 16);
    assert_int_equal(r->pages_total, 100);
    assert_int_equal(r->pages_free, 75);
    assert_int_equal(r->cached_tokens_total, 400);
    assert_int_equal(r->prompt_tokens_total, 1000);
    assert_int_equal(r->requests_total, 9);
}

static void ranks_of_data_are_added(void **state)
{
    (void)state;
    CLEANUP(sight_fini) struct engine_sight s = sight_of(ENGINE_VLLM);
    assert_int_equal(
        answer(
            &s, "/metrics",
            STR("vllm:num_requests_running{engine=\"0\"} 2.0\n"
                "vllm:num_requests_running{engine=\"1\"} 3.0\n"
                "vllm:kv_cache_usage_perc{engine=\"0\"} 0.1\n"
                "vllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n"
                "vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"10\"} 1.0\n"
                "vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"10\"} "
                "1.0\n"),
            NULL),
        0);
    assert_int_equal(s.report.running, 5);
    assert_int_equal(s.report.pages_total, 20);
    assert_int_equal(s.report.page_tokens, 16);
    assert_int_equal(s.report.pages_free,
                     10); /* by the fuller rank: what still fits is what counts */
}

/* Numbers that no engine means become none, and never wrap. */
static void absurd_numbers_are_bounded(void **state)
{
    (void)state;
    static const char *const values[] = { "-5", "1e300", "18446744073709551616", "1e15",
                                          "4294967296.0" };
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        CLEANUP(sight_fini) struct engine_sight s = sight_of(ENGINE_VLLM);
        char page[512];
        snprintf(page, sizeof page,
                 "vllm:num_requests_running %s\nvllm:kv_cache_usage_perc "
                 "%s\nvllm:prompt_tokens_total %s\n"
                 "vllm:prefix_cache_hits_total 1e14\n"
                 "vllm:cache_config_info{num_gpu_blocks=\"%s\",block_size=\"16\"} 1\n",
                 values[i], values[i], values[i], values[i]);
        assert_int_equal(answer(&s, "/metrics", str_from(page), NULL), 0);
        assert_true(s.report.pages_free <= s.report.pages_total);
        assert_true(s.report.cached_tokens_total <= s.report.prompt_tokens_total);
        assert_true(s.report.running == 0 || s.report.running == UINT32_MAX);
    }
}

static void replies_that_say_nothing_are_refused(void **state)
{
    (void)state;
    static const struct {
        enum engine_kind kind;
        const char *path, *body;
    } rows[] = {
        { ENGINE_VLLM, "/metrics", "" },
        { ENGINE_VLLM, "/metrics", "<html>" },
        { ENGINE_VLLM, "/v1/models", "" },
        { ENGINE_VLLM, "/v1/models", "{}" },
        { ENGINE_VLLM, "/v1/models", "{\"data\":[]}" },
        { ENGINE_VLLM, "/v1/models", "{\"data\":[{\"id\":\"\"}]}" },
        { ENGINE_VLLM, "/v1/models", "{\"data\":[{\"id\":5}]}" },
        { ENGINE_VLLM, "/v1/models", "{\"data\":[{\"id\":\"a\\u0000b\"}]}" },
        { ENGINE_VLLM, "/v1/models", "{\"data\":{\"id\":\"a\"}}" },
        { ENGINE_OPENAI, "/v1/models", "{\"data\":[{\"id\":\"a\"}" },
        { ENGINE_LLAMA_SERVER, "/props", "[]" },
        { ENGINE_SGLANG, "/server_info", "{\"page_size\":" },
        { ENGINE_MUSTER, "/internal/info", "{\"v\":1}" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(sight_fini) struct engine_sight s = sight_of(rows[i].kind);
        struct err err = { "" };
        if (answer(&s, rows[i].path, str_from(rows[i].body), &err) == 0)
            fail_msg("%s %s: accepted", rows[i].path, rows[i].body);
        if (!err.text[0]) fail_msg("%s %s: no sentence", rows[i].path, rows[i].body);
    }
}

/* ---- command lines ---- */

static const struct str vllm_serve[] = { { "vllm", 4 }, { "serve", 5 } };
static const struct str vllm_module[] = { { "python3", 7 },
                                          { "-m", 2 },
                                          { "vllm.entrypoints.openai.api_server", 34 } };
static const struct str sglang[] = { { "python3", 7 },
                                     { "-m", 2 },
                                     { "sglang.launch_server", 20 } };
static const struct str llama[] = { { "llama-server", 12 } };
static const struct str muster[] = {
    { "muster", 6 }, { "engine", 6 }, { "--model", 7 }, { "m.gguf", 6 }
};
static const struct str flags[] = { { "--dtype", 7 }, { "float32", 7 } };

#define COMMON .model = { "/m", 2 }, .served_name = { "chat", 4 }, .engine_host = { "10.0.0.7", 8 }
#define ARGS(list) .engine_args = list, .engine_arg_count = COUNT_OF(list)
#define FLAGS .engine_flags = flags, .engine_flag_count = COUNT_OF(flags)

static const struct {
    const char *why;
    struct launch_spec spec;
    bool publishes;
    const char *want, *env;
} commands[] = {
    { "vllm with all that a pool can say",
      { .kind = ENGINE_VLLM,
        COMMON,
        ARGS(vllm_serve),
        FLAGS,
        .context_tokens = 4096,
        .seqs_max = 8,
        .device = { "0,1", 3 } },
      true,
      "vllm serve /m --served-model-name chat --host 10.0.0.7 --port 8201 --max-model-len 4096 "
      "--max-num-seqs 8 "
      "--enable-prompt-tokens-details --kv-events-config "
      "{\"publisher\":\"zmq\",\"endpoint\":\"ipc:///f/kv.events\",\"replay_endpoint\":\"ipc:///f/"
      "kv.replay\","
      "\"enable_kv_cache_events\":true} --dtype float32",
      "VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 CUDA_VISIBLE_DEVICES=0,1" },
    { "vllm's module takes its model by a flag",
      { .kind = ENGINE_VLLM, COMMON, ARGS(vllm_module) },
      false,
      "python3 -m vllm.entrypoints.openai.api_server --model /m --served-model-name chat --host "
      "10.0.0.7 "
      "--port 8201 --enable-prompt-tokens-details",
      "VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1" },
    { "sglang",
      { .kind = ENGINE_SGLANG,
        COMMON,
        ARGS(sglang),
        FLAGS,
        .context_tokens = 4096,
        .seqs_max = 8,
        .device = { "cpu", 3 } },
      true,
      "python3 -m sglang.launch_server --model-path /m --served-model-name chat --host 10.0.0.7 "
      "--port 8201 "
      "--context-length 4096 --max-running-requests 8 --device cpu --enable-metrics "
      "--enable-cache-report "
      "--kv-events-config "
      "{\"publisher\":\"zmq\",\"endpoint\":\"ipc:///f/kv.events\",\"replay_endpoint\":"
      "\"ipc:///f/kv.replay\"} --dtype float32",
      "" },
    { "llama-server shares its context out among its slots",
      { .kind = ENGINE_LLAMA_SERVER, COMMON, ARGS(llama), .context_tokens = 2048, .seqs_max = 6 },
      false,
      "llama-server --model /m --alias chat --host 10.0.0.7 --port 8201 --ctx-size 12288 "
      "--parallel 6 --metrics "
      "--no-webui",
      "" },
    { "llama-server at its defaults",
      { .kind = ENGINE_LLAMA_SERVER, COMMON, ARGS(llama) },
      false,
      "llama-server --model /m --alias chat --host 10.0.0.7 --port 8201 --parallel 4 --metrics "
      "--no-webui",
      "" },
    { "our own engine, whose command line the controller has made",
      { .kind = ENGINE_MUSTER,
        COMMON,
        ARGS(muster),
        .share = 0.25,
        .secret_file = { "/f/key", 6 } },
      false,
      "muster engine --model m.gguf --listen 10.0.0.7:8201 --secret-file /f/key --cpu-share 0.25",
      "" },
};

static void join(struct buf *out, const char *const *texts)
{
    for (size_t i = 0; texts[i]; i++)
        buf_printf(out, "%s%s", i ? " " : "", texts[i]);
    if (!out->data) buf_text(out, "");
}

static void command_lines_are_those_of_each_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        CLEANUP(arena_fini) struct arena arena;
        CLEANUP(buf_fini) struct buf line = { 0 }, env = { 0 };
        arena_init(&arena, 1 << 20);
        struct engine_command c = { .arena = &arena };
        const struct engine_start start = {
            .spec = &commands[i].spec,
            .port = 8201,
            .kv_events = commands[i].publishes ? "/f/kv.events" : NULL,
            .kv_replay = commands[i].publishes ? "/f/kv.replay" : NULL,
        };
        engine_driver_of(commands[i].spec.kind)->command(&c, &start);
        assert_int_equal(c.rc, 0);
        join(&line, c.arg);
        join(&env, c.env);
        if (strcmp(line.data, commands[i].want) != 0)
            fail_msg("%s:\n%s", commands[i].why, line.data);
        if (strcmp(env.data, commands[i].env) != 0) fail_msg("%s: %s", commands[i].why, env.data);
    }
}

static void too_many_arguments_are_refused(void **state)
{
    (void)state;
    static struct str many[ENGINE_ARGS_MAX + 1];
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 1 << 20);
    for (size_t i = 0; i < COUNT_OF(many); i++)
        many[i] = STR("x");
    struct engine_command c = { .arena = &arena };
    const struct launch_spec spec = { .kind = ENGINE_LLAMA_SERVER, COMMON, ARGS(many) };
    const struct engine_start start = { .spec = &spec, .port = 1 };
    engine_llama_server.command(&c, &start);
    assert_int_equal(c.rc, -E2BIG);
    assert_null(c.arg[c.arg_count]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_a_driver),
        cmocka_unit_test(vllm_under_load_is_read),
        cmocka_unit_test(llama_server_under_load_is_read),
        cmocka_unit_test(sglang_is_read),
        cmocka_unit_test(ranks_of_data_are_added),
        cmocka_unit_test(absurd_numbers_are_bounded),
        cmocka_unit_test(replies_that_say_nothing_are_refused),
        cmocka_unit_test(command_lines_are_those_of_each_kind),
        cmocka_unit_test(too_many_arguments_are_refused),
    };
    return cmocka_run_group_tests_name("engines", tests, NULL, NULL);
}
