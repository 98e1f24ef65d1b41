/* detok.c - decodes tokens, and holds back at most three bytes.
 *
 * Each push joins the held bytes and the token's bytes. Valid characters are written, an unfinished
 * character at the very end is held, and everything else becomes U+FFFD by the rule of Unicode 3.9
 * ("maximal subpart", as Python and browsers do): one for each longest prefix that could still have
 * become a character.
 */
#include "base/text/detok.h"

#include "base/text/vocab_tables.h"

static const char replacement[] = "\xEF\xBF\xBD";

void detok_init(struct detok *d, const struct vocab *v, bool skip_control)
{
    *d = (struct detok){ .vocab = v, .skip_control = skip_control };
}

/* Returns the length of the sequence that a lead byte announces, and the range of its second byte; 0 if
 * the byte cannot lead. The ranges exclude overlong forms, surrogates and code points above 10FFFF. */
static size_t lead_length(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80, *high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) {
        if (lead == 0xE0) *low = 0xA0;
        if (lead == 0xED) *high = 0x9F;
        return 3;
    }
    if (lead < 0xF0 || lead > 0xF4) return 0;
    if (lead == 0xF0) *low = 0x90;
    if (lead == 0xF4) *high = 0x8F;
    return 4;
}

/* Returns how many bytes at the start of `s` form one character or one bad part. *whole: they are a
 * character; *open: they begin a character, and `s` ends before its end. */
static size_t take(struct str s, bool *whole, bool *open)
{
    unsigned char low, high, lead = (unsigned char)s.data[0];
    *whole = lead < 0x80;
    *open = false;
    if (*whole) return 1;
    size_t want = lead_length(lead, &low, &high), have = 1;
    while (have < want && have < s.len) {
        unsigned char c = (unsigned char)s.data[have];
        if (c < low || c > high) break;
        low = 0x80, high = 0xBF;
        have++;
    }
    *whole = want > 0 && have == want;
    *open = want > 0 && have < want && have == s.len;
    return have;
}

/* Writes `s` without an unfinished character at its end; returns the length of that rest. */
static size_t write_certain(struct str s, struct buf *out)
{
    size_t done = 0; /* everything before is written */
    for (size_t at = 0; at < s.len;) {
        bool whole, open;
        size_t len = take(str_of(s.data + at, s.len - at), &whole, &open);
        if (!whole) buf_append(out, s.data + done, at - done);
        if (open) return s.len - at;
        at += len;
        if (whole) continue;
        buf_append(out, replacement, 3);
        done = at;
    }
    buf_append(out, s.data + done, s.len - done);
    return 0;
}

static bool is_shown(const struct detok *d, uint32_t id)
{
    for (uint32_t i = 0; i < d->shown_count; i++)
        if (d->shown[i] == id) return true;
    return false;
}

static bool is_silent(const struct vocab *v, uint32_t id)
{
    enum token_type type = vocab_type(v, id);
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_UNUSED;
}

struct str detok_heard(const struct vocab *v, uint32_t id)
{
    return is_silent(v, id) ? (struct str){ 0 } : vocab_bytes(v, id);
}

int detok_push(struct detok *d, uint32_t id, struct buf *out)
{
    struct str bytes = vocab_bytes(d->vocab, id);
    bool silent = d->skip_control && is_silent(d->vocab, id) && !is_shown(d, id);
    if (bytes.len == 0 || silent) return out->rc;
    /* First complete the held bytes, one byte of the token at a time; then write the rest of it. */
    while (d->held_len > 0 && bytes.len > 0) {
        char joined[DETOK_HELD_MAX + 1];
        memcpy(joined, d->held, d->held_len);
        joined[d->held_len] = bytes.data[0];
        bool whole, open;
        size_t len = take(str_of(joined, d->held_len + 1u), &whole, &open);
        if (whole) {
            buf_append(out, joined, len);
            d->held_len = 0;
        } else if (open) {
            memcpy(d->held, joined, len);
            d->held_len = (uint8_t)len;
        } else {
            buf_append(out, replacement, 3);
            d->held_len = 0;
            continue; /* the new byte is not part of the bad sequence */
        }
        bytes = str_of(bytes.data + 1, bytes.len - 1);
    }
    if (bytes.len == 0) return out->rc;
    size_t held = write_certain(bytes, out);
    memcpy(d->held, bytes.data + bytes.len - held, held);
    d->held_len = (uint8_t)held;
    return out->rc;
}

int detok_flush(struct detok *d, struct buf *out)
{
    if (d->held_len > 0) buf_append(out, replacement, 3);
    d->held_len = 0;
    return out->rc;
}

/* Appends the first token of a text without the blanks that do not belong to it. */
static int put_lead(const struct vocab *v, uint32_t id, struct buf *out)
{
    struct str bytes = vocab_bytes(v, id);
    if (v->first_as_written && v->lead == LEAD_KEPT) return buf_str(out, vocab_text(v, id));
    if (v->lead == LEAD_STRIP_TEXT && str_starts(bytes, STR(" ")))
        bytes = str_of(bytes.data + 1, bytes.len - 1);
    for (size_t i = 0; i < bytes.len; i++)
        if (v->lead != LEAD_DROP_FIRST || bytes.data[i] != ' ') buf_byte(out, bytes.data[i]);
    return out->rc;
}

int detok_bytes(const struct vocab *v, const uint32_t *ids, size_t count, bool skip_control,
                struct buf *out)
{
    bool first = true;
    for (size_t i = 0; i < count && out->rc == 0; i++) {
        if (skip_control && is_silent(v, ids[i])) continue;
        if (first)
            put_lead(v, ids[i], out);
        else
            buf_str(out, vocab_bytes(v, ids[i]));
        first = false;
    }
    return out->rc;
}
