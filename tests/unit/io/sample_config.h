/* sample_config.h - a configuration of the sample schema, and how tests load one. */
#pragma once
#include "base/core/own.h"
#include "tests/unit/io/sample_schema.h"
#include "tests/unit/unit.h"

#define SAMPLE_GOOD                         \
    "# fleet\n"                             \
    "engine:\n"                             \
    "  model: models/a b.gguf\n"            \
    "  port: 8300\n"                        \
    "  utilization: 5e-1\n"                 \
    "  device: cuda\n"                      \
    "  idle: 1.5m\n"                        \
    "  kv: {page_tokens: 32, bytes: 1GB}\n" \
    "  stop: [\"x,y\", '', true, 12]\n"     \
    "services:\n"                           \
    "  - name: chat\n"                      \
    "    pools:\n"                          \
    "      - {name: small, price: 0.25}\n"  \
    "      - name: 1.10\n"                  \
    "        kv:\n"                         \
    "          bytes: 2097152\n"            \
    "  - name: batch\n"                     \
    "    kind: decode\n"                    \
    "    tenants: [a]\n"                    \
    "    pools: [{name: small}]\n"

static inline int sample_load(const char *text, struct config **ret,
                              struct config_problems *problems, struct err *err)
{
    struct config_sources src = { .path = "muster.yaml", .text = str_from(text) };
    return config_load(&sample_schema, &src, ret, problems, err);
}

static inline struct config *sample_load_good(const char *text)
{
    struct config *c = NULL;
    struct err err = { 0 };
    int rc = sample_load(text, &c, NULL, &err);
    if (rc < 0) print_error("%s\n", err.text);
    assert_int_equal(rc, 0);
    return c;
}
