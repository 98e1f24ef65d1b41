/* features.c - the tenant, how the prompt begins, what is asked last, and what was answered before.
 *
 * What is asked stands at the end: in the last message that has text. Its first words say which kind
 * of answer is wanted ("List", "Tell me a story", "What is"), numbers in it how long. A system
 * message names the task. The answer before is the last assistant message; its tokens are told from
 * its share of the request's bytes, because the router knows the tokens of the whole.
 */
#include "router/features.h"

#include "base/core/hash.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "policies/predict_text.h"

/* Unescaped, of one message; `role` points into the JSON. */
struct message {
    struct str role;
    struct buf content;
};

/* The texts of a content's parts, [{"type": "text", "text": ...}, ...], a line each. */
static void read_parts(struct json_reader *r, struct buf *out)
{
    while (json_next(r) == JSON_OBJECT) {
        while (json_next(r) == JSON_KEY) {
            if (!json_key_is(r, "text")) {
                json_skip(r);
                continue;
            }
            enum json_token t = json_next(r);
            if (t == JSON_STRING) {
                if (out->len > 0) buf_byte(out, '\n');
                json_text(r, out);
            } else if (t == JSON_OBJECT || t == JSON_ARRAY) {
                json_skip_rest(r);
            }
        }
    }
}

/* True when it has text. */
static bool read_message(struct json_reader *r, struct message *m)
{
    bool text = false;
    m->role = (struct str){ 0 };
    while (json_next(r) == JSON_KEY) {
        bool role = json_key_is(r, "role");
        if (!role && !json_key_is(r, "content")) {
            json_skip(r);
            continue;
        }
        enum json_token t = json_next(r);
        if (role && t == JSON_STRING) m->role = r->raw;
        if (!role && (t == JSON_STRING || t == JSON_ARRAY)) {
            text = true;
            buf_clear(&m->content);
            if (t == JSON_STRING) json_text(r, &m->content);
            if (t == JSON_ARRAY) read_parts(r, &m->content);
        } else if (t == JSON_OBJECT || t == JSON_ARRAY) {
            json_skip_rest(r);
        }
    }
    return text;
}

struct told {
    size_t previous_bytes; /* of the last answer; 0: none */
    uint64_t group;
};

/* Leaves the text of the last message that has any in `out`. */
static void read_messages(struct str messages, struct buf *out, struct told *ret)
{
    CLEANUP(buf_fini) struct buf content = { 0 };
    struct message m = { 0 };
    struct json_reader r;
    json_reader_init(&r, messages);
    if (json_next(&r) != JSON_ARRAY) return;
    while (json_next(&r) == JSON_OBJECT) {
        m.content = content;
        bool text = read_message(&r, &m);
        content = m.content;
        if (!text) continue;
        if (str_eq(m.role, STR("assistant"))) ret->previous_bytes = content.len;
        if (str_eq(m.role, STR("system")) || str_eq(m.role, STR("developer"))) {
            ret->group = hash64(content.data, content.len, 2);
        }
        buf_clear(out);
        buf_str(out, buf_view(&content));
    }
}

/* The end of the text, kept with the request: predictors read no more of it. */
static struct str keep(struct arena *arena, struct str text)
{
    if (text.len > TEXT_BYTES_MAX) {
        text = str_of(text.data + text.len - TEXT_BYTES_MAX, TEXT_BYTES_MAX);
    }
    return text.len > 0 ? arena_str(arena, text) : (struct str){ 0 };
}

void features_of(const struct openai_request *api, struct str tenant, uint32_t prompt_tokens,
                 struct arena *arena, struct predict_features *ret)
{
    CLEANUP(buf_fini) struct buf content = { 0 };
    struct told told = { 0 };
    bool chat = api->surface == OPENAI_CHAT;
    if (chat) read_messages(api->messages, &content, &told);
    struct str text = chat ? buf_view(&content) : api->prompt;
    struct str head = chat ? api->messages : api->prompt;
    size_t bytes = head.len;
    if (head.len > FEATURE_PREFIX_BYTES) head.len = FEATURE_PREFIX_BYTES;
    ret->tenant = hash64(tenant.data, tenant.len, 0);
    ret->prefix = hash64(head.data, head.len, ret->tenant);
    ret->group = told.group;
    ret->ask = text_ask(text);
    ret->text = keep(arena, text);
    ret->prompt_tokens = prompt_tokens;
    ret->previous_tokens = 0;
    if (told.previous_bytes > 0) {
        double share = (double)told.previous_bytes / (double)bytes;
        ret->previous_tokens = 1 + (uint32_t)(share * (double)prompt_tokens);
    }
}
