/* serve_rig.h - starts the real binary as an engine and talks to it as a client.
 *
 * Each test starts `muster engine` with the tiny model on a free port and sends it HTTP requests. The
 * engine's log, read through a pipe, tells the port and when the engine is ready. Tests wait for
 * conditions (free pages, counted requests) on /metrics and never sleep for them; a condition that
 * does not come about fails the test.
 *
 * Layer:   tests (base/io, base/wire)
 * Threads: one
 */
#pragma once
#include "base/core/buf.h"
#include "base/wire/openai_reply.h"
#include "tests/unit/unit.h"

#include <sys/types.h>

/* --cpu-share: a step takes twenty times as long, so that clients have time to leave. */
#define SLOW "0.05"

/* 200 tokens; and so many tokens that no test waits for their end, which at SLOW takes long. */
#define LONG_STREAM STREAM_OF("200")
#define ENDLESS_TOKENS 4000
#define ENDLESS_STREAM STREAM_OF("4000")
#define STREAM_OF(tokens)                                         \
    "{\"prompt\":\"once upon a time\",\"max_tokens\":" tokens "," \
    "\"ignore_eos\":true,\"temperature\":0,\"stream\":true}"

struct engine {
    pid_t pid;
    int log_fd, model_fd;
    uint16_t port;
    struct buf log;
    char bearer[128]; /* value of each request's authorization header; empty: none */
};

/* ---- the process ---- */

/* Starts an engine; `more` are arguments, NULL-terminated, or NULL. */
void engine_spawn(struct engine *e, const char *model, const char *const *more);

/* Reads the log until it holds `word`. Returns false at the log's end or at a timeout. */
bool engine_log_has(struct engine *e, const char *word);

void engine_read_port(struct engine *e);

/* Starts an engine with the tiny model and waits until it is ready. */
void engine_open(struct engine *e, const char *const *more);

/* Waits for the process; returns its exit code, or 1000 + the signal. */
int engine_wait(struct engine *e);
void engine_fini(struct engine *e);

/* Sends SIGTERM and expects an exit code of 0. */
void engine_close(struct engine *e);

/* ---- requests: functions return the status ---- */

int ask_with(struct engine *e, const char *method, const char *path, const char *body,
             const char *header, const char *value, struct buf *reply);
int get(struct engine *e, const char *path, struct buf *reply);
int post(struct engine *e, const char *path, const char *body, struct buf *reply);

void has(const struct buf *reply, const char *text);

/* Appends the text of a whole reply or a chunk to `text`; returns its other fields. */
struct openai_delta read_delta(struct str json, struct buf *text);

double metric(struct engine *e, const char *name);
void until_metric(struct engine *e, const char *name, double want);

/* ---- a raw connection, for requests that a proper client would not send ---- */

int connect_raw(struct engine *e);
void send_raw(int fd, const char *path, const char *body);

/* Reads until `seen` holds `word`. */
void read_raw(int fd, const char *word, struct buf *seen);

/* Reads from both connections until one of them has sent `word`. */
void read_either_raw(const int fd[2], const char *word, struct buf seen[2]);
