/* cmd_chat.c - `muster chat`: talk to a model behind a router, an engine or any OpenAI server. */
#include "base/core/own.h"
#include "cli/chat.h"
#include "cli/cmd_run.h"
#include "cli/command.h"

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
