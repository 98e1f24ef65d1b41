/* t_generate_command.c - runs `muster generate` over a file of requests in the form of OpenAI's Batch API, good lines
 * and bad ones, and over one prompt. */
#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/rig/rig.h"

#include <stdio.h>
#include <string.h>

#define CHAT "\"method\":\"POST\",\"url\":\"/v1/chat/completions\""
#define TEXT "\"url\":\"/v1/completions\""
#define ASK(id, question)                                                           \
    "{\"custom_id\":\"" id "\"," CHAT ",\"body\":{\"temperature\":0,\"messages\":[" \
    "{\"role\":\"user\",\"content\":\"" question "\"}]}}\n"

/* Runs the command and reads what it wrote to --output. */
static int generate(const char *requests, const char *flags, struct buf *said, struct buf *results)
{
    char in[RIG_PATH], out[RIG_PATH], line[1024];
    rig_file(in, "requests.jsonl", requests);
    snprintf(out, sizeof out, "%s/results.jsonl", rig_folder());
    snprintf(line, sizeof line, MODEL " --input %s --output %s --force %s", in, out, flags);
    int status = rig_muster("generate", line, said);
    buf_clear(results);
    assert_int_equal(file_read(out, 1 << 20, results, NULL), 0);
    return status;
}

/* Returns the result of one custom_id, which has its line to itself. */
static struct str result_of(const struct buf *results, const char *id)
{
    char name[64];
    snprintf(name, sizeof name, "\"custom_id\":\"%s\"", id);
    struct str rest = buf_view(results), found = { 0 };
    while (rest.len > 0) {
        struct str line = str_cut(&rest, '\n');
        if (str_find(line, str_from(name)) == SIZE_MAX) continue;
        if (found.len > 0) fail_msg("%s has two lines", id);
        found = line;
    }
    if (found.len == 0) fail_msg("no line of %s in %s", id, results->data);
    return found;
}

static void expect(const struct buf *results, const char *id, const char *words)
{
    struct str line = result_of(results, id);
    if (str_find(line, str_from(words)) == SIZE_MAX)
        fail_msg("%s: no %s in " STR_FMT, id, words, STR_ARG(line));
}

/* More requests than the engine gets at once; answers are those of a question asked alone. */
static void requests_are_answered(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf requests = { 0 }, said = { 0 }, results = { 0 };
    buf_str(&requests, STR(ASK("paris", "What is the capital of France?") "\n"));
    for (int i = 0; i < 20; i++)
        buf_printf(&requests,
                   "{\"custom_id\":\"n%d\"," TEXT
                   ",\"body\":{\"prompt\":\"Once\",\"max_tokens\":%d,"
                   "\"ignore_eos\":true}}\r\n",
                   i, 1 + i);
    buf_str(&requests,
            STR("{\"custom_id\":\"named\"," TEXT ",\"body\":"
                "{\"model\":\"muster-tiny-q8_0\",\"prompt\":\"Once\",\"max_tokens\":3}}"));
    assert_int_equal(generate(requests.data, "--concurrency 4", &said, &results), 0);
    expect(&results, "paris", "\"response\":{\"status_code\":200,\"request_id\":\"");
    expect(&results, "paris", "\"content\":\"Paris.\"");
    expect(&results, "paris", "},\"error\":null}");
    for (int i = 0; i < 20; i++) {
        char id[16], tokens[40];
        snprintf(id, sizeof id, "n%d", i);
        snprintf(tokens, sizeof tokens, "\"completion_tokens\":%d,", 1 + i);
        expect(&results, id, tokens);
    }
    expect(&results, "named", "\"status_code\":200");
}

static void bad_lines_say_why(void **state)
{
    (void)state;
    static const struct {
        const char *id, *line, *says;
    } rows[] = {
        { "get", "\"method\":\"GET\"," TEXT ",\"body\":{}", "\"message\":\"method: want POST\"" },
        { "url", "\"url\":\"http://elsewhere/\",\"body\":{}", "url is missing: want a path" },
        { "body", TEXT, "body is missing: want an object" },
        { "list", TEXT ",\"body\":[]", "body is missing: want an object" },
        { "stream", TEXT ",\"body\":{\"prompt\":\"x\",\"stream\":true}", "body.stream: " },
        { "other", TEXT ",\"body\":{\"model\":\"gpt\",\"prompt\":\"x\"}", "model_not_found" },
        { "empty", TEXT ",\"body\":{}", "\"status_code\":400" },
        { "path", "\"url\":\"/v1/nothing\",\"body\":{}", "\"status_code\":404" },
    };
    CLEANUP(buf_fini) struct buf requests = { 0 }, said = { 0 }, results = { 0 };
    buf_str(&requests, STR("nonsense\n{\"url\":\"/v1/completions\",\"body\":{}}\n"));
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        buf_printf(&requests, "{\"custom_id\":\"%s\",%s}\n", rows[i].id, rows[i].line);
    buf_str(&requests, STR(ASK("good", "What is the capital of France?")));
    assert_int_equal(generate(requests.data, "", &said, &results), 1);
    assert_non_null(strstr(said.data, "10 of 11 requests failed; their lines say why"));
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        expect(&results, rows[i].id, rows[i].says);
    expect(&results, "good", "Paris.");
    assert_non_null(strstr(results.data,
                           "\"id\":\"batch_req_1\",\"custom_id\":null,\"response\":null,"
                           "\"error\":{\"code\":\"invalid_request\",\"message\":\"the "
                           "line is no JSON object\"}}"));
    assert_non_null(strstr(results.data, "custom_id is missing"));
}

static void a_prompt_goes_on(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf once = { 0 }, again = { 0 };
    const char *line = MODEL " --prompt Once --max-tokens 12";
    assert_int_equal(rig_muster("generate", line, &once), 0);
    assert_int_equal(rig_muster("generate", line, &again), 0);
    assert_true(once.len > 12);
    assert_string_equal(once.data, again.data);
}

static void mistakes_are_explained(void **state)
{
    (void)state;
    static const struct rig_row rows[] = {
        { MODEL, 2, "want either --input or --prompt" },
        { MODEL " --prompt a --input b", 2, "want either --input or --prompt" },
        { MODEL " --input /nonexistent", 1, "/nonexistent: No such" },
        { MODEL " --input README.md --output README.md", 2, "README.md exists; --force replaces" },
        { "/nonexistent.gguf --prompt a", 1, "the engine has ended; its own words are above" },
    };
    rig_expect("generate", rows, COUNT_OF(rows));
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_answered),
        cmocka_unit_test(bad_lines_say_why),
        cmocka_unit_test(a_prompt_goes_on),
        cmocka_unit_test(mistakes_are_explained),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
