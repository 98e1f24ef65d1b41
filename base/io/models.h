/* models.h - declares the section `models`: names for model files, where each lies and comes from, and the disk that
 * they may take.
 *
 * Layer: base/io (config)
 * Use:   where `model` is asked for, it is a name of the list or a path; models_resolve alone decides which
 * Rules: (1) a name of the list comes before a file of the same name
 *        (2) another word is a path if it has a slash, ends in .gguf or is there; else it is a mistake, and the
 *            sentence lists the names. Without a list every word is a path
 */
#pragma once
#include "base/io/config/config.h"

#include <limits.h>

#define MODELS_MAX 256
#define MODELS_NAME_BYTES_MAX 128
#define MODELS_SHARDS_MAX 1024u
/* Folder below the state: what was compared with its SHA-256 (model_check.h). */
#define MODELS_STAMPS "models"

struct models_entry {
    struct str name, path, url, sha256; /* one of path and url at least */
    struct str endpoint;                /* of an object store; empty: the provider's own */
};

struct models_section {
    struct str folder;
    int64_t max; /* bytes */
    struct config_records list;
};

extern const struct config_section models_section;

struct models_place {
    const struct models_entry *entry; /* NULL: `model` is a path */
    char path[PATH_MAX];
};

/* Finds what `model` means. `m` NULL: a path. -ENOENT: no such name; -EINVAL: its entry is wrong; -ENAMETOOLONG. */
int models_resolve(const struct models_section *m, struct str model, struct models_place *ret,
                   struct err *err);

/* Returns the entry called `name`, or NULL. */
const struct models_entry *models_find(const struct models_section *m, struct str name);

/* Checks what the schema cannot say of an entry: its name, its digest, that it has a place. -EINVAL. */
int models_entry_check(const struct models_entry *e, struct err *err);

/* Writes where the entry lies: its path; without one FOLDER/NAME.gguf, the first shard FOLDER/NAME/FILE, or the folder
 * FOLDER/NAME, as its URL ends. -ENAMETOOLONG. */
int models_path(const struct models_section *m, const struct models_entry *e, char ret[PATH_MAX],
                struct err *err);

/* Return the last part of a path; of a URL, without query and fragment. */
struct str models_base(struct str path);
struct str models_url_base(struct str url);

/* Returns how many shards NAME-00001-of-00003.gguf is one of, at most MODELS_SHARDS_MAX; 0: it is none, alone, or
 * not the first. models_shard_name makes the name of one shard that of shard `number`, from 1. */
uint32_t models_shards(struct str file);
void models_shard_name(char *name, uint32_t number);
