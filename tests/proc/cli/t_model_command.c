/* t_model_command.c - runs `muster model`: makes, rounds and inspects files, and serves each type; and measures them
 * by `muster perplexity`. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/rig/rig.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHAPE "--width 256 --layers 2 --ff 512 --heads 4 --kv-heads 2 --tokenizer " MODEL

static void path_of(char path[RIG_PATH], const char *name)
{
    snprintf(path, RIG_PATH, "%s/%s", rig_folder(), name);
}

/* Asks the model for eight tokens and returns the reply's text. */
static void ask(const char *path, struct buf *reply)
{
    struct rig_process engine = rig_server("engine", rig_port(), ARGS("--model", path));
    int status = rig_call(
        engine.port, "/v1/completions",
        "{\"prompt\":\"One day\",\"max_tokens\":8,\"temperature\":0,\"ignore_eos\":true}", reply);
    buf_byte(reply, 0);
    if (status != 200) fail_msg("%s: %d %s", path, status, reply->data);
    if (!strstr(reply->data, "\"completion_tokens\":8")) fail_msg("%s: %s", path, reply->data);
    rig_stop(&engine);
}

static void what_is_made_is_inspected_and_served(void **state)
{
    (void)state;
    static const char *const types[] = { "q8_0", "q4_0",   "q4_k",  "q6_k", "q2_k",
                                         "q3_k", "iq4_nl", "mxfp4", "q5_k", "q5_1" };
    char from[RIG_PATH], to[RIG_PATH], line[1024];
    CLEANUP(buf_fini) struct buf out = { 0 };
    path_of(from, "random.gguf");
    snprintf(line, sizeof line, "make-random " SHAPE " --type f32 %s", from);
    assert_int_equal(rig_muster("model", line, &out), 0);
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        path_of(to, types[i]);
        snprintf(line, sizeof line, "quantize %s %s --type %s", from, to, types[i]);
        assert_int_equal(rig_muster("model", line, &out), 0);
        assert_non_null(strstr(out.data, "16 matrices rounded, 5 tensors kept, error 0."));
        ask(to, &reply);
    }
    snprintf(line, sizeof line, "inspect %s", to);
    assert_int_equal(rig_muster("model", line, &out), 0);
    assert_non_null(strstr(out.data, "architecture  llama"));
    assert_non_null(strstr(out.data, "Q5_1      16 tensors"));
    assert_non_null(
        strstr(out.data, "2 layers of width 256, feed-forward 512, 4 heads of 64, 2 KV"));
    assert_non_null(strstr(out.data, "4096 tokens, gpt2, pre-tokeniser gpt-2"));
    assert_non_null(strstr(out.data, "chat template yes"));
    snprintf(line, sizeof line, "inspect -o json %s", to);
    assert_int_equal(rig_muster("model", line, &out), 0);
    assert_non_null(strstr(out.data, "\"layers\":2,\"width\":256,"));
    assert_non_null(strstr(out.data, "\"kv_bytes_per_token\":1024,"));
}

/* Of six layers five keep the last 128 tokens; without a pattern all do. */
static void a_card_tells_what_windows_save(void **state)
{
    (void)state;
    char path[RIG_PATH], line[1024];
    CLEANUP(buf_fini) struct buf out = { 0 };
    path_of(path, "window.gguf");
    snprintf(
        line, sizeof line,
        "make-random --arch smollm3 --window 128 --window-period 6 --layers 6 --context 4096 %s",
        path);
    assert_int_equal(rig_muster("model", line, &out), 0);
    snprintf(line, sizeof line, "inspect %s", path);
    assert_int_equal(rig_muster("model", line, &out), 0);
    assert_non_null(strstr(
        out.data, "KV in F16 6.14 kB a token, of which 5 of 6 layers keep the last 128 tokens, "
                  "4.85 MB for one whole context"));
    snprintf(line, sizeof line, "inspect -o json %s", path);
    assert_int_equal(rig_muster("model", line, &out), 0);
    assert_non_null(strstr(out.data, "\"kv_bytes_per_token\":6144,"));
    assert_non_null(
        strstr(out.data, "\"window\":128,\"window_layers\":5,\"kv_bytes_context\":4849664,"));
    snprintf(line, sizeof line, "make-random --force --window 128 --layers 6 --context 4096 %s",
             path);
    assert_int_equal(rig_muster("model", line, &out), 0);
    snprintf(line, sizeof line, "inspect -o json %s", path);
    assert_int_equal(rig_muster("model", line, &out), 0);
    assert_non_null(strstr(out.data, "\"window_layers\":6,\"kv_bytes_context\":786432,"));
}

#define TEXT "tests/models/questions.txt"

