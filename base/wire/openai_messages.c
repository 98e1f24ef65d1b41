/* openai_messages.c - checks the messages of a chat request and gives each content as one string.
 *
 * Messages stay JSON (the chat template reads them), with one change: content given as parts of
 * text becomes one string, parts joined by a line break, because templates expect strings. The
 * joined form is never longer than the parts were, so it is built in one arena block by copying
 * slices that are already escaped. */
#include "base/wire/openai_walk.h"

/* Copies the messages with the content parts joined. */
struct rewrite {
    char *out; /* NULL: nothing had to be changed so far */
    size_t len;
    size_t from; /* offset in the body of the next byte to copy */
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

/* Reads one part, with its opening bracket as the current token; *ret is its text, still escaped. */
static int text_part(struct openai_walk *p, uint32_t index, struct str *ret)
{
    struct json_reader *r = &p->r;
    struct str type = { 0 }, text = { 0 };
    if (r->token != JSON_OBJECT)
        return INVALID(p, "messages", "messages[%u].content: a part must be an object.", index);
    while (json_next(r) == JSON_KEY) {
        struct str *to = json_key_is(r, "type") ? &type : json_key_is(r, "text") ? &text : NULL;
        enum json_token t = json_skip(r);
        /* The data of an empty string is not NULL: it points between its quotes in the body. */
        if (to && t == JSON_STRING) *to = r->raw;
    }
    if (r->token != JSON_OBJECT_END) return walk_broken(p);
    if (!str_eq(type, STR("text")))
        return UNSERVED(p, "messages",
                        "messages[%u].content: parts of type \"%.*s\" are not served, text is.",
                        index, (int)min_size(type.len, 32), type.data ? type.data : "");
    if (!text.data)
        return INVALID(p, "messages", "messages[%u].content: a part without text.", index);
    *ret = text;
    return 0;
}

/* Joins an array of parts, with its opening bracket as the current token, to one string; *ret is the text
 * between its quotes. */
static int join_parts(struct openai_walk *p, uint32_t index, struct str body, struct rewrite *w,
                      struct str *ret)
{
    if (!w->out) w->out = arena_alloc(p->arena, body.len);
    if (!w->out) return walk_no_memory(p, "messages");
    rewrite_copy_to(w, body, p->r.start);
    rewrite_put(w, STR("\""));
    const size_t from = w->len;
    for (uint32_t count = 0; json_next(&p->r) != JSON_ARRAY_END; count++) {
        struct str text = { 0 };
        if (count == OPENAI_PARTS_MAX)
            return INVALID(p, "messages", "messages[%u].content: more than %d parts.", index,
                           OPENAI_PARTS_MAX);
        int rc = p->r.token == JSON_ERROR ? walk_broken(p) : text_part(p, index, &text);
        if (rc < 0) return rc;
        if (count > 0) rewrite_put(w, STR("\\n"));
        rewrite_put(w, text);
    }
    *ret = str_of(w->out + from, w->len - from);
    rewrite_put(w, STR("\""));
    w->from = p->r.pos;
    return 0;
}

/* Reads a content of any form; the data of *ret is NULL if it is null. */
static int take_content(struct openai_walk *p, uint32_t index, struct str body, struct rewrite *w,
                        struct str *ret)
{
    enum json_token t = json_next(&p->r);
    *ret = t == JSON_STRING ? p->r.raw : (struct str){ 0 };
    if (t == JSON_STRING || t == JSON_NULL) return 0;
    if (t == JSON_ARRAY) return join_parts(p, index, body, w, ret);
    if (t == JSON_ERROR) return walk_broken(p);
    return INVALID(p, "messages", "messages[%u].content must be a string or an array of parts.",
                   index);
}

/* The roles of OpenAI's API. A template may pass over others in silence, and so drop what they say. */
static const struct str roles[] = {
    { "system", sizeof "system" - 1 }, { "developer", sizeof "developer" - 1 },
    { "user", sizeof "user" - 1 },     { "assistant", sizeof "assistant" - 1 },
    { "tool", sizeof "tool" - 1 },     { "function", sizeof "function" - 1 }
};

static int check_role(struct openai_walk *p, uint32_t index, struct str role)
{
    for (size_t i = 0; i < COUNT_OF(roles); i++)
        if (str_eq(role, roles[i])) return 0;
    return INVALID(p, "messages",
                   "messages[%u]: the role \"%.*s\" is unknown; known are system, developer, user, "
                   "assistant, tool and function.",
                   index, (int)min_size(role.len, 32), role.data ? role.data : "");
}

static void note_content(struct openai_request *req, struct str role, struct str content)
{
    if (!content.data) return;
    req->last_text = content;
    if (str_eq(role, STR("assistant"))) req->last_answer = content;
    if (str_eq(role, STR("system")) || str_eq(role, STR("developer"))) req->last_system = content;
}

/* Reads one message, with its opening bracket as the current token. */
static int take_message(struct openai_walk *p, uint32_t index, struct str body, struct rewrite *w)
{
    struct json_reader *r = &p->r;
    struct str role_text = { 0 }, content_text = { 0 };
    bool has_role = false, has_content = false;
    if (r->token == JSON_ERROR) return walk_broken(p);
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
            int rc = take_content(p, index, body, w, &content_text);
            if (rc < 0) return rc;
        } else if (json_skip(r) != JSON_STRING && role) {
            return walk_wrong_type(p, "messages", "an array of objects whose role is a string");
        } else if (role) {
            role_text = r->raw;
        }
    }
    if (r->token != JSON_OBJECT_END) return walk_broken(p);
    if (!has_role) return INVALID(p, "messages", "messages[%u] has no role.", index);
    int known = check_role(p, index, role_text);
    if (known < 0) return known;
    note_content(&p->req, role_text, content_text);
    return 0;
}

int openai_take_messages(struct openai_walk *p, const struct openai_key *k)
{
    (void)k;
    uint32_t count = 0;
    if (p->r.token != JSON_ARRAY) return walk_wrong_type(p, "messages", "an array");
    size_t start = p->r.start;
    struct rewrite w = { .from = start };
    for (; json_next(&p->r) != JSON_ARRAY_END; count++) {
        if (count == OPENAI_MESSAGES_MAX)
            return INVALID(p, "messages", "messages: more than %u items.", OPENAI_MESSAGES_MAX);
        int rc = take_message(p, count, p->r.text, &w);
        if (rc < 0) return rc;
    }
    if (count == 0) return INVALID(p, "messages", "messages may not be empty.");
    if (w.out) rewrite_copy_to(&w, p->r.text, p->r.pos);
    p->req.messages =
        w.out ? str_of(w.out, w.len) : str_of(p->r.text.data + start, p->r.pos - start);
    return 0;
}
