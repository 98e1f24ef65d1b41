/* cmd_chat.c - `muster chat`: talk to a model behind a router, an engine or any OpenAI server. */
#include "base/core/own.h"
#include "cli/chat.h"
#include "cli/cmd_run.h"
#include "cli/command.h"

struct chat_options {
    struct str url, model, api_key, system;
    struct config_texts words;
    int64_t max_tokens;
    double temperature;
    bool quiet;
};

#define AT(member) .offset = offsetof(struct chat_options, member)

// clang-format off
static const struct config_field rows[] = {
    { .name = "url", .letter = 'u', .type = CONFIG_TEXT, .default_text = TARGET_URL_DEFAULT,
      AT(url), .about = "Server that speaks the OpenAI API." },
    { .name = "model", .letter = 'm', .type = CONFIG_TEXT, AT(model),
      .about = "Model name; without it the first that the server lists." },
    { .name = "api_key", .letter = 'k', .type = CONFIG_TEXT, AT(api_key),
      .about = "API key to send." },
    { .name = "system", .letter = 's', .type = CONFIG_TEXT, .max = 4096, AT(system),
      .about = "System message." },
    { .name = "max_tokens", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e6,
      .unit = "tokens", AT(max_tokens), .about = "Limit of an answer; 0 for the context's." },
    { .name = "temperature", .letter = 't', .type = CONFIG_FLOAT, .default_text = "0.7",
      .min = 0, .max = 2, AT(temperature), .about = "Sampling temperature; 0 for the likeliest." },
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
    struct chat_settings s = { .api_key = o->api_key,
                               .system = o->system,
                               .max_tokens = (uint32_t)o->max_tokens,
                               .temperature = o->temperature,
                               .stats = !o->quiet };
    int rc = target_parse(o->url, &s.target, err);
    if (rc == 0 && o->model.len > 0) rc = buf_str(&model, o->model);
    if (rc == 0 && o->model.len == 0) rc = target_model(&s.target, o->api_key, &model, err);
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
