/* text.c - turns words into hashes, and steps linear models over them. */
#include "policies/predict/text.h"

#include "base/core/hash.h"

#include <math.h>

#define FNV_BASIS 2166136261u
#define FNV_PRIME 16777619u
#define WORDS_BEFORE_MAX 24 /* nearest words before the last sentence */
#define WORDS_LAST_MAX 24
#define HEAD_WORDS 3
#define ASK_BYTES_MAX 128
#define STEP_FLOOR 1e-3 /* of an AdaGrad sum: bounds the first step of a weight */

enum salt { WORD = 1, PAIR, HEAD, BEFORE, CONTEXT };

static uint32_t mix(uint32_t hash, uint64_t value)
{
    for (uint32_t i = 0; i < 8; i++, value >>= 8)
        hash = (hash ^ (uint32_t)(value & 0xff)) * FNV_PRIME;
    return hash ^ hash >> 15;
}

static void add(struct text_features *t, uint32_t hash)
{
    if (t->count < TEXT_FEATURES_MAX) t->at[t->count++] = hash;
}

static bool is_word(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c >= 0x80;
}

static uint32_t log_bucket(double value, double per_octave)
{
    return (uint32_t)(log2(value + 1) * per_octave);
}

/* Cuts the next word off *rest and hashes it: letters in lower case, a number by its size. Returns
 * false if there is none. *ret_number is the number, or -1. */
static bool next_word(struct str *rest, uint32_t *ret, double *ret_number)
{
    size_t at = 0;
    while (at < rest->len && !is_word((unsigned char)rest->data[at]))
        at++;
    if (at == rest->len) return false;
    uint32_t hash = FNV_BASIS;
    double number = 0;
    bool digits = true;
    for (; at < rest->len && is_word((unsigned char)rest->data[at]); at++) {
        unsigned char c = (unsigned char)rest->data[at];
        if (c >= 'A' && c <= 'Z') c = (unsigned char)(c - 'A' + 'a');
        digits = digits && c >= '0' && c <= '9' && number < 1e9;
        if (digits) number = number * 10 + (c - '0');
        hash = (hash ^ c) * FNV_PRIME;
    }
    *rest = str_of(rest->data + at, rest->len - at);
    *ret_number = digits ? number : -1;
    *ret = digits ? mix(FNV_BASIS + 1, log_bucket(number, 4)) : hash;
    return true;
}

/* Returns the last sentence, which begins after the last mark that a word follows. */
struct str text_last_sentence(struct str text)
{
    bool words = false;
    for (size_t i = text.len; i-- > 0;) {
        char c = text.data[i];
        if (is_word((unsigned char)c)) {
            words = true;
        } else if (words &&
                   (c == '\n' || ((c == '.' || c == '?' || c == '!') &&
                                  (text.data[i + 1] == ' ' || text.data[i + 1] == '\n')))) {
            return str_of(text.data + i + 1, text.len - i - 1);
        }
    }
    return text;
}

static struct str tail(struct str text)
{
    if (text.len <= TEXT_BYTES_MAX) return text;
    return str_of(text.data + text.len - TEXT_BYTES_MAX, TEXT_BYTES_MAX);
}

double text_number(struct str text)
{
    struct str rest = text_last_sentence(tail(text));
    double most = -1, number;
    uint32_t hash;
    while (next_word(&rest, &hash, &number))
        most = fmax(most, number);
    return most;
}

uint32_t text_head(struct str text, uint32_t words)
{
    struct str rest = text_last_sentence(tail(text));
    uint32_t head = 0, hash;
    double number;
    while (words-- > 0 && next_word(&rest, &hash, &number))
        head = mix(head + HEAD, hash);
    return head;
}

