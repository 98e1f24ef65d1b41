/* rig.h - real processes for a test: started on free ports, watched, always ended.
 *
 * Paths come from the environment (MUSTER_BIN, FAKE_ENGINE_BIN), set by ctest. Everything waits on
 * conditions with a bound of RIG_WAIT_US; nothing sleeps for luck. Failures end the test.
 */
#pragma once
#include "base/core/buf.h"
#include "base/io/http/http_fetch.h"
#include "base/io/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define RIG_WAIT_US 60000000
#define RIG_ARGS_MAX 32
#define RIG_SKIP 77                          /* what main returns where nothing can be run */
#define MODEL "models/muster-tiny-q8_0.gguf" /* the one that is shipped */
#define ARGS(...) ((const char *const[]){ __VA_ARGS__, NULL })

struct rig_process {
    struct proc proc;
    uint16_t port;
    char at[24];   /* 127.0.0.1:PORT */
    char log[256]; /* path of its output, shown when a test fails */
};

/* False, and says so, where something is missing: a word with a slash is a file, another one a
 * variable of the environment. */
bool rig_can_run(const char *const *words);

/* A folder of this test program's own under build, made anew. */
const char *rig_folder(void);

/* Writes a file of this name there: its path. */
#define RIG_PATH 256
void rig_file(char path[RIG_PATH], const char *name, const char *text);

/* Processes whose command line names our folder, whoever started them, and holds the argument
 * `word`; NULL: any. */
uint32_t rig_count(const char *word);

/* The exit code of the program. Kills what still names our folder, and removes the folder unless
 * tests failed, whose logs are in it. */
int rig_end(int failed);

/* A port that was free a moment ago. */
uint16_t rig_port(void);

/* Starts argv (NULL-terminated) with output to its log and waits until `port` answers GET path
 * with `status`; status 0 does not wait. */
struct rig_process rig_start(const char *name, const char *const *argv, uint16_t port,
                             const char *path, int status);

/* Puts `more` behind the `count` arguments that are there. */
void rig_add_args(const char *argv[RIG_ARGS_MAX], size_t count, const char *const *more);

/* Starts `muster ROLE --listen` at the port, with further arguments, and waits until it is healthy. */
struct rig_process rig_server(const char *role, uint16_t port, const char *const *more);

/* Starts a scripted engine at the port, with further arguments, and waits until it answers. */
struct rig_process rig_fake_engine(uint16_t port, const char *const *more);

/* Waits until the router knows this many engines and their tokenizer: requests then need no wait. */
void rig_wait_endpoints(const struct rig_process *router, uint32_t count);

/* Agents that are started from now on take a fifth of a second for what takes them one for people. */
void rig_hurry_agents(void);

void rig_kill(struct rig_process *p); /* SIGKILL, and waits */
int rig_stop(struct rig_process *p);  /* SIGTERM; the exit code, or 128 + signal */
bool rig_is_alive(const struct rig_process *p);

/* Runs `muster ARGS...` (NULL-terminated, at most RIG_ARGS_MAX - 2) to its end, which may take
 * RIG_COMMAND_US: its exit status, or 128 + signal. What it printed, both streams, is in *out as a
 * C string. */
#define RIG_COMMAND_US 90000000 /* the longest is an up or down on a busy machine */
int rig_run(struct buf *out, const char *const *args);

/* The same with the words of a line. */
int rig_muster(const char *command, const char *line, struct buf *out);

/* The text that a command prints, or a part of it, and its exit status; rows of one command run in turn. */
struct rig_row {
    const char *line;
    int status;
    const char *says;
};
void rig_expect(const char *command, const struct rig_row *rows, size_t count);

/* One request; returns the status, 0 when no whole reply came. `body` NULL: GET. */
int rig_call(uint16_t port, const char *path, const char *body, struct buf *reply);

/* As rig_call with one more header line "name: value". */
int rig_call_with(uint16_t port, const char *path, const char *header, const char *body,
                  struct buf *reply);

/* Returns the header that shows the secret of that file. */
#define RIG_BEARER 160
void rig_bearer(const char *secret_path, char ret[RIG_BEARER]);

/* A connection to a port of this machine; `receive_bytes` bounds what the kernel takes for a client
 * that does not read, 0 leaves it alone. */
int rig_connect(uint16_t port, int receive_bytes);

/* Sends `bytes` on a connection of its own and gathers whatever comes until the server closes:
 * 0, -ECONNRESET when it reset, -ETIMEDOUT when it did not close within RIG_WAIT_US. */
int rig_raw(uint16_t port, struct str bytes, struct buf *reply);

/* Waits until `is_so` answers true; else the test fails, saying `what`. */
void rig_wait(bool (*is_so)(void *arg), void *arg, const char *what);

/* The resources of a process: open descriptors, and private resident memory in KiB. Pages of the binary
 * are left out: the kernel maps them in steps of 64 KiB as code is first run. */
uint32_t rig_descriptors(const struct rig_process *p);
int64_t rig_rss_kib(const struct rig_process *p);

/* The number behind the first "key": in the JSON of GET path, or -1. */
int64_t rig_number(uint16_t port, const char *path, const char *key);

/* Polls until the number behind "key": in the JSON of GET path is `wanted`. */
void rig_wait_number(uint16_t port, const char *path, const char *key, int64_t wanted);

/* The value of a Prometheus sample line that starts with `name`, or -1. */
double rig_metric(uint16_t port, const char *name);

/* Waits until the counter `name` has grown by `more`, so that a test may say what did not happen
 * meanwhile. */
void rig_wait_more(uint16_t port, const char *name, double more);
