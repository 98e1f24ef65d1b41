/* launch.h - defines the launch document: settings of a new instance, read by its agent; and the messages with which
 * an agent joins the fleet.
 *
 * Layer:    base/wire (base/core)
 * Use:      the controller writes it, a cloud driver passes it on (as a file, or as user data), the
 *           agent reads it; it holds no secret, only the path of one
 * Lifetime: decoded strings and lists live in the arena
 */
#pragma once
#include "base/wire/report.h"

#define LAUNCH_ARGS_MAX 128
#define LAUNCH_ARG_BYTES_MAX 4096
#define LAUNCH_CONTROLLERS_MAX 8
#define LAUNCH_BYTES_MAX ((size_t)256 << 10)

/* The version of the document alone, which outlives the release that wrote it. It is raised when an older
 * agent must not guess; members that an agent can do without are added under the same number. 2: with join_file. */
#define LAUNCH_VERSION 2

/* As engine_args[0]: the agent's own program, wherever its machine has it. */
#define LAUNCH_SELF "muster"

struct launch_spec {
    uint32_t v;          /* as read; encode writes the least that the members need */
    struct str instance; /* also the id of its intent */
    struct str service, pool, offer;
    struct str controller_host; /* where to report */
    uint32_t controller_port;
    /* [https://]HOST:PORT of all controllers, of which one leads; none: only the one above. */
    const struct str *controllers;
    uint32_t controller_count;
    bool controller_tls, engine_tls;     /* controller and engine speak TLS */
    struct str tls_ca;                   /* file with their CAs; empty: the system's */
    struct str tls_certificate, tls_key; /* files that the agent presents to them; empty: none */
    struct str secret_file; /* on that machine: the instance's own key, or the fleet's secret */
    /* a one-time token, by which the agent gets that key and writes secret_file; empty: the key is there */
    struct str join_file;
    enum engine_kind kind;
    struct str engine_host;        /* the engine listens there, on a port the agent chooses */
    const struct str *engine_args; /* program and arguments; the agent adds --listen HOST:PORT */
    uint32_t engine_arg_count;
    /* For an engine of another kind engine_args are only the program and what comes first: the agent makes
     * the rest of the command line from these (agent/engines). 0 and empty: the engine's own default. */
    const struct str *engine_flags; /* come last */
    uint32_t engine_flag_count;
    struct str model, served_name, device;
    struct str tokenizer; /* GGUF file, or a bundle of ours, with the tokenizer that `model` has */
    /* Where the agent fetches the engine's model before its start, if it is not at weights_path. Empty: nowhere. */
    struct str weights_url, weights_endpoint; /* as `url` and `endpoint` of models.list */
    struct str weights_path, weights_sha256;  /* the digest may be empty */
    uint64_t weights_max;                     /* bytes that the folder it lies in may have */
    uint32_t context_tokens, seqs_max;
    bool kv_events;        /* it is to publish them, where its kind can */
    bool tunnel;           /* no router reaches it: its agent dials them */
    struct str folder;     /* of this instance on its machine: identity, lock, logs */
    double share;          /* part of a core or device that it may use; 0: all */
    int64_t start_wall_us; /* earliest start of the engine: models the launch delay of the offer */
    /* Creation and start again on the machine's boot clock, which a change of the date does not move.
     * Valid for an agent on the machine that wrote the document, during boot `boot`. 0: written on
     * another machine, or by an older release. */
    uint64_t boot;
    int64_t born_mono_us, start_mono_us;
    int64_t created_us; /* in fleet time, for the driver that wrote it; 0: not given */
    uint64_t grace_ms;  /* the instance ends itself after being idle without a lease this long */
    uint64_t age_ms;    /* hard limit on its life; 0: none */
    uint64_t drain_ms;  /* longest drain */
};

int launch_spec_encode(const struct launch_spec *s, struct buf *out);
int launch_spec_decode(struct str text, struct arena *arena, struct launch_spec *ret,
                       struct err *err);

/* A join: POST /api/v1/agents/join. Keys, nonce and seals are hexadecimal (base/io/auth/join.h says what they are).
 * The reply is sealed also where it refuses; it comes with 200 or 403. Other replies are no one's word. */
#define JOIN_HEX_BYTES_MAX 4096

struct join_request {
    struct str instance, enc, seal;
};

struct join_reply {
    struct str nonce, seal;
};

int join_request_encode(const struct join_request *r, struct buf *out);
int join_request_decode(struct str text, struct arena *arena, struct join_request *ret,
                        struct err *err);
int join_reply_encode(const struct join_reply *r, struct buf *out);
int join_reply_decode(struct str text, struct arena *arena, struct join_reply *ret,
                      struct err *err);
