/* cmd_tokenizer.c - `muster tokenizer`: write the tokenizer of a model to a file of its own.
 *
 * An agent beside vLLM or SGLang needs the tokenizer of their model, not the weights. The file names the
 * weights that it came from, so that engines of all kinds of this model have one digest. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/command.h"
#include "cli/tokenizer_load.h"

#include <stdio.h>

struct tokenizer_options {
    struct str model, output;
};

#define AT(member) .offset = offsetof(struct tokenizer_options, member)
static const struct config_field rows[] = {
    { .name = "output",
      .letter = 'o',
      .type = CONFIG_TEXT,
      .required = true,
      AT(output),
      .about = "File to write." },
};
static const struct opt_positional positionals[] = {
    { .name = "MODEL",
      .required = true,
      AT(model),
      .about =
          "GGUF file, or folder of a Hugging Face repository (tokenizer.json, *.safetensors)." },
};
static const struct config_record record = CONFIG_RECORD_OF(struct tokenizer_options, rows);
static const struct opt_command usage = {
    .name = "muster tokenizer",
    .about = "Write the tokenizer and chat template of a model to a file that agents read.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
};

static int write_file(const void *options, struct err *err)
{
    const struct tokenizer_options *o = options;
    CLEANUP(tokenizer_source_fini) struct tokenizer_source t = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    int rc = tokenizer_load(o->model.data, &t, err);
    if (rc < 0) return rc;
    buf_init(&out, BUNDLE_BYTES_MAX + 4096);
    rc = tokenizer_source_print(&t, &out);
    if (rc < 0) return err_set(err, rc, "no memory");
    rc = file_write_atomic(o->output.data, buf_view(&out), 0644, err);
    if (rc < 0) return rc;
    printf("%s: %zu bytes, digest %.12s\n", o->output.data, out.len, t.digest);
    return 0;
}

static int run(int argc, char *const *argv)
{
    struct tokenizer_options options;
    return command_run(&usage, argc, argv, &options, write_file);
}

const struct command command_tokenizer = {
    .name = "tokenizer",
    .group = "Configure",
    .about = "write a model's tokenizer to a file for agents of other engines",
    .run = run,
};
