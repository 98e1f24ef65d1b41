/* openai_messages.c - the messages of a chat request: checked, and content as one string.
 *
 * Messages stay JSON (the chat template reads them), with one change: content given as parts of
 * text becomes one string, parts joined by a line break, because templates expect strings. The
 * joined form is never longer than the parts were, so it is built in one arena block by copying
 * slices that are already escaped. */
#include "base/core/bits.h"
#include "base/wire/openai_part.h"

/* Messages with the content parts joined: what was copied of the body so far, and to where. */
struct rewrite {
    char *out; /* NULL: nothing had to be changed yet */
    size_t len;
    size_t from; /* offset in the body that is copied next */
};

static void rewrite_put(struct rewrite *w, struct str s)
{
    memcpy(w->out + w->len, s.data, s.len);
    w->len += s.len;
}

static void rewrite_copy_to(struct rewrite *w, struct str body, size_t end)
{
    rewrite_put(w, str_of(body.data + w->from, end - w->from));
    w->from = end;
}

/* One part, its opening bracket the current token; *ret is its text, still escaped. */
static int text_part(struct openai_walk *p, uint32_t index, struct str *ret)
{
    struct json_reader *r = &p->r;
    struct str type = { 0 }, text = { 0 };
    if (r->token != JSON_OBJECT)
        return INVALID(p, "messages", "messages[%u].content: a part must be an object.", index);
    while (json_next(r) == JSON_KEY) {
        struct str *to = json_key_is(r, "type") ? &type : json_key_is(r, "text") ? &text : NULL;
        enum json_token t = json_skip(r);
        /* An empty string has data, too: its quotes stand in the body. */
        if (to && t == JSON_STRING) *to = r->raw;
    }
    if (r->token != JSON_OBJECT_END) return openai_broken_json(p);
    if (!str_eq(type, STR("text")))
        return UNSERVED(p, "messages",
                        "messages[%u].content: parts of type \"%.*s\" are not served, text is.",
                        index, (int)min_size(type.len, 32), type.data ? type.data : "");
    if (!text.data)
        return INVALID(p, "messages", "messages[%u].content: a part without text.", index);
    *ret = text;
    return 0;
}

/* An array of parts, its opening bracket the current token, becomes one string. */
static int join_parts(struct openai_walk *p, uint32_t index, struct str body, struct rewrite *w)
{
    if (!w->out) w->out = arena_alloc(p->arena, body.len);
    if (!w->out) return openai_no_memory(p, "messages");
    rewrite_copy_to(w, body, p->r.start);
    rewrite_put(w, STR("\""));
    for (uint32_t count = 0; json_next(&p->r) != JSON_ARRAY_END; count++) {
        struct str text = { 0 };
        if (count == OPENAI_PARTS_MAX)
            return INVALID(p, "messages", "messages[%u].content: more than %d parts.", index,
                           OPENAI_PARTS_MAX);
        int rc = p->r.token == JSON_ERROR ? openai_broken_json(p) : text_part(p, index, &text);
        if (rc < 0) return rc;
        if (count > 0) rewrite_put(w, STR("\\n"));
        rewrite_put(w, text);
    }
    rewrite_put(w, STR("\""));
    w->from = p->r.pos;
    return 0;
}

static int take_content(struct openai_walk *p, uint32_t index, struct str body, struct rewrite *w)
{
    enum json_token t = json_next(&p->r);
    if (t == JSON_STRING || t == JSON_NULL) return 0;
    if (t == JSON_ARRAY) return join_parts(p, index, body, w);
    if (t == JSON_ERROR) return openai_broken_json(p);
    return INVALID(p, "messages", "messages[%u].content must be a string or an array of parts.",
                   index);
}

/* One message, its opening bracket the current token. */
static int take_message(struct openai_walk *p, uint32_t index, struct str body, struct rewrite *w)
{
    struct json_reader *r = &p->r;
    bool has_role = false, has_content = false;
    if (r->token == JSON_ERROR) return openai_broken_json(p);
    if (r->token != JSON_OBJECT)
        return INVALID(p, "messages", "messages[%u] must be an object.", index);
    while (json_next(r) == JSON_KEY) {
        bool role = json_key_is(r, "role"), content = json_key_is(r, "content");
        if ((role && has_role) || (content && has_content))
            return INVALID(p, "messages", "messages[%u]: \"%s\" stands there twice.", index,
                           role ? "role" : "content");
        has_role = has_role || role;
        has_content = has_content || content;
        if (content) {
            int rc = take_content(p, index, body, w);
            if (rc < 0) return rc;
        } else if (json_skip(r) != JSON_STRING && role) {
            return openai_wrong_type(p, "messages", "an array of objects whose role is a string");
        }
    }
    if (r->token != JSON_OBJECT_END) return openai_broken_json(p);
    if (!has_role) return INVALID(p, "messages", "messages[%u] has no role.", index);
    return 0;
}

int openai_take_messages(struct openai_walk *p)
{
    uint32_t count = 0;
    if (p->r.token != JSON_ARRAY) return openai_wrong_type(p, "messages", "an array");
    int rc = openai_count_items(p, "messages", OPENAI_MESSAGES_MAX, &count);
    if (rc < 0) return rc;
    if (count == 0) return INVALID(p, "messages", "messages may not be empty.");
    size_t start = p->r.start;
    struct rewrite w = { .from = start };
    for (uint32_t i = 0; i < count; i++) {
        json_next(&p->r);
        rc = take_message(p, i, p->r.text, &w);
        if (rc < 0) return rc;
    }
    json_next(&p->r); /* the closing bracket */
    if (w.out) rewrite_copy_to(&w, p->r.text, p->r.pos);
    p->req.messages =
        w.out ? str_of(w.out, w.len) : str_of(p->r.text.data + start, p->r.pos - start);
    return 0;
}
