/* f_kwargs.c - reads any bytes as a chat request's body and renders it by a template that looks at all
 * that a client may send: messages, tools, chat_template_kwargs.
 *
 * The limits are the router's, so that the cost is that of a request. An accepted body renders twice
 * to the same text, within its bounds, and its content holds no marker of the template's own. */
#include "base/text/chat_template.h"
#include "base/wire/openai.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

#define ARENA_BYTES ((size_t)4 << 20)

/* A template that walks, sorts, looks up and prints its inputs, as those of known models do; without
 * recursion, which would copy a deep value once a level. */
static const struct str source = STR(
    "{%- macro show(x) -%}{%- if x is string -%}{{ x | trim }}{%- elif x is mapping -%}"
    "{%- for k, v in x.items() -%}[{{ k }}={{ v | tojson }}]{%- endfor -%}"
    "{%- elif x is iterable -%}{%- for y in x -%}({{ y | tojson }}){%- endfor -%}"
    "{%- else -%}{{ x }}{%- endif -%}{%- endmacro -%}"
    "{%- for t in tools or [] %}<tool>{{ t | tojson }}</tool>"
    "{%- if t.function is mapping and t.function.parameters is mapping -%}"
    "{%- for name, p in t.function.parameters | dictsort -%}{{ name }};{%- endfor -%}"
    "{%- endif -%}{%- endfor -%}"
    "{%- for m in messages -%}<|{{ m.role }}|>{{ show(m.content) }}"
    "{%- for c in m.tool_calls or [] -%}<call>{{ c | tojson(indent=2) }}</call>{%- endfor -%}"
    "{{ m.name | default('', true) }}{{ 'x' if 'reasoning' in m }}<|end|>{%- endfor -%}"
    "{%- if x is defined -%}{{ show(x) }}{%- endif -%}"
    "{%- if y is defined and y is mapping -%}{{ y.get('k', y | length) }}{%- endif -%}"
    "{%- if enable_thinking is defined and not enable_thinking -%}<think></think>{%- endif -%}");

static const struct chat_template *compiled(void)
{
    static struct chat_template *t;
    struct err err = { 0 };
    if (!t && chat_template_compile(source, &t, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return t;
}

static void check_spans(const struct chat_output *out)
{
    must(str_utf8_valid(buf_view(&out->text)));
    size_t end = 0;
    for (size_t i = 0; i < out->content.count; i++) {
        must(out->content.data[i].start >= end);
        end = out->content.data[i].start + out->content.data[i].len;
    }
    must(end <= out->text.len);
}

/* Checks that markers open and close in the template's own text, without content, whatever a client's
 * texts say. */
static void check_markers(const struct chat_output *out)
{
    CLEANUP(buf_fini) struct buf own = { 0 };
    size_t at = 0;
    for (size_t i = 0; i < out->content.count; i++) {
        const struct text_span *s = &out->content.data[i];
        buf_str(&own, str_of(out->text.data + at, s->start - at));
        at = s->start + s->len;
    }
    buf_str(&own, str_of(out->text.data + at, out->text.len - at));
    struct str rest = buf_view(&own);
    int32_t open = 0;
    for (; rest.len > 0; rest = str_of(rest.data + 1, rest.len - 1)) {
        if (str_starts(rest, STR("<|end|>")))
            open--;
        else if (str_starts(rest, STR("<|")))
            open++;
        must(open == 0 || open == 1);
    }
    must(open == 0);
}

static int render(const struct openai_request *req, struct chat_output *out)
{
    struct err err = { 0 };
    const struct chat_inputs in = { .messages = req->messages,
                                    .tools = req->tools,
                                    .kwargs = req->chat_template_kwargs,
                                    .add_generation_prompt = true,
                                    .bos_token = STR("<s>"),
                                    .eos_token = STR("</s>"),
                                    .now_s = 1000000000 };
    const struct chat_limits limits = { 0 };
    int rc = chat_template_render(compiled(), &in, &limits, out, &err);
    must(rc == 0 || err.text[0]);
    return rc;
}

/* Inputs are walked a fixed number of times; the flat cost is the arena and the compiled template. */
const struct fuzz_cost fuzz_cost = { 150000, 700 };

void fuzz_one(const uint8_t *data, size_t len)
{
    CLEANUP(arena_fini) struct arena arena = { 0 };
    CLEANUP(chat_output_fini) struct chat_output first = { 0 }, second = { 0 };
    struct openai_request req;
    struct openai_error e;
    arena_init(&arena, ARENA_BYTES);
    compiled();
    if (openai_parse(OPENAI_CHAT, str_of(data, len), &arena, &req, &e) < 0) {
        must(e.status >= 400 && e.message[0]);
        return;
    }
    int rc = render(&req, &first);
    must(render(&req, &second) == rc);
    if (rc < 0) return;
    must(str_eq(buf_view(&first.text), buf_view(&second.text)));
    check_spans(&first);
    check_markers(&first);
}
