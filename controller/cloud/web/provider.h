/* provider.h - says what a provider's HTTP API wants for each call of the controller: requests out, replies in,
 * no socket.
 *
 * Layer:   controller/cloud/web (controller/cloud, base/core)
 * Threads: pure; time is an argument. web_run.h drives an op, web_cloud.h makes its requests on the controller's
 *          loop, tests hand them to a fake of the provider (tests/fakes/cloud/web_drive.h)
 * Use:     step(p, op, NULL, ...) begins an op. As long as it says WEB_ASK, its request is made and the reply
 *          given to the next step; WEB_WAIT asks for a step without a reply later; WEB_END is the op's end
 *
 *              begin ──► WEB_ASK ──reply──► WEB_ASK ──reply──► WEB_END
 *                            └──reply──► WEB_WAIT ──time──┘
 *
 * Rules:   (1) a login is an op like the others: it fills p->login, with requests or without. One is made before
 *              another op's first request when there is none or it is about to expire, and once more when a
 *              reply says that it is refused. A kind reads its credentials in the login and nowhere else, so
 *              that a rotated file is taken
 *          (2) a create is found again: by the provider's idempotency key where it has one (the intent's id),
 *              else by a name that must be unique, else by a name that is looked up before it is made. Only the
 *              first two make it safe to repeat a create at once: create_is_keyed
 *          (3) what a reply means stands in a table of codes with the document that names them. Of a reply that
 *              the table does not know, a create is OFFER_TRANSIENT: something may have been made
 *          (4) a credential stands in a request's headers or body and in p->login, nowhere else: no error, log
 *              or label repeats it. The run also blots it out of a provider's own words
 *          (5) a list of several pages is one op; CLOUD_LIST_MAX and WEB_ASKS_MAX bound it
 *          (6) an op may begin again at any time: stage, note, count and arena are then cleared. A step keeps
 *              nothing of an op elsewhere
 *          (7) a step that ends an op sets rc, class and err; a kind never waits for a throttle or repeats a
 *              request by itself: the run does, within its bounds
 */
#pragma once
#include "base/core/arena.h"
#include "controller/cloud/cloud_call.h"

#define WEB_HEADERS_MAX 16
#define WEB_REPLY_HEADERS_MAX 6
#define WEB_ASKS_MAX 64 /* requests of one op */
#define WEB_NOTE_BYTES 512
#define WEB_REPLY_BYTES ((size_t)16 << 20)
#define WEB_ARENA_BYTES ((size_t)1 << 20) /* of one op */
#define WEB_CALL_US 20000000              /* deadline of a request that names none */

struct web_settings; /* web_section.h */
struct web_offer;

enum web_op_kind {
    WEB_LOGIN,
    WEB_CREATE,
    WEB_REMOVE,
    WEB_STOP, /* these two of kinds that `stops` */
    WEB_START,
    WEB_LIST,
    WEB_PRICES,
    WEB_OP_COUNT
};
extern const char *const web_op_names[WEB_OP_COUNT];

struct web_header {
    struct str name, value;
};

/* A request; its texts live in the op's arena until the reply is given. */
struct web_ask {
    struct str method, url, body, content_type;
    struct web_header header[WEB_HEADERS_MAX];
    uint32_t header_count;
    int64_t deadline_us; /* after it began; 0: WEB_CALL_US */
    bool reads;          /* it changes nothing, although its method is not GET */
};

/* A reply; its texts live during the step. */
struct web_reply {
    int status;         /* 0: no whole reply came */
    bool sent;          /* some of the request was sent, so that it may have been carried out */
    struct str problem; /* a sentence where no whole reply came */
    struct str body;
    struct web_header header[WEB_REPLY_HEADERS_MAX]; /* those that the kind reads, in lower case */
    uint32_t header_count;
};

/* Holds the credentials for the provider, until expires_us. A kind uses what it needs; the texts are its own memory. */
struct web_login {
    bool made;
    char *token;             /* bearer, session or subject token */
    char *key_id, *key;      /* of signed requests */
    char *endpoint, *region; /* where a catalogue of services says so */
    int64_t expires_us;      /* fleet time; 0: does not */
    int64_t skew_us;         /* the provider's date less ours, as replies told it; 0: not known */
};
void web_login_clear(struct web_login *login); /* wipes and frees */

