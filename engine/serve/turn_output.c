/* turn_output.c - leads what the parser of an output tells into the message. */
#include "engine/serve/turn_output.h"

#include "base/core/own.h"

#include <stdlib.h>

#define PLAN_BYTES_MAX (64u << 20)

struct turn_shared {
    struct turn turn;
    struct arena arena; /* names of tools, the tag */
    uint32_t users;
};

static void shared_drop(struct turn_shared *s)
{
    if (--s->users > 0) return;
    arena_fini(&s->arena);
    free(s);
}

static void on_part(void *arg, const struct dialogue_event *e)
{
    struct turn_output *t = arg;
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

static struct turn_output *output_new(struct turn_shared *s)
{
    struct turn_output *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    const struct dialogue_setup setup = {
        .dialects = s->turn.dialects,
        .tool = s->turn.tools.name,
        .tool_count = s->turn.tools.count,
        .thinking = s->turn.thinking,
        .event = on_part,
        .arg = t,
    };
    dialogue_init(&t->parser, &setup);
    reasoning_init(&t->reasoning, &s->turn);
    t->shared = s;
    s->users++;
    return t;
}

int turn_output_new(const struct dialogue *d, const struct vocab *v, const struct turn_ask *ask,
                    const struct ids *prompt, struct turn_output **ret, struct err *err)
{
    struct turn_shared *s = calloc(1, sizeof *s);
    *ret = NULL;
    if (!s) return err_set(err, -ENOMEM, "no memory for the tools");
    s->users = 1;
    arena_init(&s->arena, PLAN_BYTES_MAX);
    int rc = turn_plan(d, v, ask, prompt->data, prompt->count, &s->arena, &s->turn, err);
    if (rc == 0 && s->turn.parses) {
        *ret = output_new(s);
        if (!*ret) rc = err_set(err, -ENOMEM, "no memory for the tools");
    }
    shared_drop(s);
    return rc;
}

struct turn_output *turn_output_another(const struct turn_output *t)
{
    return output_new(t->shared);
}

void turn_output_free(struct turn_output *t)
{
    if (!t) return;
    dialogue_fini(&t->parser);
    reasoning_fini(&t->reasoning);
    openai_message_fini(&t->message);
    shared_drop(t->shared);
    free(t);
}

const struct turn *turn_output_plan(const struct turn_output *t)
{
    return &t->shared->turn;
}

void turn_output_push(struct turn_output *t, const uint32_t *ids, uint32_t count, struct str text)
{
    reasoning_take(&t->reasoning, ids, count);
    dialogue_push(&t->parser, text);
}

void turn_output_end(struct turn_output *t)
{
    reasoning_end(&t->reasoning);
    dialogue_end(&t->parser);
}

bool turn_output_failed(const struct turn_output *t)
{
    return t->parser.rc < 0 || t->reasoning.parser.rc < 0 || openai_message_rc(&t->message) < 0;
}

struct openai_choice turn_output_choice(struct turn_output *t, const struct buf *text)
{
    if (t) return openai_message_choice(&t->message);
    return (struct openai_choice){ .text = buf_view(text) };
}
