/* cmd_chat.c - `muster chat`: talk to a model behind a router, an engine or any OpenAI server.
 *
 * The conversation is kept as the text inside the messages array, so that a turn costs one append and
 * is sent again unchanged.
 */
#include "cli/cmd_chat.h"

#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/http/http_fetch.h"
#include "base/io/loop/clock.h"
#include "base/wire/openai_reply.h"
#include "base/wire/sse.h"
#include "cli/command.h"
#include "cli/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define EVENT_BYTES_MAX ((size_t)1 << 20)

struct answer {
    struct sse_reader events;
    struct plain plain;
    struct buf shown; /* of the current piece */
    struct buf text;  /* the whole reply */
    struct buf error; /* body of a refusal, or the sentence of an error event */
    int status;
    struct usage usage;
    char instance[128];
    int64_t asked_us, first_us, last_us;
};

static void add_message(struct buf *turns, const char *role, struct str content)
{
    struct json_writer w;
    if (turns->len > 0) buf_byte(turns, ',');
    json_writer_init(&w, turns);
    json_object(&w);
    json_kv_text(&w, "role", role);
    json_kv_str(&w, "content", content);
    json_object_end(&w);
}

static void on_head(void *arg, const struct http_response *head)
{
    struct answer *a = arg;
    struct str instance = http_response_header(head, "x-muster-instance");
    a->status = head->status;
    buf_clear(&a->shown);
    plain_whole(instance, &a->shown);
    snprintf(a->instance, sizeof a->instance, STR_FMT, STR_ARG(buf_view(&a->shown)));
}

/* Prints the model's output as text, control characters made harmless (table.h). */
static int show(struct answer *a, struct str piece)
{
    buf_clear(&a->shown);
    int rc = plain_add(&a->plain, piece, &a->shown);
    if (rc < 0) return rc;
    if (a->shown.len > 0) fwrite(a->shown.data, 1, a->shown.len, stdout);
    fflush(stdout);
    return 0;
}

static void show_end(struct answer *a)
{
    buf_clear(&a->shown);
    plain_end(&a->plain, &a->shown);
    buf_byte(&a->shown, '\n');
    if (a->shown.rc == 0) fwrite(a->shown.data, 1, a->shown.len, stdout);
}

static int on_event(void *arg, struct str data)
{
    struct answer *a = arg;
    if (str_eq(data, SSE_DONE)) return 0;
    struct openai_delta delta;
    size_t from = a->text.len;
    int rc = openai_delta_parse(data, &a->text, &delta, NULL);
    if (rc < 0) return rc;
    if (delta.has_error) {
        buf_append(&a->error, a->text.data + from, a->text.len - from);
        return -EPROTO;
    }
    if (delta.has_usage) a->usage = delta.usage;
    if (!delta.has_text) return 0;
    a->last_us = clock_mono_us();
    if (a->first_us == 0) a->first_us = a->last_us;
    return show(a, str_of(a->text.data + from, a->text.len - from));
}

static int on_data(void *arg, struct str data)
{
    struct answer *a = arg;
    if (a->status != 200) return buf_str(&a->error, data);
    return sse_reader_feed(&a->events, data, on_event, a);
}

static void show_stats(const struct answer *a)
{
    double ttft_ms = (double)(a->first_us - a->asked_us) * 1e-3;
    double tpot_ms = a->usage.generated_tokens > 1 ? (double)(a->last_us - a->first_us) * 1e-3 /
                                                         (a->usage.generated_tokens - 1)
                                                   : 0;
    fprintf(stderr, "[%s%s%u prompt tokens, %u cached, %u generated, TTFT %.0f ms, TPOT %.1f ms]\n",
            a->instance, a->instance[0] ? ": " : "", a->usage.prompt_tokens, a->usage.cached_tokens,
            a->usage.generated_tokens, a->first_us ? ttft_ms : 0, tpot_ms);
}

/* Reports the message of {"error": {"message": ...}}, or the body as it is. */
static int refused(const struct answer *a, struct err *err)
{
    CLEANUP(buf_fini) struct buf message = { 0 };
    struct openai_delta delta;
    if (openai_delta_parse(buf_view(&a->error), &message, &delta, NULL) < 0 || !delta.has_error) {
        buf_clear(&message);
        buf_str(&message, buf_view(&a->error));
    }
    CLEANUP(buf_fini) struct buf shown = { 0 };
    plain_whole(buf_view(&message), &shown);
    return err_set(err, -EPROTO, "answered %d: " STR_FMT, a->status, STR_ARG(shown));
}

static int send_turns(const struct chat_settings *s, struct str turns, struct answer *a,
                      struct err *err)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct json_writer w;
    json_writer_init(&w, &body);
    json_object(&w);
    json_kv_str(&w, "model", s->model);
    json_key(&w, "messages");
    json_array(&w);
    json_put_raw(&w, turns);
    json_array_end(&w);
    if (s->style.max_tokens > 0) json_kv_u64(&w, "max_tokens", s->style.max_tokens);
    json_kv_f64(&w, "temperature", s->style.temperature);
    target_put_stream(&w);
    json_object_end(&w);
    struct http_fetch_request req = { .host = s->target.host,
                                      .port = s->target.port,
                                      .tls = s->target.tls,
                                      .files = { .ca = s->target.ca },
                                      .path = STR("/v1/chat/completions"),
                                      .bearer = s->api_key,
                                      .body = buf_view(&body),
                                      .json = true };
    int status;
    a->asked_us = clock_mono_us();
    int rc = http_fetch_stream(&req, &status, on_head, on_data, a, err);
    if (rc == 0 && a->status != 200) rc = refused(a, err);
    if (rc < 0 && a->status == 200 && a->error.len > 0) {
        CLEANUP(buf_fini) struct buf shown = { 0 };
        plain_whole(buf_view(&a->error), &shown);
        err_set(err, rc, "the answer broke off: " STR_FMT, STR_ARG(shown));
    }
    return rc;
}

