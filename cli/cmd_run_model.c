/* cmd_run_model.c - `muster run`: start one engine with one model and hold one conversation. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/cmd_chat.h"
#include "cli/command.h"
#include "cli/private_engine.h"

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
    PRIVATE_ENGINE_ROWS(struct run_options, engine_flags, timeout_us),
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
    int rc = private_engine_start(o->model, &o->engine_flags, o->timeout_us, &e, err);
    if (rc < 0) return rc;
    rc = talk(o, &e, err);
    private_engine_stop(&e);
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
