/* gguf.h - parses GGUF v3: metadata and tensor table of a model file, fully checked.
 *
 * Layer:    engine/files (engine/kernels for the tensor types, base/core)
 * Lifetime: everything lives in the struct gguf's arena until gguf_free; the source is only
 *           borrowed by gguf_parse and gguf_tensor_read
 * Trust:    none. A file may come from anywhere. Every count is compared with what the rest of
 *           the file could hold before anything is allocated, all arithmetic is checked before
 *           padding, keys and tensor names are unique, tensors lie inside the file, aligned and
 *           apart. Callers need not check a parsed file again.
 * Reads:    through a callback with offset and length (pread, or memory in tests and the
 *           fuzzer). Not mmap: a file that is cut while we run would be a SIGBUS, and packing
 *           copies the weights anyway.
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/str.h"
#include "engine/kernels/weight.h"

#define GGUF_VERSION 3
#define GGUF_VALUES_MAX 65536u
#define GGUF_TENSORS_MAX 65536u
#define GGUF_KEY_BYTES_MAX 65535u
#define GGUF_NAME_BYTES_MAX 64u
#define GGUF_STRING_BYTES_MAX ((size_t)16 << 20)
#define GGUF_DIMS_MAX 4
#define GGUF_ALIGNMENT_MIN 8u
#define GGUF_ALIGNMENT_MAX (1u << 20)
#define GGUF_ALIGNMENT_DEFAULT 32u
#define GGUF_META_BYTES_MAX ((size_t)1 << 30) /* memory for metadata and tensor table */

/* Values of the key "ARCH.pooling_type", as llama.cpp writes them. */
enum {
    GGUF_POOLING_NONE,
    GGUF_POOLING_MEAN,
    GGUF_POOLING_CLS,
    GGUF_POOLING_LAST,
    GGUF_POOLING_RANK
};

struct gguf_source {
    const char *name; /* for messages */
    uint64_t bytes;
    /* of its files' places, sizes and times, which a change changes; 0: not known */
    uint64_t identity;
    /* Reads all `len` bytes at `offset`, or returns a negative errno with a sentence. Never
     * called beyond `bytes`. */
    int (*read)(void *ctx, uint64_t offset, void *data, size_t len, struct err *err);
    void *ctx;
};

/* Says whether a long reading goes on; called between pieces, on the reader's thread. goes_on NULL: it always does. */
struct gguf_watch {
    bool (*goes_on)(void *arg);
    void *arg;
};

/* A source that reads another one, and nothing more (-EINTR) once its watch says so. */
struct gguf_watched {
    struct gguf_source source;
    const struct gguf_source *inner;
    struct gguf_watch watch;
};
void gguf_watched_init(struct gguf_watched *w, const struct gguf_source *inner,
                       const struct gguf_watch *watch);

/* The numbers are the file's. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
};

/* Returns the bytes of an item: of strings and arrays, of the smallest one. */
uint32_t gguf_type_bytes(enum gguf_type type);

struct gguf_value {
    struct str key;
    enum gguf_type type;
    union {
        uint64_t u; /* GGUF_U*, GGUF_BOOL (0 or 1) */
        int64_t i;  /* GGUF_I* */
        double f;   /* GGUF_F* */
        struct str text;
        struct {
            enum gguf_type type; /* never GGUF_ARRAY */
            size_t count;
            const char *items;       /* little-endian as in the file; NULL for strings */
            const struct str *texts; /* strings */
        } array;
    };
};

struct gguf_tensor {
    struct str name;
    uint32_t n_dims;
    uint64_t dims[GGUF_DIMS_MAX]; /* fastest first; 1 beyond n_dims */
    enum weight_type_id type;
    uint64_t elements;
    uint64_t offset; /* in the file */
    uint64_t bytes;
};

struct gguf {
    struct str file;                   /* the source's name */
    const struct gguf_value *values;   /* sorted by key */
    const struct gguf_tensor *tensors; /* sorted by name */
    uint32_t value_count, tensor_count;
    struct gguf_memory *memory;
};

/* Parses metadata and tensor table. -EINVAL: not a well-formed GGUF v3 file, with what and where;
 * -ENOTSUP: a version or tensor type that we do not read; -E2BIG: a bound above is exceeded;
 * -ENOMEM; or what the source's read returned. Every sentence starts with the source's name. */
int gguf_parse(const struct gguf_source *source, struct gguf **ret, struct err *err);
void gguf_free(struct gguf *g);
CLEANUP_FREEP(gguf, struct gguf)

/* Return NULL if absent. */
const struct gguf_value *gguf_find(const struct gguf *g, struct str key);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, struct str name);

/* Read a value by key. -ENOENT: the key is absent (with a sentence, for callers that need it);
 * -EINVAL: it is of another type or out of range. Integers may be stored in any width. */
int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *ret, struct err *err);
int gguf_get_f32(const struct gguf *g, const char *key, float *ret, struct err *err); /* finite */
int gguf_get_bool(const struct gguf *g, const char *key, bool *ret, struct err *err);
int gguf_get_str(const struct gguf *g, const char *key, struct str *ret, struct err *err);
/* Reads an array of items of `type`. */
int gguf_get_array(const struct gguf *g, const char *key, enum gguf_type type,
                   const struct gguf_value **ret, struct err *err);

/* A regular file as a source. The path is borrowed until gguf_file_close. */
struct gguf_file {
    int fd; /* -1: closed */
    struct gguf_source source;
};
int gguf_file_open(const char *path, struct gguf_file *ret, struct err *err);
struct stat;
uint64_t gguf_file_identity(const struct stat *st);
void gguf_file_close(struct gguf_file *f);

/* Writes the SHA-256 over the SHA-256 of each MiB of the source, as SHA256_HEX digits and a NUL:
 * one pass with one MiB of memory over files of any size. */
int gguf_digest(const struct gguf_source *source, char *ret_hex, struct err *err);
