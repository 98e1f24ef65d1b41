/* http_api_fan.c - starts the calls of a request for several outputs and gathers what they bring. */
#include "engine/serve/http_api_fan.h"

#include "base/core/bits.h"
#include "base/core/own.h"

#include <float.h>
#include <stdlib.h>

static void call_fan_free(struct call_fan *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        buf_fini(&f->output[i].text);
        buf_fini(&f->output[i].logprobs);
        buf_fini(&f->output[i].prompt_logprobs);
        turn_output_free(f->output[i].turn);
    }
    free(f);
}

void call_fan_forget(struct call *c)
{
    struct call_fan *f = c->fan;
    f->output[c->index].call = NULL;
    if (--f->open == 0 && !f->held) call_fan_free(f);
}

bool call_fan_begin(struct call_fan *f)
{
    bool first = !f->begun;
    f->begun = true;
    return first;
}

bool call_fan_is_last(const struct call *c)
{
    return !c->fan || c->fan->open == 1;
}

void call_fan_go_on(struct call *c)
{
    struct call_fan *f = c->fan;
    if (!f || c->index % f->best_of != 0 || !c->x) return;
    for (uint32_t i = c->index + 1; i < c->index + f->best_of; i++)
        if (f->output[i].call && !f->output[i].call->submitted) call_submit(f->output[i].call);
}

void call_fan_leave(struct call *c)
{
    struct call_fan *f = c->fan;
    for (uint32_t i = 0; i < f->count; i++) {
        struct call *other = f->output[i].call;
        if (!other) continue;
        other->x = NULL;
        if (other == c) continue;
        if (!other->submitted) call_submit(other); /* it comes back by mail, as the others do */
        call_cancel(other);
    }
}

void call_fan_count(struct call *c, const struct job_mail *mail)
{
    if (c->turn) reasoning_end(&c->turn->reasoning);
    struct usage usage = call_usage(c, mail);
    struct call_fan *f = c->fan;
    f->usage.generated_tokens += usage.generated_tokens;
    f->usage.reasoning_tokens += usage.reasoning_tokens;
    if (c->index % f->best_of != 0) return; /* a prompt counts once */
    f->usage.prompt_tokens += usage.prompt_tokens;
    f->usage.cached_tokens += usage.cached_tokens;
}

/* ---- whole replies ---- */

/* Returns the likeliest output of a prompt that was not taken yet, and takes it. */
static struct call_output *take_best(struct call_fan *f, uint32_t from)
{
    struct call_output *best = &f->output[from];
    for (uint32_t i = from; i < from + f->best_of; i++)
        if (f->output[i].mean > best->mean) best = &f->output[i];
    best->mean = -DBL_MAX;
    return best;
}

static int output_rc(const struct call_output *o)
{
    if (o->turn && turn_output_failed(o->turn)) return -ENOMEM;
    return o->text.rc < 0 ? o->text.rc : o->logprobs.rc;
}

static void reply_all(struct call_fan *f, struct call *c)
{
    struct http_api *api = f->api;
    struct openai_choice choice[OPENAI_CHOICES_MAX];
    uint32_t count = 0;
    int rc = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        if (i % f->best_of >= f->n) continue;
        struct call_output *o =
            f->best_of > f->n ? take_best(f, i - i % f->best_of) : &f->output[i];
        choice[count] = turn_output_choice(o->turn, &o->text);
        choice[count].logprobs = buf_view(&o->logprobs);
        choice[count].prompt_logprobs = buf_view(&o->prompt_logprobs);
        choice[count++].finish = o->finish;
    }
    for (uint32_t i = 0; i < f->count && rc == 0; i++)
        rc = output_rc(&f->output[i]);
    buf_clear(&api->out);
    if (rc == 0) rc = openai_reply_whole(&c->reply, choice, count, &f->usage, &api->out);
    if (rc < 0)
        http_api_refuse(api, c->x, OPENAI_UNAVAILABLE, NULL, "no memory for the answer");
    else
        http_api_reply(api, c->x, 200, buf_view(&api->out));
    call_fan_leave(c);
}

static struct buf take_buf(struct buf *from)
{
    struct buf taken = *from;
    *from = (struct buf){ .max = taken.max };
    return taken;
}

