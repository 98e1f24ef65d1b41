/* model_file.c - names that look like paths are paths, so that no shipped model hides a file. */
#include "cli/model_file.h"

#include "base/core/own.h"
#include "base/io/config/config.h"
#include "base/io/file.h"
#include "base/perf/hardware.h"

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
