/* hf_folder.h - reads what belongs to a model in a folder of a Hugging Face repository, beside its tensors: the
 * tokenizer, the chat template and the digest. Engines and routers both use it, so that they agree.
 *
 * Layer: engine/files (base/text, base/core)
 * Files: tokenizer.json, tokenizer_config.json, chat_template.jinja, config.json and
 *        generation_config.json (tokenizer_json.h says what each gives); *.safetensors
 * Trust: none; every file has a bound
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/hash.h"
#include "base/text/chat_template.h"
#include "base/text/vocab.h"
#include "engine/files/gguf.h"

#define HF_FOLDER_FILES_MAX 4096 /* whose digests are joined */

/* Returns true for a folder. */
bool hf_folder_is(const char *path);

/* Reads the file `name` of the folder, at most `max` bytes of it. -ENOENT, -E2BIG, -ENOMEM ... with a sentence
 * that names the file. */
int hf_folder_read(const char *folder, const char *name, size_t max, struct buf *out,
                   struct err *err);

/* Reads the tokenizer; both are the caller's, *ret_template is NULL if there is none. -ENOENT without
 * tokenizer.json; else as tokenizer_json_load. */
int hf_folder_tokenizer(const char *folder, struct vocab **ret, struct chat_template **ret_template,
                        struct err *err);

/* Computes the digest of what is computed with: SHA-256 over the digests (gguf_digest, in hex) of config.json,
 * where there is one, and of every *.safetensors in the order of their names. -ENOENT: there is none. -EINTR:
 * the watch (NULL: none) stopped it. */
int hf_folder_digest(const char *folder, const struct gguf_watch *watch, char ret[SHA256_HEX + 1],
                     struct err *err);

/* Returns the identity (gguf_source) of the files that the digest is of; 0: not known. */
uint64_t hf_folder_identity(const char *folder);
