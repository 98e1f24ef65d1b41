/* dialect.c - the tables of dialects, and how a model's are found.
 *
 * Rows state what the templates of these models write; the rows of calls are tried in order, and the first whose
 * signs all stand in the template is taken. */
#include "base/text/dialogue/dialect.h"

#include "base/core/bits.h"

#define DIALECT_NAMES_MAX 24

static const struct call_dialect calls[] = {
    {
        .name = "openai",
        .about = "gpt-oss: a message to functions.NAME on the channel commentary",
        .sign = { "<|channel|>", "<|message|>" },
        .shape = CALL_NAMED,
        .call_begin = "<|channel|>commentary to=functions.",
        .call_begin_too = "<|start|>assistant to=functions.",
        .name_pad = " <|constrain|>json",
        .name_pad_too = "<|channel|>commentary <|constrain|>json",
        .name_end = "<|message|>",
        .separator = "<|end|><|start|>assistant",
        .silent = { "<|channel|>final<|message|>", "<|channel|>commentary<|message|>",
                    "<|start|>assistant", "<|end|>" },
    },
    {
        .name = "deepseek_v3",
        .about = "DeepSeek V3 and R1: a name, then JSON in a block of code",
        .sign = { "<｜tool▁calls▁begin｜>", "```json" },
        .shape = CALL_NAMED,
        .calls_begin = "<｜tool▁calls▁begin｜>",
        .calls_end = "<｜tool▁calls▁end｜>",
        .call_begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        .name_end = "\n```json\n",
        .call_end = "\n```<｜tool▁call▁end｜>",
        .separator = "\n",
    },
    {
        .name = "deepseek_v31",
        .about = "DeepSeek V3.1: a name, then JSON",
        .sign = { "<｜tool▁calls▁begin｜>" },
        .shape = CALL_NAMED,
        .calls_begin = "<｜tool▁calls▁begin｜>",
        .calls_end = "<｜tool▁calls▁end｜>",
        .call_begin = "<｜tool▁call▁begin｜>",
        .name_end = "<｜tool▁sep｜>",
        .call_end = "<｜tool▁call▁end｜>",
        .separator = "",
    },
    {
        .name = "mistral_args",
        .about = "Mistral since tokenizer v11: [TOOL_CALLS]NAME[ARGS]{..}",
        .sign = { "[TOOL_CALLS]", "[ARGS]" },
        .shape = CALL_NAMED,
        .call_begin = "[TOOL_CALLS]",
        .name_end = "[ARGS]",
        .separator = "",
    },
    {
        .name = "mistral",
        .about = "Mistral before: [TOOL_CALLS] and a list of JSON objects",
        .sign = { "[TOOL_CALLS]" },
        .shape = CALL_JSON,
        .list = true,
        .calls_begin = "[TOOL_CALLS]",
        .arguments = "arguments",
        .separator = ", ",
    },
    {
        .name = "kimi_k2",
        .about = "Kimi K2: a section of calls, each functions.NAME:INDEX and JSON",
        .sign = { "<|tool_calls_section_begin|>" },
        .shape = CALL_NAMED,
        .calls_begin = "<|tool_calls_section_begin|>",
        .calls_end = "<|tool_calls_section_end|>",
        .call_begin = "<|tool_call_begin|>functions.",
        .name_pad = ":0",
        .name_end = "<|tool_call_argument_begin|>",
        .call_end = "<|tool_call_end|>",
        .separator = "",
    },
    {
        .name = "hermes",
        .about = "Hermes, Qwen2.5, Qwen3: <tool_call> and a JSON object",
        .sign = { "<tool_call>", "</tool_call>" },
        .not_sign = "<function=", /* Qwen3-Coder writes calls in tags */
        .shape = CALL_JSON,
        .call_begin = "<tool_call>\n",
        .call_end = "\n</tool_call>",
        .arguments = "arguments",
        .separator = "\n",
    },
    {
        .name = "granite",
        .about = "Granite 3: <|tool_call|> and a list of JSON objects",
        .sign = { "<|tool_call|>" },
        .shape = CALL_JSON,
        .list = true,
        .calls_begin = "<|tool_call|>",
        .arguments = "arguments",
        .separator = ", ",
    },
    {
        .name = "jamba",
        .about = "Jamba: a list of JSON objects in <tool_calls>",
        .sign = { "<tool_calls>" },
        .shape = CALL_JSON,
        .list = true,
        .calls_begin = "<tool_calls>",
        .calls_end = "</tool_calls>",
        .arguments = "arguments",
        .separator = ", ",
    },
    {
        .name = "phi4_mini_json",
        .about = "Phi-4 mini: functools and a list of JSON objects",
        .sign = { "functools[" },
        .shape = CALL_JSON,
        .list = true,
        .calls_begin = "functools",
        .arguments = "arguments",
        .separator = ", ",
    },
    {
        .name = "internlm",
        .about = "InternLM2: <|action_start|><|plugin|> and a JSON object",
        .sign = { "<|plugin|>" },
        .shape = CALL_JSON,
        .call_begin = "<|action_start|><|plugin|>",
        .call_end = "<|action_end|>",
        .arguments = "parameters",
        .separator = "",
    },
    {
        .name = "llama4_pythonic",
        .about = "Llama 4: calls as Python writes them, in a list between marks",
        .sign = { "<|python_start|>" },
        .shape = CALL_PYTHON,
        .list = true,
        .bare = true,
        .calls_begin = "<|python_start|>",
        .calls_end = "<|python_end|>",
        .separator = ", ",
    },
    {
        .name = "llama3_json",
        .about = "Llama 3.1 to 3.3: a JSON object, perhaps behind <|python_tag|>",
        .sign = { "Environment: ipython" },
        .shape = CALL_JSON,
        .bare = true,
        .calls_begin = "<|python_tag|>",
        .arguments = "parameters",
        .separator = "; ",
    },
    {
        .name = "pythonic",
        .about = "Llama 3.2, ToolACE: calls as Python writes them, in a list",
        .sign = { "func_name1(params_name1=" },
        .shape = CALL_PYTHON,
        .list = true,
        .bare = true,
        .separator = ", ",
    },
};

