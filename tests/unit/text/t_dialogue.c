/* t_dialogue.c - parses outputs of each dialect, cut into pieces of every size and at random, and parses what the
 * grammars of calls describe. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/rng.h"
#include "base/grammar/matcher.h"
#include "base/text/detok.h"
#include "base/text/dialogue/call_grammar.h"
#include "base/text/dialogue/parser.h"
#include "base/text/dialogue/turn.h"
#include "tests/unit/text/small_vocab.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

static const struct str tools[] = { { "get_weather", 11 }, { "add", 3 }, { "a.b-c", 5 } };

/* ---- events as a text: C[content] R[reasoning] F[name] A[arguments] E, or X for a cut call ---- */

struct log {
    struct buf text;
    enum dialogue_part open; /* whose bracket is open; DIALOGUE_PART_COUNT: none */
    uint32_t calls, cut, contents;
};

static void log_close(struct log *l)
{
    if (l->open != DIALOGUE_PART_COUNT) buf_byte(&l->text, ']');
    l->open = DIALOGUE_PART_COUNT;
}

static void log_event(void *arg, const struct dialogue_event *e)
{
    struct log *l = arg;
    if (e->part == DIALOGUE_CALL) assert_int_equal(e->index, l->calls++);
    if (e->part == DIALOGUE_ARGUMENTS) assert_int_equal(e->index + 1, l->calls);
    if (e->part == DIALOGUE_CALL_END) {
        log_close(l);
        buf_byte(&l->text, e->cut ? 'X' : 'E');
        l->cut += e->cut;
        return;
    }
    assert_true(e->text.len > 0);
    l->contents += e->part == DIALOGUE_CONTENT;
    if (l->open != e->part) {
        log_close(l);
        buf_byte(&l->text, "CRFA"[e->part]);
        buf_byte(&l->text, '[');
        l->open = e->part;
    }
    buf_str(&l->text, e->text);
}

static struct dialogue dialects_of(const char *call, const char *think)
{
    struct dialogue d;
    struct err err = { "" };
    assert_int_equal(dialogue_find((struct str){ 0 }, str_from(call), str_from(think), &d, &err),
                     0);
    return d;
}

/* Parses a text whose pieces end where `cuts` has a bit (by index). */
static struct log parse_log(const struct dialogue *d, bool thinking, bool no_tools, struct str text,
                            const bool *cuts)
{
    struct log l = { .open = DIALOGUE_PART_COUNT };
    struct dialogue_parser p;
    const struct dialogue_setup setup = {
        .dialects = *d,
        .tool = tools,
        .tool_count = no_tools ? 0 : COUNT_OF(tools),
        .thinking = thinking,
        .event = log_event,
        .arg = &l,
    };
    dialogue_init(&p, &setup);
    size_t from = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (!cuts[i] && i + 1 < text.len) continue;
        assert_int_equal(dialogue_push(&p, str_of(text.data + from, i + 1 - from)), 0);
        from = i + 1;
    }
    assert_int_equal(dialogue_end(&p), 0);
    dialogue_fini(&p);
    log_close(&l);
    buf_byte(&l.text, '\0');
    return l;
}

static char *parse(const struct dialogue *d, bool thinking, bool no_tools, struct str text,
                   const bool *cuts)
{
    return parse_log(d, thinking, no_tools, text, cuts).text.data;
}

struct row {
    const char *call, *think, *text, *events;
    bool thinking, no_tools;
};

#define W "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}"
#define WE "F[get_weather]A[{\"city\": \"Oslo\"}]E"
#define AE "F[add]A[{\"a\": 1, \"b\": [2]}]E"

/* Dialect of calls, of reasoning, text, events, and whether the prompt began the reasoning, whether there are no
 * tools. */
