/* target.h - finds a server by its URL: where to connect, and which model it serves.
 *
 * Layer: cli (base/core, base/io)
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/json.h"
#include "base/io/config/config.h"

#define TARGET_URL_DEFAULT "http://127.0.0.1:8080"

/* A member of a command's options; its rows come from TARGET_ROWS. */
struct target_place {
    struct str url, model, api_key, ca;
};

// clang-format off
#define TARGET_ROWS(owner, member)                                                             \
    { .name = "url", .letter = 'u', .type = CONFIG_TEXT, .default_text = TARGET_URL_DEFAULT,       \
      .offset = offsetof(owner, member) + offsetof(struct target_place, url),                      \
      .about = "Server that speaks the OpenAI API." },                                             \
    { .name = "model", .letter = 'm', .type = CONFIG_TEXT,                                         \
      .offset = offsetof(owner, member) + offsetof(struct target_place, model),                    \
      .about = "Model name; without it the first that the server lists." },                        \
    { .name = "api_key", .letter = 'k', .type = CONFIG_TEXT,                                       \
      .offset = offsetof(owner, member) + offsetof(struct target_place, api_key),                  \
      .about = "API key to send." },                                                               \
    { .name = "ca", .type = CONFIG_TEXT,                                                           \
      .offset = offsetof(owner, member) + offsetof(struct target_place, ca),                       \
      .about = "PEM file with the CAs of an https server; without it the system's." }
// clang-format on

struct target {
    struct str host; /* points into the URL */
    uint16_t port;
    bool tls;
    struct str ca; /* empty: the system's */
};

/* Parses the URL "http[s]://HOST[:PORT][/]" and appends the model's name. -EINVAL for any other URL. */
int target_find(const struct target_place *place, struct target *ret, struct buf *model,
                struct err *err);

/* Appends the id of the first model that GET /v1/models lists. */
int target_model(const struct target *t, struct str api_key, struct buf *ret, struct err *err);

/* Writes members of a request's open object that ask for the reply as a stream that ends with its usage. */
void target_put_stream(struct json_writer *w);
