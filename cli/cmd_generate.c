/* cmd_generate.c - `muster generate`: lets a private engine answer a file of requests, or one prompt, without a server.
 *
 * The file and what is written have the form of OpenAI's Batch API: a line in is
 *     {"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{...}}
 * and a line out
 *     {"id":"batch_req_1","custom_id":"a","response":{"status_code":200,"request_id":"...","body":{...}},"error":null}
 * in the order in which requests end. The member `model` of a body may be left out; the engine's is meant then. A line
 * that cannot be sent has "response":null and an error that says why. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/http/http_client.h"
#include "base/io/http/http_fetch.h"
#include "cli/command.h"
#include "cli/model/cmd_model.h"
#include "cli/private_engine.h"
#include "cli/target.h"

#include <stdio.h>
#include <stdlib.h>

#define INPUT_BYTES_MAX ((size_t)1 << 30)
#define REPLY_BYTES_MAX ((size_t)64 << 20)
#define ID_BYTES_MAX 512
#define CONCURRENCY_MAX 256
#define REQUEST_ID_BYTES 128

struct generate_options {
    struct str model, input, output, prompt;
    struct config_texts engine_flags;
    int64_t timeout_us, concurrency, max_tokens;
    double temperature;
    bool force;
};

#define AT(member) .offset = offsetof(struct generate_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "input", .type = CONFIG_TEXT, AT(input),
      .about = "File of requests, one JSON object a line as in OpenAI's Batch API; - for standard input." },
    { .name = "output", .type = CONFIG_TEXT, .default_text = "-", AT(output),
      .about = "File for the results, one a line; - for standard output." },
    { .name = "force", .type = CONFIG_BOOL, .default_text = "false", AT(force),
      .about = "Replace --output if it exists." },
    { .name = "concurrency", .type = CONFIG_INT, .default_text = "16", .min = 1, .max = CONCURRENCY_MAX,
      AT(concurrency), .about = "Requests of --input that the engine has at once." },
    { .name = "prompt", .letter = 'p', .type = CONFIG_TEXT, AT(prompt),
      .about = "Continue this text and print what comes; instead of --input." },
    { .name = "max_tokens", .type = CONFIG_INT, .default_text = "128", .min = 1, .max = 1e6,
      .unit = "tokens", AT(max_tokens), .about = "Limit of what --prompt gets." },
    { .name = "temperature", .letter = 't', .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 2,
      AT(temperature), .about = "Sampling temperature of --prompt; 0 for the likeliest." },
    PRIVATE_ENGINE_ROWS(struct generate_options, engine_flags, timeout_us),
};
static const struct opt_positional positionals[] = {
    { .name = "MODEL", .required = true, AT(model),
      .about = "GGUF file, or folder in Hugging Face's format." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct generate_options, rows);
static const struct opt_command usage = {
    .name = "muster generate",
    .about = "Let a model answer a file of requests, or continue one text, without a server.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes = "Exits with 1 if a request failed; its line says why.",
};

/* ---- a file of requests ---- */

struct flight {
    struct batch *batch;
    bool used;
    uint64_t line;
    struct buf id, reply; /* custom_id as JSON; body so far */
    int status;
    bool too_long;
    char request_id[REQUEST_ID_BYTES];
};

struct batch {
    struct loop *loop;
    struct http_client *client;
    uint16_t port;
    struct str model; /* the engine's, for bodies that name none */
    struct str rest;  /* of the input */
    FILE *out;
    struct flight flight[CONCURRENCY_MAX];
    uint32_t concurrency, running;
    uint64_t lines, total, ended, failed;
    int rc; /* of writing */
    struct model_progress bar;
};

static void write_line(struct batch *b, uint64_t line, struct str id, const char *problem,
                       const struct flight *f)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    struct json_reader r;
    struct str body;
    char name[40];
    snprintf(name, sizeof name, "batch_req_%llu", (unsigned long long)line);
    json_writer_init(&w, &out);
    json_object(&w);
    json_kv_text(&w, "id", name);
    json_key(&w, "custom_id");
    json_put_raw(&w, id.len > 0 ? id : STR("null"));
    json_key(&w, "response");
    if (problem) {
        json_put_null(&w);
        json_key(&w, "error");
        json_object(&w);
        json_kv_text(&w, "code", f ? "request_failed" : "invalid_request");
        json_kv_text(&w, "message", problem);
        json_object_end(&w);
    } else {
        json_object(&w);
        json_kv_i64(&w, "status_code", f->status);
        json_kv_text(&w, "request_id", f->request_id);
        json_key(&w, "body");
        json_reader_init(&r, buf_view(&f->reply));
        if (json_raw_value(&r, &body) == 0)
            json_put_raw(&w, body);
        else
            json_put_str(&w, buf_view(&f->reply));
        json_object_end(&w);
        json_key(&w, "error");
        json_put_null(&w);
    }
    json_object_end(&w);
    buf_byte(&out, '\n');
    if (fwrite(out.data, 1, out.len, b->out) != out.len || fflush(b->out) != 0) b->rc = -errno;
    b->ended++;
    b->failed += problem || f->status != 200;
    if (b->out != stdout) model_progress_show(&b->bar, b->ended, b->total);
}

