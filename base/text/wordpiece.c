/* wordpiece.c - takes the longest piece that begins the word, then the longest that goes on, to the end.
 *
 * Pieces that begin a word and pieces that continue one are two lexicons, so neither needs its mark ("##"
 * in tokenizer.json, U+2581 before the others in GGUF) while a word is read.
 */
#include "base/text/wordpiece.h"

#include "base/core/work.h"
#include "base/text/unicode.h"
#include "base/text/vocab_tables.h"

static int put_unknown(const struct vocab *v, struct ids *out)
{
    return v->special.unk == VOCAB_NONE ? 0 : ids_push(out, v->special.unk);
}

static bool too_long(const struct vocab *v, struct str word)
{
    uint32_t chars = 0, cp;
    if (word.len <= v->word_chars_max) return false;
    for (size_t at = 0; at < word.len && chars <= v->word_chars_max; chars++)
        at += unicode_next(str_of(word.data + at, word.len - at), &cp);
    return chars > v->word_chars_max;
}

static const struct lexicon_entry *longest(const struct lexicon *l, struct str word, size_t at)
{
    const struct lexicon_entry *found = NULL;
    struct lexicon_walk w;
    bool on = lexicon_begin(l, &w, (unsigned char)word.data[at]);
    while (on) {
        const struct lexicon_entry *e = lexicon_here(l, &w);
        if (e) found = e;
        on = at + w.depth < word.len && lexicon_step(l, &w, (unsigned char)word.data[at + w.depth]);
    }
    work_add(w.depth);
    return found;
}

int wordpiece_encode(const struct vocab *v, struct str word, struct ids *out)
{
    const size_t before = out->count;
    int rc = 0;
    if (too_long(v, word)) return put_unknown(v, out);
    for (size_t at = 0; at < word.len && rc == 0;) {
        const struct lexicon_entry *e = longest(at == 0 ? &v->lexicon : &v->continuing, word, at);
        if (!e) {
            out->count = before;
            return put_unknown(v, out);
        }
        rc = ids_push(out, e->id);
        at += e->len;
    }
    return rc;
}

int wordlevel_encode(const struct vocab *v, struct str word, struct ids *out)
{
    uint32_t id = vocab_find(v, word);
    work_add(word.len);
    bool normal = id != VOCAB_NONE && v->tokens[id].type == TOKEN_NORMAL;
    return normal ? ids_push(out, id) : put_unknown(v, out);
}
