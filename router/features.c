/* features.c - the tenant, how the prompt begins, and the first words of what is asked last.
 *
 * What is asked stands at the end: the last line of the last message. Its first words say which
 * kind of answer is wanted ("List", "Tell me a story", "What is"), numbers in it how long; digits
 * are therefore kept by their count only, so that "Count to 12" and "Count to 37" share a key.
 */
#include "router/features.h"

#include "base/core/hash.h"
#include "base/core/json.h"
#include "base/core/own.h"

#define NORMAL_BYTES_MAX 128

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

/* Unescaped content of the last message that has text content; empty when there is none. */
static struct str last_content(struct str messages, struct buf *out)
{
    struct json_reader r;
    json_reader_init(&r, messages);
    if (json_next(&r) != JSON_ARRAY) return (struct str){ 0 };
    while (json_next(&r) == JSON_OBJECT) {
        while (json_next(&r) == JSON_KEY) {
            if (!json_key_is(&r, "content")) {
                json_skip(&r);
                continue;
            }
            enum json_token t = json_next(&r);
            if (t == JSON_STRING || t == JSON_ARRAY) buf_clear(out);
            if (t == JSON_STRING) json_text(&r, out);
            if (t == JSON_ARRAY) read_parts(&r, out);
            if (t == JSON_OBJECT) json_skip_rest(&r);
        }
    }
    return buf_view(out);
}

static struct str last_line(struct str text)
{
    while (text.len > 0 && (unsigned char)text.data[text.len - 1] <= ' ')
        text.len--;
    size_t from = text.len;
    while (from > 0 && text.data[from - 1] != '\n')
        from--;
    return str_of(text.data + from, text.len - from);
}

/* Lower case, one '0' for every digit, single blanks, at most FEATURE_ASK_WORDS words. */
static uint64_t hash_words(struct str line)
{
    char normal[NORMAL_BYTES_MAX];
    size_t len = 0;
    uint32_t words = 0;
    bool in_word = false;
    for (size_t i = 0; i < line.len && len < sizeof normal; i++) {
        char c = line.data[i];
        bool blank = c == ' ' || c == '\t';
        if (blank && in_word && ++words == FEATURE_ASK_WORDS) break;
        if (!blank && !in_word && len > 0) normal[len++] = ' ';
        in_word = !blank;
        if (blank || len == sizeof normal) continue;
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        if (c >= '0' && c <= '9') c = '0';
        normal[len++] = c;
    }
    return len > 0 ? hash64(normal, len, 1) : 0;
}

void features_of(const struct openai_request *api, struct str tenant, struct predict_features *ret)
{
    CLEANUP(buf_fini) struct buf content = { 0 };
    bool chat = api->surface == OPENAI_CHAT;
    struct str text = chat ? last_content(api->messages, &content) : api->prompt;
    struct str head = chat ? api->messages : api->prompt;
    if (head.len > FEATURE_PREFIX_BYTES) head.len = FEATURE_PREFIX_BYTES;
    ret->tenant = hash64(tenant.data, tenant.len, 0);
    ret->prefix = hash64(head.data, head.len, ret->tenant);
    ret->ask = hash_words(last_line(text));
}
