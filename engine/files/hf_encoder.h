/* hf_encoder.h - reads what folders of encoders have beside the keys and tensors that all families have.
 *
 * Layer: engine/files
 * Files: config.json of BertModel, RobertaModel, XLMRobertaModel, ModernBertModel and their
 *        ...ForSequenceClassification (cross-encoders), of NomicBertModel in both of its forms; modules.json of
 *        sentence-transformers with the configuration of its pooling
 * Trust: none
 */
#pragma once
#include "engine/files/hf_config.h"

#define HF_MODULES_BYTES_MAX ((size_t)64 << 10)

/* Takes the keys of an encoder out of config.json, after those that hf_config.c knows. -EINVAL and -ENOTSUP
 * with a sentence that names the key. */
int hf_encoder_keys(struct hf_config *c, struct str text, struct err *err);

/* Writes the GGUF name of a tensor. Returns false for one that encoders do not have. */
bool hf_encoder_tensor(const struct hf_family *f, struct str name,
                       char ret[GGUF_NAME_BYTES_MAX + 1]);

/* Returns true for a tensor that nothing here reads: counted positions, heads of training, and a pooler
 * without a classifier behind it (sentence-transformers does not use it either). */
bool hf_encoder_is_spare(const struct hf_config *c, struct str name);

/* Reads the pooling that modules.json of the folder names, as a value of the key "pooling_type"; 0: there
 * is no such file. -ENOTSUP for a pooling or a module that is not computed. */
int hf_pooling_read(const char *folder, uint32_t *ret, struct err *err);