static void on_head(void *arg, const struct http_response *head)
{
    struct flight *f = arg;
    struct str id = http_response_header(head, "x-request-id");
    f->status = head->status;
    snprintf(f->request_id, sizeof f->request_id, STR_FMT, STR_ARG(id));
}

static void on_data(void *arg, struct str data)
{
    struct flight *f = arg;
    if (f->reply.len + data.len > REPLY_BYTES_MAX)
        f->too_long = true;
    else
        buf_str(&f->reply, data);
}

static void send_more(struct batch *b);

static void on_end(void *arg, enum http_end end)
{
    struct flight *f = arg;
    struct batch *b = f->batch;
    const char *problem = end != HTTP_END_OK ? http_end_text(end)
                          : f->too_long      ? "the reply is above 64 MiB"
                          : f->reply.rc < 0  ? "no memory for the reply"
                                             : NULL;
    write_line(b, f->line, buf_view(&f->id), problem, f);
    buf_fini(&f->id);
    buf_fini(&f->reply);
    *f = (struct flight){ .batch = b };
    b->running--;
    send_more(b);
}

/* Appends the request's body, with the engine's model if it names none. Returns a sentence if it cannot be sent. */
static const char *read_body(const struct batch *b, struct str line, struct buf *out)
{
    struct str body, model;
    bool stream = false;
    if (json_path(line, "body", &body) < 0 || body.len < 2 || body.data[0] != '{')
        return "body is missing: want an object, the body of the request";
    if (json_path_bool(body, "stream", &stream) != -ENOENT && stream)
        return "body.stream: a result is one object; leave it out or say false";
    if (json_path(body, "model", &model) == 0) {
        buf_str(out, body);
        return NULL;
    }
    struct str members = str_trim(str_of(body.data + 1, body.len - 2));
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_str(&w, "model", b->model);
    if (members.len > 0) buf_printf(out, "," STR_FMT, STR_ARG(members));
    buf_byte(out, '}');
    return NULL;
}

/* Starts the request of a line in a free place. Returns a sentence if it cannot be sent; `id` is set if there is
 * one. */
static const char *send_line(struct batch *b, struct str line, struct flight *f, struct buf *id)
{
    CLEANUP(buf_fini) struct buf url = { 0 }, method = { 0 }, body = { 0 };
    struct str raw;
    struct json_reader r;
    json_reader_init(&r, line);
    if (json_next(&r) != JSON_OBJECT || json_skip_rest(&r) != JSON_OBJECT_END ||
        json_next(&r) != JSON_END)
        return "the line is no JSON object";
    if (json_path(line, "custom_id", &raw) < 0 || raw.data[0] != '"' || raw.len > ID_BYTES_MAX)
        return "custom_id is missing: want a text of at most 510 bytes that tells the results "
               "apart";
    buf_str(id, raw);
    if (json_path_text(line, "url", &url) < 0 || !str_starts(buf_view(&url), STR("/v1/")))
        return "url is missing: want a path as /v1/chat/completions";
    if (json_path_text(line, "method", &method) != -ENOENT &&
        !str_eq(buf_view(&method), STR("POST")))
        return "method: want POST";
    const char *problem = read_body(b, line, &body);
    if (problem) return problem;
    struct http_call_request req = {
        .host = STR("127.0.0.1"),
        .port = b->port,
        .path = buf_view(&url),
        .body = buf_view(&body),
        .json = true,
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
        .arg = f,
    };
    struct err err;
    return http_call_start(b->client, &req, &err) ? NULL : "url: not a path, or no memory";
}

static struct flight *free_place(struct batch *b)
{
    for (uint32_t i = 0; i < b->concurrency; i++)
        if (!b->flight[i].used) return &b->flight[i];
    return NULL;
}

static void send_more(struct batch *b)
{
    struct flight *f;
    while (b->rc == 0 && b->rest.len > 0 && (f = free_place(b))) {
        CLEANUP(buf_fini) struct buf id = { 0 };
        struct str line = str_trim(str_cut(&b->rest, '\n'));
        b->lines++;
        if (line.len == 0) continue;
        const char *problem = send_line(b, line, f, &id);
        if (problem) {
            write_line(b, b->lines, buf_view(&id), problem, NULL);
            continue;
        }
        f->used = true;
        f->line = b->lines;
        f->id = id;
        id = (struct buf){ 0 };
        b->running++;
    }
    if (b->running == 0) loop_stop(b->loop);
}

static uint64_t count_requests(struct str text)
{
    uint64_t count = 0;
    while (text.len > 0)
        count += str_trim(str_cut(&text, '\n')).len > 0;
    return count;
}

static void batch_fini(struct batch *b)
{
    http_client_free(b->client);
    for (uint32_t i = 0; i < CONCURRENCY_MAX; i++) {
        buf_fini(&b->flight[i].id);
        buf_fini(&b->flight[i].reply);
    }
    loop_free(b->loop);
}

