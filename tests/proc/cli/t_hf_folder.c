/* t_hf_folder.c - serves a folder in Hugging Face's format, and the same model as a GGUF file: both say the
 * same tokens with the same probabilities, and every command reads the folder. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "engine/files/hf_folder.h"
#include "engine/model/make_model.h"
#include "tests/proc/rig/rig.h"
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/engine/hf_make.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TOKENIZER "tests/vectors/tokenizer/packages/byte-llama3.json"
#define TEMPLATE                                                                           \
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}\n" \
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"

static char folder[RIG_PATH], file[RIG_PATH];

/* ---- the same tokenizer and weights in both formats */

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

static void put_string(struct buf *out, struct str text)
{
    make_u64_raw(out, text.len);
    buf_str(out, text);
}

static void put_array(struct gguf_make *m, const char *key, uint32_t type, uint64_t count)
{
    make_key(m, key, GGUF_ARRAY);
    make_u32_raw(&m->values, type);
    make_u64_raw(&m->values, count);
}

/* Writes the merges of the file as GGUF has them, "left right". */
static void put_merges(struct gguf_make *m, struct str json)
{
    CLEANUP(buf_fini) struct buf all = { 0 };
    struct json_reader r;
    uint64_t count = 0;
    json_reader_init(&r, json);
    while (json_next(&r) != JSON_KEY || !json_key_is(&r, "merges"))
        assert_int_not_equal(r.token, JSON_ERROR);
    assert_int_equal(json_next(&r), JSON_ARRAY);
    for (; json_next(&r) == JSON_ARRAY; count++) {
        CLEANUP(buf_fini) struct buf merge = { 0 };
        json_next(&r);
        json_text(&r, &merge);
        buf_byte(&merge, ' ');
        json_next(&r);
        json_text(&r, &merge);
        json_next(&r);
        put_string(&all, buf_view(&merge));
    }
    assert_true(count > 50);
    put_array(m, "tokenizer.ggml.merges", GGUF_STRING, count);
    buf_str(&m->values, buf_view(&all));
}

static void put_tokenizer(struct gguf_make *m, const struct vocab *v, struct str json)
{
    const struct vocab_special *special = vocab_special(v);
    char pre[64];
    snprintf(pre, sizeof pre, STR_FMT, STR_ARG(vocab_pre(v)));
    make_str(m, "tokenizer.ggml.model", "gpt2");
    make_str(m, "tokenizer.ggml.pre", pre);
    make_str(m, "tokenizer.chat_template", TEMPLATE);
    make_u32(m, "tokenizer.ggml.bos_token_id", special->bos);
    make_u32(m, "tokenizer.ggml.eos_token_id", special->eos);
    make_bool(m, "tokenizer.ggml.add_bos_token", 1);
    put_array(m, "tokenizer.ggml.tokens", GGUF_STRING, vocab_count(v));
    for (uint32_t i = 0; i < vocab_count(v); i++)
        put_string(&m->values, vocab_text(v, i));
    put_array(m, "tokenizer.ggml.token_type", GGUF_I32, vocab_count(v));
    for (uint32_t i = 0; i < vocab_count(v); i++)
        make_u32_raw(&m->values, vocab_type(v, i));
    put_merges(m, json);
}

static void write_weights(void)
{
    CLEANUP(gguf_file_close) struct gguf_file opened = { .fd = -1 };
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    CLEANUP(buf_fini) struct buf index = { 0 };
    assert_int_equal(gguf_file_open(file, &opened, NULL), 0);
    assert_int_equal(gguf_parse(&opened.source, &g, NULL), 0);
    const struct hf_made made = { g, &opened.source, folder, .heads = 4, .kv_heads = 2 };
    hf_make_part(&made, 0, 2, "model-1.safetensors", &index);
    hf_make_part(&made, 1, 2, "model-2.safetensors", &index);
    hf_make_index(folder, buf_view(&index));
}