static void add_sentence(struct text_features *t, struct str sentence)
{
    uint32_t hash, before = 0, head = HEAD, words = 0;
    double number;
    while (words < WORDS_LAST_MAX && next_word(&sentence, &hash, &number)) {
        add(t, mix(WORD, hash));
        if (words > 0) add(t, mix(mix(PAIR, before), hash));
        if (words < HEAD_WORDS) {
            head = mix(head, hash);
            add(t, head);
        }
        before = hash;
        words++;
    }
    add(t, mix(mix(CONTEXT, 1), log_bucket(words, 2)));
}

static void add_before(struct text_features *t, struct str text)
{
    /* From the end, because the nearest words matter most: back over WORDS_BEFORE_MAX blanks. */
    size_t from = text.len;
    for (uint32_t blanks = 0; from > 0; from--) {
        if (text.data[from - 1] == ' ' && ++blanks > WORDS_BEFORE_MAX) break;
    }
    struct str rest = str_of(text.data + from, text.len - from);
    uint32_t hash;
    double number;
    while (next_word(&rest, &hash, &number))
        add(t, mix(BEFORE, hash));
}

static void add_context(struct text_features *t, const struct predict_features *f)
{
    const uint64_t value[] = {
        f->tenant,
        f->prefix,
        f->group,
        f->ask,
        log_bucket(f->prompt_tokens, 2),
        f->previous_tokens ? 1 + log_bucket(f->previous_tokens, 2) : 0,
        log_bucket(f->output_max, 1),
        log_bucket((double)f->text.len, 2),
        f->text.len > 0 ? 1 + (uint64_t)(f->text.data[f->text.len - 1] == '?') : 0,
    };
    for (uint32_t i = 0; i < sizeof value / sizeof value[0]; i++) {
        if (value[i]) add(t, mix(mix(CONTEXT, 2 + i), value[i]));
    }
    add(t, CONTEXT); /* the intercept */
}

void text_features(const struct predict_features *f, struct text_features *ret)
{
    ret->count = 0;
    add_context(ret, f);
    if (f->text.len == 0) return;
    struct str text = tail(f->text), last = text_last_sentence(text);
    add_sentence(ret, last);
    add_before(ret, str_of(text.data, text.len - last.len));
}

double linear_dot(const float *w, uint32_t stride, uint32_t mask, const struct text_features *t)
{
    double sum = 0;
    for (uint32_t i = 0; i < t->count; i++)
        sum += (double)w[(size_t)(t->at[i] & mask) * stride];
    return sum / sqrt((double)t->count);
}

void linear_step(float *w, uint32_t stride, uint32_t mask, const struct text_features *t,
                 double gradient, double rate)
{
    double g = gradient / sqrt((double)t->count);
    if (g == 0) return;
    for (uint32_t i = 0; i < t->count; i++) {
        float *at = w + (size_t)(t->at[i] & mask) * stride;
        at[1] += (float)(g * g);
        at[0] -= (float)(rate * g / sqrt((double)at[1] + STEP_FLOOR));
    }
}

void linear_merge(float *w, const float *other, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        float *at = w + 2 * (size_t)i;
        const float *o = other + 2 * (size_t)i;
        float sum = at[1] + o[1];
        if (sum > 0) at[0] = (at[0] * at[1] + o[0] * o[1]) / sum;
        at[1] = sum;
    }
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

uint64_t text_ask(struct str text)
{
    struct str line = last_line(text);
    char normal[ASK_BYTES_MAX];
    size_t len = 0;
    uint32_t words = 0;
    bool in_word = false;
    for (size_t i = 0; i < line.len && len < sizeof normal; i++) {
        char c = line.data[i];
        bool blank = c == ' ' || c == '\t';
        if (blank && in_word && ++words == TEXT_ASK_WORDS) break;
        if (!blank && !in_word && len > 0) normal[len++] = ' ';
        in_word = !blank;
        if (blank || len == sizeof normal) continue;
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        if (c >= '0' && c <= '9') c = '0';
        normal[len++] = c;
    }
    return len > 0 ? hash64(normal, len, 1) : 0;
}
