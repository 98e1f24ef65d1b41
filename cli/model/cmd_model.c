/* cmd_model.c - `muster model`: finds the command below it, and holds what these share. */
#include "cli/model/cmd_model.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/command.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define BAR_CELLS 40

static const struct {
    const char *name;
    int (*run)(int argc, char *const *argv);
} below[] = {
    { "convert", model_convert_run },   { "imatrix", model_imatrix_run },
    { "inspect", model_inspect_run },   { "make-random", model_make_random_run },
    { "quantize", model_quantize_run }, { "verify", model_verify_run },
};

struct model_options {
    struct str action;
};

static const char *const actions[] = { "convert",  "imatrix", "inspect", "make-random",
                                       "quantize", "verify",  NULL };
static const struct opt_positional positionals[] = {
    { .name = "ACTION",
      .required = true,
      .words = actions,
      .offset = offsetof(struct model_options, action),
      .about =
          "convert, imatrix, inspect, make-random, quantize or verify; each has its own --help." },
};
static const struct config_record record = { .size = sizeof(struct model_options) };
static const struct opt_command usage = {
    .name = "muster model",
    .about = "Look at model files, and make them.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes =
        "`muster model inspect FILE` prints a card of the file, `muster model make-random` writes "
        "random\nweights of a shape, `muster model quantize FROM TO` rounds weights to a smaller "
        "type,\n`muster model imatrix MODEL TEXT TO` measures which columns of weights matter for "
        "that,\n`muster model convert FOLDER TO` makes one file of a folder in Hugging Face's "
        "format.",
};

static int no_such_action(const void *options, struct err *err)
{
    const struct model_options *o = options;
    return err_set(err, COMMAND_MISUSED,
                   "no action '" STR_FMT
                   "': want convert, imatrix, inspect, make-random, quantize or verify",
                   STR_ARG(o->action));
}

static int run(int argc, char *const *argv)
{
    struct model_options options;
    for (size_t i = 0; i < COUNT_OF(below) && argc > 0; i++)
        if (str_eq(str_from(argv[0]), str_from(below[i].name)))
            return below[i].run(argc - 1, argv + 1);
    return command_run(&usage, argc, argv, &options, no_such_action);
}

const struct command command_model = {
    .name = "model",
    .group = "Configure",
    .about = "look at model files, make random ones, convert, quantize",
    .below = actions,
    .run = run,
};

/* ---- what the commands share */

int model_type_read(struct str text, enum weight_type_id *ret, struct err *err)
{
    if (weight_type_named(text, ret)) return 0;
    return err_set(err, COMMAND_MISUSED, "--type " STR_FMT ": no such type; there are: %s",
                   STR_ARG(text), weight_type_names());
}

int model_output_free(const char *path, bool replace, struct err *err)
{
    if (replace || access(path, F_OK) != 0) return 0;
    return err_set(err, COMMAND_MISUSED, "%s exists; --force replaces it", path);
}

int model_windows_read(const struct model *m, struct str text, uint32_t context, uint32_t count_max,
                       struct model_windows *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    const struct model_info *info = model_info(m);
    const char *path = str_eq(text, STR("-")) ? "/dev/stdin" : text.data;
    if (context > info->context_length)
        return err_set(err, COMMAND_MISUSED, "--context %u: the model's context is %u", context,
                       info->context_length);
    if (!info->vocab)
        return err_set(err, -EINVAL,
                       "model '" STR_FMT "' has no tokenizer, so that a text has no ids",
                       STR_ARG(info->name));
    int rc = file_read(path, TOKENIZER_TEXT_BYTES_MAX, &bytes, err);
    if (rc == 0) rc = tokenizer_encode(info->vocab, buf_view(&bytes), false, &ret->ids, err);
    if (rc < 0) return rc;
    size_t count = ret->ids.count / context;
    if (count == 0)
        return err_set(err, -EINVAL, "%s has %zu tokens, and a window takes %u; --context sets it",
                       path, ret->ids.count, context);
    if (count_max > 0) count = min_size(count, count_max);
    ret->context = context;
    ret->count = (uint32_t)count;
    const uint32_t *frame;
    for (size_t i = 0; i < count && vocab_before(info->vocab, &frame) > 0; i++)
        ret->ids.data[i * context] = frame[0];
    return 0;
}

void model_windows_fini(struct model_windows *w)
{
    ids_fini(&w->ids);
}

void model_progress_show(void *progress, uint64_t done, uint64_t total)
{
    struct model_progress *p = progress;
    int per_mille = total > 0 ? (int)((double)done / (double)total * 1000) : 1000;
    if (per_mille + 1 == p->shown || !isatty(STDERR_FILENO)) return;
    p->shown = per_mille + 1;
    char bar[BAR_CELLS + 1];
    for (int i = 0; i < BAR_CELLS; i++)
        bar[i] = i < per_mille * BAR_CELLS / 1000 ? '#' : '.';
    bar[BAR_CELLS] = 0;
    double scale = p->unit ? 1 : 1e-9;
    fprintf(stderr, "\r[%s] %5.1f %%  %.*f of %.*f %s", bar, per_mille / 10.0, p->unit ? 0 : 2,
            (double)done * scale, p->unit ? 0 : 2, (double)total * scale, p->unit ? p->unit : "GB");
}

void model_progress_end(const struct model_progress *p)
{
    if (p->shown) fputc('\n', stderr);
}

void model_bytes_text(double bytes, struct buf *out)
{
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB" };
    size_t unit = 0;
    while (bytes >= 1000 && unit + 1 < COUNT_OF(units))
        bytes /= 1000, unit++;
    buf_printf(out, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
}

static void put_result(const char *path, uint64_t bytes, const struct quantise_result *r,
                       struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "file", path);
    json_kv_u64(&w, "bytes", bytes);
    json_kv_u64(&w, "rounded", r->tensors);
    json_kv_u64(&w, "kept", r->kept);
    json_kv_u64(&w, "fallback", r->fallback);
    json_kv_f64(&w, "error", r->error);
    if (r->has_imatrix) {
        json_kv_u64(&w, "weighted", r->weighted);
        json_kv_u64(&w, "unweighted", r->unweighted);
        json_kv_u64(&w, "blank", r->blank);
    }
    json_object_end(&w);
    buf_byte(out, '\n');
}

int model_result_print(const char *path, const struct quantise_result *r, bool json,
                       struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct stat st;
    if (stat(path, &st) < 0) return err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (json) {
        put_result(path, (uint64_t)st.st_size, r, &out);
        return command_print(&out, err);
    }
    buf_printf(&out, "%s: ", path);
    model_bytes_text((double)st.st_size, &out);
    buf_printf(&out, ", %llu matrices rounded", (unsigned long long)r->tensors);
    if (r->fallback > 0)
        buf_printf(&out, " (%llu to Q8_0 or F16)", (unsigned long long)r->fallback);
    buf_printf(&out, ", %llu tensors kept, error %.4f\n", (unsigned long long)r->kept, r->error);
    if (r->has_imatrix)
        buf_printf(&out, "%llu weighted by their importance, %llu without an entry",
                   (unsigned long long)r->weighted, (unsigned long long)r->unweighted);
    if (r->blank > 0)
        buf_printf(&out, ", %llu single matrices without data", (unsigned long long)r->blank);
    if (r->has_imatrix) buf_byte(&out, '\n');
    return command_print(&out, err);
}
