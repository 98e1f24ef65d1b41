/* rig.h - starts real processes for a test on free ports, watches them and always ends them.
 *
 * Paths come from the environment (MUSTER_BIN, FAKE_ENGINE_BIN), set by ctest. Each function waits for
 * a condition, at most RIG_WAIT_US, and never just sleeps. A failure ends the test.
 */
#pragma once
#include "base/core/buf.h"
#include "base/io/http/http_fetch.h"
#include "base/io/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Ends what hangs. Under the sanitizers an engine makes a token in 8 ms on a slow machine, and more tests run at
 * once. */
#ifdef MUSTER_DEBUG
#    define RIG_WAIT_US 240000000
#else
#    define RIG_WAIT_US 60000000
#endif
#define RIG_ARGS_MAX 32
#define RIG_SKIP 77                          /* main's exit code when the tests are skipped */
#define MODEL "models/muster-tiny-q8_0.gguf" /* the shipped model */
#define ARGS(...) ((const char *const[]){ __VA_ARGS__, NULL })

struct rig_process {
    struct proc proc;
    uint16_t port;
    char at[24];   /* 127.0.0.1:PORT */
    char log[256]; /* path of its output, shown when a test fails */
};

/* Returns true if everything named is there: a word with a slash is a file, another word an environment
 * variable. Otherwise it prints what is missing and returns false. */
bool rig_can_run(const char *const *words);

/* Returns this test program's own folder below /tmp; the first call makes it. */
const char *rig_folder(void);

/* Writes a file of this name there and gives its path. */
#define RIG_PATH 256
void rig_file(char path[RIG_PATH], const char *name, const char *text);

/* Counts the processes, started by any part, with a command line that names our folder and has the argument
 * `word`; NULL: any. */
uint32_t rig_count(const char *word);

/* Kills the processes that still name our folder, and removes the folder unless tests failed: their logs
 * are in it. Returns main's exit code, `failed`. */
int rig_end(int failed);

/* Returns a port that was free a moment ago. */
uint16_t rig_port(void);

/* Starts argv (NULL-terminated) with output to its log and waits until `port` answers GET path
 * with `status`; status 0 does not wait. */
struct rig_process rig_start(const char *name, const char *const *argv, uint16_t port,
                             const char *path, int status);

/* Appends `more` to the first `count` arguments. */
void rig_add_args(const char *argv[RIG_ARGS_MAX], size_t count, const char *const *more);

/* Starts `muster ROLE --listen` at the port, with further arguments, and waits until it is healthy. */
struct rig_process rig_server(const char *role, uint16_t port, const char *const *more);

/* Starts a scripted engine at the port, with further arguments, and waits until it answers. */
struct rig_process rig_fake_engine(uint16_t port, const char *const *more);

/* Waits until the router knows this many engines and their tokenizer: requests then need no wait. */
void rig_wait_endpoints(const struct rig_process *router, uint32_t count);

/* Makes the agents that are started from now on report and settle after 200 ms. */
void rig_hurry_agents(void);

void rig_kill(struct rig_process *p); /* SIGKILL, and waits */
int rig_stop(struct rig_process *p);  /* SIGTERM; returns the exit code, or 128 + signal */
bool rig_is_alive(const struct rig_process *p);

/* Runs another program to its end, within so many times RIG_WAIT_US, prints what it wrote, and returns its exit status,
 * or 128 + signal. */
int rig_client(const char *name, const char *const *argv, uint32_t waits);

/* Runs `muster ARGS...` (NULL-terminated, at most RIG_ARGS_MAX - 2) to its end, within
 * RIG_COMMAND_US, and returns its exit status, or 128 + signal. *out gets the output of both streams as a
 * C string. */
#define RIG_COMMAND_US 90000000 /* the slowest are up and down on a busy machine */
int rig_run(struct buf *out, const char *const *args);

/* Does the same with a command and the words of a line. */
int rig_muster(const char *command, const char *line, struct buf *out);

/* A command line with the exit status and a part of the output that rig_expect requires. */
struct rig_row {
    const char *line;
    int status;
    const char *says;
};
/* Runs the rows of one command in turn. */
void rig_expect(const char *command, const struct rig_row *rows, size_t count);

/* Makes one request and returns the status, 0 when no whole reply came. `body` NULL: GET. */
int rig_call(uint16_t port, const char *path, const char *body, struct buf *reply);

/* Makes the same request with one more header line "name: value". */
int rig_call_with(uint16_t port, const char *path, const char *header, const char *body,
                  struct buf *reply);

/* Writes the authorization header line with the secret of that file. */
#define RIG_BEARER 160
void rig_bearer(const char *secret_path, char ret[RIG_BEARER]);

/* Connects to a port of this machine. `receive_bytes` bounds the kernel's buffer for a client that
 * does not read; 0 keeps the default. */
int rig_connect(uint16_t port, int receive_bytes);

/* Sends `bytes` on a connection of its own and gathers all bytes until the server closes. Returns
 * 0, -ECONNRESET when the server reset it, -ETIMEDOUT when it did not close within RIG_WAIT_US. */
int rig_raw(uint16_t port, struct str bytes, struct buf *reply);

/* Waits until `is_so` returns true; otherwise the test fails with the sentence `what`. */
void rig_wait(bool (*is_so)(void *arg), void *arg, const char *what);

/* Return the open descriptors of a process, and its private resident memory in KiB. Pages of the binary
 * are left out: the kernel maps them in steps of 64 KiB as code is first run. */
uint32_t rig_descriptors(const struct rig_process *p);
int64_t rig_rss_kib(const struct rig_process *p);

/* Returns the number behind the first "key": in the JSON of GET path, or -1. */
int64_t rig_number(uint16_t port, const char *path, const char *key);

/* Polls until the number behind "key": in the JSON of GET path is `wanted`. */
void rig_wait_number(uint16_t port, const char *path, const char *key, int64_t wanted);

/* Returns a metric from /metrics, or -1: the sum of its series, or one of them if `name` has its labels. */
double rig_metric(uint16_t port, const char *name);

/* Waits until the counter `name` has grown by `more`, so that a test may assert that something else did
 * not happen meanwhile. */
void rig_wait_more(uint16_t port, const char *name, double more);
