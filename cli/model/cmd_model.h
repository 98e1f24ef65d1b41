/* cmd_model.h - the commands below `muster model`, and what they share. */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/text/tokenizer.h"
#include "engine/kernels/weight.h"
#include "engine/model/make_model.h"
#include "engine/model/model.h"

int model_convert_run(int argc, char *const *argv);
int model_imatrix_run(int argc, char *const *argv);
int model_inspect_run(int argc, char *const *argv);
int model_make_random_run(int argc, char *const *argv);
int model_quantize_run(int argc, char *const *argv);
int model_verify_run(int argc, char *const *argv);

/* Reads --type. COMMAND_MISUSED with a sentence that lists the types that are written. */
int model_type_read(struct str text, enum weight_type_id *ret, struct err *err);

/* COMMAND_MISUSED if `path` exists and was not to be replaced. */
int model_output_free(const char *path, bool replace, struct err *err);

/* Prints what was written to `path`, as a line or as JSON. */
int model_result_print(const char *path, const struct quantise_result *r, bool json,
                       struct err *err);

/* A text as ids, cut into windows of `context` that do not overlap; what is left at the end is not used. */
struct model_windows {
    struct ids ids;
    uint32_t context, count;
};

/* Reads the file `text` (- is standard input) in at most `count_max` windows; 0: all. A begin token, where the model
 * has one, replaces the first id of each. COMMAND_MISUSED for a context that is longer than the model's. */
int model_windows_read(const struct model *m, struct str text, uint32_t context, uint32_t count_max,
                       struct model_windows *ret, struct err *err);
void model_windows_fini(struct model_windows *w);

/* A bar on a terminal's stderr, nothing elsewhere. Starts as { 0 } for bytes; progress_end goes to the next line. */
struct model_progress {
    int shown;        /* per mille + 1 of the last drawing; 0: none yet */
    const char *unit; /* of `done` and `total`; NULL: bytes */
};
void model_progress_show(void *progress, uint64_t done, uint64_t total);
void model_progress_end(const struct model_progress *p);

/* Appends "1.61 GB" or "6.27 MB", in powers of ten. */
void model_bytes_text(double bytes, struct buf *out);
