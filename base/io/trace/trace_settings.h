/* trace_settings.h - holds the settings of tracing, and completes them from OpenTelemetry's variables.
 *
 * Layer: base/io (config)
 * Order: a setting of Muster's holds before an OTEL_* variable, and that before the default. A variable
 *        with a value that cannot be used is an error, except where the specification says that it is
 *        to be ignored with a warning
 *
 *     OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER       true, none: no traces
 *     OTEL_EXPORTER_OTLP_TRACES_ENDPOINT            the URL; else ..._OTLP_ENDPOINT + /v1/traces
 *     OTEL_EXPORTER_OTLP[_TRACES]_PROTOCOL          grpc is not spoken: no traces
 *     OTEL_EXPORTER_OTLP[_TRACES]_HEADERS, _CERTIFICATE, _TIMEOUT (ms)
 *     OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG
 *     OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES
 */
#pragma once
#include "base/core/arena.h"
#include "base/io/config/config.h"

#define TRACE_HEADERS_MAX 16
#define TRACE_RESOURCE_MAX 32
#define TRACE_SETTINGS_BYTES_MAX ((size_t)256 << 10) /* of headers and resource attributes */
#define TRACE_RATIO_TEXT "0.01"

/* Part of a role's section. */
struct trace_section {
    struct str endpoint, headers_file, ca, service_name, sampler;
    double ratio;
    int64_t slow_us;
    bool failed;
    int64_t spans_max, queue, batch, delay_us;
};

// clang-format off
#define TRACE_AT(owner, member, field)                                                         \
    .offset = offsetof(owner, member) + offsetof(struct trace_section, field)

/* The rows of a role that makes spans. */
#define TRACE_ROWS(owner, member)                                                              \
    { .name = "trace_endpoint", .type = CONFIG_TEXT, TRACE_AT(owner, member, endpoint),        \
      .about = "URL for spans as OTLP/JSON; /v1/traces is added to `http://HOST:4318`, a "     \
               "path is used as it is. Without it OTEL_EXPORTER_OTLP_ENDPOINT holds; without " \
               "both there are no traces." },                                                  \
    { .name = "trace_headers_file", .type = CONFIG_TEXT, TRACE_AT(owner, member, headers_file),\
      .about = "File with headers of those calls, one `NAME: VALUE` a line, which others may " \
               "not read." },                                                                  \
    { .name = "trace_ca", .type = CONFIG_TEXT, TRACE_AT(owner, member, ca),                    \
      .about = "PEM file with the CAs of that server; without it the system's." },             \
    { .name = "trace_service_name", .type = CONFIG_TEXT, .max = 128,                           \
      TRACE_AT(owner, member, service_name),                                                   \
      .about = "service.name of the spans; without it OTEL_SERVICE_NAME, else `muster-router` "\
               "or `muster-engine`." },                                                        \
    { .name = "trace_sampler", .type = CONFIG_TEXT, TRACE_AT(owner, member, sampler),          \
      .about = "always_on, always_off, traceidratio, or one of these behind parentbased_; "    \
               "without it what OTEL_TRACES_SAMPLER says, else parentbased_traceidratio." },   \
    { .name = "trace_ratio", .type = CONFIG_FLOAT, .default_text = TRACE_RATIO_TEXT, .min = 0, \
      .max = 1, TRACE_AT(owner, member, ratio),                                                \
      .about = "Share of requests that the sampler traceidratio takes." },                     \
    { .name = "trace_slow", .type = CONFIG_DURATION, .default_text = "0", .min = 0,            \
      .max = 36e8, TRACE_AT(owner, member, slow_us),                                           \
      .about = "A request whose first token took so long is traced although the sampler left " \
               "it out; 0: it is not." },                                                      \
    { .name = "trace_failed", .type = CONFIG_BOOL, .default_text = "false",                    \
      TRACE_AT(owner, member, failed),                                                         \
      .about = "A request that failed is traced although the sampler left it out." },          \
    { .name = "trace_spans_max", .type = CONFIG_INT, .default_text = "1000", .min = 10,        \
      .max = 1000000, .unit = "spans/s", TRACE_AT(owner, member, spans_max),                   \
      .about = "Spans made in a second, at most; requests beyond are not traced." },           \
    { .name = "trace_queue", .type = CONFIG_INT, .default_text = "4096", .min = 64,            \
      .max = 1000000, .unit = "spans", TRACE_AT(owner, member, queue),                         \
      .about = "Spans that wait to be sent; more are dropped." },                              \
    { .name = "trace_batch", .type = CONFIG_INT, .default_text = "512", .min = 1,              \
      .max = 8192, .unit = "spans", TRACE_AT(owner, member, batch),                            \
      .about = "Spans of one call, at most." },                                                \
    { .name = "trace_delay", .type = CONFIG_DURATION, .default_text = "5s", .min = 1000,       \
      .max = 36e8, TRACE_AT(owner, member, delay_us),                                          \
      .about = "How long a span waits for others to be sent with." }
// clang-format on

struct trace_pair {
    struct str name, value;
};

struct trace_settings {
    bool on;
    struct str url, ca, service_name, sampler;
    double ratio;
    int64_t timeout_us;
    struct trace_pair header[TRACE_HEADERS_MAX], resource[TRACE_RESOURCE_MAX];
    uint32_t header_count, resource_count;
};

/* Completes a section. Texts live in the arena, in the section and in the environment. `role` is the default
 * service.name. -EINVAL, and file errors, with a sentence. */
int trace_settings_read(const struct trace_section *s, const char *role, const char *const *environ,
                        struct arena *arena, struct trace_settings *ret, struct err *err);
