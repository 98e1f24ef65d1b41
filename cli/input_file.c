/* input_file.c - find the file, unpack it, parse it.
 *
 * The traces that published figures rest on are shipped packed: a trace of a thousand conversations is 3 MB
 * as text and a ninth of that as a zstd frame. A frame may claim any size, so the text grows with what has
 * been unpacked and stops at the bound, whatever the frame's header says.
 */
#include "cli/input_file.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/config/config.h"
#include "base/io/file.h"
#include "base/io/proc.h"
#include "base/perf/hardware.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#define PIECE ((size_t)1 << 16)

static bool is_packed(struct str text)
{
    static const unsigned char magic[] = { 0x28, 0xb5, 0x2f, 0xfd };
    return text.len >= sizeof magic && memcmp(text.data, magic, sizeof magic) == 0;
}

static int broken(const char *path, const char *why, struct err *err)
{
    return err_set(err, -EINVAL, "%s: the zstd frame is broken (%s); fetch the file again", path,
                   why);
}

static int unpack(const char *path, struct str packed, ZSTD_DStream *stream, struct buf *out,
                  struct err *err)
{
    char piece[PIECE];
    ZSTD_inBuffer in = { packed.data, packed.len, 0 };
    size_t left = 1;
    while (in.pos < in.size || left > 0) {
        ZSTD_outBuffer to = { piece, sizeof piece, 0 };
        size_t before = in.pos;
        left = ZSTD_decompressStream(stream, &to, &in);
        if (ZSTD_isError(left)) return broken(path, ZSTD_getErrorName(left), err);
        if (to.pos == 0 && in.pos == before && left > 0) return broken(path, "it ends early", err);
        if (out->len + to.pos > TRACE_FILE_BYTES_MAX) {
            return err_set(err, -EFBIG, "%s: more than %zu MiB unpacked", path,
                           TRACE_FILE_BYTES_MAX >> 20);
        }
        buf_str(out, (struct str){ piece, to.pos });
        if (out->rc < 0) return err_set(err, out->rc, "%s: no memory for its text", path);
    }
    return 0;
}

/* Cuts the last name off a path, as dirname does. */
static void cut_name(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
}

void shipped_file_find(const char *name, char *ret, size_t size)
{
    char program[PATH_MAX], path[PATH_MAX];
    snprintf(ret, size, "%s", name);
    if (name[0] == '/' || access(name, F_OK) == 0) return;
    if (proc_self_path(program, sizeof program) < 0) return;
    cut_name(program); /* bin/muster */
    cut_name(program);
    int len = snprintf(path, sizeof path, "%s/share/muster/%s", program, name);
    if (len < (int)sizeof path && access(path, F_OK) == 0) snprintf(ret, size, "%s", path);
}

/* Writes the file that `name` stands for to `ret`. */
static void find(const char *name, char *ret, size_t size)
{
    static const char *const ending[] = { "", ".zst" };
    char path[PATH_MAX];
    shipped_file_find(name, ret, size);
    if (strchr(name, '/') || access(ret, F_OK) == 0) return;
    for (size_t i = 0; i < COUNT_OF(ending); i++) {
        int len = snprintf(path, sizeof path, "traces/%s%s", name, ending[i]);
        if (len >= (int)sizeof path) return;
        shipped_file_find(path, ret, size);
        if (access(ret, F_OK) == 0) return;
    }
    snprintf(ret, size, "%s", name);
}

int trace_file_read(const char *path, struct buf *out, struct err *err)
{
    char found[PATH_MAX];
    CLEANUP(buf_fini) struct buf file = { .max = TRACE_FILE_BYTES_MAX };
    find(path, found, sizeof found);
    int rc = file_read(found, TRACE_FILE_BYTES_MAX, &file, err);
    if (rc < 0) return rc;
    if (!is_packed(buf_view(&file))) {
        buf_str(out, buf_view(&file));
        return out->rc < 0 ? err_set(err, out->rc, "%s: no memory for its text", found) : 0;
    }
    ZSTD_DStream *stream = ZSTD_createDStream();
    if (!stream) return err_set(err, -ENOMEM, "%s: no memory to unpack it", found);
    rc = unpack(found, buf_view(&file), stream, out, err);
    ZSTD_freeDStream(stream);
    return rc;
}

int trace_file_load(const char *path, enum trace_format format, struct trace **ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = trace_file_read(path, &text, err);
    if (rc < 0) return rc;
    rc = trace_parse(buf_view(&text), format, ret, err);
    return rc < 0 ? err_prefix(err, rc, "%s", path) : 0;
}

/* A name that looks like a path is one, so that no shipped model hides a file. */

#define SPEC_BYTES_MAX 65536
#define KEYS_BYTES 256

int model_file_find(struct str name, struct model_spec *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (str_find(name, STR("/")) == SIZE_MAX && !str_ends(name, STR(".spec")))
        return model_spec_find(name, ret, err) < 0 ? -EINVAL : 0;
    int rc = file_read(name.data, SPEC_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    rc = model_spec_parse(buf_view(&text), ret, err);
    return rc < 0 ? err_prefix(err, rc, STR_FMT, STR_ARG(name)) : 0;
}

void model_file_help(struct buf *out)
{
    struct model_spec spec;
    char keys[KEYS_BYTES];
    model_spec_keys(keys, sizeof keys);
    CLEANUP(buf_fini) struct buf models = { 0 };
    buf_text(&models, "Models that are shipped:");
    for (uint32_t i = 0; model_spec_at(i, &spec); i++)
        buf_printf(&models, "%s %s", i > 0 ? "," : "", spec.name);
    buf_printf(&models,
               ". A file, as in --model ./my.spec, has a line `KEY: VALUE` for each of: %s. "
               "models/README.md has their meaning and defaults.",
               keys);
    if (models.rc < 0) out->rc = models.rc;
    buf_byte(out, '\n');
    config_help_words(out, buf_view(&models), 0);
    buf_text(out, "\nHardware:");
    for (uint32_t i = 0; i < hardware_count; i++) {
        const struct hardware *h = &hardware_table[i];
        buf_printf(out, "%s %s", i > 0 ? "," : "", h->name);
        if (h->alias) buf_printf(out, " or %s", h->alias);
    }
    buf_text(out, ".\n");
}
