/* cmd_tokenize.c - `muster tokenize`: show the token ids of a text, or the text of ids, as engine and router
 * see them. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/text/detok.h"
#include "base/text/tokenizer.h"
#include "cli/command.h"
#include "cli/tokenizer_load.h"

#include <errno.h>
#include <stdio.h>

#define INPUT_BYTES_MAX TOKENIZER_TEXT_BYTES_MAX

struct tokenize_options {
    struct str model;
    bool prompt, special, decode, zero;
};

#define AT(member) .offset = offsetof(struct tokenize_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "prompt", .letter = 'p', .type = CONFIG_BOOL, .default_text = "false", AT(prompt),
      .about = "Add the tokens that the model wants before and behind a raw prompt." },
    { .name = "special", .letter = 's', .type = CONFIG_BOOL, .default_text = "false", AT(special),
      .about = "Take control tokens that are written in the text as such; a user's text never does." },
    { .name = "decode", .letter = 'd', .type = CONFIG_BOOL, .default_text = "false", AT(decode),
      .about = "The other way: read ids in JSON lists, and write the text of each." },
    { .name = "zero", .letter = '0', .type = CONFIG_BOOL, .default_text = "false", AT(zero),
      .about = "Texts end with a zero byte; without it the whole input is one text, and written texts end with a line." },
};
static const struct opt_positional positionals[] = {
    { .name = "MODEL", .required = true, AT(model),
      .about = "GGUF file, folder with tokenizer.json, or file of `muster tokenizer`." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct tokenize_options, rows);
static const struct opt_command usage = {
    .name = "muster tokenize",
    .about =
        "Read text from the standard input and write its token ids, a JSON list for each text.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
};

static int read_input(struct buf *out, struct err *err)
{
    char chunk[65536];
    size_t len;
    buf_init(out, INPUT_BYTES_MAX);
    while ((len = fread(chunk, 1, sizeof chunk, stdin)) > 0)
        if (buf_append(out, chunk, len) < 0)
            return err_set(err, out->rc, "the input has more than %zu bytes", INPUT_BYTES_MAX);
    return ferror(stdin) ? err_set(err, -EIO, "the standard input cannot be read") : 0;
}

static int print_ids(const struct tokenize_options *o, const struct vocab *v, struct str text,
                     struct err *err)
{
    CLEANUP(ids_fini) struct ids ids = { 0 };
    const uint32_t *frame;
    int rc = 0;
    for (size_t i = 0, count = o->prompt ? vocab_before(v, &frame) : 0; i < count && rc == 0; i++)
        rc = ids_push(&ids, frame[i]);
    if (rc == 0) rc = tokenizer_encode(v, text, o->special, &ids, err);
    for (size_t i = 0, count = o->prompt ? vocab_after(v, &frame) : 0; i < count && rc == 0; i++)
        rc = ids_push(&ids, frame[i]);
    if (rc < 0) return rc;
    putchar('[');
    for (size_t i = 0; i < ids.count; i++)
        printf("%s%u", i ? "," : "", ids.data[i]);
    puts("]");
    return 0;
}

/* Reads one list of ids and writes its text. */
static int print_text(const struct tokenize_options *o, const struct vocab *v, struct str line,
                      struct err *err)
{
    CLEANUP(ids_fini) struct ids ids = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct json_reader r;
    json_reader_init(&r, line);
    if (json_next(&r) != JSON_ARRAY) return err_set(err, -EINVAL, "want lists of ids, one a line");
    while (json_next(&r) != JSON_ARRAY_END) {
        uint64_t id;
        if (json_u64(&r, &id) < 0 || id >= vocab_count(v))
            return err_set(err, -EINVAL, "want ids below %u", vocab_count(v));
        if (ids_push(&ids, (uint32_t)id) < 0) return err_set(err, -ENOMEM, "no memory for the ids");
    }
    int rc = detok_bytes(v, ids.data, ids.count, !o->special, &text);
    if (rc < 0) return err_set(err, rc, "the text is too long");
    if (text.len > 0) fwrite(text.data, 1, text.len, stdout);
    putchar(o->zero ? '\0' : '\n');
    return 0;
}

static int tokenize(const void *options, struct err *err)
{
    const struct tokenize_options *o = options;
    CLEANUP(vocab_freep) struct vocab *vocab = NULL;
    CLEANUP(chat_template_freep) struct chat_template *template = NULL;
    CLEANUP(buf_fini) struct buf input = { 0 };
    int rc = tokenizer_read(o->model.data, &vocab, &template, err);
    if (rc == 0) rc = read_input(&input, err);
    const char end = o->decode ? '\n' : '\0';
    const bool whole = !o->decode && !o->zero;
    struct str rest = buf_view(&input);
    if (rc == 0 && whole) return print_ids(o, vocab, rest, err);
    while (rc == 0 && rest.len > 0) {
        struct str text = str_cut(&rest, end);
        rc = o->decode ? print_text(o, vocab, text, err) : print_ids(o, vocab, text, err);
    }
    return rc;
}

static int run(int argc, char *const *argv)
{
    struct tokenize_options options;
    return command_run(&usage, argc, argv, &options, tokenize);
}

const struct command command_tokenize = {
    .name = "tokenize",
    .group = "Look",
    .about = "show the token ids of a text, or the text of ids",
    .run = run,
};
