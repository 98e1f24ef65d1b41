/* turn_answer.c - joins the parser of dialects with the message of OpenAI's API, which know nothing of each other.
 *
 * The engine answers direct clients with it; a router has its own, because its message goes on from engine to
 * engine. */
#include "engine/serve/turn_answer.h"

#include "base/core/own.h"

#include <stdlib.h>

#define ARENA_BYTES_MAX ((size_t)32 << 20)

static void on_part(void *arg, const struct dialogue_event *e)
{
    struct turn_answer *t = arg;
    switch (e->part) {
    case DIALOGUE_CONTENT:
        openai_message_text(&t->message, e->text);
        break;
    case DIALOGUE_REASONING:
        openai_message_reasoning(&t->message, e->text);
        break;
    case DIALOGUE_CALL:
        openai_message_call(&t->message, e->index, e->text);
        break;
    case DIALOGUE_ARGUMENTS:
        openai_message_arguments(&t->message, e->index, e->text);
        break;
    case DIALOGUE_CALL_END:
    case DIALOGUE_PART_COUNT:
        break;
    }
}

int turn_answer_new(const struct dialogue *d, const struct vocab *v, const struct turn_ask *ask,
                    const struct ids *prompt, struct turn_answer **ret, struct err *err)
{
    struct turn_answer *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, -ENOMEM, "no memory for the request");
    arena_init(&t->arena, ARENA_BYTES_MAX);
    int rc = turn_plan(d, v, ask, prompt->data, prompt->count, &t->arena, &t->turn, err);
    if (rc < 0 || !t->turn.parses) {
        turn_answer_free(t);
        *ret = NULL;
        return rc;
    }
    const struct dialogue_setup setup = {
        .dialects = t->turn.dialects,
        .tool = t->turn.tools.name,
        .tool_count = t->turn.tools.count,
        .thinking = t->turn.thinking,
        .event = on_part,
        .arg = t,
    };
    dialogue_init(&t->parser, &setup);
    *ret = t;
    return 0;
}

void turn_answer_free(struct turn_answer *t)
{
    if (!t) return;
    dialogue_fini(&t->parser);
    openai_message_fini(&t->message);
    arena_fini(&t->arena);
    free(t);
}

void turn_answer_push(struct turn_answer *t, struct str text)
{
    (void)dialogue_push(&t->parser, text);
}

void turn_answer_end(struct turn_answer *t)
{
    (void)dialogue_end(&t->parser);
}

bool turn_answer_failed(const struct turn_answer *t)
{
    return t->parser.rc < 0 || openai_message_rc(&t->message) < 0;
}
