/* cmd_model_convert.c - `muster model convert`: makes one GGUF file of a folder in Hugging Face's format. */
#include "base/core/bits.h"
#include "cli/command.h"
#include "cli/model/cmd_model.h"
#include "cli/remote.h"

struct convert_options {
    struct str from, to, type;
    bool force;
    int output;
};

#define AT(member) .offset = offsetof(struct convert_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "type", .letter = 't', .type = CONFIG_TEXT, .default_text = "keep", AT(type),
      .about = "Type of the matrices: keep, or one that `muster model quantize` writes, as bf16 or q4_k." },
    { .name = "force", .type = CONFIG_BOOL, .default_text = "false", AT(force),
      .about = "Replace TO if it exists." },
    REMOTE_OUTPUT_ROW(struct convert_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "FROM", .required = true, AT(from),
      .about = "Folder with config.json and *.safetensors, or one of these files." },
    { .name = "TO", .required = true, AT(to), .about = "GGUF file to write." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct convert_options, rows);
static const struct opt_command usage = {
    .name = "muster model convert",
    .about = "Make one GGUF file of a folder in Hugging Face's format.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes =
        "Vectors become F32. The tokenizer and chat template come along if a GGUF file can say "
        "them:\nbyte-level BPE with a known rule for words. Without tokenizer.json the file has "
        "none.",
};

static int convert(const void *options, struct err *err)
{
    const struct convert_options *o = options;
    struct quantise_result result = { 0 };
    struct model_progress bar = { 0 };
    const struct make_progress progress = { model_progress_show, &bar };
    enum weight_type_id type = WEIGHT_TYPE_COUNT;
    int rc = str_eq(o->type, STR("keep")) ? 0 : model_type_read(o->type, &type, err);
    if (rc == 0) rc = model_output_free(o->to.data, o->force, err);
    if (rc < 0) return rc;
    rc = convert_model(o->from.data, o->to.data, type, &progress, &result, err);
    model_progress_end(&bar);
    return rc < 0 ? rc : model_result_print(o->to.data, &result, o->output == REMOTE_JSON, err);
}

int model_convert_run(int argc, char *const *argv)
{
    struct convert_options options;
    return command_run(&usage, argc, argv, &options, convert);
}
