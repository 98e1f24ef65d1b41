/* tiny_model.c - makes the random llama of gguf_make with the vocabulary of the tokenizer's
 * tests. */
#include "tests/unit/engine/tiny_model.h"

#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/text/small_vocab.h"

#include <stdio.h>
#include <unistd.h>

static const char template[] =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

static void put_array(struct gguf_make *m, const char *key, uint32_t type, uint64_t count)
{
    make_key(m, key, GGUF_ARRAY);
    make_u32_raw(&m->values, type);
    make_u64_raw(&m->values, count);
}

static void put_texts(struct gguf_make *m, const char *key, const struct str *texts, size_t count)
{
    put_array(m, key, GGUF_STRING, count);
    for (size_t i = 0; i < count; i++) {
        make_u64_raw(&m->values, texts[i].len);
        buf_str(&m->values, texts[i]);
    }
}

static void put_tokenizer(struct gguf_make *m, const struct vocab_parts *v)
{
    make_str(m, "tokenizer.ggml.model", "gpt2");
    make_str(m, "tokenizer.ggml.pre", "gpt-2");
    put_texts(m, "tokenizer.ggml.tokens", v->tokens, v->token_count);
    put_array(m, "tokenizer.ggml.token_type", GGUF_I32, v->token_count);
    for (size_t i = 0; i < v->token_count; i++)
        make_u32_raw(&m->values, v->types[i]);
    put_texts(m, "tokenizer.ggml.merges", v->merges, v->merge_count);
    make_u32(m, "tokenizer.ggml.bos_token_id", SMALL_BEGIN);
    make_u32(m, "tokenizer.ggml.eos_token_id", SMALL_END);
    make_bool(m, "tokenizer.ggml.add_bos_token", 0);
    make_str(m, "tokenizer.chat_template", template);
}

static int model_path(struct llama_shape shape, uint64_t seed, char ret_path[64])
{
    struct gguf_make m;
    struct vocab_parts vocab = small_vocab_parts("gpt-2");
    shape.vocab = (uint32_t)vocab.token_count;
    shape.type = WEIGHT_Q8_0;
    shape.own_tokenizer = true;
    shape.norm_offset = 1;
    char path[64];
    int fd;
    make_init(&m);
    put_tokenizer(&m, &vocab);
    make_llama(&m, &shape, seed, NULL);
    fd = make_path(&m, path);
    make_fini(&m);
    snprintf(ret_path, 64, "/proc/%d/fd/%d", (int)getpid(), fd);
    return fd;
}

int tiny_model_path(uint32_t context, char ret_path[64])
{
    const struct llama_shape shape = {
        .layers = 2,
        .embd = 64,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = 16,
        .ff = 128,
        .context = context,
    };
    return model_path(shape, 42, ret_path);
}

void tiny_adapter(uint64_t seed, struct buf *ret)
{
    static const struct {
        const char *name;
        uint32_t rows, cols;
    } matrix[] = { { "attn_q", 64, 64 },      { "attn_k", 32, 64 },    { "attn_v", 32, 64 },
                   { "attn_output", 64, 64 }, { "ffn_gate", 128, 64 }, { "ffn_up", 128, 64 },
                   { "ffn_down", 64, 128 } };
    struct gguf_make m;
    struct rng rng;
    rng_seed(&rng, seed);
    make_init(&m);
    make_str(&m, "general.architecture", "llama");
    make_str(&m, "general.type", "adapter");
    make_str(&m, "adapter.type", "lora");
    make_f32(&m, "adapter.lora.alpha", 8);
    for (uint32_t layer = 0; layer < 2; layer++) {
        for (size_t i = 0; i < COUNT_OF(matrix); i++) {
            char name[96];
            snprintf(name, sizeof name, "blk.%u.%s.weight.lora_a", layer, matrix[i].name);
            make_random(&m, name, WEIGHT_F32, TINY_ADAPTER_RANK, matrix[i].cols, 0.3f, &rng);
            snprintf(name, sizeof name, "blk.%u.%s.weight.lora_b", layer, matrix[i].name);
            make_random(&m, name, WEIGHT_F16, matrix[i].rows, TINY_ADAPTER_RANK, 0.3f, &rng);
        }
    }
    make_finish(&m, ret);
    make_fini(&m);
}

int wide_model_path(char ret_path[64])
{
    const struct llama_shape shape = {
        .layers = 4,
        .embd = 64,
        .heads = 8,
        .kv_heads = 8,
        .head_dim = 64,
        .ff = 128,
        .context = TINY_CONTEXT_LONG,
    };
    return model_path(shape, 42, ret_path);
}

int layered_model_path(uint32_t layers, uint64_t seed, char ret_path[64])
{
    const struct llama_shape shape = {
        .layers = layers,
        .embd = 256,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = 64,
        .ff = 512,
        .context = TINY_CONTEXT_LONG,
        .idle_from = 1,
    };
    return model_path(shape, seed, ret_path);
}

int windowed_model_path(uint32_t window, uint32_t period, char ret_path[64])
{
    const struct llama_shape shape = {
        .layers = 4,
        .embd = 64,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = 16,
        .ff = 128,
        .context = TINY_CONTEXT,
        .window = window,
        .window_period = period,
    };
    return model_path(shape, 42, ret_path);
}
