/* f_dialogue.c - parses any bytes as an output of a drawn dialect: whole, and in drawn pieces. The events must be
 * the same, and content without calls must be the output itself. */
#include "base/core/bits.h"
#include "base/text/dialogue/parser.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

const struct fuzz_cost fuzz_cost = { 20000000, 20000 };

static const struct str tools[] = { { "f", 1 }, { "get_weather", 11 } };

/* The events, coalesced: a byte for the kind before each text of one kind. */
struct log {
    struct buf text;
    int last;
    bool calls, reasons;
};

static void on_event(void *arg, const struct dialogue_event *e)
{
    struct log *l = arg;
    bool joins = l->last == (int)e->part && e->part != DIALOGUE_CALL;
    must(e->part == DIALOGUE_CALL_END || e->text.len > 0);
    must(e->index < DIALOGUE_CALLS_MAX);
    if (!joins) buf_byte(&l->text, (char)(e->part + (e->cut ? 8 : 0)));
    buf_str(&l->text, e->text);
    l->last = (int)e->part;
    l->calls |= e->part == DIALOGUE_CALL;
    l->reasons |= e->part == DIALOGUE_REASONING;
}

static struct log parse(const struct dialogue_setup *setup, struct str text,
                        struct fuzz_choices *cuts)
{
    struct log l = { .last = -1 };
    struct dialogue_setup mine = *setup;
    struct dialogue_parser p;
    mine.arg = &l;
    dialogue_init(&p, &mine);
    while (text.len > 0) {
        size_t piece = cuts ? min_size(1 + fuzz_u8(cuts) % 8, text.len) : text.len;
        must(dialogue_push(&p, str_of(text.data, piece)) == 0);
        text = str_of(text.data + piece, text.len - piece);
    }
    must(dialogue_end(&p) == 0);
    dialogue_fini(&p);
    return l;
}

static const struct call_dialect *call_of(uint8_t drawn)
{
    size_t count = 0;
    while (call_dialect_at(count))
        count++;
    return call_dialect_at(drawn % (count + 1));
}

static const struct think_dialect *think_of(uint8_t drawn)
{
    size_t count = 0;
    while (think_dialect_at(count))
        count++;
    return think_dialect_at(drawn % (count + 1));
}

void fuzz_one(const uint8_t *data, size_t len)
{
    struct fuzz_choices c = { data, len };
    struct dialogue_setup setup = {
        .dialects = { .call = call_of(fuzz_u8(&c)), .think = think_of(fuzz_u8(&c)) },
        .tool = tools,
        .event = on_event,
    };
    uint8_t flags = fuzz_u8(&c);
    setup.tool_count = flags & 1 ? COUNT_OF(tools) : 0;
    setup.thinking = flags & 2;
    if (len < 4) return;
    struct str text = str_of(data + 3, len - 3);
    struct fuzz_choices cuts = { data, len };
    struct log whole = parse(&setup, text, NULL), pieces = parse(&setup, text, &cuts);
    must(str_eq(buf_view(&whole.text), buf_view(&pieces.text)));
    must(whole.calls == pieces.calls);
    bool plain = !setup.dialects.call && !setup.dialects.think;
    if (plain)
        must(whole.text.len == text.len + 1 &&
             memcmp(whole.text.data + 1, text.data, text.len) == 0);
    if (setup.tool_count == 0) must(!whole.calls);
    if (!setup.dialects.think) must(!whole.reasons);
    buf_fini(&whole.text);
    buf_fini(&pieces.text);
}