static int make_both(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf json = { 0 }, config = { 0 }, bytes = { 0 };
    CLEANUP(vocab_freep) struct vocab *v = NULL;
    CLEANUP(chat_template_freep) struct chat_template *template = NULL;
    CLEANUP(make_fini) struct gguf_make m;
    CLEANUP(gguf_freep) struct gguf *tokenizer = NULL;
    struct err err = { { 0 } };
    snprintf(folder, sizeof folder, "%s/tiny", rig_folder());
    snprintf(file, sizeof file, "%s/tiny.gguf", rig_folder());
    assert_int_equal(mkdir(folder, 0755), 0);
    read_whole(TOKENIZER, &json);
    hf_make_file(folder, "tokenizer.json", buf_view(&json));
    hf_make_file(folder, "tokenizer_config.json", STR("{\"bos_token\":\"<|begin_of_text|>\"}"));
    hf_make_file(folder, "generation_config.json", STR("{\"eos_token_id\":[1]}"));
    hf_make_file(folder, "chat_template.jinja", STR(TEMPLATE));
    if (hf_folder_tokenizer(folder, &v, &template, &err) < 0) fail_msg("%s", err.text);
    buf_printf(&config,
               "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,"
               "\"intermediate_size\":96,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
               "\"max_position_embeddings\":256,\"rms_norm_eps\":1e-05,\"hidden_act\":\"silu\","
               "\"tie_word_embeddings\":true,\"bos_token_id\":3,\"eos_token_id\":4,"
               "\"vocab_size\":%u}",
               vocab_count(v));
    hf_make_file(folder, "config.json", buf_view(&config));
    make_init(&m);
    put_tokenizer(&m, v, buf_view(&json));
    make_finish(&m, &bytes);
    const struct str view = buf_view(&bytes);
    const struct gguf_source source = memory_source(&view);
    if (gguf_parse(&source, &tokenizer, &err) < 0) fail_msg("%s", err.text);
    const struct random_model shape = { .arch = "llama",
                                        .width = 64,
                                        .layers = 2,
                                        .ff = 96,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .context = 256,
                                        .type = WEIGHT_F16,
                                        .tied = true,
                                        .seed = 11,
                                        .tokenizer = tokenizer };
    if (random_model_write(&shape, file, NULL, &err) < 0) fail_msg("%s", err.text);
    write_weights();
    return 0;
}

/* ---- both are served */

static struct str between(const struct buf *text, const char *from, const char *to)
{
    struct str all = buf_view(text);
    size_t at = str_find(all, str_from(from));
    if (at == SIZE_MAX) fail_msg("no %s in " STR_FMT, from, STR_ARG(all));
    struct str rest = str_of(all.data + at, all.len - at);
    size_t len = str_find(rest, str_from(to));
    if (len == SIZE_MAX) fail_msg("no %s in " STR_FMT, to, STR_ARG(all));
    return str_of(rest.data, len);
}

static void chat(uint16_t port, unsigned seed, struct buf *reply)
{
    char body[512];
    snprintf(body, sizeof body,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello, 12345 w\xC3\xB6rld\"}],"
             "\"max_tokens\":150,\"temperature\":2,\"seed\":%u}",
             seed);
    int status = rig_call(port, "/v1/chat/completions", body, reply);
    buf_byte(reply, 0);
    if (status != 200) fail_msg("%d %s", status, reply->data);
}

/* The tokens of random weights are random: equal texts over many seeds come from equal logits alone. Some
 * replies end by the end token, which the folder and the file name in different ways. */
static void expect_the_same(const char *gguf)
{
    struct rig_process a = rig_server("engine", rig_port(), ARGS("--model", folder));
    struct rig_process b = rig_server("engine", rig_port(), ARGS("--model", gguf));
    unsigned ended = 0;
    for (unsigned seed = 1; seed <= 12; seed++) {
        CLEANUP(buf_fini) struct buf of_folder = { 0 }, of_file = { 0 };
        chat(a.port, seed, &of_folder);
        chat(b.port, seed, &of_file);
        assert_true(str_eq(between(&of_folder, "\"choices\"", "\"usage\""),
                           between(&of_file, "\"choices\"", "\"usage\"")));
        assert_true(str_eq(between(&of_folder, "\"prompt_tokens\"", "}"),
                           between(&of_file, "\"prompt_tokens\"", "}")));
        assert_non_null(strstr(of_folder.data, "\"model\":\"tiny\""));
        ended += strstr(of_folder.data, "\"finish_reason\":\"stop\"") != NULL;
    }
    assert_in_range(ended, 1, 11);
    rig_stop(&a);
    rig_stop(&b);
}

static void both_say_the_same(void **state)
{
    (void)state;
    expect_the_same(file);
}

