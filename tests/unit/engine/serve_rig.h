/* serve_rig.h - the real binary as an engine, seen by a client.
 *
 * Each test starts `muster engine` with the tiny model on a free port and talks HTTP to it. The
 * engine's log, read through a pipe, says the port and when it is ready. What must come about
 * (pages free, request counted) is waited for on /metrics, never slept for. Whatever does not come
 * about fails the test.
 *
 * Layer:   tests (base/io, base/wire)
 * Threads: one
 */
#pragma once
#include "base/core/buf.h"
#include "base/wire/openai_reply.h"
#include "tests/unit/unit.h"

#include <sys/types.h>

#define SLOW \
    "0.05" /* --cpu-share: a step takes twenty times as long, so that there is time to leave */

/* 200 tokens; and so many that no test waits for their end, which takes the SLOW seconds. */
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
    char bearer[128]; /* the authorization that requests carry; empty: none */
};

/* ---- the process ---- */

/* `more` are arguments, NULL-terminated; NULL: none. */
void engine_spawn(struct engine *e, const char *model, const char *const *more);

/* Reads the log until `word` is in it. False at its end or when time is up. */
bool engine_log_has(struct engine *e, const char *word);

void engine_read_port(struct engine *e);

/* Of the tiny model, and ready. */
void engine_open(struct engine *e, const char *const *more);

/* The exit code, or 1000 + the signal. */
int engine_wait(struct engine *e);
void engine_fini(struct engine *e);

/* SIGTERM, and an exit code of 0. */
void engine_close(struct engine *e);

/* ---- requests: the status ---- */

int ask_with(struct engine *e, const char *method, const char *path, const char *body,
             const char *header, const char *value, struct buf *reply);
int get(struct engine *e, const char *path, struct buf *reply);
int post(struct engine *e, const char *path, const char *body, struct buf *reply);

void has(const struct buf *reply, const char *text);

/* The text, appended, and the rest of a whole reply or a chunk. */
struct openai_delta read_delta(struct str json, struct buf *text);

double metric(struct engine *e, const char *name);
void until_metric(struct engine *e, const char *name, double want);

/* ---- a raw connection, for what a proper client would not do ---- */

int connect_raw(struct engine *e);
void send_raw(int fd, const char *path, const char *body);

/* Reads until `word` is in what was seen. */
void read_raw(int fd, const char *word, struct buf *seen);

/* Reads from both until `word` came from one of them. */
void read_either_raw(const int fd[2], const char *word, struct buf seen[2]);
