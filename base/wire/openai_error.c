/* openai_error.c - gives each problem its status, type and code, and writes error objects. */
#include "base/core/json.h"
#include "base/wire/openai.h"

#include <stdarg.h>

/* This table gives each problem its status, type and code.
 *
 * They come from here only, so that the same mistake looks the same on every path. `type` and `code`
 * follow OpenAI where it has a name. */

static const struct {
    int status;
    const char *type, *code;
} catalogue[OPENAI_PROBLEM_COUNT] = {
    /* clang-format off */
    [OPENAI_INVALID]            = { 400, "invalid_request_error", NULL },
    [OPENAI_UNSUPPORTED]        = { 400, "invalid_request_error", "unsupported_parameter" },
    [OPENAI_CONTEXT_LENGTH]     = { 400, "invalid_request_error", "context_length_exceeded" },
    [OPENAI_UNAUTHENTICATED]    = { 401, "authentication_error",  "invalid_api_key" },
    [OPENAI_FORBIDDEN]          = { 403, "permission_error",      NULL },
    [OPENAI_MODEL_NOT_FOUND]    = { 404, "not_found_error",       "model_not_found" },
    [OPENAI_URL_NOT_FOUND]      = { 404, "not_found_error",       "unknown_url" },
    [OPENAI_METHOD_NOT_ALLOWED] = { 405, "invalid_request_error", "method_not_allowed" },
    [OPENAI_DEADLINE]           = { 408, "timeout_error",         "deadline_exceeded" },
    [OPENAI_TOO_LARGE]          = { 413, "invalid_request_error", "request_too_large" },
    [OPENAI_CONTENT_TYPE]       = { 415, "invalid_request_error", "unsupported_content_type" },
    [OPENAI_POISONOUS]          = { 422, "invalid_request_error", "request_crashes_engines" },
    [OPENAI_RATE_LIMIT]         = { 429, "rate_limit_error",      "rate_limit_exceeded" },
    [OPENAI_OVERLOADED]         = { 429, "rate_limit_error",      "overloaded" },
    [OPENAI_INTERNAL]           = { 500, "server_error",          NULL },
    [OPENAI_UPSTREAM]           = { 502, "server_error",          "upstream_failed" },
    [OPENAI_UNAVAILABLE]        = { 503, "unavailable_error",     "no_instance" },
    [OPENAI_LOADING]            = { 503, "unavailable_error",     "loading" },
    /* clang-format on */
};

int openai_error_set(struct openai_error *e, int rc, enum openai_problem problem, const char *param,
                     const char *format, ...)
{
    *e = (struct openai_error){
        .status = catalogue[problem].status,
        .type = catalogue[problem].type,
        .code = catalogue[problem].code,
    };
    size_t len = param ? strnlen(param, OPENAI_PARAM_BYTES_MAX) : 0;
    if (len) memcpy(e->param, param, len);

    struct err sentence = { 0 };
    va_list ap;
    va_start(ap, format);
    err_vset(&sentence, rc, format, ap);
    va_end(ap);
    memcpy(e->message, sentence.text, sizeof e->message);
    return rc;
}

int openai_error_render(const struct openai_error *e, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_key(&w, "error");
    json_object(&w);
    json_kv_text(&w, "message", e->message);
    json_kv_text(&w, "type", e->type);
    json_kv_text(&w, "param", e->param[0] ? e->param : NULL);
    json_kv_text(&w, "code", e->code);
    json_object_end(&w);
    json_object_end(&w);
    return out->rc;
}
