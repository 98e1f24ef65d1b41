/* chat.h - a conversation with an OpenAI server in a terminal.
 *
 * Layer: cli (base/io, base/wire)
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/io/config.h"
#include "cli/target.h"

#define CHAT_TURNS_BYTES_MAX ((size_t)4 << 20) /* of a whole conversation */

struct chat_settings {
    struct target target;
    struct str model, api_key, system;
    uint32_t max_tokens; /* 0: as far as the context reaches */
    double temperature;
    bool stats; /* a line behind each answer: instance, tokens, cached, times */
};

/* One question; the answer is streamed to stdout. 0, or a negative errno and err. */
int chat_ask(const struct chat_settings *s, struct str question, struct err *err);

/* The words as one question; without any, chat_loop. */
int chat_words(const struct chat_settings *s, const struct config_texts *words, struct err *err);

/* Reads questions from stdin until its end; /reset forgets, /exit ends, /help explains. */
int chat_loop(const struct chat_settings *s, struct err *err);
