/* t_lora.c - runs OpenAI's Python client against a router and two engines with LoRA adapters, beside an engine with an
 * adapter merged into its weights. */
#include "tests/proc/rig/rig.h"

#include <stdio.h>

static char folder[RIG_PATH];

static struct rig_process start_engine(const char *modules)
{
    char base[RIG_PATH + 16];
    snprintf(base, sizeof base, "%s/base.gguf", folder);
    return rig_server("engine", rig_port(),
                      ARGS("--model", base, "--served-model-name", "base", "--threads", "1",
                           "--enable-lora", "--lora-modules", modules,
                           "--allow-runtime-lora-updating"));
}

static void adapters_are_models_of_their_own(void **state)
{
    (void)state;
    char tone[RIG_PATH + 16], both[2 * RIG_PATH + 32], merged_path[RIG_PATH + 16];
    char url[4][64], endpoints[64], pid[2][16];
    snprintf(tone, sizeof tone, "tone=%s/tone", folder);
    snprintf(both, sizeof both, "%s,sql=%s/sql", tone, folder);
    snprintf(merged_path, sizeof merged_path, "%s/merged.gguf", folder);
    struct rig_process engine[2] = { start_engine(both), start_engine(tone) };
    struct rig_process merged =
        rig_server("engine", rig_port(),
                   ARGS("--model", merged_path, "--served-model-name", "merged", "--threads", "1"));
    snprintf(endpoints, sizeof endpoints, "%s,%s", engine[0].at, engine[1].at);
    struct rig_process router = rig_server("router", rig_port(), ARGS("--endpoints", endpoints));
    rig_wait_endpoints(&router, 2);
    const struct rig_process *const at[4] = { &router, &engine[0], &engine[1], &merged };
    for (int i = 0; i < 4; i++)
        snprintf(url[i], sizeof url[i], "http://%s", at[i]->at);
    for (int i = 0; i < 2; i++)
        snprintf(pid[i], sizeof pid[i], "%lld", (long long)engine[i].proc.id.pid);
    const char *argv[] = { "python3", "tests/proc/router/lora_client.py",
                           url[0],    url[1],
                           url[2],    url[3],
                           folder,    pid[0],
                           pid[1],    NULL };
    int code = rig_client("lora", argv, 10);
    for (int i = 0; i < 2; i++)
        rig_stop(&engine[i]); /* one was killed by the client */
    int merged_code = rig_stop(&merged), router_code = rig_stop(&router);
    assert_int_equal(code, 0);
    assert_int_equal(merged_code, 0);
    assert_int_equal(router_code, 0);
}

static int make_files(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", rig_folder());
    const char *argv[] = { "python3", "tests/proc/router/lora_files.py", MODEL, folder, NULL };
    return rig_client("lora_files", argv, 2);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    if (system("python3 -c 'import numpy, openai' 2>/dev/null") != 0) {
        print_message("skipped: the Python packages numpy and openai are not installed\n");
        return RIG_SKIP;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(adapters_are_models_of_their_own) };
    return rig_end(cmocka_run_group_tests(tests, make_files, NULL));
}
