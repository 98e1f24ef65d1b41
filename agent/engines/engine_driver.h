/* engine_driver.h - the interface of engine kinds: how each is started, asked and understood.
 *
 * Layer:    agent (base/wire, base/core)
 * Threads:  the agent's loop; no function here does I/O
 * Rules:    (1) a kind is one file with one struct engine_driver, and one line of the table (engine_driver.c)
 *           (2) the agent asks the paths of `ask` one after the other, once a report; the first that is
 *               not answered well ends the round, and the engine counts as not ready
 *           (3) an engine is untrusted text: every reply has a bound, and a malformed one is a sentence
 *           (4) facts that routers and the controller need are in base/wire/engine_kind.h
 */
#pragma once
#include "agent/engines/meters.h"
#include "base/wire/launch.h"

#define ENGINE_ARGS_MAX (2 * LAUNCH_ARGS_MAX)
#define ENGINE_ENV_MAX 8
#define ENGINE_MODEL_BYTES REPORT_TEXT_BYTES_MAX
#define ENGINE_REPLY_BYTES_MAX ((size_t)4 << 20) /* of one reply, metrics included */

/* ---- starting ---- */

/* A command line and additions to the environment. Texts live in the arena. */
struct engine_command {
    struct arena *arena;
    const char *arg[ENGINE_ARGS_MAX + 1]; /* ends with NULL */
    uint32_t arg_count;
    const char *env[ENGINE_ENV_MAX + 1]; /* NAME=value; ends with NULL */
    uint32_t env_count;
    int rc; /* sticky: -E2BIG, -ENOMEM */
};

void command_arg(struct engine_command *c, struct str text);
void command_text(struct engine_command *c, const char *text);
/* Adds a flag and its value, or nothing for an empty or zero value. */
void command_flag(struct engine_command *c, const char *flag, struct str value);
void command_number(struct engine_command *c, const char *flag, uint64_t value);
void command_env(struct engine_command *c, const char *text);

struct engine_start {
    const struct launch_spec *spec;
    uint16_t port;
    /* Paths of Unix sockets to publish on; NULL: do not publish. */
    const char *kv_events, *kv_replay;
};

/* Adds the program, then what `add` makes of the start, then the document's own flags: a flag of the
 * document comes last and so holds. */
void command_make(struct engine_command *c, const struct engine_start *start,
                  void (*add)(struct engine_command *c, const struct engine_start *start));

/* Adds the configuration of a publisher of KV events, as vLLM and SGLang read it, where the start names
 * sockets. `enables`: it needs a member that says so. */
void command_kv_events(struct engine_command *c, const struct engine_start *start, bool enables);

/* ---- asking ---- */

/* Holds what is known of one engine. */
struct engine_sight {
    const struct engine_driver *driver;
    struct engine_report report; /* as the last whole round found it; strings in this struct */
    struct meters meters;
    struct arena arena[2]; /* of the report of an engine of ours, and of the next */
    uint32_t arena_at;
    char model[ENGINE_MODEL_BYTES + 1];
    uint32_t context_tokens, seqs_max, page_tokens; /* 0: it does not say */
    double started_s; /* when its process started, by its own date; 0: it does not say */
};

struct engine_ask {
    const char *path;
    bool once;     /* not again once it was answered well, until the engine starts again */
    bool optional; /* an engine that does not have it is well even so */
    int (*take)(struct engine_sight *s, struct str body, struct err *err);
};

struct engine_driver {
    enum engine_kind kind;
    void (*command)(struct engine_command *c, const struct engine_start *start);
    const struct engine_ask *ask;
    uint32_t ask_count;
    const struct meter_row *meter; /* of its /metrics */
    uint32_t meter_count;
    /* it may take so long to be ready, whatever agent.start says; 0: nothing known */
    int64_t start_us;
    uint32_t page_tokens; /* of its KV memory, where it does not say; 0: unknown */
    bool publishes_kv;    /* it can publish KV events */
    /* its model file is a GGUF, whose tokenizer is read where none is named */
    bool tokenizer_in_model;
};

const struct engine_driver *engine_driver_of(enum engine_kind kind); /* never NULL */

/* Functions that kinds share (engine_driver.c). */

/* Reads the driver's meters from a page of metrics and fills the report: the last ask of a round. -EINVAL:
 * the page lacks the number of running requests. */
int take_metrics(struct engine_sight *s, struct str body, struct err *err);

/* Reads /v1/models: the first model's name, and max_model_len or meta.n_ctx as its context. */
int take_models(struct engine_sight *s, struct str body, struct err *err);

/* Takes any answer of status 200. */
int take_nothing(struct engine_sight *s, struct str body, struct err *err);

/* Fills the report from what was seen. */
void sight_report(struct engine_sight *s);

extern const struct engine_driver engine_muster, engine_openai, engine_vllm, engine_sglang,
    engine_llama_server;