/* clang-format off */
static const struct row rows[] = {
    /* no dialect, no tools */
    { "none", "none", "Hello <tool_call> world", "C[Hello <tool_call> world]", false, false },
    { "hermes", "none", "  \n", "C[  \n]", false, false },
    { "hermes", "none", "", "", false, false },
    { "hermes", "none", "<tool_call>" W "</tool_call>", "C[<tool_call>" W "</tool_call>]", false, true },
    /* hermes */
    { "hermes", "none", "<tool_call>\n" W "\n</tool_call>", WE, false, false },
    { "hermes", "none", "Let me see.\n<tool_call>" W "</tool_call>", "C[Let me see.\n]" WE, false, false },
    { "hermes", "none", "\n <tool_call>" W "</tool_call>\n<tool_call>\n{\"arguments\": {\"a\": 1, \"b\": [2]}, \"name\": \"add\"}</tool_call>\n", WE AE, false, false },
    { "hermes", "none", "<tool_call>" W "</tool_call>\n\nDone.", WE "C[\n\nDone.]", false, false },
    { "hermes", "none", "<tool_call>" W "\n<tool_call>" W, WE WE, false, false },
    { "hermes", "none", "<tool_call>{\"name\": \"add\"}</tool_call>", "F[add]A[{}]E", false, false },
    { "hermes", "none", "<tool_call>{\"id\": [1, {\"x\": \"}\"}], \"name\": \"add\", \"arguments\": {}, \"z\": 1.5}</tool_call>", "F[add]A[{}]E", false, false },
    { "hermes", "none", "<tool_call>{\"name\": \"subtract\", \"arguments\": {}}</tool_call>", "C[<tool_call>{\"name\": \"subtract\", \"arguments\": {}}</tool_call>]", false, false },
    { "hermes", "none", "use <tool_call> to call", "C[use <tool_call> to call]", false, false },
    { "hermes", "none", "a <tool_cal", "C[a <tool_cal]", false, false },
    { "hermes", "none", "<<tool_call>" W "</tool_call>", "C[<]" WE, false, false },
    { "hermes", "none", "<tool_call>{\"name\": \"get_wea", "C[<tool_call>{\"name\": \"get_wea]", false, false },
    { "hermes", "none", "<tool_call>{\"name\": \"get_weather\"", "C[<tool_call>{\"name\": \"get_weather\"]", false, false },
    { "hermes", "none", "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"O", "F[get_weather]A[{\"city\": \"O]X", false, false },
    { "hermes", "none", "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": ]} x", "F[get_weather]A[{\"city\": ]XC[]} x]", false, false },
    { "hermes", "none", "<tool_call>{\"name\": \"get_weather\", \"arguments\": \"Oslo\"}</tool_call>", "C[<tool_call>{\"name\": \"get_weather\", \"arguments\": \"Oslo\"}</tool_call>]", false, false },
    { "hermes", "none", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"x\ny\\d\\u00e9\\u0\"}}</tool_call>", "F[add]A[{\"a\": \"x\\u000ay\\\\d\\u00e9\\\\u0\"}]E", false, false },
    { "hermes", "none", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"</tool_call>\"}}</tool_call>", "F[add]A[{\"a\": \"</tool_call>\"}]E", false, false },
    { "hermes", "none", "<tool_call>{}</tool_call>", "C[<tool_call>{}</tool_call>]", false, false },
    { "hermes", "none", "<tool_call>" W "</tool_ca", WE, false, false },
    { "hermes", "none", "\xc3\xa9<tool_call>" W "</tool_call>\xe2\x82\xac", "C[\xc3\xa9]" WE "C[\xe2\x82\xac]", false, false },
    /* reasoning */
    { "hermes", "qwen3", "<think>\nHm, <tool_call>?\n</think>\n\nHi", "R[Hm, <tool_call>?\n]C[Hi]", false, false },
    { "hermes", "qwen3", "<think>\nHm\n</think>\n\n<tool_call>" W "</tool_call>", "R[Hm\n]" WE, false, false },
    { "hermes", "qwen3", "<think>\n\n</think>\n\nHi", "C[Hi]", false, false },
    { "hermes", "qwen3", "<think>never ends </thin", "R[never ends </thin]", false, false },
    { "hermes", "deepseek_r1", "So </ be it.</think>\nHi </think>", "R[So </ be it.]C[Hi </think>]", true, false },
    { "none", "deepseek_r1", "Hi <think>x</think> there", "C[Hi ]R[x]C[there]", false, false },
    { "none", "mistral", "[THINK]x[/THINK]y", "R[x]C[y]", false, true },
    { "none", "none", "<think>x</think>y", "C[<think>x</think>y]", false, false },
    { "none", "seed_oss", "<seed:think>x</seed:think>y", "R[x]C[y]", false, false },
    /* mistral */
    { "mistral", "none", "[TOOL_CALLS] [" W ", {\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2]}, \"id\": \"123456789\"}]", WE AE, false, false },
    { "mistral", "none", "[TOOL_CALLS]" W, WE, false, false },
    { "mistral", "none", "Yes. [TOOL_CALLS][" W "] ok", "C[Yes. ]" WE "C[ ok]", false, false },
    { "mistral", "none", "[TOOL_CALLS] none", "C[[TOOL_CALLS] none]", false, false },
    { "mistral", "none", "[TOOL_CALLS][", "C[[TOOL_CALLS][]", false, false },
    { "mistral", "none", "[TOOL_CALLS][" W ", {\"name\": \"no\"}]", WE "C[{\"name\": \"no\"}]]", false, false },
    { "mistral_args", "none", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Oslo\"}[TOOL_CALLS]add[ARGS]{\"a\": 1, \"b\": [2]}", WE AE, false, false },
    { "mistral_args", "none", "[TOOL_CALLS]get_weather{\"city\": \"Oslo\"}", WE, false, false },
    { "mistral_args", "none", "[TOOL_CALLS]sub[ARGS]{\"a\": 1}", "C[[TOOL_CALLS]sub[ARGS]{\"a\": 1}]", false, false },
    { "granite", "none", "<|tool_call|>[" W "]", WE, false, false },
    { "jamba", "none", "<tool_calls>[" W "]</tool_calls>", WE, false, false },
    { "phi4_mini_json", "none", "functools[" W "]", WE, false, false },
    { "phi4_mini_json", "none", "functools are tools", "C[functools are tools]", false, false },
    { "internlm", "none", "<|action_start|><|plugin|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}<|action_end|>", WE, false, false },
    /* llama */
    { "llama3_json", "none", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}", WE, false, false },
    { "llama3_json", "none", "<|python_tag|>{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}; {\"name\": \"add\", \"parameters\": {\"a\": 1, \"b\": [2]}}", WE AE, false, false },
    { "llama3_json", "none", "<|python_tag|>print(1)", "C[<|python_tag|>print(1)]", false, false },
    { "llama3_json", "none", "{\"city\": \"Oslo\"}", "C[{\"city\": \"Oslo\"}]", false, false },
    { "llama3_json", "none", "{\"name\": \"Bob\", \"parameters\": {}}", "C[{\"name\": \"Bob\", \"parameters\": {}}]", false, false },
    { "llama3_json", "none", "See {\"name\": \"add\", \"parameters\": {}}", "C[See {\"name\": \"add\", \"parameters\": {}}]", false, false },
    { "pythonic", "none", "[get_weather(city='Oslo'), add(a=1, b=[2,])]", WE AE, false, false },
    { "pythonic", "none", "[add(a={'x': (True, None, -1.5e3), \"y\": {}}, b=\"q'\\\"\\n\")]", "F[add]A[{\"a\": {\"x\": [true, null, -1.5e3], \"y\": {}}, \"b\": \"q'\\\"\\n\"}]E", false, false },
    { "pythonic", "none", "[add()]", "F[add]A[{}]E", false, false },
    { "pythonic", "none", "[add(1)]", "F[add]XC[1)]]", false, false },
    { "pythonic", "none", "[add(a=01)]", "F[add]A[{\"a\": ]XC[)]]", false, false },
    { "pythonic", "none", "[1, 2, 3]", "C[[1, 2, 3]]", false, false },
    { "pythonic", "none", "[see](http://x)", "C[[see](http://x)]", false, false },
    { "llama4_pythonic", "none", "<|python_start|>[get_weather(city=\"Oslo\")]<|python_end|>", WE, false, false },
    /* deepseek, kimi */
    { "deepseek_v3", "deepseek_r1", "x</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Oslo\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 1, \"b\": [2]}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "R[x]" WE AE, true, false },
    { "deepseek_v31", "none", "Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Oslo\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "C[Ok.]" WE, false, false },
    { "deepseek_v31", "none", "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>", "C[<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>]", false, false },
    { "kimi_k2", "none", "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Oslo\"}<|tool_call_end|><|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>{\"a\": 1, \"b\": [2]}<|tool_call_end|><|tool_calls_section_end|>", WE AE, false, false },
    /* gpt-oss */
    { "openai", "openai_gptoss", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi", "R[Hm.]C[Hi]", false, false },
    { "openai", "openai_gptoss", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}", "R[Hm.]" WE, false, false },
    { "openai", "openai_gptoss", "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{\"city\": \"Oslo\"}", "C[I look.]" WE, false, false },
    { "openai", "openai_gptoss", "<|channel|>final<|message|>Hi", "C[Hi]", false, true },
};
/* clang-format on */

static void test_rows(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 7);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct row *r = &rows[i];
        const struct dialogue d = dialects_of(r->call, r->think);
        struct str text = str_from(r->text);
        bool cuts[2048];
        assert_true(text.len < sizeof cuts);
        for (size_t size = 1; size <= text.len + 50; size++) {
            bool drawn = size > text.len;
            for (size_t k = 0; k < text.len; k++)
                cuts[k] = drawn ? rng_below(&rng, 4) == 0 : (k + 1) % size == 0;
            char *got = parse(&d, r->thinking, r->no_tools, text, cuts);
            if (strcmp(got, r->events) != 0) {
                fprintf(stderr, "row %zu, %s: %s\n  size %zu\n  got  %s\n  want %s\n", i, r->call,
                        r->text, size, got, r->events);
                fail();
            }
            free(got);
        }
    }
}

/* ---- bounds ---- */

static char *parse_whole(const char *call, struct buf *text)
{
    const struct dialogue d = dialects_of(call, "none");
    bool *cuts = calloc(text->len, sizeof *cuts);
    assert_non_null(cuts);
    char *got = parse(&d, false, false, buf_view(text), cuts);
    free(cuts);
    return got;
}

static void test_bounds(void **state)
{
    (void)state;
    struct buf text = { 0 };
    /* A head that grows for ever is content, all of it. */
    buf_text(&text, "<tool_call>{\"x\": \"");
    for (size_t i = 0; i < 2 * DIALOGUE_HEAD_BYTES_MAX; i++)
        buf_byte(&text, 'a');
    char *got = parse_whole("hermes", &text);
    assert_int_equal(strlen(got), text.len + 3);
    free(got);
    /* One call above the bound is content. */
    buf_clear(&text);
    for (uint32_t i = 0; i <= DIALOGUE_CALLS_MAX; i++)
        buf_text(&text, "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>");
    got = parse_whole("hermes", &text);
    assert_non_null(
        strstr(got, "EC[<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>]"));
    free(got);
    /* Too many brackets cut the call. */
    buf_clear(&text);
    buf_text(&text, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": ");
    for (uint32_t i = 0; i < DIALOGUE_DEPTH_MAX; i++)
        buf_byte(&text, '[');
    got = parse_whole("hermes", &text);
    assert_non_null(strstr(got, "]XC[["));
    free(got);
    buf_fini(&text);
}

/* ---- templates ---- */

static void test_find(void **state)
{
    (void)state;
    static const struct {
        const char *template, *call, *think;
    } found[] = {
        { "{{ '<tool_call>' }} x </tool_call> <think></think>", "hermes", "deepseek_r1" },
        { "<tool_call><function=</tool_call>", NULL, NULL },
        { "[TOOL_CALLS] [ARGS] [THINK]", "mistral_args", "mistral" },
        { "[TOOL_CALLS]", "mistral", NULL },
        { "<|channel|> <|message|>", "openai", "openai_gptoss" },
        { "<｜tool▁calls▁begin｜> ```json </think>", "deepseek_v3", "deepseek_r1" },
        { "<｜tool▁calls▁begin｜>", "deepseek_v31", NULL },
        { "Environment: ipython <|python_tag|>", "llama3_json", NULL },
        { "", NULL, NULL },
    };
    for (size_t i = 0; i < COUNT_OF(found); i++) {
        struct dialogue d;
        assert_int_equal(
            dialogue_find(str_from(found[i].template), STR("auto"), (struct str){ 0 }, &d, NULL),
            0);
        assert_string_equal(d.call ? d.call->name : "-", found[i].call ? found[i].call : "-");
        assert_string_equal(d.think ? d.think->name : "-", found[i].think ? found[i].think : "-");
    }
    struct dialogue d;
    struct err err = { "" };
    assert_int_equal(dialogue_find(STR(""), STR("herms"), STR(""), &d, &err), -EINVAL);
    assert_non_null(strstr(err.text, "tool_call_parser: 'herms'"));
    assert_non_null(strstr(err.text, "hermes"));
    assert_int_equal(dialogue_find(STR(""), STR(""), STR("x"), &d, &err), -EINVAL);
    assert_int_equal(dialogue_find(STR("</think>"), STR("none"), STR("none"), &d, &err), 0);
    assert_null(d.think);
    assert_true(dialect_is_mark(STR("[TOOL_CALLS]")));
    assert_true(dialect_is_mark(STR("</think>")));
    assert_true(dialect_is_mark(STR("<|start|>")));
    assert_false(dialect_is_mark(STR("<|im_end|>")));
    assert_false(dialect_is_mark(STR("<s>")));
    d = dialects_of("mistral", "qwen3");
    assert_true(dialogue_is_thinking(&d, STR("<|im_start|>assistant\n<think>\n")));
    assert_false(dialogue_is_thinking(&d, STR("<think>\n\n</think>\n\n")));
}

/* ---- what the grammars describe ---- */

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":"
    "\"object\","
    "\"properties\":{\"city\":{\"enum\":[\"Oslo\",\"Rome\"]},\"days\":{\"type\":\"integer\","
    "\"minimum\":0,"
    "\"maximum\":99},\"wind\":{\"type\":\"boolean\"}},\"required\":[\"days\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":\"object\","
    "\"properties\":"
    "{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"maxItems\":3}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"a.b-c\"}}]";

static struct automaton *automaton_of(const struct call_grammar *g)
{
    struct buf text = { 0 };
    struct err err = { "" };
    struct grammar *grammar = NULL;
    struct automaton *m = NULL;
    assert_int_equal(call_grammar_write(g, &text, &err), 0);
    const struct grammar_spec spec = { GRAMMAR_TAGS, buf_view(&text) };
    if (grammar_compile(&spec, &grammar, &err) < 0) {
        fprintf(stderr, "%s\n%.*s\n", err.text, (int)text.len, text.data);
        fail();
    }
    assert_int_equal(automaton_new(grammar, NULL, &m), 0);
    buf_fini(&text);
    return m;
}

/* Draws an output: each byte is the first that is allowed from a drawn one on. It ends soon where it may, and
 * its reasoning ends soon. Empty: it became too long. */
static struct buf draw(struct automaton *m, struct rng *rng, const struct dialogue *d)
{
    struct buf out = { 0 };
    struct matcher t;
    assert_int_equal(matcher_init(&t, m), 0);
    while (out.len < 1500) {
        if (matcher_is_over(&t) || (matcher_may_end(&t) && rng_below(rng, 8) == 0)) break;
        uint64_t first = rng_below(rng, 96);
        struct str end = str_from(d->think ? d->think->end : NULL);
        if (end.len > 0 && rng_below(rng, 8) == 0 && matcher_advance(&t, end) == 0)
            buf_str(&out, end);
        bool moved = false;
        for (uint32_t i = 0; i < 97 + 256 && !moved; i++) {
            char c = (char)(i < 96 ? 32 + (first + i) % 96 : i == 96 ? '\n' : i - 97);
            moved = matcher_advance(&t, str_of(&c, 1)) == 0;
            if (moved) buf_byte(&out, c);
        }
        assert_true(moved);
    }
    bool whole = matcher_may_end(&t);
    matcher_fini(&t);
    if (!whole) buf_clear(&out);
    return out;
}

static void check_calls(const struct log *l, const struct call_grammar *g, const char *output)
{
    const char *events = l->text.data;
    bool well = l->calls > 0 && (g->parallel || l->calls == 1) && l->contents == 0 && l->cut == 0;
    for (const char *at = events; (at = strstr(at, "]A[")); at++) {
        struct json_reader r;
        json_reader_init(&r, str_from(at + 3));
        well = well && json_next(&r) == JSON_OBJECT && json_skip_rest(&r) != JSON_ERROR;
    }
    if (!well) fprintf(stderr, "%s\n  %s\n  %s\n", g->dialects.call->name, output, events);
    assert_true(well);
}

static void test_forced(void **state)
{
    (void)state;
    struct arena arena;
    struct call_tools all;
    struct err err = { "" };
    struct rng rng;
    bool cuts[2048] = { false };
    uint32_t drawn = 0;
    rng_seed(&rng, 11);
    arena_init(&arena, 1u << 20);
    assert_int_equal(call_tools_read(str_from(tools_json), &arena, &all, &err), 0);
    assert_int_equal(all.count, 3);
    for (size_t i = 0; call_dialect_at(i); i++)
        for (uint32_t way = 0; way < 4; way++) {
            const struct call_dialect *d = call_dialect_at(i);
            bool harmony = strcmp(d->name, "openai") == 0;
            struct call_grammar g = {
                .dialects = dialects_of(d->name, harmony ? "openai_gptoss"
                                                 : way   ? "qwen3"
                                                         : "none"),
                .tools = &all,
                .only = way == 1 ? STR("add") : (struct str){ 0 },
                .required = true,
                .parallel = way != 2,
                .thinking = way == 3,
            };
            struct automaton *m = automaton_of(&g);
            for (uint32_t k = 0; k < 40; k++) {
                struct buf out = draw(m, &rng, &g.dialects);
                if (out.len > 0) {
                    struct log l = parse_log(&g.dialects, g.thinking, false, buf_view(&out), cuts);
                    check_calls(&l, &g, out.data);
                    if (way == 1) assert_null(strstr(l.text.data, "F[get_weather]"));
                    buf_fini(&l.text);
                    drawn++;
                }
                buf_fini(&out);
            }
            automaton_free(m);
        }
    print_message("%u forced outputs\n", drawn);
    assert_true(drawn > 1500);
    arena_fini(&arena);
}

/* Texts that the grammar of free calls allows and forbids. */
static void test_free_calls(void **state)
{
    (void)state;
    static const struct {
        const char *call, *text;
        int verdict; /* 1: whole; 0: begun; -1: forbidden */
    } free_rows[] = {
        { "hermes", "", 1 },
        { "hermes", "<tool_cal is text", 1 },
        { "hermes", "a <tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call> b", 1 },
        { "hermes", "<tool_call>\n{\"name\": \"ad", 0 },
        { "hermes", "<tool_call>\n{\"name\": \"sub", -1 },
        { "hermes", "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"x\"", -1 },
        { "mistral", "x[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {}}]", 1 },
        { "mistral", "[TOOL_CALLS]x", -1 },
        { "llama3_json", "{\"name\": \"add\", \"parameters\": {\"a\": []}}", 1 },
        { "llama3_json", "{\"name\": \"bad", -1 },
        { "llama3_json", "{\"names\": 1", 1 },
        { "llama3_json", "x {\"name\": \"bad", 1 },
        { "pythonic", "[add(a=[null])]", 1 },
        { "pythonic", "[add(b", -1 },
        { "pythonic", "[1, 2]", 1 },
        { "openai", "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{}", 1 },
        { "openai", "<|channel|>commentary to=functions.sub", -1 },
        { "openai", "<|channel|>final<|message|>Hi", 1 },
    };
    struct arena arena;
    struct call_tools all;
    struct err err = { "" };
    arena_init(&arena, 1u << 20);
    assert_int_equal(call_tools_read(str_from(tools_json), &arena, &all, &err), 0);
    for (size_t i = 0; i < COUNT_OF(free_rows); i++) {
        const struct call_grammar g = { .dialects = dialects_of(free_rows[i].call, "none"),
                                        .tools = &all,
                                        .parallel = true };
        struct automaton *m = automaton_of(&g);
        struct matcher t;
        assert_int_equal(matcher_init(&t, m), 0);
        int rc = matcher_advance(&t, str_from(free_rows[i].text));
        int verdict = rc < 0 ? -1 : matcher_may_end(&t);
        if (verdict != free_rows[i].verdict)
            fprintf(stderr, "%s %s: %d\n", free_rows[i].call, free_rows[i].text, verdict);
        assert_int_equal(verdict, free_rows[i].verdict);
        matcher_fini(&t);
        automaton_free(m);
    }
    arena_fini(&arena);
}

/* Control tokens that are marks are shown where they are asked for; a turn is planned by the prompt's end. */
static void test_turn(void **state)
{
    (void)state;
    struct vocab_parts parts = small_vocab_parts("gpt-2");
    struct str *tokens = calloc(parts.token_count, sizeof *tokens);
    struct err err = { "" };
    struct vocab *v = NULL;
    assert_non_null(tokens);
    memcpy(tokens, parts.tokens, parts.token_count * sizeof *tokens);
    tokens[SMALL_SYSTEM] = STR("[TOOL_CALLS]");
    parts.tokens = tokens;
    assert_int_equal(vocab_build(&parts, &v, &err), 0);
    free(tokens);
    uint32_t marks[TURN_MARKS_MAX];
    assert_int_equal(turn_marks(v, marks), 1);
    assert_int_equal(marks[0], SMALL_SYSTEM);
    struct buf text = { 0 };
    for (uint32_t shown = 0; shown < 2; shown++) {
        struct detok d;
        detok_init(&d, v, true);
        d.shown = marks;
        d.shown_count = shown;
        buf_clear(&text);
        for (uint32_t id = SMALL_BEGIN; id <= SMALL_THINK; id++)
            assert_int_equal(detok_push(&d, id, &text), 0);
        assert_string_equal(text.data, shown ? "[TOOL_CALLS]<think>" : "<think>");
    }
    buf_fini(&text);

    struct arena arena;
    struct turn turn;
    const uint32_t open_prompt[] = { SMALL_BEGIN, SMALL_BYTE0 + 'a', SMALL_THINK };
    const uint32_t plain_prompt[] = { SMALL_BEGIN, SMALL_THINK, SMALL_BYTE0 + 'a' };
    struct dialogue d = dialects_of("mistral", "qwen3");
    struct turn_ask ask = { .tools = str_from(tools_json), .parallel = true };
    d.marked = true;
    arena_init(&arena, 1u << 20);
    assert_int_equal(turn_plan(&d, v, &ask, open_prompt, 3, &arena, &turn, &err), 0);
    assert_true(turn.parses && turn.thinking && turn.marks && turn.tag.len > 0);
    ask.tools = (struct str){ 0 };
    assert_int_equal(turn_plan(&d, v, &ask, plain_prompt, 3, &arena, &turn, &err), 0);
    assert_true(turn.parses && !turn.thinking && turn.tag.len == 0 && turn.tools.count == 0);
    ask.bound = true; /* the client's own grammar */
    assert_int_equal(turn_plan(&d, v, &ask, open_prompt, 3, &arena, &turn, &err), 0);
    assert_false(turn.parses);
    d = dialects_of("none", "none");
    ask = (struct turn_ask){ .tools = str_from(tools_json) };
    assert_int_equal(turn_plan(&d, v, &ask, open_prompt, 3, &arena, &turn, &err), 0);
    assert_false(turn.parses);
    ask.required = true;
    assert_int_equal(turn_plan(&d, v, &ask, open_prompt, 3, &arena, &turn, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "tool_call_parser"));
    arena_fini(&arena);
    vocab_free(v);
}

static void test_tools(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        { "[1]", "tools[0] must be" },
        { "[{\"type\":\"web_search\"}]", "tools[0] must be" },
        { "[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]", "tools[0]: a name has" },
        { "[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":3}}]", "must be" },
        { "[{\"function\":{\"name\":\"a\"}},{\"function\":{\"name\":\"a\"}}]",
          "stands there twice" },
    };
    struct arena arena;
    struct call_tools all;
    arena_init(&arena, 1u << 20);
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct err err = { "" };
        assert_int_equal(call_tools_read(str_from(wrong[i][0]), &arena, &all, &err), -EINVAL);
        assert_non_null(strstr(err.text, wrong[i][1]));
    }
    struct buf out = { 0 };
    struct err err = { "" };
    assert_int_equal(call_tools_read(str_from(tools_json), &arena, &all, &err), 0);
    struct call_grammar g = { .tools = &all };
    assert_int_equal(call_grammar_write(&g, &out, &err), -ENOTSUP);
    g.dialects = dialects_of("hermes", "none");
    g.only = STR("sub");
    assert_int_equal(call_grammar_write(&g, &out, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no tool sub"));
    buf_fini(&out);
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),       cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_find),       cmocka_unit_test(test_forced),
        cmocka_unit_test(test_free_calls), cmocka_unit_test(test_tools),
        cmocka_unit_test(test_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
