/* model.h - runs a language model on this machine's processor: weights in, logits out.
 *
 * Layer:    engine/model (engine/kernels, base/text, base/core)
 * Threads:  struct model is immutable after model_load: any thread may read it. A kv_store and
 *           the model_runner over it belong to one thread (the device thread); the runner has
 *           worker threads of its own that touch memory only during model_step.
 * Lifetime: the model outlives its stores and runners, a store outlives its runners
 * Equality: the logits of a token are a function of the ids before it and nothing else: bit for
 *           bit the same alone or batched, in one piece or in chunks of any size, over any page
 *           table and page size, with any number of threads. This holds within one numerics id.
 *           It rests on: every output element sums over k in ascending order with one
 *           accumulator; softmax goes through tiles of fixed size by absolute position; K
 *           (rotated) and V are always read back from the store, rounded to its type.
 */
#pragma once
#include "base/core/err.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/core/str.h"
#include "base/text/vocab.h"
#include "base/wire/engine_kind.h"
#include "base/wire/sampling.h"
#include "engine/files/gguf.h"
#include "engine/kernels/kv_layout.h"

struct model;
struct kv_store;
struct model_runner;
struct adapter;
struct importance;

#define KV_PAGE_GRANULE KV_BLOCK /* page_tokens is a multiple of this: 16 */
#define KV_PAGE_TOKENS_MAX 1024
#define MODEL_THREADS_MAX 256
#define MODEL_HIDDEN 32 /* numbers that a token's hidden state is folded into */

const char *kv_type_name(enum kv_type type); /* "f16", "f32", "q8", "q4" */

/* The choices of --kv-cache-dtype: auto, which is F16, and the types by name. kv_dtype_type takes the
 * index of one of them. */
extern const char *const kv_dtype_names[]; /* NULL behind the last */
enum kv_type kv_dtype_type(int dtype);

/* How the vector of a text is made of the states of its tokens at the end of the model. */
enum pooling {
    POOLING_MODEL, /* as the model's files say */
    POOLING_LAST,  /* of its last token */
    POOLING_MEAN,  /* of all tokens */
    POOLING_CLS,   /* of its first token; encoders only */
};

/* { 0 } is a good default: the fastest kernels of this machine, K and V in F16. */
struct model_load_options {
    enum kv_type kv_type;
    bool no_sampling;    /* the model's own defaults of sampling are not read */
    const char *kernels; /* name in ops_table ("ref", "avx2", "amx"); NULL: the best */
    /* folder of packed weights that engines share (weight_file.h); NULL: none */
    const char *weight_cache;
    uint64_t weight_cache_bytes_max;
    struct gguf_watch watch; /* stops the digest and the reading of weights with -EINTR */
};

struct model_info {
    struct str name;          /* general.name, or the file's name without folder */
    struct str architecture;  /* "llama" */
    struct str kernels;       /* the entry of ops_table in use */
    struct sampling sampling; /* its own defaults; `unnamed` says for which members there is none */
    struct str template_source;  /* of the chat template; empty when there is none */
    char digest[SHA256_HEX + 1]; /* of the file: gguf_digest; of a folder: hf_folder_digest */
    char numerics[64];           /* equality holds between engines of one numerics id */
    bool weights_mapped;         /* packed weights are those of the cache */
    bool weights_found;          /* and were there */
    char cache_trouble[160];     /* why they are not, where a cache is named */
    uint32_t n_layers;
    uint32_t n_embd;
    uint32_t n_ff;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;                    /* of a latent layout: of the vector that is stored */
    uint32_t kv_latent;                   /* as latent of struct kv_layout */
    uint32_t kv_window, kv_window_layers; /* the widest sliding window, and layers with one */
    uint32_t vocab_size;
    uint32_t context_length;
    uint64_t parameters;       /* elements of all tensors */
    uint64_t weight_bytes;     /* memory the packed weights hold */
    uint64_t table_bytes;      /* of them the table of embeddings, if no product reads it */
    bool tied;                 /* the output reads the table of embeddings */
    size_t kv_bytes_per_token; /* of an encoder: 0 */
    enum model_task task;
    enum pooling pooling; /* the model's own, never POOLING_MODEL */
    /* of an encoder: the second text of a pair is of type 1 where there are two */
    uint32_t token_types;
    bool score_is_plain;       /* MODEL_SCORE: the head's number is the score, without a sigmoid */
    const struct vocab *vocab; /* NULL for "no_vocab", and without tokenizer.json */
};

/* Reads the GGUF file at `path` whole, with its shards, or the folder of safetensors (hf_model.h) with its
 * tokenizer. Everything in it is checked; a refusal is a sentence that names the file and the key or
 * tensor. -EINVAL: the file is wrong; -ENOTSUP: it asks for something we do not have; -EIO, -ENOENT ...:
 * reading failed; -ENOMEM. `opt` may be NULL. */
int model_load(const char *path, const struct model_load_options *opt, struct model **ret,
               struct err *err);
void model_free(struct model *m);

/* Gives the memory of the weights back to the system. The rest of the model stays: vocabulary, template,
 * facts. No step until model_wake reads the weights again from the same path, to the same place; those in a
 * file that engines share are still mapped. -EINVAL: it is another model now; else errors of model_load. The
 * model sleeps on then. */
