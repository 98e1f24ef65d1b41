/* engine_kind.c - the table of engine kinds. */
#include "base/wire/engine_kind.h"

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

const struct engine_traits engine_traits[ENGINE_KIND_COUNT] = {
    [ENGINE_MUSTER] = { .about = "`muster engine`",
                        .takes_ids = true,
                        .serves_itself = true,
                        .program = program_muster,
                        .seqs = 1 },
    [ENGINE_OPENAI] = { .about = "any server of OpenAI's API, adopted", .seqs = 8 },
    [ENGINE_VLLM] = { .about = "vLLM", .salts = true, .program = program_vllm, .seqs = 128 },
    [ENGINE_SGLANG] = { .about = "SGLang", .salts = true, .program = program_sglang, .seqs = 128 },
    [ENGINE_LLAMA_SERVER] = { .about = "llama.cpp's llama-server",
                              .program = program_llama_server,
                              .seqs = 4 },
};
