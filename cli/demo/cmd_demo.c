/* cmd_demo.c - `muster demo`, which ./demo builds and runs: measure, grow, shrink, compare.
 *
 *     measure      the engine on this machine, a second: shares, lengths and speeds follow (sizing.c)
 *     1 instance ── load ──► as many as the load needs ── silence ──► 1 instance
 *     3 instances by hand: A B C | C B A ...   same prompts, cold caches before every run
 *
 * The comparison reverses the order of its arms each round, so that a machine that slows down meanwhile
 * slows all of them alike. The engine is measured again before it, because the machine is shared; a round
 * that would not end within TOTAL_US is left out, and the output says so.
 */
#include "base/core/own.h"
#include "base/io/config/opt.h"
#include "base/io/loop/clock.h"
#include "cli/command.h"
#include "cli/demo/demo.h"
#include "cli/input_file.h"
#include "cli/load/replay.h"
#include "cli/schema.h"
#include "policies/route/route.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define POLL_US 500000
#define READY_US 60000000      /* for instances to start */
#define TOTAL_US 225000000     /* the comparison ends by then, and the fleet within 15 s */
#define SHRUNK_BY_US 150000000 /* since the start: the rest is for the comparison */
#define SHOW_US 5000000
#define REQUEST_US 60000000
#define TEMPERATURE 0.7
#define GROWTH_LOAD 0.34 /* of the largest fleet: more than two instances carry, less than all */
#define ARM_LOAD 0.75    /* of the comparison's fleet */
#define CONFIG_BYTES_MAX ((size_t)1 << 20)

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signo)
{
    (void)signo;
    interrupted = 1;
}

#define AT(member) .offset = offsetof(struct demo_options, member)