void model_sleep(struct model *m);
int model_wake(struct model *m, struct err *err);
CLEANUP_FREEP(model, struct model)

/* Lives as long as the model. */
const struct model_info *model_info(const struct model *m);

/* Returns how K and V of this model lie in pages of so many tokens. */
struct kv_layout kv_layout_of(const struct model *m, uint32_t page_tokens);

/* Reserves KV memory: `pages` pages of `page_tokens` tokens, page-major (a page is one contiguous
 * piece with all layers). All of it becomes resident, within moments. -EINVAL for a page size that is not a
 * multiple of KV_PAGE_GRANULE; -ENOMEM. */
int kv_store_new(const struct model *m, uint32_t pages, uint32_t page_tokens, struct kv_store **ret,
                 struct err *err);
/* The same for pages that are not all in use at once: memory is resident from when it is written to until
 * kv_store_discard gives it back, of a page or of its layers with a window. Between steps. */
int kv_store_new_elastic(const struct model *m, uint32_t pages, uint32_t page_tokens,
                         struct kv_store **ret, struct err *err);
void kv_store_discard(struct kv_store *kv, uint32_t page, bool whole);
void kv_store_free(struct kv_store *kv);
CLEANUP_FREEP(kv_store, struct kv_store)

/* Gives the memory of all pages back to the system: they are zero from then on. Between steps. */
void kv_store_drop(struct kv_store *kv);

/* Copies all K and V of a page, or without those of layers with a window: to and from a store that is the swap
 * space, made for the same model and page size. Between steps only. */
void kv_store_copy_page(struct kv_store *dst, uint32_t to, const struct kv_store *src,
                        uint32_t from);
void kv_store_copy_full(struct kv_store *dst, uint32_t to, const struct kv_store *src,
                        uint32_t from);

/* kv_store_layout returns how pages lie in memory, the same between engines of one model, type and
 * page size; kv_store_page and kv_store_write_page copy the kv_page_bytes of one page out and in; kv_store_write_full
 * and _window one part (kv_full_bytes, and the rest). Between steps only. */
const struct kv_layout *kv_store_layout(const struct kv_store *kv);
const char *kv_store_page(const struct kv_store *kv, uint32_t page);
void kv_store_write_page(struct kv_store *kv, uint32_t page, const void *bytes);
void kv_store_write_full(struct kv_store *kv, uint32_t page, const void *bytes);
void kv_store_write_window(struct kv_store *kv, uint32_t page, const void *bytes);

/* An item is `count` consecutive tokens of one sequence, the first at `position`. The K and V of
 * positions before it are in the store already (prefix hit or earlier chunk); the step writes those
 * of the item, its first `stored` ones excepted. page_table[i] holds positions
 * [i * page_tokens, (i + 1) * page_tokens). No other item of the same step may write to a page of this
 * table, or read what this item writes. */
struct batch_item {
    const uint32_t *ids;
    uint32_t count; /* at least 1 */
    uint32_t position;
    uint32_t stored; /* the first tokens' K and V lie in the pages already, and are not written */
    const uint32_t *page_table;
    uint32_t pages;       /* entries of page_table */
    uint32_t drafted;     /* the last of the tokens are guesses */
    bool want_logits;     /* of the last token that is no guess, and of each guess */
    uint32_t rows_before; /* with want_logits: of so many tokens before that one, too */
    float *logits;        /* rows_before + 1 + drafted rows of vocab_size floats, the caller's */
    float *hidden;        /* MODEL_HIDDEN floats of the first row's token, or NULL */
    /* n_embd numbers, to which the states behind the last layer, normalised as for the logits, of the
     * tokens at positions from state_from on are added in ascending order; or NULL */
    double *state_sum;
    uint32_t state_from;
    const struct adapter *adapter; /* of this model (adapter.h); NULL: none */
    /* Of an encoder, whose items are whole texts at position 0, without pages and logits: */
    uint32_t state_to;    /* states are added up to this position; 0: to the end */
    uint32_t second_from; /* where the second text of a pair begins; 0: there is none */
    float *score;         /* MODEL_SCORE: the head's number; or NULL */
};

struct model_runner_options {
    uint32_t tokens_max;    /* tokens of all items of one step; at least seqs_max */
    uint32_t seqs_max;      /* items of one step */
    uint32_t threads;       /* with the calling thread; 0 and 1: no worker threads */
    uint32_t hidden_layer;  /* that `hidden` is read behind, from 1; 0: the last, normalised */
    uint32_t lora_rank_max; /* of adapters; 0: no item has one */
    struct importance *importance; /* gathers from all steps (importance.h); NULL: nothing does */
};

/* Takes all scratch memory of a step, so that model_step does not allocate. */
int model_runner_new(const struct model *m, struct kv_store *kv,
                     const struct model_runner_options *opt, struct model_runner **ret,
                     struct err *err);
void model_runner_free(struct model_runner *r);
CLEANUP_FREEP(model_runner, struct model_runner)

/* Runs one forward pass over all items; blocks until the logits are there. -EINVAL, before anything
 * was computed, for an id outside the vocabulary, a position outside context or page table, a
 * page outside the store, an adapter of another shape or rank, or more items or tokens than the runner was
 * made for. */
int model_step(struct model_runner *r, const struct batch_item *items, uint32_t count,
               struct err *err);
