/* t_check.c - tests that `muster check` refuses well-formed configurations that cannot run. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/schema.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Each %s takes a row's addition: at the top, in the service, in the pool and in the offer. */
#define FLEET                                                                           \
    "%s\n"                                                                              \
    "local: { cores: 1, offers: [ { name: bit, share: 0.2, price_per_hour: 1 %s} ] }\n" \
    "services:\n"                                                                       \
    "  - { name: chat, model: CMakeLists.txt %s, pools: [ { name: only, offers: [bit] %s } ] }\n"

/* Runs check_file on a file with this text. */
static int check_text(struct str text, struct config **ret, struct buf *problems, struct err *err)
{
    char path[] = "/tmp/muster-check-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(file_write_atomic(path, text, 0600, NULL), 0);
    int rc = check_file(path, ret, problems, err);
    unlink(path);
    return rc;
}

static void every_mistake_has_its_sentence(void **state)
{
    static const struct {
        const char *top, *offer, *service, *pool, *says; /* NULL: valid */
    } rows[] = {
        { "", "", "", "", NULL },
        { "", "", "", ", min: 5, max: 5", NULL },
        { "router: { route: shortest }", "", "", "",
          "router.route: 'shortest' is no route policy" },
        { "router: { route: shortest }", "", "", "", "there are completion, shortest_ttft," },
        { "router: { predict: seer }", "", "", "",
          "router.predict: 'seer' is no predict policy; there are key_table," },
        { "router: { predict: oracle }", "", "", "", "a router has no true lengths" },
        { "router: { migrate: lumnix }", "", "", "", "did you mean llumnix?" },
        { "router: { endpoints: ['127.0.0.1:8200/prefill', '127.0.0.1:8201'] }", "", "", "", NULL },
        { "router: { endpoints: ['127.0.0.1:8200', '127.0.0.1:8201/decoder'] }", "", "", "",
          "router.endpoints[1]: '127.0.0.1:8201/decoder': no role 'decoder'; there are both," },
        { "router: { endpoints: [engine] }", "", "", "", "want HOST:PORT" },
        { "rooter: {}", "", "", "", "rooter" },
        { "", "", ", scale: wurk", "", "did you mean work?" },
        { "", "", ", engine: { order: fcfs, preset: vllm, predict: trail }", "", NULL },
        { "", "", ", engine: { order: fcsf }", "",
          "engine.order: 'fcsf' is no order policy; did you" },
        { "", "", ", engine: { chunk: all }", "", "there are deadline, slack, budget, sarathi," },
        { "", "", ", engine: { predict: oracle }", "", "an engine has no true lengths" },
        { "", "", ", engine_flags: [\"--evict\", \"lfu\"]", "",
          "--evict: 'lfu' is no evict policy" },
        { "engine: { fair: vtc, chunk: sarathi }", "", "", "", NULL },
        { "engine: { fair: vct }", "", "", "",
          "--fair: 'vct' is no fair policy; did you mean vtc?" },
        { "", "", ", place: melange", "", "'melange' is no place policy; there are joint" },
        { "", "", ", migrate: llumnix", "", "put it below `router`" },
        { "power: polca", "", "", "", "put it into one of `services`" },
        { "order: fcfs", "", "", "", "put it below `engine` of a service" },
        { "", "", ", min: 3, max: 2", "", "min 3 is above max 2" },
        { "", "", "", ", min: 3, max: 2", "min 3 is above max 2" },
        { "", "", "", ", min: 6, max: 6", "minima want 1.20 cores, local.cores gives 1.00" },
        { "", "", "", ", provider: mars", "provider mars sells no 'bit'" },
        { "", "", ", engine_flags: [\"--max-num-sequences\", \"2\"]", "", "--max-num-seqs" },
        { "", "", "", ", engine_flags: [\"--threads\", \"-1\"]", "--threads" },
        { "", ", share: 1", "", "", "share" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        CLEANUP(buf_fini) struct buf problems = { 0 };
        CLEANUP(config_freep) struct config *config = NULL;
        struct err err = { 0 };
        buf_printf(&text, FLEET, rows[i].top, rows[i].offer, rows[i].service, rows[i].pool);
        int rc = check_text(buf_view(&text), &config, &problems, &err);
        if (!rows[i].says) {
            if (rc < 0) fail_msg("row %zu: %s", i, err.text);
            continue;
        }
        if (rc >= 0) fail_msg("row %zu is taken: %s", i, text.data);
        if (!strstr(err.text, rows[i].says)) fail_msg("row %zu: %s", i, err.text);
        if (!problems.data || !strstr(problems.data, rows[i].says)) fail_msg("row %zu", i);
    }
}

static void all_problems_are_listed(void **state)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf problems = { 0 };
    CLEANUP(config_freep) struct config *config = NULL;
    struct err err = { 0 };
    (void)state;
    buf_printf(&text, FLEET, "router: { route: a, predict: b }", "", "", "");
    assert_int_equal(check_text(buf_view(&text), &config, &problems, &err), -EINVAL);
    assert_non_null(strstr(problems.data, "router.route"));
    assert_non_null(strstr(problems.data, "router.predict"));
    assert_non_null(strstr(err.text, "1 more"));
}

/* A file without services configures one engine; nothing else would check its policies before it
 * starts. */
static void rows_are_checked_without_services(void **state)
{
    static const struct {
        const char *text, *says; /* NULL: valid */
    } rows[] = {
        { "engine: { order: srtf, preset: vllm }", NULL },
        { "engine: { order: fcsf }",
          "engine.order: 'fcsf' is no order policy; did you mean fcfs?" },
        { "engine: { predict: oracle }", "engine.predict oracle is not applicable: an engine has" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(config_freep) struct config *config = NULL;
        struct err err = { 0 };
        int rc = check_text(str_from(rows[i].text), &config, NULL, &err);
        assert_int_equal(rc < 0, rows[i].says != NULL);
        if (rc < 0 && !strstr(err.text, rows[i].says)) fail_msg("row %zu: %s", i, err.text);
    }
}

static void the_shipped_file_is_valid(void **state)
{
    CLEANUP(config_freep) struct config *config = NULL;
    struct err err = { 0 };
    (void)state;
    if (check_file("muster.yaml", &config, NULL, &err) < 0) fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mistake_has_its_sentence),
        cmocka_unit_test(all_problems_are_listed),
        cmocka_unit_test(rows_are_checked_without_services),
        cmocka_unit_test(the_shipped_file_is_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