/* Sends the turns so far and adds the reply to them. */
static int turn(const struct chat_settings *s, struct buf *turns, struct err *err)
{
    struct answer a = { 0 };
    sse_reader_init(&a.events, EVENT_BYTES_MAX);
    int rc = send_turns(s, buf_view(turns), &a, err);
    if (a.text.len > 0) show_end(&a);
    if (rc == 0 && s->stats) show_stats(&a);
    if (rc == 0) add_message(turns, "assistant", buf_view(&a.text));
    if (rc == 0) rc = turns->rc;
    sse_reader_fini(&a.events);
    buf_fini(&a.text);
    buf_fini(&a.error);
    buf_fini(&a.shown);
    return rc;
}

static void begin(const struct chat_settings *s, struct buf *turns)
{
    buf_clear(turns);
    if (s->style.system.len > 0) add_message(turns, "system", s->style.system);
}

int chat_ask(const struct chat_settings *s, struct str question, struct err *err)
{
    CLEANUP(buf_fini) struct buf turns = { .max = CHAT_TURNS_BYTES_MAX };
    begin(s, &turns);
    add_message(&turns, "user", question);
    return turn(s, &turns, err);
}

int chat_words(const struct chat_settings *s, const struct config_texts *words, struct err *err)
{
    CLEANUP(buf_fini) struct buf question = { 0 };
    for (size_t i = 0; i < words->count; i++) {
        if (i > 0) buf_byte(&question, ' ');
        buf_str(&question, words->items[i]);
    }
    return question.len > 0 ? chat_ask(s, buf_view(&question), err) : chat_loop(s, err);
}

int chat_loop(const struct chat_settings *s, struct err *err)
{
    CLEANUP(buf_fini) struct buf turns = { .max = CHAT_TURNS_BYTES_MAX };
    bool terminal = isatty(STDIN_FILENO);
    char *line = NULL;
    size_t size = 0;
    ssize_t len;
    int rc = 0;
    begin(s, &turns);
    if (terminal) fprintf(stderr, "Ask something; /help for help, Ctrl-D to leave.\n");
    for (;;) {
        if (terminal) fputs("> ", stderr);
        len = getline(&line, &size, stdin);
        if (len < 0) break;
        struct str question = str_trim(str_of(line, (size_t)len - (line[len - 1] == '\n')));
        if (question.len == 0) continue;
        if (str_eq(question, STR("/exit"))) break;
        if (str_eq(question, STR("/reset"))) {
            begin(s, &turns);
            continue;
        }
        if (str_eq(question, STR("/help"))) {
            fprintf(stderr, "/reset  forget the conversation\n/exit   leave (or Ctrl-D)\n");
            continue;
        }
        size_t before = turns.len;
        add_message(&turns, "user", question);
        rc = turn(s, &turns, err);
        if (rc == 0) continue;
        if (!terminal) break;
        /* The user may try again; the question that failed is dropped from the conversation. */
        fprintf(stderr, "muster chat: %s\n", err_text(err, rc));
        turns.len = before;
        turns.rc = 0;
        rc = 0;
    }
    if (terminal) fputc('\n', stderr);
    free(line);
    return rc;
}

struct chat_options {
    struct target_place place;
    struct chat_style style;
    struct config_texts words;
    bool quiet;
};

#define AT(member) .offset = offsetof(struct chat_options, member)

// clang-format off
static const struct config_field rows[] = {
    TARGET_ROWS(struct chat_options, place),
    CHAT_STYLE_ROWS(struct chat_options, style),
    { .name = "quiet", .letter = 'q', .type = CONFIG_BOOL, .default_text = "false", AT(quiet),
      .about = "Do not print which instance answered and how fast." },
};
static const struct opt_positional positionals[] = {
    { .name = "QUESTION", .about = "Ask this and end; without it, a conversation.", .many = true,
      AT(words) },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct chat_options, rows);
static const struct opt_command usage = {
    .name = "muster chat",
    .about = "Talk to a model.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
};

static int chat(const void *options, struct err *err)
{
    const struct chat_options *o = options;
    CLEANUP(buf_fini) struct buf model = { 0 };
    struct chat_settings s = { .api_key = o->place.api_key, .style = o->style, .stats = !o->quiet };
    int rc = target_find(&o->place, &s.target, &model, err);
    if (rc < 0) return rc;
    s.model = buf_view(&model);
    return chat_words(&s, &o->words, err);
}

static int run(int argc, char *const *argv)
{
    struct chat_options options;
    return command_run(&usage, argc, argv, &options, chat);
}

const struct command command_chat = {
    .name = "chat",
    .group = "Use",
    .about = "talk to a model",
    .run = run,
};