/* Runs `muster tokenize`, which reads its standard input. */
static void tokenize(const char *model, struct buf *out)
{
    char text[RIG_PATH], line[4 * RIG_PATH], chunk[256];
    rig_file(text, "text", "Hello, 12345 w\xC3\xB6rld");
    snprintf(line, sizeof line, "\"$MUSTER_BIN\" tokenize %s --prompt < %s", model, text);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    for (size_t len; (len = fread(chunk, 1, sizeof chunk, f)) > 0;)
        buf_append(out, chunk, len);
    assert_int_equal(pclose(f), 0);
}

/* Puts the tokenizer into the folder without the two tokens that stand alone or take white space with them. */
static void write_plain_tokenizer(void)
{
    static const char *const never[] = { "\"single_word\":true", "\"lstrip\":true",
                                         "\"rstrip\":true" };
    CLEANUP(buf_fini) struct buf json = { 0 };
    read_whole(TOKENIZER, &json);
    buf_byte(&json, 0);
    for (size_t i = 0; i < COUNT_OF(never); i++)
        for (char *at; (at = strstr(json.data, never[i]));)
            memcpy(at + strlen(never[i]) - 4, "null", 4);
    hf_make_file(folder, "tokenizer.json", str_from(json.data));
}

/* The folder as one file, once more: from its own tensors and tokenizer. */
static void converted_it_says_the_same(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 }, of_folder = { 0 }, of_file = { 0 };
    char to[2 * RIG_PATH], line[4 * RIG_PATH];
    snprintf(to, sizeof to, "%s/converted/tiny.gguf", rig_folder());
    snprintf(line, sizeof line, "%s/converted", rig_folder());
    assert_int_equal(mkdir(line, 0700), 0);
    snprintf(line, sizeof line, "convert %s %s", folder, to);
    assert_int_equal(rig_muster("model", line, &out), 1);
    if (!strstr(out.data, "some of its tokens take white space with them"))
        fail_msg("%s", out.data);
    write_plain_tokenizer();
    if (rig_muster("model", line, &out) != 0) fail_msg("%s", out.data);
    assert_non_null(strstr(out.data, ", 0 matrices rounded, 20 tensors kept, error 0.0000"));
    expect_the_same(to);
    tokenize(folder, &of_folder);
    tokenize(to, &of_file);
    assert_true(str_eq(buf_view(&of_folder), buf_view(&of_file)));
    assert_int_equal(rig_muster("model", line, &out), 2);
    assert_non_null(strstr(out.data, "exists; --force replaces it"));
    snprintf(line, sizeof line, "convert %s %s --force --type q8_0 -o json", folder, to);
    if (rig_muster("model", line, &out) != 0) fail_msg("%s", out.data);
    assert_non_null(strstr(out.data, "\"rounded\":15,\"kept\":5,\"fallback\":0,\"error\":0.00"));
    snprintf(line, sizeof line, "convert %s %s --force", file, to);
    assert_int_equal(rig_muster("model", line, &out), 1);
}

/* What agents read of the folder has the identity that its engine reports. */
static void engine_and_router_agree_on_the_digest(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 }, metrics = { 0 };
    char line[3 * RIG_PATH];
    struct rig_process a = rig_server("engine", rig_port(), ARGS("--model", folder));
    snprintf(line, sizeof line, "%s --output %s/tiny.tokenizer", folder, rig_folder());
    if (rig_muster("tokenizer", line, &out) != 0) fail_msg("%s", out.data);
    const char *at = strstr(out.data, "digest ");
    assert_non_null(at);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "digest=\"%.12s", at + strlen("digest "));
    assert_int_equal(rig_call(a.port, "/metrics", NULL, &metrics), 200);
    buf_byte(&metrics, 0);
    if (!strstr(metrics.data, wanted)) fail_msg("no %s in %s", wanted, metrics.data);
    rig_stop(&a);
}

static void commands_read_the_folder(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 }, of_folder = { 0 }, of_file = { 0 };
    char line[2 * RIG_PATH];
    snprintf(line, sizeof line, "inspect %s/", folder);
    if (rig_muster("model", line, &out) != 0) fail_msg("%s", out.data);
    assert_non_null(strstr(out.data, "served        yes"));
    assert_non_null(strstr(out.data, "422 tokens, gpt2, pre-tokeniser "));
    assert_non_null(strstr(out.data, "chat template yes"));
    tokenize(folder, &of_folder);
    tokenize(file, &of_file);
    assert_true(str_eq(buf_view(&of_folder), buf_view(&of_file)));
    assert_true(str_starts(buf_view(&of_folder), STR("[0,"))); /* it begins with bos */
}

