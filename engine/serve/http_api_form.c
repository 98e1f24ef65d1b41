/* http_api_form.c - writes what a call brings in OpenAI's forms: as a stream of chunks, or whole at its end. */
#include "base/core/bits.h"
#include "engine/serve/http_api_call.h"
#include "engine/serve/http_api_fan.h"

static enum finish finish_of(enum session_end end)
{
    return end == SESSION_END_STOP ? FINISH_STOP : FINISH_LENGTH;
}

/* Keeps the log-probabilities of new tokens. Without memory for them the text is cut, too: the error
 * sticks until whole_end, and a stream loses its client. */
static int add_logprobs(struct call *c, const struct job_mail *mail)
{
    const uint32_t stride = 1 + c->logprobs.top;
    const uint32_t scores = (uint32_t)(mail->scores.len / sizeof(struct token_value));
    if (!c->logprobs.wanted || mail->id_count + scores == 0) return 0;
    int rc = openai_logprobs_add(&c->logprobs,
                                 (const struct token_value *)(const void *)mail->scores.data,
                                 scores, scores / stride);
    if (rc == 0)
        rc = openai_logprobs_add(
            &c->logprobs, (const struct token_value *)(const void *)mail->values.data,
            (uint32_t)(mail->values.len / sizeof(struct token_value)), mail->id_count);
    if (rc < 0) c->api->out.rc = c->text.rc = rc;
    return rc;
}

/* Sums the log-probabilities of new tokens, by which the best output is chosen. */
static void add_sum(struct call *c, const struct job_mail *mail)
{
    const struct token_value *v = (const struct token_value *)(const void *)mail->values.data;
    const size_t stride = 1 + (size_t)c->job->ask.spec.sampling.logprobs;
    for (size_t i = 0; i < mail->values.len / sizeof *v; i += stride)
        c->logprob_sum += (double)v[i].value;
}

/* Returns the message of a stream in another form than that of chunks. */
static struct openai_message *message_of(struct call *c)
{
    return c->turn ? &c->turn->message : &c->plain;
}

static void stream_begin(struct call *c)
{
    struct buf *out = &c->api->out;
    if (c->reply.style != REPLY_OPENAI) {
        const struct usage usage = { .prompt_tokens = c->prompt_tokens };
        openai_message_start(message_of(c), &usage);
        return;
    }
    if (c->reply.surface == OPENAI_CHAT) openai_chunk_role(&c->reply, out);
    if (c->logprobs.rows.len > 0) /* an echo, with the entry of its first token */
        openai_chunk_logprobs(&c->reply, buf_view(&c->text), openai_logprobs_take(&c->logprobs),
                              out);
    else if (c->text.len > 0)
        openai_chunk_text(&c->reply, buf_view(&c->text), out);
    if (c->text.rc < 0) out->rc = c->text.rc;
    buf_fini(&c->text);
}

/* Ends the parsed output; what it held goes out. */
static void turn_ends(struct call *c)
{
    turn_output_end(c->turn);
    c->reply.called = c->turn->message.call_count > 0;
}

static void stream_tokens(struct call *c, const struct job_mail *mail)
{
    struct str text = buf_view(&mail->text), logprobs = { 0 };
    if (add_logprobs(c, mail) == 0) logprobs = openai_logprobs_take(&c->logprobs);
    if (c->logprobs.json.rc < 0) c->api->out.rc = c->logprobs.json.rc;
    if (c->turn) {
        /* Parts come when the parser knows them, what was said of the tokens at once. */
        if (logprobs.len > 0)
            openai_chunk_logprobs(&c->reply, (struct str){ 0 }, logprobs, &c->api->out);
        turn_output_push(c->turn, mail->ids, mail->id_count, text);
        return;
    }
    /* Half a character or the beginning of a stop string makes no chunk. */
    if (c->reply.style != REPLY_OPENAI)
        openai_message_text(message_of(c), text);
    else if (logprobs.len > 0)
        openai_chunk_logprobs(&c->reply, text, logprobs, &c->api->out);
    else if (text.len > 0)
        openai_chunk_text(&c->reply, text, &c->api->out);
}

