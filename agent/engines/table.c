/* table.c - the table of engine kinds. */
#include "agent/engines/engine_driver.h"

static const struct engine_driver *const table[ENGINE_KIND_COUNT] = {
    [ENGINE_MUSTER] = &engine_muster,
    [ENGINE_OPENAI] = &engine_openai,
    [ENGINE_VLLM] = &engine_vllm,
    [ENGINE_SGLANG] = &engine_sglang,
    [ENGINE_LLAMA_SERVER] = &engine_llama_server,
};

const struct engine_driver *engine_driver_of(enum engine_kind kind)
{
    must(kind < ENGINE_KIND_COUNT);
    return table[kind];
}