/* Returns true if outputs of three seeds are alike; `more` are members of the requests. */
static bool seeds_agree(uint16_t port, const char *more)
{
    CLEANUP(buf_fini) struct buf first = { 0 };
    bool same = true;
    for (unsigned seed = 1; seed <= 3; seed++) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        char body[256];
        snprintf(body, sizeof body, "{\"prompt\":\"Hello\",\"max_tokens\":20,\"seed\":%u%s}", seed,
                 more);
        assert_int_equal(rig_call(port, "/v1/completions", body, &reply), 200);
        buf_byte(&reply, 0);
        struct str text = between(&reply, "\"text\":", "\"logprobs\"");
        if (seed == 1) buf_str(&first, text);
        same = same && str_eq(buf_view(&first), text);
    }
    return same;
}

/* The model's top_k of 1 makes every output greedy, but for requests that say otherwise. */
static void the_models_defaults_hold_for_what_requests_do_not_name(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf card = { 0 };
    hf_make_file(folder, "generation_config.json",
                 STR("{\"eos_token_id\":[1],\"top_k\":1,\"temperature\":1.5}"));
    struct rig_process a = rig_server("engine", rig_port(), ARGS("--model", folder));
    struct rig_process none =
        rig_server("engine", rig_port(), ARGS("--model", folder, "--generation-config", "none"));
    struct rig_process router = rig_server("router", rig_port(), ARGS("--endpoints", a.at));
    rig_wait_endpoints(&router, 1);
    const uint16_t ports[] = { a.port, router.port };
    for (size_t i = 0; i < COUNT_OF(ports); i++) {
        assert_true(seeds_agree(ports[i], ""));
        assert_true(seeds_agree(ports[i], ",\"top_p\":0.9,\"top_k\":null"));
        assert_false(seeds_agree(ports[i], ",\"top_k\":0"));
    }
    assert_false(seeds_agree(none.port, ""));
    assert_int_equal(rig_call(a.port, "/v1/models", NULL, &card), 200);
    between(&card, "\"default_sampling\":{\"temperature\":1.5,\"top_k\":1}", "}");
    buf_clear(&card);
    assert_int_equal(rig_call(none.port, "/v1/models", NULL, &card), 200);
    between(&card, "\"default_sampling\":{}", "}");
    rig_stop(&a);
    rig_stop(&none);
    rig_stop(&router);
    hf_make_file(folder, "generation_config.json", STR("{\"eos_token_id\":[1]}"));
}

/* These run last: they take files away. */
static void what_cannot_be_served_says_why(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char path[2 * RIG_PATH], line[2 * RIG_PATH];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    snprintf(line, sizeof line, "--listen 127.0.0.1:%u --model %s", rig_port(), folder);
    assert_int_equal(remove(path), 0);
    assert_int_equal(rig_muster("engine", line, &out), 1);
    if (!strstr(out.data, "no tokenizer: the model file has no vocabulary, or its folder no"))
        fail_msg("%s", out.data);
    snprintf(line, sizeof line, "inspect %s", folder);
    assert_int_equal(rig_muster("model", line, &out), 0);
    assert_non_null(strstr(out.data, "no: it has no tokenizer"));
    snprintf(line, sizeof line, "convert %s %s/none.gguf", folder, rig_folder());
    if (rig_muster("model", line, &out) != 0) fail_msg("%s", out.data);
    snprintf(line, sizeof line, "inspect %s/none.gguf", rig_folder());
    assert_int_equal(rig_muster("model", line, &out), 0);
    assert_non_null(strstr(out.data, "no: it has no tokenizer"));
    snprintf(line, sizeof line, "inspect %s", folder);
    hf_make_file(folder, "tokenizer.json", STR("{\"version\":\"1.0\"}"));
    assert_int_equal(rig_muster("model", line, &out), 1);
    assert_non_null(strstr(out.data, "tokenizer.json: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_say_the_same),
        cmocka_unit_test(engine_and_router_agree_on_the_digest),
        cmocka_unit_test(commands_read_the_folder),
        cmocka_unit_test(converted_it_says_the_same),
        cmocka_unit_test(the_models_defaults_hold_for_what_requests_do_not_name),
        cmocka_unit_test(what_cannot_be_served_says_why),
    };
    return rig_end(cmocka_run_group_tests(tests, make_both, NULL));
}