static void stream_error(struct call *c, const struct job_mail *mail)
{
    struct openai_error e;
    if (mail->end == SESSION_END_DEADLINE) {
        openai_error_set(&e, 0, OPENAI_DEADLINE, NULL, "the request was not done within its time");
    } else if (mail->end == SESSION_END_DISPLACED) {
        openai_error_set(&e, 0, OPENAI_OVERLOADED, NULL, "%s", mail->error);
    } else {
        openai_error_set(&e, 0, OPENAI_INTERNAL, NULL, "%s",
                         mail->end == SESSION_END_ABORT ? "the engine is shutting down"
                                                        : mail->error);
    }
    openai_message_error(message_of(c), &e, &c->api->out);
}

static void stream_end(struct call *c, const struct job_mail *mail)
{
    struct buf *out = &c->api->out;
    bool whole = mail->end == SESSION_END_STOP || mail->end == SESSION_END_LENGTH;
    if (c->turn && whole) turn_ends(c);
    if (whole && c->turn && turn_output_failed(c->turn)) {
        struct openai_error e;
        openai_error_set(&e, 0, OPENAI_UNAVAILABLE, NULL, "no memory for the answer");
        openai_message_error(message_of(c), &e, out);
    } else if (whole && c->reply.style != REPLY_OPENAI) {
        const struct usage usage = call_usage(c, mail);
        openai_message_end(message_of(c), finish_of(mail->end), mail->stopped, &usage);
    } else if (whole) {
        openai_chunk_finish(&c->reply, finish_of(mail->end), out);
        struct usage usage = c->fan ? c->fan->usage : call_usage(c, mail);
        if (!call_fan_is_last(c)) return;
        if (c->reply.include_usage) openai_chunk_usage(&c->reply, &usage, out);
    } else {
        stream_error(c, mail);
    }
    if (c->reply.style == REPLY_OPENAI) openai_chunk_done(out);
}

const struct call_form call_form_stream = {
    .content_type = "text/event-stream",
    .stream = true,
    .pings = true,
    .begin = stream_begin,
    .tokens = stream_tokens,
    .end = stream_end,
};

static void whole_tokens(struct call *c, const struct job_mail *mail)
{
    if (c->turn)
        turn_output_push(c->turn, mail->ids, mail->id_count, buf_view(&mail->text));
    else
        buf_str(&c->text, buf_view(&mail->text)); /* an error sticks until whole_end */
    add_logprobs(c, mail);
    add_sum(c, mail);
}

static void whole_end(struct call *c, const struct job_mail *mail)
{
    struct http_api *api = c->api;
    if (c->turn) turn_ends(c);
    struct usage usage = call_usage(c, mail);
    if (c->fan) {
        call_fan_keep(c, mail, finish_of(mail->end));
        return;
    }
    struct openai_choice choice = turn_output_choice(c->turn, &c->text);
    choice.logprobs = openai_logprobs_take(&c->logprobs);
    choice.prompt_logprobs = buf_view(&c->logprobs.prompt_json);
    choice.finish = finish_of(mail->end);
    choice.stopped = mail->stopped;
    if (c->text.rc < 0 || c->logprobs.json.rc < 0 || (c->turn && turn_output_failed(c->turn))) {
        http_api_refuse(api, c->x, OPENAI_UNAVAILABLE, NULL, "no memory for the answer");
    } else {
        buf_clear(&api->out);
        openai_reply_whole(&c->reply, &choice, 1, &usage, &api->out);
        http_api_reply(api, c->x, 200, buf_view(&api->out));
    }
    c->x = NULL;
}

const struct call_form call_form_whole = { .tokens = whole_tokens, .end = whole_end };