// clang-format off
static const struct config_field rows[] = {
    { .name = "stay", .type = CONFIG_BOOL, .default_text = "false", AT(stay),
      .about = "Leave the fleet running until Ctrl-C." },
    { .name = "speed", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 100, AT(speed),
      .about = "Arrivals of the trace come this many times as fast, and shares stay as they are; 0: "
               "the engine is measured first, and speed and shares follow." },
    { .name = "config", .letter = 'c', .type = CONFIG_TEXT, .default_text = "muster.yaml",
      AT(config), .about = "Configuration of the fleet." },
    { .name = "folder", .type = CONFIG_TEXT, .default_text = "build/demo/state", .max = 200,
      AT(folder), .about = "State and logs go to this folder, with the time of the start behind its name." },
    { .name = "summary", .type = CONFIG_TEXT, .default_text = "build/demo/summary.json",
      AT(summary), .about = "File for the figures." },
    { .name = "trace", .type = CONFIG_TEXT, .default_text = "traces/mooncake-conversation-4min.jsonl",
      AT(trace), .about = "Trace whose arrivals, lengths and shared prefixes are replayed." },
    { .name = "growth_speed", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 100,
      AT(growth_speed), .about = "Deprecated: --speed for the growing phase alone." },
    { .name = "arm_speed", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 100,
      AT(arm_speed), .about = "Deprecated: --speed for the comparison alone." },
    { .name = "growth", .type = CONFIG_DURATION, .default_text = "55s", .min = 1e6, .max = 36e8,
      AT(growth_us), .about = "Length of the load under which the fleet grows; its first 25 s are slower." },
    { .name = "arm", .type = CONFIG_DURATION, .default_text = "11s", .min = 1e6, .max = 36e8,
      AT(arm_us), .about = "Length of one run of the comparison." },
    { .name = "arm_from", .type = CONFIG_DURATION, .default_text = "126s", .min = 0, .max = 36e8,
      AT(arm_from_us),
      .about = "Where in the trace the comparison begins: conversations go on there." },
    { .name = "rounds", .type = CONFIG_INT, .default_text = "2", .min = 1, .max = 100, AT(rounds),
      .about = "Runs of each policy in the comparison." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct demo_options, rows);
static const struct opt_command usage = {
    .name = "muster demo",
    .about = "Bring up a fleet on this machine, grow it under load, shrink it, compare policies.",
    .options = &record,
};

const char *const demo_arm_policy[DEMO_ARMS] = { ROUTE_DEFAULT, "round_robin", "shortest_ttft" };
const char *const demo_phase_name[DEMO_PHASES] = { "before", "while", "after" };

enum demo_phase demo_phase_of(const struct demo *d, int64_t due_us)
{
    if (d->grow_us == 0 || due_us < d->grow_us) return DEMO_BEFORE;
    return due_us < d->grown_us ? DEMO_WHILE : DEMO_AFTER;
}

static double since_start_s(const struct demo *d)
{
    return (double)(clock_mono_us() - d->started_us) * 1e-6;
}

static void heading(const struct demo *d, const char *text)
{
    printf("\n%7.1f s  == %s\n", since_start_s(d), text);
    fflush(stdout);
}

/* Notes when the first decision for a larger fleet was seen, and when the fleet was at its largest. */
static void note_growth(struct demo *d, bool larger)
{
    if (d->load_us == 0) return;
    int64_t at_us = clock_mono_us() - d->load_us;
    if (larger && d->grow_us == 0) d->grow_us = at_us;
    if (d->status.ready > d->max_instances) d->grown_us = at_us;
}

/* Reads status and events, prints new ones, and notes the largest fleet. */
static int watch(struct demo *d, struct err *err)
{
    const char *dead;
    if (interrupted) return err_set(err, -EINTR, "interrupted");
    if (!demo_fleet_is_alive(&d->fleet, &dead)) {
        return err_set(err, -ECHILD, "the %s has ended; see %s/%s.log", dead, d->fleet.folder,
                       dead);
    }
    int rc = demo_fleet_status(&d->fleet, &d->status, err);
    if (rc == 0) rc = demo_fleet_events(&d->fleet, err);
    if (rc < 0) return rc;
    bool larger = false;
    for (; d->event_shown < d->fleet.event_count; d->event_shown++) {
        const struct fleet_event *e = &d->fleet.event[d->event_shown];
        printf("%7.1f s     %s %u -> %u: %s\n", (double)(e->at_us - d->started_wall_us) * 1e-6,
               e->pool, e->from, e->to, e->reason);
        larger |= e->to > e->from;
    }
    note_growth(d, larger);
    d->max_instances = max_u32(d->max_instances, d->status.ready);
    fflush(stdout);
    return 0;
}

/* Waits until exactly `ready` instances are ready and none is on its way or leaving. */
static int wait_instances(struct demo *d, uint32_t ready, int64_t within_us, struct err *err)
{
    int64_t until_us = clock_mono_us() + within_us;
    for (;;) {
        int rc = watch(d, err);
        if (rc < 0) return rc;
        if (d->status.ready == ready && d->status.instance_count == ready) return 0;
        if (clock_mono_us() > until_us) {
            return err_set(err, -ETIMEDOUT, "%u of %u instances are ready, %u are there; see %s",
                           d->status.ready, ready, d->status.instance_count, d->fleet.folder);
        }
        usleep(POLL_US / 2);
    }
}

static int64_t due_us(void *arg, uint32_t index)
{
    return replay_due_us(arg, index);
}

static int64_t ramp_due_us(void *arg, uint32_t index)
{
    return demo_ramp_us(replay_due_us(arg, index));
}

static int message(void *arg, uint32_t index, struct buf *out)
{
    return replay_message(arg, index, out);
}

static int keep(struct demo_samples *to, const struct load_run *run)
{
    uint32_t count;
    size_t gaps;
    const struct load_sample *samples = load_run_samples(run, &count);
    const float *itl_s = load_run_itl_s(run, &gaps);
    struct load_sample *more = realloc(to->sample, (to->count + count) * sizeof *more);
    float *more_itl = realloc(to->itl_s, (to->itl_count + gaps + 1) * sizeof *more_itl);
    if (more) to->sample = more;
    if (more_itl) to->itl_s = more_itl;
    if (!more || !more_itl) return -ENOMEM;
    memcpy(to->sample + to->count, samples, count * sizeof *samples);
    if (gaps > 0) memcpy(to->itl_s + to->itl_count, itl_s, gaps * sizeof *itl_s);
    to->count += count;
    to->itl_count += gaps;
    return 0;
}

static void show(const struct demo *d, const struct load_run *run, uint32_t count)
{
    printf("%7.1f s     %3u of %u sent, %3u answered; %u ready of %u\n", since_start_s(d),
           load_run_sent(run), count, load_run_ended(run), d->status.ready,
           d->status.instance_count);
    fflush(stdout);
}

static int drive(struct demo *d, struct load_run *run, uint32_t count, struct err *err)
{
    int rc = load_run_start(run, err);
    int64_t watch_us = 0, show_us = clock_mono_us() + SHOW_US;
    while (rc == 0 && !load_run_done(run)) {
        rc = loop_turn(d->loop, 100000);
        if (rc == -EINTR) rc = 0;
        int64_t now_us = clock_mono_us();
        if (rc == 0 && now_us >= watch_us) {
            rc = watch(d, err);
            watch_us = now_us + POLL_US;
        }
        if (now_us >= show_us) {
            show(d, run, count);
            show_us = now_us + SHOW_US;
        }
    }
    return rc;
}

/* Replays a slice that takes `span_us` at full speed, and adds its samples to `to`. */
static int replay(struct demo *d, uint32_t first, int64_t span_us, double speed, uint64_t seed,
                  struct demo_samples *to, struct err *err)
{
    bool grows = to == &d->growth;
    double trace_us = (double)(grows ? demo_ramp_passed_us(span_us) : span_us) * speed;
    struct replay replay = {
        .trace = d->trace,
        .first = first,
        .count = replay_count_within(d->trace, first, (int64_t)trace_us),
        .speed = speed,
        .divide = d->sizing.lengths.divide,
        .tokens_max = d->sizing.lengths.tokens_max,
        .seed = seed,
        .tokens_per_word = d->tokens_per_word,
    };
    struct load_config config = { .host = STR("127.0.0.1"),
                                  .port = d->fleet.router_port,
                                  .model = str_from(d->status.service),
                                  .max_tokens = DEMO_OUTPUT_MAX,
                                  .temperature = TEMPERATURE,
                                  .timeout_us = REQUEST_US,
                                  .count = replay.count,
                                  .due_us = grows ? ramp_due_us : due_us,
                                  .message = message,
                                  .arg = &replay };
    CLEANUP(load_run_freep) struct load_run *run = NULL;
    if (to->count + replay.count > DEMO_SAMPLES_MAX) {
        return err_set(err, -E2BIG, "more than %d requests; shorten the demo", DEMO_SAMPLES_MAX);
    }
    int64_t before_us = clock_mono_us();
    int rc = load_run_new(d->loop, &config, &run, err);
    if (rc == 0 && grows) d->load_us = before_us;
    if (rc == 0) rc = drive(d, run, replay.count, err);
    d->load_us = 0;
    if (rc == 0) rc = keep(to, run);
    to->seconds += (double)(clock_mono_us() - before_us) * 1e-6;
    return rc;
}

/* Chooses the configuration that the fleet runs on: the user's, or a copy with shares that fit. */
static int write_config(struct demo *d, const char *folder, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf scaled = { 0 };
    snprintf(d->config_path, sizeof d->config_path, "%s/muster.yaml", folder);
    int rc = file_make_folders(folder, 0700, err);
    if (rc == 0) rc = file_read(d->options->config.data, CONFIG_BYTES_MAX, &text, err);
    if (rc == 0) {
        rc = demo_config_scale(buf_view(&text), &d->machine, d->sizing.share, &scaled, err);
    }
    return rc < 0 ? rc : file_write_atomic(d->config_path, buf_view(&scaled), 0600, err);
}

/* Sets the load: from the measured machine, unless the user fixed it. */
static int size_load(struct demo *d, const char *folder, struct err *err)
{
    const struct demo_options *o = d->options;
    heading(d, "measuring the engine");
    int rc = demo_measure(demo_model_of(d->config), &d->machine, err);
    if (rc < 0) return rc;
    if (o->speed > 0) {
        d->sizing = (struct demo_sizing){ 1, { DEMO_DIVIDE_MIN, DEMO_PROMPT_MAX } };
        snprintf(d->config_path, sizeof d->config_path, "%s", o->config.data);
    } else {
        d->sizing = demo_size(&d->machine, &d->shape);
        rc = write_config(d, folder, err);
    }
    if (rc < 0) return rc;
    double cores = GROWTH_LOAD * d->shape.largest * d->sizing.share;
    d->growth_speed = o->growth_speed > 0 ? o->growth_speed
                      : o->speed > 0      ? o->speed
                                          : demo_speed(&d->machine, &d->sizing.lengths, d->trace, 0,
                                                       demo_ramp_passed_us(o->growth_us), cores);
    printf("            a core computes %.0f prompt tokens a second and decodes %.0f; "
           "%.1f cores are free\n"
           "            shares x %.2f, prompts of %u tokens at most, the trace at %.1f times its "
           "speed\n",
           1 / d->machine.prefill_token_s, 1 / (d->machine.step_s + d->machine.decode_seq_s),
           d->machine.cores, d->sizing.share, d->sizing.lengths.tokens_max, d->growth_speed);
    return 0;
}

static int start(struct demo *d, struct err *err)
{
    char folder[240];
    /* A folder for each run: overrides and leftovers of an earlier run must have no effect here. */
    snprintf(folder, sizeof folder, STR_FMT "-%lld", STR_ARG(d->options->folder),
             (long long)(d->started_wall_us / 1000000));
    int rc = size_load(d, folder, err);
    if (rc < 0) return rc;
    heading(d, "starting controller and router, waiting for the first instance");
    rc = demo_fleet_start(&d->fleet, d->config_path, folder, err);
    if (rc == 0) rc = wait_instances(d, 1, READY_US, err);
    /* The router learns of the instance, and fetches its tokenizer, within a second. */
    int64_t until_us = clock_mono_us() + READY_US;
    while (rc == 0) {
        const struct target router = { .host = STR("127.0.0.1"), .port = d->fleet.router_port };
        rc = replay_calibrate(&router, (struct str){ 0 }, (struct str){ 0 }, &d->tokens_per_word,
                              err);
        if (rc == 0 || clock_mono_us() > until_us || interrupted) break;
        usleep(POLL_US / 5);
        rc = 0;
    }
    if (rc < 0) return rc;
    d->start_instances = d->status.ready;
    for (uint32_t p = 0; p < d->status.pool_count; p++) {
        d->static_max_per_h += d->status.pool[p].max * d->status.pool[p].price_per_h;
    }
    printf("\n            console  http://127.0.0.1:%u/\n"
           "            API      http://127.0.0.1:%u/v1   (model %s)\n",
           d->fleet.controller_port, d->fleet.router_port, d->status.service);
    return 0;
}

static int grow_and_shrink(struct demo *d, struct err *err)
{
    int64_t before_us = clock_mono_us();
    double cost_before = d->status.cost_total;
    heading(d, "load: a slice of the Mooncake conversation trace, slow, then ever faster");
    int rc = replay(d, 0, d->options->growth_us, d->growth_speed, 1, &d->growth, err);
    if (rc < 0) return rc;
    heading(d, "silence: the fleet shrinks to its minimum");
    int64_t within_us = d->started_us + SHRUNK_BY_US - clock_mono_us();
    rc = wait_instances(d, d->start_instances, max_i64(within_us, 0), err);
    if (rc == -ETIMEDOUT) { /* reported at the end; the comparison overrides its fleet anyway */
        printf("            not yet: %s\n", err_text(err, rc));
        rc = 0;
    }
    d->end_instances = d->status.ready;
    d->grown_cost = d->status.cost_total - cost_before;
    d->grown_hours = (double)(clock_mono_us() - before_us) / 3600e6;
    return rc;
}

/* Overrides the pools' counts: three instances, spread over the pools in turn. */
static int fix_fleet(struct demo *d, struct err *err)
{
    uint32_t count[FLEET_POOLS_MAX] = { 0 }, total = 0, before;
    do {
        before = total;
        for (uint32_t p = 0; p < d->status.pool_count && total < DEMO_FIXED_INSTANCES; p++) {
            if (count[p] == d->status.pool[p].max) continue;
            count[p]++;
            total++;
        }
    } while (total < DEMO_FIXED_INSTANCES && total > before);
    if (total < DEMO_FIXED_INSTANCES) {
        return err_set(err, -EINVAL, "%s: its pools allow %u instances, the comparison needs %d",
                       d->options->config.data, total, DEMO_FIXED_INSTANCES);
    }
    for (uint32_t p = 0; p < d->status.pool_count; p++) {
        int rc = demo_fleet_scale(&d->fleet, d->status.service, d->status.pool[p].name,
                                  (int)count[p], err);
        if (rc < 0) return rc;
    }
    return wait_instances(d, DEMO_FIXED_INSTANCES, READY_US, err);
}

/* Sets the speed of the comparison from a new measurement of the machine. */
static int size_arms(struct demo *d, uint32_t first, struct err *err)
{
    const struct demo_options *o = d->options;
    d->arm_speed = o->arm_speed > 0 ? o->arm_speed : o->speed;
    if (d->arm_speed > 0) return 0;
    struct demo_machine now;
    int rc = demo_measure(demo_model_of(d->config), &now, err);
    if (rc < 0) return rc;
    double free_share = demo_size(&now, &d->shape).share;
    double cores = ARM_LOAD * d->shape.fixed * fmin(d->sizing.share, free_share);
    d->arm_speed = demo_speed(&now, &d->sizing.lengths, d->trace, first, o->arm_us, cores);
    printf("            %.1f cores are free; the trace at %.1f times its speed\n", now.cores,
           d->arm_speed);
    return 0;
}

static int run_arm(struct demo *d, uint32_t round, uint32_t arm, uint32_t first, struct err *err)
{
    printf("%7.1f s     round %u of %u: %s\n", since_start_s(d), round + 1,
           (uint32_t)d->options->rounds, demo_arm_policy[arm]);
    int rc = demo_fleet_route(&d->fleet, demo_arm_policy[arm], err);
    if (rc == 0) rc = demo_fleet_reset_caches(&d->fleet, &d->status, err);
    if (rc < 0) return rc;
    /* A seed a round: all arms read the same texts, which no cache has seen. */
    return replay(d, first, d->options->arm_us, d->arm_speed, 100 + round, &d->arm[arm], err);
}

static int compare(struct demo *d, struct err *err)
{
    heading(d, "three instances by hand, cold caches: " ROUTE_DEFAULT " against others");
    int rc = fix_fleet(d, err);
    uint32_t first = replay_count_within(d->trace, 0, d->options->arm_from_us);
    if (first == d->trace->count) return err_set(err, -EINVAL, "--arm-from is behind the trace");
    if (rc == 0) rc = size_arms(d, first, err);
    int64_t round_us = 0;
    for (uint32_t round = 0; rc == 0 && round < d->options->rounds; round++) {
        int64_t before_us = clock_mono_us();
        if (round > 0 && before_us + round_us > d->started_us + TOTAL_US &&
            d->options->speed == 0) {
            printf("%7.1f s     no time for another round: the machine is busy\n",
                   since_start_s(d));
            break;
        }
        for (uint32_t turn = 0; rc == 0 && turn < DEMO_ARMS; turn++)
            rc = run_arm(d, round, round % 2 ? DEMO_ARMS - 1 - turn : turn, first, err);
        round_us = clock_mono_us() - before_us;
        d->rounds_done = round + 1;
    }
    if (rc == 0) rc = demo_fleet_route(&d->fleet, demo_arm_policy[0], err);
    for (uint32_t p = 0; rc == 0 && p < d->status.pool_count; p++) {
        rc = demo_fleet_scale(&d->fleet, d->status.service, d->status.pool[p].name, -1, err);
    }
    return rc;
}

static void stay(const struct demo *d)
{
    printf("\nThe fleet stays up. Console http://127.0.0.1:%u/  API http://127.0.0.1:%u/v1\n"
           "Talk to it: build/muster chat --url http://127.0.0.1:%u\n"
           "Kill what you like. A controller is started again by\n"
           "    build/muster controller --config %s --listen 127.0.0.1:%u --state %s "
           "--secret-file %s/secret\n"
           "Ctrl-C ends the fleet.\n",
           d->fleet.controller_port, d->fleet.router_port, d->fleet.router_port, d->config_path,
           d->fleet.controller_port, d->fleet.folder, d->fleet.folder);
    fflush(stdout);
    while (!interrupted) {
        usleep(POLL_US); /* nothing is watched: the user may kill and restart processes */
    }
}

static int run_phases(struct demo *d, struct err *err)
{
    struct config_sources sources = { .path = d->options->config.data,
                                      .environ = (const char *const *)environ };
    int rc = config_load(&schema, &sources, &d->config, NULL, err);
    if (rc == 0) rc = demo_shape_of(d->config, &d->shape, err);
    if (rc == 0) rc = loop_new(&d->loop, err);
    if (rc == 0) rc = trace_file_load(d->options->trace.data, TRACE_AUTO, &d->trace, err);
    if (rc == 0) rc = start(d, err);
    if (rc == 0) rc = grow_and_shrink(d, err);
    if (rc == 0) rc = compare(d, err);
    if (rc < 0) return rc;
    rc = demo_summary_write(d, err);
    if (rc == 0) rc = demo_summary_print(d);
    if (rc < 0) return rc;
    uint32_t problems = demo_summary_judge(d);
    if (d->options->stay) stay(d);
    return problems > 0;
}

static void demo_free(struct demo *d)
{
    loop_free(d->loop);
    trace_free(d->trace);
    config_free(d->config);
    for (uint32_t i = 0; i < DEMO_ARMS; i++) {
        free(d->arm[i].sample);
        free(d->arm[i].itl_s);
    }
    free(d->growth.sample);
    free(d->growth.itl_s);
    free(d);
}

/* Runs the demo. Returns 0 when all expectations held, 1 when one did not, a negative errno when the demo
 * broke off. Everything started is ended; with `stay` it waits for the user first. */
static int demo_run(const struct demo_options *options, struct err *err)
{
    struct demo *d = calloc(1, sizeof *d);
    if (!d) return err_set(err, -ENOMEM, "no memory");
    d->options = options;
    d->started_wall_us = clock_wall_us();
    d->started_us = clock_mono_us();
    int rc = run_phases(d, err);
    if (d->fleet.controller.id.pid != 0) heading(d, "ending the fleet");
    demo_fleet_stop(&d->fleet);
    printf("%7.1f s     done\n", since_start_s(d));
    demo_free(d);
    return rc;
}

static int run(int argc, char *const *argv)
{
    struct demo_options options;
    CLEANUP(opt_parsed_fini) struct opt_parsed parsed = { 0 };
    struct err err = { 0 };
    int rc = opt_parse(&usage, argc, argv, &options, &parsed, &err);
    if (rc < 0) return opt_fail(&usage, &err);
    if (parsed.help) return opt_show_help(&usage);
    if (options.growth_speed > 0 || options.arm_speed > 0) {
        fprintf(stderr, "muster demo: --growth-speed and --arm-speed will go; use --speed\n");
    }
    char config[PATH_MAX];
    shipped_file_find(options.config.data, config, sizeof config);
    options.config = str_from(config);
    struct sigaction action = { .sa_handler = on_interrupt };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    rc = demo_run(&options, &err);
    if (rc < 0) fprintf(stderr, "muster demo: %s\n", err_text(&err, rc));
    if (rc == -EINTR) return 130;
    return rc == 0 ? 0 : EXIT_FAILED;
}

const struct command command_demo = {
    .name = "demo",
    .group = "Use",
    .about = "show the whole loop on this machine",
    .run = run,
};