static const struct think_dialect thinks[] = {
    {
        .name = "openai_gptoss",
        .about = "gpt-oss: the channel analysis",
        .sign = { "<|channel|>", "<|message|>" },
        .begin = "<|channel|>analysis<|message|>",
        .end = "<|end|>",
        .answer = "<|start|>assistant",
    },
    {
        .name = "mistral",
        .about = "Magistral: [THINK] .. [/THINK]",
        .sign = { "[THINK]" },
        .begin = "[THINK]",
        .end = "[/THINK]",
    },
    {
        .name = "seed_oss",
        .about = "Seed-OSS: <seed:think> .. </seed:think>",
        .sign = { "</seed:think>" },
        .begin = "<seed:think>",
        .end = "</seed:think>",
    },
    {
        .name = "deepseek_r1",
        .about = "DeepSeek R1, QwQ and most others: <think> .. </think>",
        .sign = { "</think>" },
        .begin = "<think>",
        .end = "</think>",
    },
    {
        .name = "qwen3",
        .about = "Qwen3: the same",
        .sign = { "</think>" },
        .begin = "<think>",
        .end = "</think>",
    },
};

const struct call_dialect *call_dialect_at(size_t index)
{
    return index < COUNT_OF(calls) ? &calls[index] : NULL;
}

