/* reasoning.c - leads the bytes of each token through a parser, which says which of them are reasoning. */
#include "base/text/dialogue/reasoning.h"

#include "base/text/detok.h"

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
