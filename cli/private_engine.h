/* private_engine.h - an engine of one command: a child that serves one model on a free port of 127.0.0.1, and that the
 * kernel kills when the command ends, however it ends.
 *
 * Layer: cli (base/io)
 */
#pragma once
#include "base/io/config/config.h"
#include "base/io/proc.h"

#define PRIVATE_ENGINE_FLAGS_MAX 32 /* bound of the option that holds them */

struct private_engine {
    struct proc proc;
    uint16_t port; /* of 127.0.0.1 */
    char log[64];  /* removed by private_engine_stop */
};

/* Starts `muster engine --model MODEL FLAGS...` and waits until it serves. -ECHILD when it ended, after its last lines
 * went to stderr; -ETIMEDOUT when the model was not loaded in timeout_us; errors of starting a process. On success the
 * caller ends it by private_engine_stop. */
int private_engine_start(struct str model, const struct config_texts *flags, int64_t timeout_us,
                         struct private_engine *ret, struct err *err);
void private_engine_stop(struct private_engine *e);

// clang-format off
/* Rows of a command's options. */
#define PRIVATE_ENGINE_ROWS(owner, flags, timeout)                                                 \
    { .name = "engine_flags", .type = CONFIG_TEXTS, .min = 0, .max = PRIVATE_ENGINE_FLAGS_MAX,     \
      .offset = offsetof(owner, flags),                                                            \
      .about = "Flags of `muster engine`, such as --engine-flags=--max-model-len=1024." },         \
    { .name = "timeout", .type = CONFIG_DURATION, .default_text = "5m", .min = 1e6, .max = 864e8,  \
      .offset = offsetof(owner, timeout), .about = "Time for loading the model." }
// clang-format on
