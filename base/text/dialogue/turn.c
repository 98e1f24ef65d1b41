/* turn.c - reads the end of the prompt, the tools and the dialects, and decides.
 *
 * Tools without a dialect are the template's alone: the model reads of them, and what it answers is content. */
#include "base/text/dialogue/turn.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/text/detok.h"

#define TAIL_TOKENS 16 /* of a prompt, in which a mark of reasoning may stand last */

int turn_is_thinking(const struct dialogue *d, const struct vocab *v, const uint32_t *ids,
                     size_t count, bool *ret)
{
    CLEANUP(buf_fini) struct buf tail = { 0 };
    size_t few = min_size(count, TAIL_TOKENS);
    *ret = false;
    if (!d->think) return 0;
    int rc = detok_bytes(v, ids + (count - few), few, false, &tail);
    *ret = dialogue_is_thinking(d, buf_view(&tail));
    return rc;
}

static int write_tag(const struct turn_ask *ask, struct turn *t, struct arena *arena,
                     struct err *err)
{
    CLEANUP(buf_fini) struct buf tag = { 0 };
    const struct call_grammar g = {
        .dialects = t->dialects,
        .tools = &t->tools,
        .only = ask->only,
        .required = ask->required,
        .parallel = ask->parallel,
        .thinking = t->thinking,
    };
    int rc = call_grammar_write(&g, &tag, err);
    if (rc < 0) return rc;
    t->tag = arena_str(arena, buf_view(&tag));
    return t->tag.data ? 0 : err_set(err, -ENOMEM, "no memory for the tools");
}

int turn_plan(const struct dialogue *d, const struct vocab *v, const struct turn_ask *ask,
              const uint32_t *ids, size_t count, struct arena *arena, struct turn *ret,
              struct err *err)
{
    struct turn t = { .dialects = *d, .vocab = v };
    bool calls = ask->tools.len > 0 && (d->call || ask->required);
    t.parses = !ask->bound && (calls || d->think);
    if (!t.parses) {
        *ret = t;
        return 0;
    }
    int rc = turn_is_thinking(d, v, ids, count, &t.thinking);
    if (rc == 0 && calls) rc = call_tools_read(ask->tools, arena, &t.tools, err);
    if (rc == 0 && t.tools.count > 0) rc = write_tag(ask, &t, arena, err);
    if (rc < 0) return rc;
    t.marks = d->marked;
    *ret = t;
    return 0;
}

uint32_t turn_marks(const struct vocab *v, uint32_t ret[TURN_MARKS_MAX])
{
    uint32_t count = 0, total = vocab_count(v);
    for (uint32_t id = 0; id < total && count < TURN_MARKS_MAX; id++) {
        const uint32_t *ends;
        bool is_end = false;
        if (vocab_type(v, id) != TOKEN_CONTROL || !dialect_is_mark(vocab_bytes(v, id))) continue;
        for (size_t n = vocab_ends(v, &ends); n > 0; n--)
            is_end |= ends[n - 1] == id;
        if (!is_end) ret[count++] = id;
    }
    return count;
}