/* Replaces a text of the login by a copy. -ENOMEM. */
int web_login_set(char **member, struct str text);

/* Holds the arguments of an op's steps. The run owns it; `stage` and `note` are the provider's. */
struct web_op {
    enum web_op_kind kind;
    const struct cloud_kept *call;  /* CREATE, REMOVE, STOP, START; else NULL */
    const struct web_offer *offer;  /* CREATE */
    const struct launch_spec *spec; /* CREATE: as the instance gets it, for tags */
    struct str user_data;           /* CREATE: what the machine runs at its first boot */
    struct arena *arena;            /* until the op's end */
    uint32_t stage;                 /* 0 at its beginning */
    /* CREATE: the stage of this call's earlier try that may have made something; 0: none. */
    uint32_t resume;
    char note[WEB_NOTE_BYTES]; /* a page token, an operation's URL */
    uint32_t asks;             /* requests made so far */
    /* results */
    struct listed made;
    struct listed *item;       /* LIST: room for CLOUD_LIST_MAX */
    struct cloud_price *price; /* PRICES: room for CLOUD_PRICES_MAX */
    uint32_t count;            /* of item, or of price */
};

enum web_next { WEB_ASK, WEB_WAIT, WEB_END };

struct web_step {
    enum web_next next;
    struct web_ask ask;
    /* WAIT; and of an end with OFFER_THROTTLE what the provider wants, 0: not said. */
    int64_t wait_us;
    /* of an end */
    int rc;                 /* 0, or a negative errno */
    enum offer_error class; /* when rc < 0 */
    bool login_refused;     /* rule 1 */
    struct err err;
};

/* Gives a login what it may read of its machine. Tests hand out texts of their own. */
struct web_host {
    const char *const *environ; /* NAME=value, ends with NULL */
    /* Appends a file with a secret. -EPERM if others may read it. */
    int (*read_secret)(void *ctx, const char *path, struct buf *out, struct err *err);
    void *ctx;
};

struct web_provider {
    const struct web_kind *kind;
    const struct web_settings *settings;
    const struct web_host *host;
    struct web_login login;
    void *own; /* the kind's state between ops: a catalogue, a number; NULL: none */
};

struct web_kind {
    const char *name;  /* as in muster.yaml: ec2, gce, ... */
    const char *about; /* docs table */
    /* Unless the section names one; NULL: the kind makes it from the region. */
    const char *endpoint;
    /* Variable that is read unless the section names a source; NULL: none. */
    const char *credentials_env;
    const char *token_for;  /* scope or resource of its tokens; NULL: its login's usual one */
    int64_t lag_us;         /* how far its listings may be behind */
    int64_t poll_us;        /* between two listings */
    double calls_per_s;     /* requests, all ops together */
    struct billing billing; /* how it counts the time of a machine, with its source; 0: as it is */
    /* Longest that the provider takes, before any encoding of the request; 0: it takes none. */
    size_t user_data_bytes;
    /* As agent.notice: how its machines are told of their end; NULL: not at all. */
    const char *notice;
    bool is_container; /* user data becomes the agent, without systemd: web_container.h */
    /* It stops machines on demand and starts them, and bills a stopped one's disk alone. */
    bool stops;
    bool create_is_keyed; /* rule 2 */
    const char *const
        *takes; /* optional settings of the section that it reads, those of an offer as offers.ROW;
                               * ends with NULL */
    const char *const *wants; /* those of them that must be set; ends with NULL; NULL: none */
    const char *const *reply_headers; /* that it reads, in lower case; ends with NULL; NULL: none */

    /* Checks what the schema cannot, with the rest of the section (web_settings_make). -EINVAL and a sentence that
     * names the setting. Optional. */
    int (*check)(const struct web_settings *s, struct err *err);

    /* Makes p->own, and checks what needs it. -EINVAL likewise. Optional. */
    int (*open)(struct web_provider *p, struct err *err);
    void (*close)(struct web_provider *p); /* frees p->own; optional */

    /* `reply` NULL: it begins, or the wait is over. NULL: the kind makes no requests; cloud_exec.h makes its calls. */
    void (*step)(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                 int64_t now_us, int64_t wall_us, struct web_step *ret);
};

extern const struct web_kind *const web_kinds[]; /* ends with NULL */
extern const char *const web_kind_names[];       /* in the same order, likewise */
