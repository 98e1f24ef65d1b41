/* cmd_load.c - `muster load`: replay a trace against an OpenAI server and report the measurements.
 *
 * --record writes a trace that can be replayed: Mooncake's JSONL without blocks, one object a line,
 * arrivals in milliseconds with a fraction, and the measurements: {"timestamp", "input_length",
 * "output_length", "cached", "ttft_s", "e2e_s", "instance"}. Requests that failed have "outcome"
 * and no measurements.
 */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/file.h"
#include "cli/command.h"
#include "cli/input_file.h"
#include "cli/load/load_run.h"
#include "cli/load/replay.h"
#include "cli/target.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void put(struct json_writer *w, const struct load_sample *s)
{
    json_object(w);
    json_kv_f64(w, "timestamp", (double)s->due_us * 1e-3);
    json_kv_u64(w, "input_length", s->prompt_tokens);
    json_kv_u64(w, "output_length", s->output_tokens);
    if (s->outcome == LOAD_OK) {
        json_kv_u64(w, "cached", s->cached_tokens);
        json_kv_f64(w, "ttft_s", (double)s->ttft_us * 1e-6);
        json_kv_f64(w, "e2e_s", (double)s->e2e_us * 1e-6);
        json_kv_text(w, "instance", s->instance);
    } else {
        json_kv_text(w, "outcome", load_outcome_name(s->outcome));
    }
    json_object_end(w);
}

static int load_record(const struct load_sample *sample, uint32_t count, struct buf *out)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        if (sample[i].outcome == LOAD_PENDING) continue;
        struct json_writer w;
        json_writer_init(&w, out);
        put(&w, &sample[i]);
        rc = buf_byte(out, '\n');
    }
    return rc;
}

struct load_options {
    struct target_place place;
    struct str trace, record;
    int64_t requests, first, duration_us, divide, tokens_max, max_tokens, seed, timeout_us;
    int64_t slo_ttft_us, slo_tpot_us;
    double speed, temperature, tokens_per_word;
    int output;
};

static const char *const output_names[] = { "table", "json", NULL };
enum { OUTPUT_TABLE, OUTPUT_JSON };

#define AT(member) .offset = offsetof(struct load_options, member)

