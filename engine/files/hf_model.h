/* hf_model.h - opens a model in safetensors, with its config.json, as the tables of a GGUF file.
 *
 * Layer:    engine/files
 * Lifetime: gguf and source live until hf_model_free; the files stay open until then
 * Reads:    model.safetensors, or the shards that model.safetensors.index.json names; F32, F16, BF16,
 *           and F8_E4M3, which is given as F16 (exactly); weights of few bits as hf_quant.h and hf_packed.h
 *           say. RoPE of Llama 3.1 becomes the tensor
 *           rope_freqs.weight. Tokenizer and template are read by hf_model_tokenizer
 * Models:   hf_family.h lists them. Where their GGUF files differ from the checkpoint, tensors are given as
 *           these have them: rows of Q and K reordered for RoPE over adjacent pairs, norms as 1 + w,
 *           the experts of a layer in one tensor
 * Threads:  one at a time; the source keeps one unpacked matrix
 * Trust:    none, as hf_files.h; every tensor must be one that the family has
 */
#pragma once
#include "base/text/chat_template.h"
#include "base/text/vocab.h"
#include "engine/files/gguf.h"

#define HF_CONFIG_BYTES_MAX ((size_t)4 << 20)

struct hf_model {
    const struct gguf *gguf;
    const struct gguf_source *source; /* the tensors; its name is the folder */
    const char *packing;              /* how weights of few bits are stored; NULL: there are none */
};

/* Returns true for a folder, and for a path that ends with .safetensors. */
bool hf_model_is(const char *path);

/* Opens the folder, or the folder of the file. -EINVAL and -ENOTSUP with a sentence that names the file
 * and the key or tensor; else as gguf_file_open. `path` is borrowed until hf_model_free. */
int hf_model_open(const char *path, struct hf_model **ret, struct err *err);
void hf_model_free(struct hf_model *m);
CLEANUP_FREEP(hf_model, struct hf_model)

/* Reads the tokenizer beside the tensors (hf_folder.h); both are the caller's. Without tokenizer.json nothing is
 * written. -EINVAL unless there is one token for each row of the embedding. */
int hf_model_tokenizer(const struct hf_model *m, struct vocab **ret,
                       struct chat_template **ret_template, struct err *err);
