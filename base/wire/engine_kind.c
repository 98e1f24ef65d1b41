/* engine_kind.c - the table of engine kinds, and the names of tasks. */
#include "base/wire/engine_kind.h"

#include <errno.h>
#include <stddef.h>

const char *const engine_kind_names[ENGINE_KIND_COUNT + 1] = {
    [ENGINE_MUSTER] = "muster",
    [ENGINE_OPENAI] = "openai",
    [ENGINE_VLLM] = "vllm",
    [ENGINE_SGLANG] = "sglang",
    [ENGINE_LLAMA_SERVER] = "llama_server",
};

static const char *const program_muster[] = { NULL }; /* this program */
static const char *const program_vllm[] = { "vllm", "serve", NULL };
static const char *const program_sglang[] = { "python3", "-m", "sglang.launch_server", NULL };
static const char *const program_llama_server[] = { "llama-server", NULL };

#define JSON_BY_RESPONSE                                                               \
    [GRAMMAR_JSON_OBJECT] = { GRAMMAR_FORM_RESPONSE, NULL }, [GRAMMAR_JSON_SCHEMA] = { \
        GRAMMAR_FORM_RESPONSE, NULL                                                    \
    }

const struct engine_traits engine_traits[ENGINE_KIND_COUNT] = {
    [ENGINE_MUSTER] = { .about = "`muster engine`",
                        .takes_ids = true,
                        .scores_prompt = true,
                        .salts = true,
                        .serves_itself = true,
                        .program = program_muster,
                        .seqs = 1 },
    [ENGINE_OPENAI] = { .about = "any server of OpenAI's API, adopted",
                        .grammar = { JSON_BY_RESPONSE },
                        .seqs = 8 },
    [ENGINE_VLLM] = { .about = "vLLM",
                      .scores_prompt = true,
                      .salts = true,
                      .grammar = { JSON_BY_RESPONSE,
                                   [GRAMMAR_REGEX] = { GRAMMAR_FORM_STRUCTURED, "regex" },
                                   [GRAMMAR_CHOICE] = { GRAMMAR_FORM_STRUCTURED, "choice" },
                                   [GRAMMAR_GBNF] = { GRAMMAR_FORM_STRUCTURED, "grammar" },
                                   [GRAMMAR_TAGS] = { GRAMMAR_FORM_STRUCTURED, "structural_tag" } },
                      .program = program_vllm,
                      .seqs = 128 },
    [ENGINE_SGLANG] = { .about = "SGLang",
                        .salts = true,
                        .grammar = { JSON_BY_RESPONSE,
                                     [GRAMMAR_REGEX] = { GRAMMAR_FORM_MEMBER, "regex" },
                                     [GRAMMAR_CHOICE] = { GRAMMAR_FORM_AS_REGEX, "regex" },
                                     [GRAMMAR_GBNF] = { GRAMMAR_FORM_MEMBER, "ebnf" },
                                     [GRAMMAR_TAGS] = { GRAMMAR_FORM_RESPONSE, NULL } },
                        .program = program_sglang,
                        .seqs = 128 },
    [ENGINE_LLAMA_SERVER] = { .about = "llama.cpp's llama-server",
                              .grammar = { JSON_BY_RESPONSE,
                                           [GRAMMAR_CHOICE] = { GRAMMAR_FORM_AS_GBNF, "grammar" },
                                           [GRAMMAR_GBNF] = { GRAMMAR_FORM_MEMBER, "grammar" } },
                              .program = program_llama_server,
                              .seqs = 4 },
};

/* ---- tasks ---- */

const char *const model_task_names[MODEL_TASK_COUNT + 1] = {
    [MODEL_GENERATE] = "generate", [MODEL_EMBED] = "embed", [MODEL_SCORE] = "score"
};

int model_task_generates(enum model_task task, struct str model, struct err *err)
{
    if (task == MODEL_GENERATE) return 0;
    return err_set(err, -EINVAL, "'" STR_FMT "' is an encoder and generates no text; it answers %s",
                   STR_ARG(model),
                   task == MODEL_EMBED ? "/v1/embeddings, /v1/score and /v1/rerank"
                                       : "/v1/score and /v1/rerank, with pairs of texts");
}
