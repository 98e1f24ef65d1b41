/* hf_make.h - writes a Llama's GGUF file as the tensors of a Hugging Face folder, for tests.
 *
 * Nothing is checked but that files can be written.
 */
#pragma once
#include "base/core/buf.h"
#include "engine/files/gguf.h"

#define HF_MAKE_LAYERS 2u /* at most */

struct hf_made {
    const struct gguf *gguf;
    const struct gguf_source *source;
    const char *folder;
    uint32_t heads, kv_heads;
};

void hf_make_file(const char *folder, const char *name, struct str text);

/* Writes the tensors whose index modulo `parts` is `part` into a file; `index` gets its lines. */
void hf_make_part(const struct hf_made *m, uint32_t part, uint32_t parts, const char *file,
                  struct buf *index);

/* Writes the index of several files. */
void hf_make_index(const char *folder, struct str lines);
