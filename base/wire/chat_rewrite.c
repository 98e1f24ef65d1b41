/* chat_rewrite.c - finds the keys of a body, and writes members and messages of a chat. */
#include "base/wire/chat_rewrite.h"

#include "base/core/bits.h"

/* ---- members and items of well-formed JSON ---- */

bool slice_is_a(struct str raw, char first)
{
    return raw.len > 0 && raw.data[0] == first;
}

bool slice_is_text(struct str raw)
{
    return slice_is_a(raw, '"');
}

struct str slice_inside(struct str raw)
{
    return str_of(raw.data + 1, raw.len - 2);
}

bool slice_says(struct str raw, const char *word)
{
    return slice_is_text(raw) && str_eq(slice_inside(raw), str_from(word));
}

void slice_members(struct str raw, const char *const *names, struct str *ret, size_t count)
{
    struct json_reader r;
    memset(ret, 0, count * sizeof *ret);
    if (!slice_is_a(raw, '{')) return;
    json_reader_init(&r, raw);
    json_next(&r);
    while (json_next(&r) == JSON_KEY) {
        struct str value, *to = NULL;
        for (size_t i = 0; i < count && !to; i++)
            if (json_key_is(&r, names[i])) to = &ret[i];
        if (json_raw_value(&r, &value) < 0) return;
        if (to) *to = str_eq(value, STR("null")) ? (struct str){ 0 } : value;
    }
}

struct json_reader slice_items(struct str raw)
{
    struct json_reader r;
    json_reader_init(&r, slice_is_a(raw, '[') ? raw : STR("[]"));
    json_next(&r);
    return r;
}

bool slice_next(struct json_reader *r, struct str *ret)
{
    enum json_token t = json_next(r);
    if (t == JSON_ARRAY_END || t == JSON_ERROR) return false;
    size_t start = r->start;
    json_skip_rest(r);
    *ret = str_of(r->text.data + start, r->pos - start);
    return true;
}

int chat_find_keys(struct chat_rewrite *m, struct str body, const char *const *names, size_t count,
                   bool pass_others)
{
    struct json_reader r;
    bool seen[CHAT_KEYS_MAX] = { false };
    must(count <= CHAT_KEYS_MAX);
    json_reader_init(&r, body);
    if (json_next(&r) != JSON_OBJECT && r.token != JSON_ERROR)
        return CHAT_REFUSE(m, NULL, "The body must be a JSON object.");
    while (r.token != JSON_ERROR && json_next(&r) == JSON_KEY) {
        struct str name = r.raw, value;
        size_t k = 0;
        while (k < count && !json_key_is(&r, names[k]))
            k++;
        if (k == count && !pass_others)
            return CHAT_UNSERVED(m, NULL, "The key \"%.*s\" is not served.", CHAT_SHOWN(name));
        if (k < count && seen[k])
            return CHAT_REFUSE(m, names[k], "%s stands there twice.", names[k]);
        if (json_raw_value(&r, &value) < 0) break;
        if (k == count) continue;
        seen[k] = true;
        if (!str_eq(value, STR("null"))) m->value[k] = value;
    }
    if (r.token == JSON_OBJECT_END && json_next(&r) == JSON_END) return 0;
    struct err err = { "" };
    json_fail(&r, &err, "The body");
    return CHAT_REFUSE(m, NULL, "%s.", err.text);
}

int chat_rewrite_end(struct chat_rewrite *m, int rc, struct arena *arena, struct str *ret)
{
    if (rc == 0) rc = m->out.rc;
    struct str chat = rc == 0 ? arena_str(arena, buf_view(&m->out)) : (struct str){ 0 };
    if (rc == 0 && !chat.data) rc = -ENOMEM;
    buf_fini(&m->out);
    if (rc == -E2BIG)
        return openai_error_set(m->e, rc, OPENAI_TOO_LARGE, NULL, "The request is too large.");
    if (rc == -ENOMEM)
        return openai_error_set(m->e, rc, OPENAI_UNAVAILABLE, NULL, "no memory for the request");
    if (rc == 0) *ret = chat;
    return rc;
}

void chat_put_member(struct chat_rewrite *m, const char *name, struct str raw)
{
    if (!raw.data) return;
    json_key(&m->w, name);
    json_put_raw(&m->w, raw);
}

void chat_put_escaped(struct chat_rewrite *m, const char *name, struct str escaped)
{
    json_key(&m->w, name);
    buf_byte(&m->out, '"');
    buf_str(&m->out, escaped);
    json_put_raw(&m->w, STR("\"")); /* so that the writer knows of the value */
}

void chat_parts_fini(struct chat_parts *p)
{
    buf_fini(&p->text);
    buf_fini(&p->thinking);
    buf_fini(&p->calls);
}

void chat_join(struct buf *to, bool *has, struct str escaped)
{
    if (*has) buf_text(to, "\\n");
    buf_str(to, escaped);
    *has = true;
}

int chat_put_assistant(struct chat_rewrite *m, struct chat_parts *p)
{
    json_object(&m->w);
    json_kv_text(&m->w, "role", "assistant");
    chat_put_escaped(m, "content", buf_view(&p->text));
    if (p->has_thinking) chat_put_escaped(m, "reasoning_content", buf_view(&p->thinking));
    if (p->calls.len > 0) {
        buf_byte(&p->calls, ']');
        chat_put_member(m, "tool_calls", buf_view(&p->calls));
    }
    json_object_end(&m->w);
    int rc = p->text.rc < 0 ? p->text.rc : p->thinking.rc < 0 ? p->thinking.rc : p->calls.rc;
    buf_clear(&p->text);
    buf_clear(&p->thinking);
    buf_clear(&p->calls);
    p->has_text = p->has_thinking = false;
    return rc;
}
