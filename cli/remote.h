/* remote.h - calls a controller from commands: finds its address and secret, and reads its replies.
 *
 * Layer:  cli (base/io)
 * Where:  --controller [https://]HOST:PORT, else what `muster up` wrote into the state directory, else
 *         127.0.0.1:8090
 * Secret: the file that `muster up` wrote down, else STATE/secret; calls are signed with it when it
 *         exists. A token is sent as it is: across a network use it over TLS
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/json_path.h"
#include "base/io/config/config.h"
#include "cli/fleet_file.h"
#include "cli/table.h"

#define REMOTE_DEFAULT "127.0.0.1:8090"

/* A member of a command's options struct; its rows come from REMOTE_ROWS. */
struct remote_place {
    struct str controller, state, ca, token;
    bool send_secret;
};

// clang-format off
#define REMOTE_ROWS(owner, member)                                                                     \
    { .name = "controller", .type = CONFIG_TEXT,                                                   \
      .offset = offsetof(owner, member) + offsetof(struct remote_place, controller),                   \
      .about = "[https://]HOST:PORT of the controller; without it the one that `muster up` started." }, \
    { .name = "ca", .type = CONFIG_TEXT,                                                           \
      .offset = offsetof(owner, member) + offsetof(struct remote_place, ca),                           \
      .about = "PEM file with the CAs of an https controller; without it what `muster up` used, or the " \
               "system's." },                                                                      \
    { .name = "state", .type = CONFIG_TEXT, .default_text = FLEET_FILE_STATE_DEFAULT,                   \
      .offset = offsetof(owner, member) + offsetof(struct remote_place, state),                        \
      .about = "State directory of the fleet: its processes, its secret." },                       \
    { .name = "token", .type = CONFIG_TEXT,                                                         \
      .offset = offsetof(owner, member) + offsetof(struct remote_place, token),                        \
      .about = "An admin or read-only token, or @FILE that holds one, instead of the secret." }, \
    { .name = "send_secret", .type = CONFIG_BOOL, .default_text = "false",                          \
      .offset = offsetof(owner, member) + offsetof(struct remote_place, send_secret),                  \
      .about = "Send the fleet's secret itself where a release answers that knows no signatures." }

#define REMOTE_OUTPUT_ROW(owner, member)                                                               \
    { .name = "output", .letter = 'o', .type = CONFIG_ENUM, .default_text = "table",               \
      .names = remote_outputs, .offset = offsetof(owner, member), .about = "Form of what is printed." }
#define REMOTE_TREES_ROW(owner, member)                                                                \
    { .name = "output", .letter = 'o', .type = CONFIG_ENUM, .default_text = "table",               \
      .names = remote_trees, .offset = offsetof(owner, member), .about = "Form of what is printed." }
#define REMOTE_FORMS_ROW(owner, member)                                                                \
    { .name = "output", .letter = 'o', .type = CONFIG_ENUM, .default_text = "table",               \
      .names = remote_forms, .offset = offsetof(owner, member),                                    \
      .about = "Form of what is printed; `wide` is a table with more columns." }

// clang-format on

enum remote_output { REMOTE_TABLE, REMOTE_JSON, REMOTE_YAML, REMOTE_WIDE };
extern const char *const remote_outputs[]; /* the first two */
extern const char *const remote_trees[];   /* the first three */
extern const char *const remote_forms[];   /* all of them */

/* Prints one JSON value to stdout: as YAML for REMOTE_YAML, else as it is. `json` is used up. */
int remote_print(int output, struct buf *json, struct err *err);

struct remote {
    char host[FLEET_FILE_HOST_BYTES];
    uint16_t port;
    struct fleet_file_tls tls;
    char secret[256];     /* empty: none was found */
    char token[128];      /* sent instead of a signature, where there is one */
    bool send_secret;     /* to an older release */
    bool is_router;       /* remote_find leaves it false: the controller */
    char state[PATH_MAX]; /* for messages */
};

int remote_find(const struct remote_place *place, struct remote *ret, struct err *err);

/* Makes one call: a GET if `body` has no data, else a POST. A status other than 2xx is an error with the
 * controller's sentence. -ECONNREFUSED, -ETIMEDOUT, -EACCES, -ENOENT, -EINVAL, -EPROTO. -EAGAIN: it stands by, and
 * knows of no other that leads. */
int remote_call(const struct remote *a, struct str path, struct str body, struct buf *reply,
                struct err *err);

int remote_get(const struct remote *a, const char *path, struct buf *reply, struct err *err);

/* As remote_call with another method. */
int remote_request(const struct remote *a, struct str method, struct str path, struct str body,
                   struct buf *reply, struct err *err);

/* Appends `name` as one segment of a path, with other than unreserved characters as %XX. */
void remote_segment(struct buf *path, struct str name);

struct resource {
    const char *name;
    const char *path, *list; /* path of the API; member of the reply that holds the items */
    const char *id;    /* an item's member that NAME is compared with; NULL: the API selects */
    const char *empty; /* the sentence when there is none */
    const struct table_column *column;
    uint32_t column_count;
    const struct table_column *wide; /* further columns of `--output wide` */
    uint32_t wide_count;
};

extern const struct resource kind_table[];
extern const uint32_t kind_count;

/* Finds a resource by its name, with or without the plural's s. NULL when there is none. */
const struct resource *resource_find(struct str name);

/* The columns of a resource's table; with `wide` all of them. */
struct resource_columns {
    struct table_column column[TABLE_COLUMNS_MAX];
    uint32_t count;
};
void resource_columns(const struct resource *k, bool wide, struct resource_columns *ret);