/* Runs `muster perplexity -o json` over the questions in windows of 256 and returns the figure; `out` has the rest. */
static double perplexity(const char *model, const char *flags, struct buf *out)
{
    char line[512];
    double value = 0;
    snprintf(line, sizeof line, "%s " TEXT " --context 256 -o json %s", model, flags);
    buf_clear(out);
    int status = rig_muster("perplexity", line, out);
    if (status != 0 || sscanf(out->data, "{\"perplexity\":%lf", &value) != 1)
        fail_msg("muster perplexity %s: %d %s", line, status, out->data);
    return value;
}

/* tests/models/reference.py, in float64 over the same windows: 98.7431, and 107.4376 of the first
 * window. The shipped model's products round activations. */
static void perplexity_is_the_reference_s(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 }, alone = { 0 };
    char path[RIG_PATH], line[1024];
    double reference = 98.7431, first = 107.4376, fast = perplexity(MODEL, "", &out);
    assert_non_null(strstr(out.data, "\"tokens\":2286,\"windows\":18,\"context\":256,"));
    if (fabs(fast / reference - 1) > 1e-3) fail_msg("%g instead of %g", fast, reference);
    perplexity(MODEL, "--batch 1 --threads 2", &alone);
    assert_string_equal(out.data, alone.data);
    double slow = perplexity(MODEL, "--kernels ref --windows 1", &out);
    assert_non_null(strstr(out.data, "\"tokens\":127,\"windows\":1,"));
    if (fabs(slow / first - 1) > 1e-4) fail_msg("%g instead of %g", slow, first);
    const double eight = perplexity(MODEL, "--kv-cache-dtype q8", &out);
    assert_non_null(strstr(out.data, "+kv-q8\""));
    const double four = perplexity(MODEL, "--kv-cache-dtype q4", &out);
    assert_non_null(strstr(out.data, "+kv-q4\""));
    assert_true(eight != fast && four != eight);
    if (fabs(eight / fast - 1) > 1e-3) fail_msg("%g with K and V in Q8, not %g", eight, fast);
    if (fabs(four / fast - 1) > 1e-2) fail_msg("%g with K and V in Q4, not %g", four, fast);
    path_of(path, "again.gguf");
    snprintf(line, sizeof line, "quantize " MODEL " %s --type q4_0 --requantize", path);
    assert_int_equal(rig_muster("model", line, &out), 0);
    double rounded = perplexity(path, "", &out);
    assert_true(fabs(rounded / fast - 1) > 1e-3 && fabs(rounded / fast - 1) < .1);
}

/* The matrix is gathered, rounds a file, and the file says so; the same with any number of threads. */
static void an_importance_matrix_is_made_and_used(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 }, one = { 0 }, two = { 0 };
    char im[RIG_PATH], again[RIG_PATH], to[RIG_PATH], line[1024];
    path_of(im, "im.gguf");
    path_of(again, "im2.gguf");
    path_of(to, "weighted.gguf");
    snprintf(line, sizeof line, "imatrix " MODEL " " TEXT " %s --windows 3", im);
    assert_int_equal(rig_muster("model", line, &out), 0);
    assert_non_null(strstr(out.data, "43 of 43 matrices reached, 3 windows of 512 tokens"));
    snprintf(line, sizeof line, "imatrix " MODEL " " TEXT " %s --windows 3 --threads 2 -o json",
             again);
    assert_int_equal(rig_muster("model", line, &out), 0);
    assert_non_null(strstr(out.data, "\"matrices\":43,\"reached\":43,\"windows\":3,"));
    assert_int_equal(file_read(im, 1 << 20, &one, NULL), 0);
    assert_int_equal(file_read(again, 1 << 20, &two, NULL), 0);
    assert_int_equal(one.len, two.len);
    assert_memory_equal(one.data, two.data, one.len);
    snprintf(line, sizeof line, "quantize " MODEL " %s --type q4_1 --requantize --imatrix %s", to,
             im);
    assert_int_equal(rig_muster("model", line, &out), 0);
    assert_non_null(strstr(out.data, "43 weighted by their importance, 0 without an entry\n"));
    snprintf(line, sizeof line, "inspect %s", to);
    assert_int_equal(rig_muster("model", line, &out), 0);
    assert_non_null(strstr(out.data, "im.gguf, 43 matrices, 3 windows of " TEXT "\n"));
    snprintf(line, sizeof line, "inspect -o json %s", to);
    assert_int_equal(rig_muster("model", line, &out), 0);
    assert_non_null(strstr(out.data, "\"dataset\":\"" TEXT "\",\"entries\":43,\"chunks\":3}"));
    ask(to, &out);
}

/* As sha256sum says. */
#define SHA "74a38252271a068abc32c473feae3cb0dd79f01339908d5bcd751f0e6f7469f8"