const struct think_dialect *think_dialect_at(size_t index)
{
    return index < COUNT_OF(thinks) ? &thinks[index] : NULL;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

struct str dialect_mark(const char *text)
{
    struct str s = str_from(text);
    while (s.len > 0 && is_space(s.data[0]))
        s = str_of(s.data + 1, s.len - 1);
    while (s.len > 0 && is_space(s.data[s.len - 1]))
        s.len--;
    return s;
}

static bool stands(struct str template, const char *const *sign)
{
    bool all = true;
    for (size_t i = 0; i < DIALECT_SIGNS && sign[i]; i++)
        all = all && str_find(template, str_from(sign[i])) != SIZE_MAX;
    return all;
}

static const struct call_dialect *call_in(struct str template)
{
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        const char *not_sign = calls[i].not_sign;
        if (!stands(template, calls[i].sign)) continue;
        if (!not_sign || str_find(template, str_from(not_sign)) == SIZE_MAX) return &calls[i];
    }
    return NULL;
}

static const struct think_dialect *think_in(struct str template)
{
    for (size_t i = 0; i < COUNT_OF(thinks); i++)
        if (stands(template, thinks[i].sign)) return &thinks[i];
    return NULL;
}

static int unknown(struct err *err, const char *option, struct str name, const char *const *names,
                   size_t count)
{
    char list[512];
    str_list(names, count, list, sizeof list);
    return err_set(err, -EINVAL, "%s: '" STR_FMT "' is not known; auto, none, %s are", option,
                   (int)min_size(name.len, 40), name.data, list);
}

static bool is_auto(struct str name)
{
    return name.len == 0 || str_eq(name, STR(DIALECT_AUTO));
}

int dialogue_find(struct str template, struct str call_name, struct str think_name,
                  struct dialogue *ret, struct err *err)
{
    const char *names[DIALECT_NAMES_MAX];
    struct dialogue d = { 0 };
    if (is_auto(call_name)) d.call = call_in(template);
    if (is_auto(think_name)) d.think = think_in(template);
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        names[i] = calls[i].name;
        if (str_eq(call_name, str_from(names[i]))) d.call = &calls[i];
    }
    if (!is_auto(call_name) && !d.call && !str_eq(call_name, STR(DIALECT_NONE)))
        return unknown(err, "tool_call_parser", call_name, names, COUNT_OF(calls));
    for (size_t i = 0; i < COUNT_OF(thinks); i++) {
        names[i] = thinks[i].name;
        if (str_eq(think_name, str_from(names[i]))) d.think = &thinks[i];
    }
    if (!is_auto(think_name) && !d.think && !str_eq(think_name, STR(DIALECT_NONE)))
        return unknown(err, "reasoning_parser", think_name, names, COUNT_OF(thinks));
    *ret = d;
    return 0;
}

static bool holds(const char *mark, struct str text)
{
    return mark && str_find(str_from(mark), text) != SIZE_MAX;
}

static bool call_has(const struct call_dialect *c, struct str text)
{
    const char *const marks[] = { c->calls_begin, c->calls_end,      c->call_begin,
                                  c->call_end,    c->call_begin_too, c->name_pad,
                                  c->name_end,    c->name_pad_too,   c->separator };
    for (size_t i = 0; i < COUNT_OF(marks); i++)
        if (holds(marks[i], text)) return true;
    for (size_t i = 0; i < DIALECT_SILENT; i++)
        if (holds(c->silent[i], text)) return true;
    return false;
}

bool dialect_is_mark(struct str text)
{
    if (text.len < 3) return false;
    for (size_t i = 0; i < COUNT_OF(thinks); i++) {
        const struct think_dialect *t = &thinks[i];
        if (holds(t->begin, text) || holds(t->end, text) || holds(t->answer, text)) return true;
    }
    for (size_t i = 0; i < COUNT_OF(calls); i++)
        if (call_has(&calls[i], text)) return true;
    return false;
}

bool dialogue_is_thinking(const struct dialogue *d, struct str tail)
{
    if (!d->think) return false;
    while (tail.len > 0 && is_space(tail.data[tail.len - 1]))
        tail.len--;
    return str_ends(tail, str_from(d->think->begin));
}
