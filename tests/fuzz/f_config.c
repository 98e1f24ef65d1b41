/* f_config.c - loads any bytes as a configuration file: they load or are refused with a sentence, and
 * what loads is shown and loads again to the same values. */
#include "base/core/own.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/io/sample_schema.h"

static struct config *load(struct str text, const char *name)
{
    struct config_sources src = { .path = name, .text = text };
    struct config *c = NULL;
    struct err err = { 0 };
    int rc = config_load(&sample_schema, &src, &c, NULL, &err);
    must((rc == 0) == (c != NULL));
    must(rc == 0 || err.text[0] != 0);
    return c;
}

const struct fuzz_cost fuzz_cost = { 200000, 1000 };

void fuzz_one(const uint8_t *data, size_t size)
{
    CLEANUP(buf_fini) struct buf first = { 0 }, second = { 0 }, json = { 0 };
    CLEANUP(config_freep) struct config *a = load(str_of(data, size), "fuzz.yaml");
    if (!a) return;
    must(config_view(a, CONFIG_JSON, true, &json) == 0);
    must(config_view(a, CONFIG_YAML, false, &first) == 0);
    CLEANUP(config_freep) struct config *b = load(buf_view(&first), "view.yaml");
    must(b != NULL);
    must(config_view(b, CONFIG_YAML, false, &second) == 0);
    must(str_eq(buf_view(&first), buf_view(&second)));
}
