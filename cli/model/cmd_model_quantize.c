/* cmd_model_quantize.c - `muster model quantize`: rounds the matrices of a model file to a smaller type. */
#include "base/core/bits.h"
#include "cli/command.h"
#include "cli/model/cmd_model.h"
#include "cli/remote.h"

struct quantize_options {
    struct str from, to, type, imatrix;
    bool force, requantize;
    int output;
};

#define AT(member) .offset = offsetof(struct quantize_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "type", .letter = 't', .type = CONFIG_TEXT, .default_text = "q4_k", AT(type),
      .about = "Type of the matrices: q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, iq4_nl, q4_1, q4_0, mxfp4, "
               "q3_k, q2_k, bf16, f16 or f32." },
    { .name = "imatrix", .type = CONFIG_TEXT, AT(imatrix),
      .about = "Importance matrix of the model, as `muster model imatrix` writes it." },
    { .name = "force", .type = CONFIG_BOOL, .default_text = "false", AT(force),
      .about = "Replace TO if it exists." },
    { .name = "requantize", .type = CONFIG_BOOL, .default_text = "false", AT(requantize),
      .about = "Take a FROM that is quantised already; what it has lost stays lost." },
    REMOTE_OUTPUT_ROW(struct quantize_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "FROM", .required = true, AT(from), .about = "GGUF file, in F32, F16 or BF16 at best." },
    { .name = "TO", .required = true, AT(to), .about = "GGUF file to write." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct quantize_options, rows);
static const struct opt_command usage = {
    .name = "muster model quantize",
    .about = "Round the matrices of a GGUF file to a smaller type.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes =
        "Vectors and metadata are copied. A matrix whose rows are no whole blocks of the type "
        "becomes\nQ8_0 or F16. The error that is printed is the root of the squared error over "
        "the squares.\nWith --imatrix, squared errors are weighted by the mean of squares that "
        "each column is\nmultiplied with; matrices that it has no data of are rounded without.",
};

static int quantize(const void *options, struct err *err)
{
    const struct quantize_options *o = options;
    struct quantise_result result = { 0 };
    struct model_progress bar = { 0 };
    const struct make_progress progress = { model_progress_show, &bar };
    struct quantise_ask ask = { .again = o->requantize,
                                .imatrix = o->imatrix.len > 0 ? o->imatrix.data : NULL,
                                .progress = &progress };
    int rc = model_type_read(o->type, &ask.type, err);
    if (rc == 0) rc = model_output_free(o->to.data, o->force, err);
    if (rc < 0) return rc;
    rc = quantise_model(o->from.data, o->to.data, &ask, &result, err);
    model_progress_end(&bar);
    return rc < 0 ? rc : model_result_print(o->to.data, &result, o->output == REMOTE_JSON, err);
}

int model_quantize_run(int argc, char *const *argv)
{
    struct quantize_options options;
    return command_run(&usage, argc, argv, &options, quantize);
}
