/* template_vectors.c - one JSON record a line: inputs, and output, raised or failed. */
#include "tests/unit/text/template_vectors.h"

#include "base/core/buf.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/text/chat_template.h"

#include <stdlib.h>

struct record {
    struct buf name, input, source, output, raised, failed, bos, eos;
    struct str messages, tools, kwargs;
    bool has_output, has_raised, prompt;
    int64_t now;
};

static void record_fini(struct record *r)
{
    struct buf *texts[] = { &r->name,   &r->input,  &r->source, &r->output,
                            &r->raised, &r->failed, &r->bos,    &r->eos };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        buf_fini(texts[i]);
}

static void read_field(struct json_reader *j, struct record *r)
{
    const struct {
        const char *key;
        struct buf *text;
        bool *has;
    } texts[] = {
        { "template", &r->name, NULL },           { "input", &r->input, NULL },
        { "source", &r->source, NULL },           { "output", &r->output, &r->has_output },
        { "raised", &r->raised, &r->has_raised }, { "failed", &r->failed, NULL },
        { "bos_token", &r->bos, NULL },           { "eos_token", &r->eos, NULL },
    };
    const struct {
        const char *key;
        struct str *raw;
    } raws[] = { { "messages", &r->messages }, { "tools", &r->tools }, { "kwargs", &r->kwargs } };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (!json_key_is(j, texts[i].key)) continue;
        json_next(j);
        json_text(j, texts[i].text);
        if (texts[i].has) *texts[i].has = true;
        return;
    }
    for (size_t i = 0; i < sizeof raws / sizeof raws[0]; i++) {
        if (!json_key_is(j, raws[i].key)) continue;
        json_raw_value(j, raws[i].raw);
        if (str_eq(*raws[i].raw, STR("null"))) *raws[i].raw = (struct str){ 0 };
        return;
    }
    if (json_key_is(j, "now"))
        json_next(j), json_i64(j, &r->now);
    else if (json_key_is(j, "add_generation_prompt"))
        json_next(j), json_bool(j, &r->prompt);
    else
        json_skip(j);
}

/* Where the two first differ, with some of what is around. */
static void tell_difference(struct str want, struct str got)
{
    size_t at = 0;
    while (at < want.len && at < got.len && want.data[at] == got.data[at])
        at++;
    size_t from = at > 60 ? at - 60 : 0;
    size_t want_len = want.len - from < 160 ? want.len - from : 160;
    size_t got_len = got.len - from < 160 ? got.len - from : 160;
    fprintf(stderr, "  at byte %zu of %zu/%zu\n  want: ...%.*s\n  got:  ...%.*s\n", at, want.len,
            got.len, (int)want_len, want.data + from, (int)got_len, got.data + from);
}

/* What the oracle refuses and we allow on purpose. */
static bool is_beyond(const struct record *r)
{
    struct str failed = buf_view(&r->failed);
    return str_find(failed, STR("is unsafe")) != SIZE_MAX ||
           str_find(failed, STR("'from_json'")) != SIZE_MAX;
}

static void judge(const struct record *r, int rc, const struct chat_output *out,
                  const struct err *err, struct template_score *score)
{
    struct str got = buf_view(&out->text), want = buf_view(&r->output);
    if (r->has_output && rc == 0 && str_eq(got, want)) {
        score->equal++;
    } else if (r->has_raised && rc == -EPROTO &&
               str_eq(str_from(err->text), buf_view(&r->raised))) {
        score->refused++;
    } else if (!r->has_output && !r->has_raised && rc < 0 && rc != -E2BIG && rc != -ENOMEM) {
        score->refused++;
    } else if (!r->has_output && !r->has_raised && is_beyond(r)) {
        score->beyond++;
    } else {
        score->differ++;
        fprintf(stderr, "%s, %s: rc %d %s\n", r->name.data, r->input.data, rc,
                rc < 0          ? err->text
                : r->has_raised ? "instead of raising"
                : r->has_output ? ""
                                : r->failed.data);
        if (rc == 0 && r->has_output) tell_difference(want, got);
    }
}

static void check_record(struct str line, struct template_score *score)
{
    CLEANUP(record_fini) struct record r = { 0 };
    CLEANUP(chat_output_fini) struct chat_output out = { 0 };
    CLEANUP(chat_template_freep) struct chat_template *t = NULL;
    struct json_reader j;
    struct err err = { 0 };
    json_reader_init(&j, line);
    if (json_next(&j) != JSON_OBJECT) abort();
    while (json_next(&j) == JSON_KEY)
        read_field(&j, &r);
    if (j.token != JSON_OBJECT_END) abort();
    int rc = chat_template_compile(buf_view(&r.source), &t, &err);
    struct chat_inputs in = { .messages = r.messages,
                              .tools = r.tools,
                              .kwargs = r.kwargs,
                              .add_generation_prompt = r.prompt,
                              .bos_token = buf_view(&r.bos),
                              .eos_token = buf_view(&r.eos),
                              .now_s = r.now };
    if (rc == 0) rc = chat_template_render(t, &in, NULL, &out, &err);
    judge(&r, rc, &out, &err, score);
}

struct template_score template_vectors_check(FILE *f)
{
    struct template_score score = { 0 };
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    while ((len = getline(&line, &cap, f)) > 0)
        check_record(str_of(line, (size_t)len - 1), &score);
    free(line);
    return score;
}