void call_fan_keep(struct call *c, const struct job_mail *mail, enum finish finish)
{
    struct call_fan *f = c->fan;
    struct call_output *o = &f->output[c->index];
    openai_logprobs_take(&c->logprobs);
    o->text = take_buf(&c->text);
    o->logprobs = take_buf(&c->logprobs.json);
    o->prompt_logprobs = take_buf(&c->logprobs.prompt_json);
    o->turn = TAKE(c->turn);
    o->finish = finish;
    o->mean = mail->generated > 0 ? c->logprob_sum / mail->generated : 0;
    if (f->open == 1) reply_all(f, c);
}

/* ---- start ---- */

static void on_abort(void *arg, enum http_abort why)
{
    struct call_fan *f = arg;
    f->held = true;
    for (uint32_t i = 0; i < f->count; i++)
        if (f->output[i].call) call_left(f->output[i].call, why);
    f->held = false;
    if (f->open == 0) call_fan_free(f);
}

static void on_drain(void *arg)
{
    struct call_fan *f = arg;
    f->held = true;
    for (uint32_t i = 0; i < f->count; i++)
        if (f->output[i].call) call_pump(f->output[i].call);
    f->held = false;
    if (f->open == 0) call_fan_free(f);
}

static int add_call(struct call_fan *f, struct http_exchange *x, const struct openai_request *r,
                    const struct prompt_made *prompt, const struct call_ask *with)
{
    struct call_ask ask = *with;
    struct sampling sampling = r->sampling;
    CLEANUP(ids_fini) struct ids ids = { 0 };
    const uint32_t index = f->open;
    sampling.seed += index % r->best_of;
    ask.sampling = &sampling;
    ask.logprobs = r->logprobs || r->best_of > r->n; /* best_of needs those of the output */
    ask.prompt_tokens = (uint32_t)prompt->ids.count;
    ask.score_from = (r->echo && r->logprobs) || r->scores_prompt;
    ask.echo = prompt->echo;
    ask.reply.index = index;
    ids.data = malloc(prompt->ids.count * sizeof *ids.data); /* a prompt is not empty */
    if (!ids.data) return -ENOMEM;
    memcpy(ids.data, prompt->ids.data, prompt->ids.count * sizeof *ids.data);
    ids.count = ids.cap = prompt->ids.count;
    ask.ids = &ids;
    struct grammar *grammar = ask.grammar && *ask.grammar ? grammar_ref(*ask.grammar) : NULL;
    ask.grammar = &grammar;
    ask.turn = with->turn ? turn_output_another(with->turn) : NULL;
    struct call *c = with->turn && !ask.turn ? NULL : call_new(f->api, x, &ask);
    grammar_free(grammar);
    if (!c) return -ENOMEM;
    c->fan = f;
    c->index = index;
    c->logprobs.wanted = r->logprobs || r->scores_prompt;
    c->logprobs.of_output = r->logprobs;
    f->output[index].call = c;
    f->open++;
    return 0;
}

static void start(struct http_api *api, struct http_exchange *x, const struct openai_request *r,
                  const struct prompt_made *prompts, const struct call_ask *ask)
{
    const uint32_t count = openai_outputs(r);
    if (call_refused(api, x, count, ask->entered)) return;
    struct call_fan *f = calloc(1, sizeof *f + count * sizeof f->output[0]);
    int rc = f ? 0 : -ENOMEM;
    if (f) *f = (struct call_fan){ .api = api, .count = count, .n = r->n, .best_of = r->best_of };
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = add_call(f, x, r, &prompts[i / r->best_of], ask);
    if (rc < 0) {
        for (uint32_t i = f ? f->open : 0; i-- > 0;) {
            f->held = true;
            call_cancel(f->output[i].call);
        }
        if (f) call_fan_free(f);
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "no memory for the request");
        return;
    }
    http_exchange_watch(x, on_abort, on_drain, f);
    for (uint32_t i = 0; i < count; i += r->best_of)
        call_submit(f->output[i].call);
}

void call_fan_start(struct http_api *api, struct http_exchange *x, const struct openai_request *r,
                    const struct prompt_made *prompts, const struct call_ask *ask)
{
    start(api, x, r, prompts, ask);
    turn_output_free(ask->turn);
}
