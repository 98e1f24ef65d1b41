/* hf_files.h - opens the safetensors files of a folder.
 *
 * Layer:    engine/files (base/core)
 * Lifetime: files stay open, and their tables live, until hf_files_close
 * Trust:    none. Names of shards are file names without a folder; a tensor must be in the shard that the index
 *           names, and the index must list as many as its files hold
 */
#pragma once
#include "engine/files/safetensors.h"

#define HF_PATH_MAX 4096
#define HF_SHARDS_MAX 1024u
#define HF_INDEX_BYTES_MAX ((size_t)16 << 20)

struct hf_file {
    struct gguf_file file;
    struct safetensors *table;
    char path[HF_PATH_MAX];
};

struct hf_files {
    struct hf_file *at;
    uint32_t count;
};

/* A tensor of one of them. */
struct hf_part {
    const struct hf_file *file; /* NULL: there is none */
    const struct safetensor *tensor;
};

/* Opens the files; names of the index live in the arena. On failure, too, the caller closes *f. */
int hf_files_open(struct hf_files *f, const char *folder, struct arena *arena, struct err *err);
void hf_files_close(struct hf_files *f);

/* Finds a tensor by its name, first in the file of index `near`. */
struct hf_part hf_files_find(const struct hf_files *f, uint32_t near, struct str name);