// clang-format off
static const struct config_field rows[] = {
    { .name = "trace", .letter = 't', .type = CONFIG_TEXT, .required = true, AT(trace),
      .about = "Trace to replay: Mooncake JSONL or Azure CSV." },
    TARGET_ROWS(struct load_options, place),
    { .name = "speed", .letter = 's', .type = CONFIG_FLOAT, .default_text = "1", .min = 0.001,
      .max = 10000, AT(speed), .about = "Arrivals come this many times as fast." },
    { .name = "requests", .letter = 'n', .type = CONFIG_INT, .default_text = "0", .min = 0,
      .max = LOAD_REQUESTS_MAX, .unit = "requests", AT(requests),
      .about = "Requests to send; 0 for all." },
    { .name = "first", .type = CONFIG_INT, .default_text = "0", .min = 0,
      .max = TRACE_REQUESTS_MAX, AT(first), .about = "Request of the trace to begin with." },
    { .name = "duration", .letter = 'd', .type = CONFIG_DURATION, .default_text = "0", .min = 0,
      .max = 1e12, AT(duration_us),
      .about = "Replay as long, on the replay's clock; 0 for the whole trace." },
    { .name = "divide", .type = CONFIG_INT, .default_text = "1", .min = 1, .max = 512, AT(divide),
      .about = "Divide the trace's prompt lengths by this." },
    { .name = "prompt_tokens_max", .type = CONFIG_INT, .default_text = "1792", .min = 1,
      .max = 1e7, .unit = "tokens", AT(tokens_max), .about = "Cut longer prompts to this." },
    { .name = "max_tokens", .type = CONFIG_INT, .default_text = "256", .min = 1, .max = 1e6,
      .unit = "tokens", AT(max_tokens),
      .about = "Limit of every output; outputs may end by themselves before." },
    { .name = "temperature", .type = CONFIG_FLOAT, .default_text = "0.7", .min = 0, .max = 2,
      AT(temperature), .about = "Sampling temperature." },
    { .name = "tokens_per_word", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 10,
      AT(tokens_per_word),
      .about = "Tokens of a word of prompt text; 0 asks the server's /tokenize." },
    { .name = "seed", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = 1e15, AT(seed),
      .about = "Seed of the prompts; another one shares no text with this." },
    { .name = "timeout", .type = CONFIG_DURATION, .default_text = "120s", .min = 1000,
      .max = 1e12, AT(timeout_us), .about = "Time for one request." },
    { .name = "slo_ttft", .type = CONFIG_DURATION, .default_text = "2s", .min = 1, .max = 1e12,
      AT(slo_ttft_us), .about = "TTFT within which a request is good." },
    { .name = "slo_tpot", .type = CONFIG_DURATION, .default_text = "200ms", .min = 1, .max = 1e12,
      AT(slo_tpot_us), .about = "TPOT within which a request is good." },
    { .name = "record", .type = CONFIG_TEXT, AT(record),
      .about = "File for a line of JSON a request: arrival, lengths, TTFT, end-to-end time. It is a "
               "trace that `muster simulate` reads." },
    { .name = "output", .letter = 'o', .type = CONFIG_ENUM, .default_text = "table",
      .names = output_names, AT(output), .about = "Form of the report." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct load_options, rows);
static const struct opt_command usage = {
    .name = "muster load",
    .about = "Replay a trace in an open loop and report TTFT, TPOT, ITL, end-to-end time and "
             "goodput.",
    .options = &record,
    .notes = "The trace gives arrivals, prompt lengths and shared prefixes; texts are made, and "
             "every prompt\nends with a question whose answer has its own length. Ctrl-C ends "
             "early and still reports.\n",
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signo)
{
    (void)signo;
    interrupted = 1;
}

static int64_t due_us(void *arg, uint32_t index)
{
    return replay_due_us(arg, index);
}

static int message(void *arg, uint32_t index, struct buf *out)
{
    return replay_message(arg, index, out);
}

/* Shows progress: one line on a terminal, rewritten; a line every ten seconds elsewhere. */
static void show_progress(const struct load_run *run, uint32_t count, int64_t *next_us,
                          int64_t now_us)
{
    if (now_us < *next_us) return;
    bool terminal = isatty(STDERR_FILENO);
    *next_us = now_us + (terminal ? 250000 : 10000000);
    fprintf(stderr, "%s%6.1f s  %u of %u sent, %u answered%s", terminal ? "\r" : "",
            (double)(now_us - load_run_started_us(run)) * 1e-6, load_run_sent(run), count,
            load_run_ended(run), terminal ? "" : "\n");
}

static int drive(struct loop *loop, struct load_run *run, uint32_t count, struct err *err)
{
    int rc = load_run_start(run, err);
    int64_t next_us = loop_now_us(loop) + 250000;
    while (rc == 0 && !interrupted && !load_run_done(run)) {
        rc = loop_turn(loop, 250000);
        if (rc == -EINTR) rc = 0;
        show_progress(run, count, &next_us, loop_now_us(loop));
    }
    if (isatty(STDERR_FILENO)) fputc('\n', stderr);
    return rc;
}

static bool was_sent(void *arg, uint32_t index)
{
    return index < *(const uint32_t *)arg;
}

static int print_report(const struct load_run *run, const struct load_options *o, struct err *err)
{
    uint32_t count, sent = load_run_sent(run);
    size_t itl_count;
    const struct load_sample *samples = load_run_samples(run, &count);
    const float *itl_s = load_run_itl_s(run, &itl_count);
    struct load_slo slo = { (double)o->slo_ttft_us * 1e-6, (double)o->slo_tpot_us * 1e-6 };
    struct load_report report;
    int rc = load_report_make(samples, count, was_sent, &sent, itl_s, itl_count, slo, &report);
    CLEANUP(buf_fini) struct buf out = { 0 };
    if (rc == 0 && o->output == OUTPUT_JSON) {
        struct json_writer w;
        json_writer_init(&w, &out);
        load_report_json(&report, &w);
        rc = buf_byte(&out, '\n');
    } else if (rc == 0) {
        rc = load_report_table(&report, &out);
    }
    if (rc == 0) rc = command_print(&out, err);
    if (rc < 0) return rc;
    return report.failed > 0 ? EXIT_FAILED : 0;
}

static int write_record(const struct load_run *run, const struct load_options *o, struct err *err)
{
    if (o->record.len == 0) return 0;
    uint32_t count;
    const struct load_sample *samples = load_run_samples(run, &count);
    CLEANUP(buf_fini) struct buf out = { 0 };
    int rc = load_record(samples, count, &out);
    if (rc < 0) return err_set(err, rc, "--record: no memory for %u requests", count);
    return file_write_atomic(o->record.data, buf_view(&out), 0644, err);
}

static int slice(const struct load_options *o, const struct trace *trace, struct replay *ret,
                 struct err *err)
{
    if (o->first >= trace->count) {
        return err_set(err, -EINVAL, "--first %lld: the trace has %u requests", (long long)o->first,
                       trace->count);
    }
    uint32_t first = (uint32_t)o->first, count = trace->count - first;
    if (o->duration_us > 0) {
        double span_us = (double)o->duration_us * o->speed;
        count = replay_count_within(trace, first, span_us < 9e18 ? (int64_t)span_us : INT64_MAX);
    }
    if (o->requests > 0) count = min_u32(count, (uint32_t)o->requests);
    *ret = (struct replay){
        .trace = trace,
        .first = first,
        .count = count,
        .speed = o->speed,
        .divide = (uint32_t)o->divide,
        .tokens_max = (uint32_t)o->tokens_max,
        .seed = (uint64_t)o->seed,
        .tokens_per_word = o->tokens_per_word,
    };
    return 0;
}

/* Runs the load. Returns 0, EXIT_FAILED when requests failed, or a negative errno. */
static int load(const void *options, struct err *err)
{
    const struct load_options *o = options;
    CLEANUP(trace_freep) struct trace *trace = NULL;
    CLEANUP(loop_freep) struct loop *loop = NULL;
    CLEANUP(load_run_freep) struct load_run *run = NULL;
    CLEANUP(buf_fini) struct buf model = { 0 };
    struct target target;
    struct replay replay;
    int rc = trace_file_load(o->trace.data, TRACE_AUTO, &trace, err);
    if (rc == 0) rc = slice(o, trace, &replay, err);
    if (rc == 0) rc = loop_new(&loop, err);
    if (rc == 0) rc = target_find(&o->place, &target, &model, err);
    if (rc == 0 && o->tokens_per_word == 0) {
        rc = replay_calibrate(&target, o->place.api_key, buf_view(&model), &replay.tokens_per_word,
                              err);
    }
    if (rc < 0) return rc;
    struct load_config config = { .host = target.host,
                                  .port = target.port,
                                  .tls = target.tls,
                                  .ca = target.ca,
                                  .model = buf_view(&model),
                                  .api_key = o->place.api_key,
                                  .max_tokens = (uint32_t)o->max_tokens,
                                  .temperature = o->temperature,
                                  .timeout_us = o->timeout_us,
                                  .count = replay.count,
                                  .due_us = due_us,
                                  .message = message,
                                  .arg = &replay };
    struct sigaction action = { .sa_handler = on_interrupt };
    sigaction(SIGINT, &action, NULL);
    rc = load_run_new(loop, &config, &run, err);
    if (rc == 0) rc = drive(loop, run, replay.count, err);
    if (rc < 0) return rc;
    if (replay.cut > 0) {
        fprintf(stderr, "%u prompts were cut to %u tokens\n", replay.cut, replay.tokens_max);
    }
    rc = write_record(run, o, err);
    return rc < 0 ? rc : print_report(run, o, err);
}

static int run_command(int argc, char *const *argv)
{
    struct load_options options;
    return command_run(&usage, argc, argv, &options, load);
}

const struct command command_load = {
    .name = "load",
    .group = "Measure",
    .about = "replay a trace and report latencies and goodput",
    .run = run_command,
};
