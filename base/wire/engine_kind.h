/* engine_kind.h - names the kinds of engines, with the facts about each that routers and the controller need, and the tasks
 * of models.
 *
 * Layer: base/wire (base/core)
 * Rules: nothing outside this table asks which kind an engine is: a difference is a member here, or a
 *        function of agent/engines, which knows how to run each kind
 */
#pragma once

#include "base/core/err.h"
#include "base/core/str.h"
#include "base/grammar/grammar.h"

#include <stdbool.h>
#include <stdint.h>

enum engine_kind {
    ENGINE_MUSTER,
    ENGINE_OPENAI, /* any server of OpenAI's API: requests only, no metrics, no KV events */
    ENGINE_VLLM,
    ENGINE_SGLANG,
    ENGINE_LLAMA_SERVER,
    ENGINE_KIND_COUNT
};

/* muster openai vllm sglang llama_server; ends with NULL. */
extern const char *const engine_kind_names[ENGINE_KIND_COUNT + 1];

/* The form in which an engine takes a grammar of one kind. */
enum grammar_form {
    GRAMMAR_FORM_NONE,       /* it cannot */
    GRAMMAR_FORM_RESPONSE,   /* response_format, as OpenAI's API has it */
    GRAMMAR_FORM_STRUCTURED, /* structured_outputs.KEY */
    GRAMMAR_FORM_MEMBER,     /* a member KEY of the request */
    GRAMMAR_FORM_AS_REGEX,   /* a choice, as the regex of a member KEY */
    GRAMMAR_FORM_AS_GBNF,    /* a choice, as the GBNF of a member KEY */
};

struct grammar_way {
    enum grammar_form form;
    const char *key;
};

struct engine_traits {
    const char *about; /* one sentence, for documents */
    /* It takes token ids at /internal/generate and answers in frames: an output that another engine began
     * goes on there. Others get the client's JSON. */
    bool takes_ids;
    bool serves_itself; /* /internal/info, events and tokenizer; for others their agent does */
    bool scores_prompt; /* takes prompt_logprobs, in vLLM's form */
    bool salts;         /* a member `cache_salt` of a request keeps tenants' caches apart */
    struct grammar_way grammar[GRAMMAR_KIND_COUNT]; /* of engines that get the client's JSON */
    const char *const *program; /* and its first arguments, ends with NULL; NULL: only adopted */
    uint32_t seqs; /* sequences that it runs at once where it does not say: its own default */
};

extern const struct engine_traits engine_traits[ENGINE_KIND_COUNT];

/* ---- what a model is for, and so which endpoints answer for it ---- */

/* All but the first are encoders: every token of a text sees all others, so a text is computed whole, in one
 * step, and nothing of it is kept: no K and V, no logits. */
enum model_task {
    MODEL_GENERATE, /* decoders: text, and vectors of texts */
    MODEL_EMBED,    /* vectors of texts */
    MODEL_SCORE,    /* how well a text fits another: cross-encoders, from both in one sequence */
    MODEL_TASK_COUNT
};

extern const char *const model_task_names[MODEL_TASK_COUNT + 1]; /* "generate", "embed", "score" */

/* -EINVAL with a sentence for the client who asks an encoder for text: it says what can be asked instead. */
int model_task_generates(enum model_task task, struct str model, struct err *err);
