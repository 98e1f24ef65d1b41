/* cmd_run_model.c - `muster run`: start one engine with one model and hold one conversation.
 *
 * The engine is a child that the kernel kills when this process ends, however it ends. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/http/http_fetch.h"
#include "base/io/loop/clock.h"
#include "cli/cmd_chat.h"
#include "cli/command.h"
#include "cli/daemons.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define POLL_US 50000
#define CALL_US 2000000
#define STOP_US 3000000

struct run_options {
    struct str model;
    struct chat_style style;
    struct config_texts words, engine_flags;
    int64_t timeout_us;
    bool quiet;
};

#define AT(member) .offset = offsetof(struct run_options, member)
// clang-format off
static const struct config_field rows[] = {
    CHAT_STYLE_ROWS(struct run_options, style),
    { .name = "engine_flags", .type = CONFIG_TEXTS, .min = 0, .max = 32, AT(engine_flags),
      .about = "Flags of `muster engine`, such as --engine-flags=--max-model-len=1024." },
    { .name = "timeout", .type = CONFIG_DURATION, .default_text = "5m", .min = 1e6, .max = 864e8,
      AT(timeout_us), .about = "Time for loading the model." },
    { .name = "quiet", .letter = 'q', .type = CONFIG_BOOL, .default_text = "false", AT(quiet),
      .about = "Do not print how fast it was." },
};
static const struct opt_positional positionals[] = {
    { .name = "MODEL", .required = true, AT(model), .about = "Path of a GGUF file." },
    { .name = "QUESTION", .many = true, AT(words),
      .about = "Ask this and end; without it, a conversation." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct run_options, rows);
static const struct opt_command usage = {
    .name = "muster run",
    .about = "Talk to a model file on this machine, without a fleet.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
};

struct private_engine {
    struct proc proc;
    uint16_t port;
    char log[64];
};

static int start(const struct run_options *o, struct private_engine *e, struct err *err)
{
    char self[PATH_MAX], listen[32];
    const char *argv[40] = { self,       "engine", "--model",     o->model.data,
                             "--listen", listen,   "--log-level", "warn" };
    size_t count = 8;
    for (size_t i = 0; i < o->engine_flags.count; i++)
        argv[count++] = o->engine_flags.items[i].data;
    int rc = proc_self_path(self, sizeof self);
    if (rc < 0) return err_set(err, rc, "the path of this program is not known");
    e->port = daemons_free_port();
    if (e->port == 0) return err_set(err, -EADDRNOTAVAIL, "no port of 127.0.0.1 is free");
    snprintf(listen, sizeof listen, "127.0.0.1:%u", e->port);
    snprintf(e->log, sizeof e->log, "/tmp/muster-run-XXXXXX");
    int fd = mkstemp(e->log);
    if (fd < 0) {
        rc = -errno;
        return err_set(err, rc, "cannot make %s: %s", e->log, strerror(-rc));
    }
    close(fd);
    struct proc_spec spec = { .argv = argv, .log_path = e->log };
    rc = proc_spawn(&spec, &e->proc, err);
    if (rc < 0) unlink(e->log);
    return rc < 0 ? err_prefix(err, rc, "muster engine") : 0;
}

static void stop(struct private_engine *e)
{
    struct proc_exit how;
    proc_signal(&e->proc.id, SIGTERM, NULL);
    if (proc_wait(&e->proc, STOP_US, &how) == -ETIMEDOUT) {
        proc_signal(&e->proc.id, SIGKILL, NULL);
        proc_wait(&e->proc, STOP_US, &how);
    }
    proc_close(&e->proc);
    unlink(e->log);
}

static int wait_loaded(const struct private_engine *e, int64_t timeout_us, struct err *err)
{
    int64_t until_us = clock_mono_us() + timeout_us;
    struct http_fetch_request req = {
        .host = STR("127.0.0.1"), .port = e->port, .path = STR("/health"), .timeout_us = CALL_US
    };
    for (;;) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        int status = 0;
        bool lives = proc_is_alive(&e->proc.id);
        int rc = http_fetch(&req, &status, &reply, NULL);
        if (!lives) {
            daemons_show_log(e->log);
            return err_set(err, -ECHILD, "the engine has ended; its own words are above");
        }
        if (rc == 0 && status == 200) return 0;
        if (clock_mono_us() >= until_us)
            return err_set(err, -ETIMEDOUT, "the model is not loaded yet; --timeout gives more");
        usleep(POLL_US);
    }
}

static int talk(const struct run_options *o, const struct private_engine *e, struct err *err)
{
    CLEANUP(buf_fini) struct buf model = { 0 };
    struct chat_settings s = { .target = { .host = STR("127.0.0.1"), .port = e->port },
                               .style = o->style,
                               .stats = !o->quiet };
    int rc = target_model(&s.target, (struct str){ 0 }, &model, err);
    if (rc < 0) return rc;
    s.model = buf_view(&model);
    return chat_words(&s, &o->words, err);
}

static int run_model(const void *options, struct err *err)
{
    const struct run_options *o = options;
    struct private_engine e = { 0 };
    int rc = start(o, &e, err);
    if (rc < 0) return rc;
    rc = wait_loaded(&e, o->timeout_us, err);
    if (rc == 0) rc = talk(o, &e, err);
    stop(&e);
    return rc;
}

static int run(int argc, char *const *argv)
{
    struct run_options options;
    return command_run(&usage, argc, argv, &options, run_model);
}

const struct command command_run_model = {
    .name = "run",
    .group = "Use",
    .about = "talk to a model file, without a fleet",
    .run = run,
};
