/* reasoning.c - leads the bytes of each token through a parser, which says which of them are reasoning. */
#include "base/text/dialogue/reasoning.h"

#include "base/core/own.h"
#include "base/text/detok.h"
#include "base/text/tokenizer.h"

static void on_event(void *arg, const struct dialogue_event *e)
{
    (void)arg, (void)e;
}

/* The parser holds no more bytes than a mark has, so those before the token at hand are in token_of. */
static void on_byte(void *arg, uint64_t at)
{
    struct reasoning *c = arg;
    uint32_t token = at >= c->begin ? c->taken : c->token_of[at % DIALOGUE_MARK_BYTES_MAX];
    c->tokens += token != c->counted;
    c->counted = token;
}

void reasoning_init(struct reasoning *c, const struct turn *t)
{
    *c = (struct reasoning){ 0 };
    if (!t->parses || !t->dialects.think) return;
    c->vocab = t->vocab;
    c->marks = t->marks;
    const struct dialogue_setup setup = {
        .dialects = t->dialects,
        .tool = t->tools.name,
        .tool_count = t->tools.count,
        .thinking = t->thinking,
        .event = on_event,
        .reasoned = on_byte,
        .arg = c,
    };
    dialogue_init(&c->parser, &setup);
}

void reasoning_fini(struct reasoning *c)
{
    dialogue_fini(&c->parser);
}

/* Returns the bytes that a token adds to the output that is parsed. */
static struct str bytes_of(const struct reasoning *c, uint32_t id)
{
    struct str heard = detok_heard(c->vocab, id);
    if (heard.len > 0 || !c->marks || id >= vocab_count(c->vocab)) return heard;
    struct str mark = vocab_bytes(c->vocab, id);
    return vocab_type(c->vocab, id) == TOKEN_CONTROL && dialect_is_mark(mark) ? mark : heard;
}

static void take(struct reasoning *c, struct str bytes)
{
    c->taken++;
    c->begin = c->parser.taken;
    dialogue_push(&c->parser, bytes);
    uint64_t end = c->begin + bytes.len;
    uint64_t from = bytes.len > DIALOGUE_MARK_BYTES_MAX ? end - DIALOGUE_MARK_BYTES_MAX : c->begin;
    for (uint64_t at = from; at < end; at++)
        c->token_of[at % DIALOGUE_MARK_BYTES_MAX] = c->taken;
}

int reasoning_take(struct reasoning *c, const uint32_t *ids, uint32_t count)
{
    if (!c->vocab) return 0;
    for (uint32_t i = 0; i < count && c->parser.rc == 0; i++)
        take(c, bytes_of(c, ids[i]));
    return c->parser.rc;
}

int reasoning_end(struct reasoning *c)
{
    if (!c->vocab) return 0;
    c->begin = c->parser.taken;
    return dialogue_end(&c->parser);
}

bool reasoning_is_open(const struct reasoning *c, uint32_t *ret_tokens)
{
    if (!c->vocab || !dialogue_is_reasoning(&c->parser)) return false;
    *ret_tokens = c->tokens;
    if (c->parser.held.len == 0) return true;
    uint64_t at = c->parser.taken - c->parser.held.len;
    uint32_t first = c->token_of[at % DIALOGUE_MARK_BYTES_MAX];
    *ret_tokens += c->taken - first + (first != c->counted);
    return true;
}

/* ---- a limit ---- */

static bool ends_output(const struct vocab *v, uint32_t id)
{
    const uint32_t *ends;
    for (size_t n = vocab_ends(v, &ends); n > 0; n--)
        if (ends[n - 1] == id) return true;
    return false;
}

int reasoning_limit_make(const struct dialogue *d, const struct vocab *v, uint32_t tokens,
                         const uint32_t *prompt, size_t count, struct reasoning_limit *ret,
                         struct err *err)
{
    CLEANUP(ids_fini) struct ids end = { 0 };
    struct reasoning_limit l = { .tokens = tokens };
    *ret = (struct reasoning_limit){ 0 };
    if (tokens == 0 || !d->think) return 0;
    l.turn =
        (struct turn){ .parses = true, .marks = d->marked, .dialects.think = d->think, .vocab = v };
    int rc = turn_is_thinking(d, v, prompt, count, &l.turn.thinking);
    if (rc == 0) rc = tokenizer_encode(v, str_from(d->think->end), true, &end, err);
    if (rc < 0) return rc;
    bool fits = end.count > 0 && end.count <= REASONING_END_MAX;
    for (size_t i = 0; i < end.count && fits; i++) {
        fits = !ends_output(v, end.data[i]);
        l.end[l.end_count++] = end.data[i];
    }
    if (!fits)
        return err_set(err, -ENOTSUP, "reasoning has no limit with this model: '%s' cannot end it",
                       d->think->end);
    *ret = l;
    return 0;
}
