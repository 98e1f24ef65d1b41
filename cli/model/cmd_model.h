/* cmd_model.h - the commands below `muster model`, and what they share. */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "engine/kernels/weight.h"
#include "engine/model/make_model.h"

int model_convert_run(int argc, char *const *argv);
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

/* A bar on a terminal's stderr, nothing elsewhere. Starts as { 0 } for bytes; progress_end goes to the next line. */
struct model_progress {
    int shown;        /* per mille + 1 of the last drawing; 0: none yet */
    const char *unit; /* of `done` and `total`; NULL: bytes */
};
void model_progress_show(void *progress, uint64_t done, uint64_t total);
void model_progress_end(const struct model_progress *p);

/* Appends "1.61 GB" or "6.27 MB", in powers of ten. */
void model_bytes_text(double bytes, struct buf *out);
