/* cmd_chat.h - holds a conversation with an OpenAI server in a terminal.
 *
 * Layer: cli (base/io, base/wire)
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/io/config/config.h"
#include "cli/target.h"

#define CHAT_TURNS_BYTES_MAX ((size_t)4 << 20) /* of a whole conversation */

/* A member of a command's options; its rows come from CHAT_STYLE_ROWS. */
struct chat_style {
    struct str system;
    int64_t max_tokens; /* 0: as far as the context reaches */
    double temperature;
};

// clang-format off
#define CHAT_STYLE_ROWS(owner, member)                                                             \
    { .name = "system", .letter = 's', .type = CONFIG_TEXT, .max = 4096,                           \
      .offset = offsetof(owner, member) + offsetof(struct chat_style, system),                     \
      .about = "System message." },                                                                \
    { .name = "max_tokens", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e6,         \
      .unit = "tokens", .offset = offsetof(owner, member) + offsetof(struct chat_style, max_tokens), \
      .about = "Limit of an answer; 0 for the context's." },                                       \
    { .name = "temperature", .letter = 't', .type = CONFIG_FLOAT, .default_text = "0.7",           \
      .min = 0, .max = 2,                                                                          \
      .offset = offsetof(owner, member) + offsetof(struct chat_style, temperature),                \
      .about = "Sampling temperature; 0 for the likeliest." }
// clang-format on

struct chat_settings {
    struct target target;
    struct str model, api_key;
    struct chat_style style;
    bool stats; /* a line after each reply: instance, tokens, cached, times */
};

/* Asks one question and streams the reply to stdout. Returns 0, or a negative errno and err. */
int chat_ask(const struct chat_settings *s, struct str question, struct err *err);

/* Asks the words as one question; without any, runs chat_loop. */
int chat_words(const struct chat_settings *s, const struct config_texts *words, struct err *err);

/* Reads questions from stdin until its end. /reset forgets the turns so far, /exit ends, /help explains. */
int chat_loop(const struct chat_settings *s, struct err *err);