static void a_damaged_file_is_found(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[RIG_PATH], line[1024];
    const unsigned char nan[] = { 0, 0, 0xc0, 0x7f };
    assert_int_equal(rig_muster("model", "verify " MODEL " --sha256 " SHA, &out), 0);
    assert_non_null(strstr(out.data, "sha256     ok       " SHA "\n"));
    assert_non_null(strstr(out.data, "weights    ok       56 tensors, "));
    assert_non_null(strstr(out.data, "tokenizer  ok       4096 tokens, with a chat template\n"));
    assert_non_null(strstr(out.data, "result     ok       results differ by "));
    assert_int_equal(rig_muster("model", "verify " MODEL " --no-run -o json --sha256 ab", &out), 1);
    assert_non_null(
        strstr(out.data, "{\"check\":\"sha256\",\"status\":\"failed\",\"why\":\"it is " SHA "\"}"));
    assert_non_null(strstr(out.data, "{\"check\":\"result\",\"status\":\"skipped\","));
    path_of(path, "damaged.gguf");
    snprintf(line, sizeof line, "make-random " SHAPE " --type f32 %s", path);
    assert_int_equal(rig_muster("model", line, &out), 0);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -4, SEEK_END), 0);
    assert_int_equal(fwrite(nan, 1, sizeof nan, f), sizeof nan);
    assert_int_equal(fclose(f), 0);
    snprintf(line, sizeof line, "verify %s", path);
    assert_int_equal(rig_muster("model", line, &out), 1);
    assert_non_null(strstr(out.data, "weights    failed   tensor '"));
    assert_non_null(strstr(out.data, " is nan\n"));
    assert_non_null(strstr(out.data, "result     failed   result "));
}

static void mistakes_are_explained(void **state)
{
    (void)state;
    static const struct rig_row rows[] = {
        { "", 2, "ACTION is missing" },
        { "prune", 2,
          "no action 'prune': want convert, imatrix, inspect, make-random, quantize or verify" },
        { "inspect", 2, "FILE is missing" },
        { "inspect /nonexistent/a.gguf", 1, "muster model inspect: /nonexistent/a.gguf: No such" },
        { "inspect CMakeLists.txt", 1, "not a GGUF file: it does not start with 'GGUF'" },
        { "make-random /nonexistent/a.gguf", 1,
          "/nonexistent/a.gguf.partial: cannot make it: No such" },
        { "make-random --type q4 /nonexistent/a", 2, "--type q4: no such type; there are: F32," },
        { "make-random --heads 5 /nonexistent/a", 2, "a width of 256 is no multiple of 5 heads" },
        { "make-random --arch bert /nonexistent/a", 2,
          "architecture 'bert' is not made; llama and smollm3 are" },
        { "make-random --window 64 --window-period 2 /nonexistent/a", 2,
          "takes the architecture smollm3 and a window" },
        { "make-random --layers 0 /nonexistent/a", 2, "--layers" },
        { "make-random " MODEL, 2, MODEL " exists; --force replaces it" },
        { "quantize " MODEL " /nonexistent/a", 1, "is Q8_0 already; rounding twice loses more" },
        { "quantize " MODEL " /nonexistent/a --requantize --imatrix /nonexistent/im", 1,
          "/nonexistent/im: No such" },
        { "quantize " MODEL " /nonexistent/a --requantize --imatrix " MODEL, 1,
          "no importance matrix: general.type is" },
        { "quantize " MODEL " /nonexistent/a --requantize -t q8_0 --imatrix " MODEL, 1,
          "Q8_0 rounds each weight by itself, an importance matrix changes nothing" },
        { "imatrix " MODEL " " TEXT, 2, "TO is missing" },
        { "imatrix " MODEL " " TEXT " " MODEL, 2, MODEL " exists; --force replaces it" },
        { "imatrix " MODEL " /nonexistent /tmp/muster-no-such-file", 1, "/nonexistent: No such" },
        { "imatrix " MODEL " " TEXT " /tmp/muster-no-such-file --context 4096", 2,
          "--context 4096: the model's context is 2048" },
        { "imatrix " MODEL " " TEXT " /nonexistent/a", 1,
          "/nonexistent/a: cannot be written: No such" },
        { "quantize CMakeLists.txt " MODEL, 2, MODEL " exists; --force replaces it" },
    };
    rig_expect("model", rows, COUNT_OF(rows));
    static const struct rig_row measured[] = {
        { MODEL, 2, "TEXT is missing" },
        { MODEL " /nonexistent", 1, "/nonexistent: No such" },
        { MODEL " models/README.md --context 2048", 1, "tokens, and a window takes 2048" },
        { MODEL " " TEXT " --context 4096", 2, "--context 4096: the model's context is 2048" },
        { MODEL " " TEXT " --kernels fast", 1, "fast" },
        { MODEL " " TEXT " --kv-cache-dtype q5", 2, "'q5' is not one of auto, f16, f32, q8, q4" },
    };
    rig_expect("perplexity", measured, COUNT_OF(measured));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_made_is_inspected_and_served),
        cmocka_unit_test(a_card_tells_what_windows_save),
        cmocka_unit_test(perplexity_is_the_reference_s),
        cmocka_unit_test(an_importance_matrix_is_made_and_used),
        cmocka_unit_test(a_damaged_file_is_found),
        cmocka_unit_test(mistakes_are_explained),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