static int run_batch(const struct generate_options *o, const struct private_engine *e,
                     struct str model, struct str text, FILE *out, struct err *err)
{
    CLEANUP(batch_fini)
    struct batch b = { .port = e->port,
                       .model = model,
                       .rest = text,
                       .out = out,
                       .concurrency = (uint32_t)o->concurrency,
                       .total = count_requests(text),
                       .bar = { .unit = "requests" } };
    for (uint32_t i = 0; i < CONCURRENCY_MAX; i++)
        b.flight[i].batch = &b;
    int rc = loop_new(&b.loop, err);
    if (rc == 0) rc = http_client_new(b.loop, NULL, &b.client, err);
    if (rc < 0) return rc;
    send_more(&b);
    if (b.running > 0) rc = loop_run(b.loop);
    model_progress_end(&b.bar);
    if (rc < 0) return err_set(err, rc, "waiting for results: %s", strerror(-rc));
    if (b.rc < 0) return err_set(err, b.rc, "%s: %s", o->output.data, strerror(-b.rc));
    if (b.failed > 0)
        return err_set(err, -EREMOTEIO, "%llu of %llu requests failed; their lines say why",
                       (unsigned long long)b.failed, (unsigned long long)b.total);
    return 0;
}

/* Opens the output and runs the batch. The input is read before anything is started. */
static int answer_file(const struct generate_options *o, const struct private_engine *e,
                       struct str model, struct str text, struct err *err)
{
    bool to_stdout = str_eq(o->output, STR("-"));
    FILE *out = to_stdout ? stdout : fopen(o->output.data, "we");
    if (!out) return err_set(err, -errno, "%s: %s", o->output.data, strerror(errno));
    int rc = run_batch(o, e, model, text, out, err);
    if (!to_stdout && fclose(out) != 0 && rc == 0)
        rc = err_set(err, -EIO, "%s: cannot write all of it", o->output.data);
    return rc;
}

/* ---- one prompt ---- */

static int print_choice(void *ctx, struct str choice)
{
    (void)ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = json_path_text(choice, "text", &text);
    buf_byte(&text, '\n');
    if (rc == 0 && fwrite(text.data, 1, text.len, stdout) != text.len) rc = -EIO;
    return rc;
}

static int answer_prompt(const struct generate_options *o, const struct private_engine *e,
                         struct str model, struct err *err)
{
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 }, why = { 0 };
    struct json_writer w;
    int status = 0;
    json_writer_init(&w, &body);
    json_object(&w);
    json_kv_str(&w, "model", model);
    json_kv_str(&w, "prompt", o->prompt);
    json_kv_i64(&w, "max_tokens", o->max_tokens);
    json_kv_f64(&w, "temperature", o->temperature);
    json_object_end(&w);
    struct http_fetch_request req = { .host = STR("127.0.0.1"),
                                      .port = e->port,
                                      .path = STR("/v1/completions"),
                                      .body = buf_view(&body),
                                      .json = true };
    int rc = http_fetch(&req, &status, &reply, err);
    if (rc < 0) return rc;
    if (status != 200) {
        if (json_path_text(buf_view(&reply), "error.message", &why) < 0) buf_str(&why, STR("?"));
        return err_set(err, -EREMOTEIO, "%d: " STR_FMT, status, STR_ARG(buf_view(&why)));
    }
    rc = json_path_each(buf_view(&reply), "choices", print_choice, NULL);
    return rc < 0 ? err_set(err, rc, "the reply cannot be printed: %s", strerror(-rc)) : 0;
}

static int generate(const void *options, struct err *err)
{
    const struct generate_options *o = options;
    CLEANUP(buf_fini) struct buf text = { 0 }, model = { 0 };
    bool batch = o->input.len > 0;
    if (batch == (o->prompt.len > 0))
        return err_set(err, COMMAND_MISUSED, "want either --input or --prompt");
    int rc = 0;
    if (batch) {
        bool to_stdout = str_eq(o->output, STR("-")), from_stdin = str_eq(o->input, STR("-"));
        if (!to_stdout) rc = model_output_free(o->output.data, o->force, err);
        if (rc == 0)
            rc = file_read(from_stdin ? "/dev/stdin" : o->input.data, INPUT_BYTES_MAX, &text, err);
        if (rc < 0) return rc;
    }
    struct private_engine e;
    rc = private_engine_start(o->model, &o->engine_flags, o->timeout_us, &e, err);
    if (rc < 0) return rc;
    struct target target = { .host = STR("127.0.0.1"), .port = e.port };
    rc = target_model(&target, (struct str){ 0 }, &model, err);
    if (rc == 0)
        rc = batch ? answer_file(o, &e, buf_view(&model), buf_view(&text), err)
                   : answer_prompt(o, &e, buf_view(&model), err);
    private_engine_stop(&e);
    return rc;
}

static int run(int argc, char *const *argv)
{
    struct generate_options options;
    return command_run(&usage, argc, argv, &options, generate);
}

const struct command command_generate = {
    .name = "generate",
    .group = "Use",
    .about = "let a model file answer a file of requests",
    .run = run,
};
